# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.beside CHECKOUT`: this checkout beside another one, such as that of an earlier commit.

Each measurement runs here, there, here, there ..., so that a change of the machine's mood meets both alike. What is
compared are the rows that both have. The other checkout must have been built (`make bench`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.heap import KEPT
from benchmarks.plan import ARENA_NAMES, unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parents[1]
ROUNDS = 7
TOLERANCE = 0.03
BETTER_IF_MORE = "1/s"


@dataclass(frozen=True)
class Row:
    """One contender of one measurement.

    Attributes:
        name: The measurement's and the contender's.
        unit: Of the values; more is better for rates only.
        here: The values of this checkout's runs.
        there: Those of the other one's.
    """

    name: str
    unit: str
    here: Sequence[float]
    there: Sequence[float]

    @property
    def ratio(self) -> float:
        """How many times better this checkout is, by the medians.

        >>> Row("put", "ns", [100.0], [110.0]).ratio
        1.1
        >>> Row("processor time", "ms", [0.0], [0.0]).ratio, Row("processor time", "ms", [0.0], [1.0]).ratio
        (1.0, inf)
        """
        here, there = median(self.here), median(self.there)
        if here == there:
            return 1.0
        better, worse = (here, there) if self.unit == BETTER_IF_MORE else (there, here)
        return better / worse if worse else math.inf

    @property
    def spread(self) -> float:
        """How far the runs differ: both median distances from the median, as a share of the median.

        >>> Row("put", "ns", [90.0, 100.0, 110.0], [100.0, 100.0, 100.0]).spread
        0.1
        """
        return sum(
            median(abs(value - median(values)) for value in values) / median(values)
            for values in (self.here, self.there)
            if median(values)
        )

    @property
    def slower(self) -> bool:
        """Whether this checkout is slower by more than the tolerance, beyond the spread.

        >>> Row("put", "1/s", [96.0], [100.0]).slower, Row("put", "1/s", [98.0], [100.0]).slower
        (True, False)
        """
        return self.ratio + self.spread < 1 - TOLERANCE

    def __str__(self) -> str:
        """Return the line of the table."""
        verdict = "SLOWER" if self.slower else ""
        return (
            f"{self.name:56} {median(self.here):14,.4g} {median(self.there):14,.4g} {self.unit:4}"
            f" {self.ratio:6.3f} {self.spread:7.3f} {verdict}"
        ).rstrip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("checkout", type=Path, help="the other checkout, built by `make bench`")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a measurement; may be repeated")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"runs of each checkout (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="short runs: to see that it works, not to quote")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the checkouts.

    Args:
        argv: Arguments, without the program's name; those of the process if None.

    Returns:
        0 if no row is slower beyond the spread, else 1; 2 if the arguments are wrong.
    """
    options = _parser().parse_args(argv)
    strange = unknown(options.only)
    if strange:
        sys.stderr.write(f"no such name: {', '.join(strange)}; there are {', '.join(ARENA_NAMES)}\n")
        return 2
    other = options.checkout.resolve()
    if not _python(other).exists():
        sys.stderr.write(f"{other} has no .venv: `make bench` there first\n")
        return 2
    sys.stdout.write(f"{'row':56} {'here':>14} {'there':>14} {'':4} {'ratio':>6} {'spread':>7}\n")
    for checkout in (HERE, other):
        _compile(checkout)
    slower = 0
    for name in options.only or ARENA_NAMES:
        for row in _rows(name, other, options.rounds, quick=options.quick):
            slower += row.slower
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{slower} rows are slower by more than {TOLERANCE:.0%} beyond the spread\n")
    return slower != 0


def _python(checkout: Path) -> Path:
    return checkout / ".venv" / "bin" / "python"


def _compile(checkout: Path) -> None:
    """Compile the modules of a checkout.

    A process that compiles them itself has another heap: Python's garbage collector then runs at other moments, some
    of which lie in what is measured.
    """
    command = [str(_python(checkout)), "-m", "compileall", "-q", "-f", "shmbroker", "benchmarks"]
    subprocess.run(command, cwd=checkout, check=True)  # noqa: S603 (the Python of a checkout)


def _rows(name: str, other: Path, rounds: int, *, quick: bool) -> list[Row]:
    """Return the rows of a measurement that both checkouts have."""
    units: dict[str, str] = {}
    values: dict[Path, dict[str, list[float]]] = {HERE: defaultdict(list), other: defaultdict(list)}
    for number in range(rounds):
        for checkout in (HERE, other) if number % 2 == 0 else (other, HERE):
            for measurement in _run(checkout, name, quick=quick):
                for contender in measurement["contenders"]:
                    if contender["status"] == "ok":
                        row = f"{measurement['name']}: {contender['name']}"
                        units[row] = measurement["unit"]
                        values[checkout][row].append(contender["summary"]["median"])
    both = [row for row in units if row in values[HERE] and row in values[other]]
    return [Row(row, units[row], values[HERE][row], values[other][row]) for row in both]


def _run(checkout: Path, name: str, *, quick: bool) -> list[dict[str, Any]]:
    """Run a measurement once; a checkout that does not know it has no rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [str(_python(checkout)), "-m", "benchmarks", "--runs", "1", "--only", name, "--json", str(path)]
        environment = {
            **os.environ,
            **KEPT,  # the other one may be older than that
            "SHMBROKER_BENCH_C": str(checkout / "build" / "bench" / "benchmarks"),
        }
        subprocess.run(  # noqa: S603 (the same program of two checkouts)
            [*command, *(["--quick"] if quick else [])],
            cwd=checkout,
            env=environment,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if not path.exists():
            return []
        measurements: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["measurements"]
        return measurements


if __name__ == "__main__":
    sys.exit(main())
