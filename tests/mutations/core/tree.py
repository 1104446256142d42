# SPDX-License-Identifier: Apache-2.0
"""The mutated copy of the project under build/mutation, and the programs that are built out of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutations.core.points import points_of, specifiers
from tests.mutations.core.schemata import with_faults

if TYPE_CHECKING:
    from tests.mutations.point import Point

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
EQUIVALENT = HERE / "equivalent"
KEPT = HERE / "known.txt"
BUILD_SECONDS = 1800


@dataclass(frozen=True)
class Core:
    """The faults of the whole core: the number of each is its place in the list, from 1.

    Args:
        points: All faults.
        mutated: The text of each file with its faults.
        digest: The same as long as all these texts are.
    """

    points: tuple[Point, ...]
    mutated: dict[str, str]
    digest: str


def find(sources: Path = ROOT / "cffi_src" / "src") -> Core:
    """All faults of the core as it is."""
    paths = sorted(sources.glob("*/*.[ch]"), key=lambda path: path.name)
    texts = {path.name: path.read_text(encoding="utf-8") for path in paths}
    known = specifiers(list(texts.values()))
    points: list[Point] = []
    mutated = {}
    for name, text in texts.items():
        own = points_of(name, text, known)
        mutated[name] = with_faults(text, list(enumerate(own, len(points) + 1)))
        points += own
    digest = sha256("".join(mutated.values()).encode()).hexdigest()[:20]
    return Core(tuple(points), mutated, digest)


class Tree:
    """A folder with the mutated copy, what is built out of it, and the results.

    Args:
        folder: The folder; it is made if it is not there.
    """

    def __init__(self, folder: Path = ROOT / "build" / "mutation") -> None:
        self.folder = folder
        self.copy = folder / "tree"
        self.programs = folder / "hooks" / "tests"
        self.native = folder / "plain" / "libshmbroker_core.so"

    def write(self, core: Core) -> None:
        """Writes the copy. A file that is the same keeps its time, so that little is built anew."""
        sources, wanted = Path("cffi_src", "src"), {}
        folders = {path.name: path.parent.name for path in (ROOT / sources).glob("*/*.[ch]")}
        for folder in ("cffi_src", "tests/c"):
            for path in (path for path in (ROOT / folder).rglob("*") if path.is_file()):
                wanted[path.relative_to(ROOT)] = path.read_bytes()
        wanted |= {sources / folders[name] / name: text.encode() for name, text in core.mutated.items()}
        wanted[sources / "platform" / "sb_mutant.c"] = (HERE / "sb_mutant.c").read_bytes()
        wanted[Path("sb_mutant.h")] = (HERE / "sb_mutant.h").read_bytes()
        wanted[Path("sb_mutants.h")] = f"#define SB_MUTANTS {len(core.points)}u\n".encode()
        for name, content in wanted.items():
            copy = self.copy / name
            if not copy.exists() or copy.read_bytes() != content:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(content)
        for path in [path for path in self.copy.rglob("*") if path.is_file()]:
            if path.relative_to(self.copy) not in wanted:
                path.unlink()

    def build_programs(self, *targets: str) -> None:
        """Builds the C tests, or these of them.

        Raises:
            RuntimeError: A fault leaves no valid C; the compiler's words are in the message.
        """
        self._build(self.folder / "hooks", targets, "-DSB_BUILD_TESTS=ON", "-DSB_TEST_HOOKS=ON")

    def build_library(self) -> None:
        """Builds the library that the extension modules load."""
        self._build(self.folder / "plain", (), "-DSB_BUILD_TESTS=OFF", "-DSB_TEST_HOOKS=OFF")

    def _build(self, folder: Path, targets: tuple[str, ...], *definitions: str) -> None:
        if not (folder / "build.ninja").exists():
            ninja = shutil.which("ninja", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
            flags = f"-O1 -w -include {self.copy / 'sb_mutant.h'} -I{self.copy}"
            command = [_tool("cmake"), "-G", "Ninja", "-S", str(self.copy / "cffi_src"), "-B", str(folder)]
            command += [f"-DCMAKE_MAKE_PROGRAM={ninja}", "-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_C_FLAGS={flags}"]
            _run([*command, "-DSB_BUILD_PYTHON=OFF", *definitions])
        chosen = ["--target", *targets] if targets else []
        _run([_tool("cmake"), "--build", str(folder), *chosen])


def _tool(name: str) -> str:
    """A program of the environment that runs this one, or of the system."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


def _run(command: list[str]) -> None:
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if run.returncode != 0:
        message = f"{' '.join(command)} failed:\n{run.stdout}{run.stderr}"
        raise RuntimeError(message)
