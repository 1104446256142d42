# SPDX-License-Identifier: Apache-2.0
"""Compares a run through the broker with one without it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shmbroker_cli.demo.analysis import Counts
from shmbroker_cli.demo.files import is_urgent
from shmbroker_cli.demo.left import Left

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shmbroker_cli.demo.run import Outcome
    from shmbroker_cli.demo.serial import Serial


@dataclass(frozen=True)
class Report:
    """What the demonstration prints.

    Attributes:
        files: Number of files sent.
        lost: Number of files without a result.
        duplicated: Number of results whose file had a result already; the message id names the file.
        redelivered: How many times a file was given to a worker again.
        killed: Which processes were killed half-way: "worker", "housekeeper".
        workers: Number of worker processes.
        seconds: From the first file sent to the last result.
        serial_seconds: The time for the same files in one process.
        messages_per_second: Files per second, through the broker.
        speed_up: The time of the serial run, divided by the time of the run through the broker.
        totals: The totals of the counts that the workers sent.
        serial_totals: The totals of the counts of the serial run, which are the right ones.
        differing: Number of files whose counts are not those of the serial run.
        urgent: Number of urgent files, which were sent behind all others.
        overtaken: Number of other files whose results came behind those of all urgent ones.
        misplaced: Number of files that are in the dead-letter queue and should not be, or the other way round.
        left: What the log and the dead-letter queue contain in the end.
    """

    files: int
    lost: int
    duplicated: int
    redelivered: int
    killed: list[str]
    workers: int
    seconds: float
    serial_seconds: float
    messages_per_second: float
    speed_up: float
    totals: Counts
    serial_totals: Counts
    differing: int
    urgent: int = 0
    overtaken: int = 0
    misplaced: int = 0
    left: Left = field(default_factory=Left)

    @property
    def good(self) -> bool:
        """Whether nothing was lost, all counts are right, and the files that cannot be parsed were put aside."""
        return not (self.lost or self.differing or self.misplaced) and self.totals == self.serial_totals


def compare(outcome: Outcome, serial: Serial[Counts], workers: int) -> Report:
    """Compare a run through the broker with a serial one.

    Args:
        outcome: The run through the broker.
        serial: The serial one.
        workers: Number of worker processes.
    """
    expected, got = serial.results, outcome.results
    return Report(
        files=len(expected),
        lost=len(expected.keys() - got.keys()),
        duplicated=outcome.duplicated,
        redelivered=outcome.redelivered,
        killed=outcome.killed,
        workers=workers,
        seconds=round(outcome.seconds, 3),
        serial_seconds=round(serial.seconds, 3),
        messages_per_second=round(len(got) / outcome.seconds, 1),
        speed_up=round(serial.seconds / outcome.seconds, 2),
        totals=_total(got.values()),
        serial_totals=_total(expected.values()),
        differing=sum(counts != expected.get(path, None) for path, counts in got.items()),
        urgent=sum(map(is_urgent, expected)),
        overtaken=_behind_urgent(list(got)),
        misplaced=_misplaced(outcome.left, expected),
        left=outcome.left,
    )


def _behind_urgent(paths: list[str]) -> int:
    """Return how many paths are behind the last urgent one."""
    urgent = [place for place, path in enumerate(paths, start=1) if is_urgent(path)]
    return len(paths) - urgent[-1] if urgent else 0


def _misplaced(left: Left, expected: Mapping[str, Counts]) -> int:
    """Return how many files should be in the dead-letter queue and are not, are there and should not, or twice."""
    dead = [one.path for one in left.rejected]
    unparsable = {path for path, counts in expected.items() if counts.unparsed}
    return len(unparsable.symmetric_difference(dead)) + len(dead) - len(set(dead))


def _total(counts: Iterable[Counts]) -> Counts:
    return sum(counts, start=Counts())
