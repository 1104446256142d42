# SPDX-License-Identifier: Apache-2.0
"""Applies small faults to a copy of the C core, one at a time, and says which evidence finds each.

``python tests/mutations/run.py [--all-evidence] [NAME ...]`` ends with exit code 0 if each fault was found. The faults
stand in ``faults.toml``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "mutants"
HANGS = 300  # seconds: what does not end has found something, too
OTHERS: tuple[tuple[str, ...], ...] = (
    ("interleavings",),
    ("races", "-kind", "orders"),
    ("races", "-kind", "delays"),
    ("races", "-kind", "random"),
    ("kill_at_step", "-every", "5"),
    ("races", "-kind", "kills"),
)


@dataclass(frozen=True)
class Fault:
    """What is replaced in a file of the core, and the program of the C tests that is expected to find it."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    evidence: tuple[str, ...]


def faults() -> list[Fault]:
    """All faults there are."""
    with Path(__file__).with_name("faults.toml").open("rb") as file:
        tables = tomllib.load(file)["fault"]
    return [
        Fault(
            name=table["name"],
            file=table["file"],
            edits=tuple((edit["before"], edit["after"]) for edit in table["edit"]),
            evidence=tuple(table["evidence"]),
        )
        for table in tables
    ]


def tool(name: str) -> str:
    """A program of the environment that runs this one, or of the system."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


def copy_sources() -> None:
    """A copy of the core and its C tests. What is the same keeps its time, so that little is built anew."""
    for folder in ("cffi_src", "tests/c"):
        for copy in (path for path in (WORK / folder).rglob("*") if path.is_file()):
            if not (ROOT / copy.relative_to(WORK)).exists():  # the source was renamed or deleted
                copy.unlink()
        for source in (path for path in (ROOT / folder).rglob("*") if path.is_file()):
            copy = WORK / source.relative_to(ROOT)
            if not copy.exists() or copy.read_bytes() != source.read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)


def build() -> None:
    """Builds the C tests that are evidence out of the copy."""
    build_folder = WORK / "build"
    if not (build_folder / "build.ninja").exists():
        ninja = shutil.which("ninja", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        definitions = [
            "-DCMAKE_BUILD_TYPE=Release",
            "-DSB_BUILD_PYTHON=OFF",
            "-DSB_BUILD_TESTS=ON",
            "-DSB_TEST_HOOKS=ON",
        ]
        command = [tool("cmake"), "-G", "Ninja", "-S", str(WORK / "cffi_src"), "-B", str(build_folder)]
        subprocess.run(
            [*command, f"-DCMAKE_MAKE_PROGRAM={ninja}", *definitions], check=True, capture_output=True, timeout=300
        )
    programs = sorted({evidence[0] for evidence in (*OTHERS, *(fault.evidence for fault in faults()))})
    command = [tool("cmake"), "--build", str(build_folder), "--target", *programs]
    subprocess.run(command, check=True, capture_output=True, timeout=600)


def finds(evidence: Sequence[str]) -> bool:
    """Does the program end with a failure, or never?"""
    program = WORK / "build" / "tests" / evidence[0]
    with subprocess.Popen(
        [str(program), *evidence[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            return process.wait(timeout=HANGS) != 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return True


def changed(fault: Fault, text: str) -> str:
    """The text of its file with the fault."""
    for before, after in fault.edits:
        if text.count(before) != 1:
            message = f"fault {fault.name!r}: {before!r} stands {text.count(before)} times in {fault.file}, not once"
            raise ValueError(message)
        text = text.replace(before, after)
    return text


def try_fault(fault: Fault, others: Sequence[Sequence[str]], *, all_evidence: bool) -> list[str]:
    """The evidence that finds the fault, its own or the others; only the first, unless all is asked for."""
    (path,) = (WORK / "cffi_src" / "src").glob(f"*/{fault.file}")
    original = path.read_text(encoding="utf-8")
    path.write_text(changed(fault, original), encoding="utf-8")
    try:
        build()
        found = []
        for evidence in (fault.evidence, *others):
            if finds(evidence):
                found.append(" ".join(evidence))
                if not all_evidence:
                    break
        return found
    finally:
        path.write_text(original, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Tries the mutants of these names, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all-evidence", action="store_true", help="try every kind of evidence on each fault")
    parser.add_argument("--own-evidence", action="store_true", help="only try the evidence that a fault names")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the faults to try; all, if none is given")
    options = parser.parse_args(arguments)
    known = faults()
    unknown = set(options.names) - {fault.name for fault in known}
    if unknown:
        parser.error(f"there is no fault {', '.join(sorted(unknown))}")
    chosen = [fault for fault in known if not options.names or fault.name in options.names]
    copy_sources()
    build()
    for evidence in sorted({fault.evidence for fault in chosen}):
        if finds(evidence):
            sys.stdout.write(f"{' '.join(evidence)} fails without any fault\n")
            return 1
    survivors = 0
    for fault in chosen:
        begin = time.monotonic()
        found = try_fault(fault, () if options.own_evidence else OTHERS, all_evidence=options.all_evidence)
        survivors += not found
        seconds = time.monotonic() - begin
        sys.stdout.write(f"{fault.name:46} {fault.file:16} {'; '.join(found) or 'SURVIVED':50} {seconds:6.1f} s\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen)} faults, {len(chosen) - survivors} found, {survivors} survived\n")
    return survivors != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
