# SPDX-License-Identifier: Apache-2.0
"""A copy of the package and its tests that stands in their place, for one process of the runner and what it starts.

The folders of the copy are mounted over those of the checkout, in a namespace of their own: every process of a test
runs the fault, whatever its arguments, environment and working directory are, and no other process sees it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutations.apart import Run, clear, own_shm, run_limited
from tests.mutations.package import witness
from tests.mutations.package.bench import Bench
from tests.mutations.package.marking import Places, marked

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

ROOT = Path(__file__).parents[3]
PACKAGES = ("shmbroker", "cli/shmbroker_cli", "pyspark_shmbroker")
FOLDERS = ("shmbroker", "cli", "pyspark_shmbroker", "tests")
SIGN = ".copy"  # a file that only a copy has
# The first process of the namespace adopts and reaps what tests leave; when it ends, the kernel kills the rest.
ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", '"$@" & wait "$!"', "sh")
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist")


@dataclass(frozen=True)
class Reach:
    """What one test comes to without a fault: the bytes of the file of marks, compressed, and how long it takes."""

    seconds: float
    places: bytes


def snapshot(folder: Path) -> None:
    """Copies the package and its tests as they are now.

    Args:
        folder: Where to; what is there goes.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


def texts(root: Path = ROOT) -> dict[str, str]:
    """The modules of the package, by their path below the root."""
    paths = [path for name in PACKAGES for path in sorted((root / name).rglob("*.py"))]
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in paths}


class Workshop:
    """What one process of the runner works in.

    Args:
        original: The modules as they are.
        folder: Where the marks and the notes of tests are.
    """

    def __init__(self, original: Mapping[str, str], folder: Path) -> None:
        self.original, self.folder = original, folder
        self._written: dict[str, str] = {}  # what stands there instead of the original
        self._bench: Bench | None = None
        self.places = Places.of(original)

    def write(self, changed: Mapping[str, str]) -> None:
        """Lets these modules have these texts, and all others their own.

        Raises:
            RuntimeError: This is the checkout itself.
        """
        for name in {*self._written, *changed}:
            text = changed.get(name, self.original[name])
            if text != self._written.get(name, self.original[name]):
                path = ROOT / name
                if not (ROOT / Path(name).parts[0] / SIGN).exists():
                    message = f"{path} is no copy"
                    raise RuntimeError(message)
                path.write_text(text, encoding="utf-8")
                for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
                    compiled.unlink()
        self._written = dict(changed)

    def bench(self, module: str, files: Collection[str]) -> Bench:
        """The module with all its faults, written, and a pytest that has collected these files of tests.

        Args:
            module: Its path below the root.
            files: Of tests; more of them may be there.
        """
        bench = self._bench
        if bench is None or bench.module != module or not bench.files.issuperset(files):
            if bench is not None:
                bench.close()
            bench = self._bench = Bench(module, self.original[module], files, ROOT, self.folder)
            self.write({module: bench.text})
            bench.begin()
        self.write({module: bench.text})
        return bench

    def run(
        self, tests: Sequence[str], limit: float, *, seen: Path | None = None, stop: bool = True
    ) -> tuple[Run, str]:
        """Runs these tests on what is written; says what the witness noted, too.

        Args:
            tests: Files, or tests by their ids.
            limit: Seconds until it counts as hung.
            seen: The file of marks, for a survey.
            stop: Whether the first failure is the end.
        """
        notes = self.folder / "notes"
        notes.write_text("", encoding="utf-8")
        environment = os.environ | {witness.WITNESS: str(notes), "PYTHONDONTWRITEBYTECODE": ""}
        if seen is not None:
            environment[witness.SEEN] = str(seen)
        command = [*ALONE, *PYTEST, "-p", witness.__name__, *tests]
        if not stop:
            command.remove("-x")
        run = run_limited(command, limit, cwd=ROOT, environment=environment)
        clear()
        return run, notes.read_text(encoding="utf-8")

    def survey(self, file: str, limit: float) -> tuple[Run, str]:
        """Runs a file of tests without a fault; the notes say what each test comes to."""
        seen = self.folder / "seen"
        seen.write_bytes(bytes(self.places.size))
        seen.chmod(0o666)  # a test may run processes of another user
        self.write({name: marked(text, self.places.first[name], seen) for name, text in self.original.items()})
        return self.run([file], limit, seen=seen, stop=False)


_workshop: list[Workshop] = []


def begin(copy: Path) -> None:
    """Makes this process one of the runner's: its own /dev/shm, and its own copy in the place of the package.

    Args:
        copy: The snapshot.
    """
    own_shm()
    folder = Path(tempfile.mkdtemp(prefix="mutation-", dir=copy.parent))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g,mode=755", "tmpfs", str(folder)], check=True)  # noqa: S607
    for name in FOLDERS:
        shutil.copytree(copy / name, folder / name)
        (folder / name / SIGN).touch()
        subprocess.run(["mount", "--bind", str(folder / name), str(ROOT / name)], check=True)  # noqa: S607
    _workshop.append(Workshop(texts(), folder))


def workshop() -> Workshop:
    """The one of this process."""
    return _workshop[0]


def left_behind(folder: Path) -> None:
    """Removes what processes of the runner have left: empty folders, once their mounts are gone."""
    for path in folder.glob("mutation-*"):
        path.rmdir()
