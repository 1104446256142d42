# SPDX-License-Identifier: Apache-2.0
"""Checks the Spin models of this folder, one search after the other.

    python tests/models/check.py [--full] [MODEL ...]

The comment at the top of a model says how it is searched, with options for Spin (-D...) and the verifier (the rest):

    quick: ...       without errors, and exhausted
    full: ...        the same, but larger: with --full
    bitstate: ...    without errors, as far as a bit field of 2^w and Q minutes reach; "cut off" says that the
                     minutes did not: with --full
    fault: ...       a rule is taken away, so an error has to be found ("full fault": with --full)
    defect: ...      what the C code does and should not: an error has to be found, until it is mended

The verifier's exit status says nothing: its "errors:" and whether it looked at everything are read. Needs spin and a C
compiler; without spin nothing is checked, and one line says so.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
RUN = re.compile(r"^ \* (?P<kind>quick|full|bitstate|fault|full fault|defect): (?P<options>-.*)$", re.MULTILINE)
ALWAYS = {"quick", "fault", "defect"}
MUST_FAIL = {"fault", "full fault", "defect"}
DEPTH = "-m200000"
MEGABYTES = 6144
# Any of these means that not everything was looked at.
INCOMPLETE = ("max search depth too small", "Search not completed", "out of memory", "resource limit")


@dataclass(frozen=True)
class Run:
    """One search through one model.

    Attributes:
        model: The model.
        kind: What is asked of the search, see the top of this file.
        options: For Spin those that begin with -D, for the verifier the others.
    """

    model: Path
    kind: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        """Return the run in one line."""
        return " ".join([self.model.name, *self.options])

    def search(self) -> Result:
        """Generate, compile and run the verifier."""
        defines = [option for option in self.options if option.startswith("-D")]
        searching = [option for option in self.options if not option.startswith("-D")]
        store = "-DBITSTATE" if self.kind == "bitstate" else "-DCOLLAPSE"
        optimise = "-O0" if self.kind in ALWAYS else "-O1"  # on the quick ones a compiler spends more than it saves
        compiler = [os.environ.get("CC", "cc"), optimise, "-w", "-DSAFETY", store, "-DVECTORSZ=2048"]
        with tempfile.TemporaryDirectory() as folder:
            printed = _output(["spin", "-a", *defines, str(self.model.resolve())], folder)
            printed += _output([*compiler, f"-DMEMLIM={MEGABYTES}", "-opan", "pan.c"], folder)
            started = time.monotonic()
            if Path(folder, "pan").exists():  # otherwise Spin or the compiler has said why not
                printed += _output(["./pan", DEPTH, *searching], folder)
            seconds = time.monotonic() - started
        return Result(self, printed, seconds)


@dataclass(frozen=True)
class Result:
    """What a search ended with.

    Attributes:
        run: The search.
        printed: All that Spin, the compiler and the verifier printed.
        seconds: How long the verifier ran.
    """

    run: Run
    printed: str
    seconds: float

    @property
    def errors(self) -> int | None:
        """How many errors were found; None if there was no search."""
        found = re.search(r"errors: (\d+)", self.printed)
        return None if found is None else int(found[1])

    @property
    def exhausted(self) -> bool:
        """Whether every state was looked at; a verifier that was killed prints no count of errors."""
        return (
            self.errors is not None
            and self.run.kind != "bitstate"
            and not any(text in self.printed for text in INCOMPLETE)
        )

    @property
    def good(self) -> bool:
        """Whether the search ended as it should."""
        if self.errors is None:
            return False
        if self.run.kind in MUST_FAIL:
            return self.errors > 0
        return self.errors == 0 and (self.exhausted or self.run.kind == "bitstate")

    def __str__(self) -> str:
        """Return the result in one line."""
        states = re.search(r"([\d.e+]+) states, stored", self.printed)
        count = f"{float(states[1]):,.0f}" if states else "no"
        if self.run.kind in MUST_FAIL:
            reach = f"as {self.run.kind.removeprefix('full ')} should"
        elif self.run.kind == "bitstate":
            factor = re.search(r"hash factor: ([\d.]+)", self.printed)
            cut_off = ", cut off" if "Time limit" in self.printed else ""
            reach = f"bitstate{cut_off}, hash factor {factor[1] if factor else 'unknown'}"
        else:
            reach = "exhausted" if self.exhausted else "NOT EXHAUSTED"
        verdict = "ok    " if self.good else "FAILED"
        return f"{verdict} {self.run}: errors: {self.errors}, {reach}, {count} states, {self.seconds:.1f} s"


def _output(command: list[str], folder: str) -> str:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout


def runs_of(model: Path) -> list[Run]:
    """Return the runs a model asks for."""
    asked = RUN.finditer(model.read_text(encoding="utf-8"))
    return [Run(model, found["kind"], tuple(found["options"].split())) for found in asked]


def main(arguments: list[str]) -> int:
    """Check models.

    Args:
        arguments: Those of the command line.

    Returns:
        0 if all ended as they should, or if there is no spin; 1 if not.
    """
    parser = argparse.ArgumentParser(description="Check the Spin models.")
    parser.add_argument("--full", action="store_true", help="the large searches too (an hour, up to 6 GiB)")
    parser.add_argument("models", nargs="*", type=Path, help="files; all of the folder if there are none")
    asked = parser.parse_args(arguments)
    if shutil.which("spin") is None:
        sys.stdout.write("the models were not checked: there is no spin (on Debian: apt install spin)\n")
        return 0
    models = asked.models or sorted(FOLDER.glob("*.pml"))
    runs = [run for model in models for run in runs_of(model) if asked.full or run.kind in ALWAYS]
    failed = 0
    at_once = 1 if asked.full else os.cpu_count()  # one large search may take all memory
    with ThreadPoolExecutor(at_once) as pool:
        for result in pool.map(Run.search, runs):
            failed += not result.good
            sys.stdout.write(f"{result}\n" + ("" if result.good else result.printed))
            sys.stdout.flush()
    sys.stdout.write(f"{len(runs)} searches of {len(models)} models, {failed} failed\n")
    return 1 if failed or not runs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
