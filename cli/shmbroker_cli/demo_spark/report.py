# SPDX-License-Identifier: Apache-2.0
"""Compares a run through Spark with one without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shmbroker_cli.demo_spark.measures import Measures, total

if TYPE_CHECKING:
    from shmbroker_cli.demo.serial import Serial
    from shmbroker_cli.demo_spark.run import Drive, Outcome


@dataclass(frozen=True)
class Report:
    """What the demonstration prints.

    Attributes:
        files: Number of files sent.
        lost: Number of files without a result.
        duplicated: Number of results whose file has a result already.
        differing: Number of results that are not those of the serial run, or whose file was not sent.
        to_kill: Whether a driver was to be killed.
        drives: What each driver did, in the order of their starts.
        left: How many things of each kind the run left behind; each number should be 0.
        seconds: From the start of the first driver to the end of the last one.
        serial_seconds: The time for the same files in one process.
        totals: The totals of the measures in the results.
        serial_totals: The totals of the serial run, which are the right ones.
    """

    files: int
    lost: int
    duplicated: int
    differing: int
    to_kill: bool
    drives: list[Drive]
    left: dict[str, int]
    seconds: float
    serial_seconds: float
    totals: Measures
    serial_totals: Measures

    @property
    def killed(self) -> int:
        """How many drivers were killed."""
        return sum(drive.killed for drive in self.drives)

    @property
    def good(self) -> bool:
        """Whether each file has one right result, nothing is left, and a driver was killed if one was to be killed."""
        wrong = self.lost or self.duplicated or self.differing or any(self.left.values())
        return not wrong and self.totals == self.serial_totals and self.killed == self.to_kill


def compare(outcome: Outcome, serial: Serial[Measures], *, to_kill: bool) -> Report:
    """Compare a run through Spark with a serial one.

    Args:
        outcome: The run through Spark.
        serial: The serial one.
        to_kill: Whether a driver was to be killed.
    """
    expected, got = serial.results, {path for path, _ in outcome.results}
    return Report(
        files=len(expected),
        lost=len(expected.keys() - got),
        duplicated=len(outcome.results) - len(got),
        differing=sum(measures != expected.get(path) for path, measures in outcome.results),
        to_kill=to_kill,
        drives=outcome.drives,
        left=outcome.left,
        seconds=round(outcome.seconds, 3),
        serial_seconds=round(serial.seconds, 3),
        totals=total(measures for _, measures in outcome.results),
        serial_totals=total(expected.values()),
    )
