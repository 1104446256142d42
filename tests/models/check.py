# SPDX-License-Identifier: Apache-2.0
"""Checks the Spin models of this folder, each exhaustively.

    python tests/models/check.py [MODEL ...]

A comment line of a model asks for a run, with options for Spin (-D...) and for the verifier (the rest); a model
without one is run once, without options. A model that shows why a rule is there fails when the rule is taken away:

    /* check: -DMAXCRASH=2 -m200000 */
    /* check, must fail: -DNOKICK */

Needs spin and a C compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
RUN = re.compile(r"^/\* check(?P<fails>, must fail)?:(?P<options>.*)\*/$", re.MULTILINE)
DEFAULT_DEPTH = "-m1000000"
LIVENESS = {"-a", "-l"}
# Any of these means that not everything was looked at; the verifier's exit status does not tell.
INCOMPLETE = ("max search depth too small", "Search not completed", "out of memory")


@dataclass(frozen=True)
class Run:
    """One search through one model.

    Attributes:
        model: The model.
        options: For Spin those that begin with -D, for the verifier the others.
        must_fail: Whether an error has to be found.
    """

    model: Path
    options: tuple[str, ...] = ()
    must_fail: bool = False

    def __str__(self) -> str:
        """Return the run in one line."""
        return " ".join([self.model.name, *self.options, *(["(must fail)"] if self.must_fail else [])])

    def verdict(self) -> tuple[bool, str]:
        """Return whether the search ended as it should, and what the verifier printed."""
        defines = [option for option in self.options if option.startswith("-D")]
        searching = [option for option in self.options if not option.startswith("-D")]
        with tempfile.TemporaryDirectory() as folder:
            printed = _output(["spin", "-a", *defines, str(self.model.resolve())], folder)
            kind = [] if LIVENESS & set(searching) else ["-DSAFETY"]
            compiler = os.environ.get("CC", "cc")
            printed += _output(
                [compiler, "-O2", "-w", "-DCOLLAPSE", "-DVECTORSZ=4096", *kind, "-opan", "pan.c"], folder
            )
            printed += _output(["./pan", DEFAULT_DEPTH, *searching], folder)
        errors = re.search(r"errors: (\d+)", printed)
        if errors is None:
            return False, printed
        if self.must_fail:
            return errors[1] != "0", printed
        return errors[1] == "0" and not any(text in printed for text in INCOMPLETE), printed


def _output(command: list[str], folder: str) -> str:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout


def runs_of(model: Path) -> list[Run]:
    """Return the runs a model asks for."""
    asked = RUN.finditer(model.read_text(encoding="utf-8"))
    runs = [Run(model, tuple(found["options"].split()), found["fails"] is not None) for found in asked]
    return runs or [Run(model)]


def main(names: list[str]) -> int:
    """Check models.

    Args:
        names: Their files; all of this folder if there are none.

    Returns:
        0 if all ended as they should, 1 if not, 2 if there was nothing to do it with.
    """
    if shutil.which("spin") is None:
        sys.stderr.write("the models need spin (on Debian: apt install spin)\n")
        return 2
    models = [Path(name) for name in names] or sorted(FOLDER.glob("*.pml"))
    runs = [run for model in models for run in runs_of(model)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(Run.verdict, runs))
    for run, (good, printed) in zip(runs, verdicts, strict=True):
        sys.stdout.write(f"{'ok    ' if good else 'FAILED'} {run}\n" + ("" if good else printed))
    sys.stdout.write(f"{len(runs)} runs of {len(models)} models\n")
    return 0 if all(good for good, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
