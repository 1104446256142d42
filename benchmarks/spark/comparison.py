# SPDX-License-Identifier: Apache-2.0
"""Two ways to do the same, in turn, and what is asked of ours."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Way = Callable[[], float]
    """One run; its seconds. Raises if what came out is wrong."""


_SHORT = 0.001


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A comparison, not yet made.

    Attributes:
        name: of what is compared.
        ours, theirs: the two ways, and what they are called.
        goal: what is asked of `judged`; None: it is for information.
        judged: which figure: "speed" (theirs by ours, at least), "time" (ours by theirs, at most), "more" (seconds that
            ours takes longer, at most).
    """

    name: str
    ours: tuple[str, Way]
    theirs: tuple[str, Way]
    goal: float | None
    judged: str = "speed"

    def made(self, runs: int) -> dict[str, Any]:
        """Runs both in turn; the first round is not counted.

        Each round begins with the way that the last one ended with: Spark becomes faster from run to run, and the way
        that always came first would look slower than it is.
        """
        seconds: tuple[list[float], list[float]] = ([], [])
        for run in range(runs + 1):
            ways = [(self.ours[1], seconds[0]), (self.theirs[1], seconds[1])]
            for way, taken in ways if run % 2 == 0 else reversed(ways):
                found = way()
                if run:
                    taken.append(found)
        ours, theirs = map(statistics.median, seconds)
        value = {"speed": theirs / ours, "time": ours / theirs, "more": ours - theirs}[self.judged]
        met = None if self.goal is None else value >= self.goal if self.judged == "speed" else value <= self.goal
        return {
            "name": self.name,
            "judged": self.judged,
            "goal": self.goal,
            "value": value,
            "met": met,
            "ours": {"name": self.ours[0], "seconds": seconds[0], "median": ours},
            "theirs": {"name": self.theirs[0], "seconds": seconds[1], "median": theirs},
        }


def shown(made: dict[str, Any]) -> list[str]:
    """The cells of a table's row."""
    words = {
        "speed": ("at least", "times the speed"),
        "time": ("at most", "times the time"),
        "more": ("at most", "more"),
    }
    sign, unit = words[made["judged"]]
    figure, goal = (
        value if value is None else _time(value) if made["judged"] == "more" else f"{value:.2f}"
        for value in (made["value"], made["goal"])
    )
    verdict = "-" if goal is None else f"{sign} {goal}: {'met' if made['met'] else 'missed'}"
    return [made["name"], _way(made["ours"]), _way(made["theirs"]), f"{figure} {unit}", verdict]


def _way(one: dict[str, Any]) -> str:
    return f"{one['name']} {_time(one['median'])} ({_time(min(one['seconds']))} to {_time(max(one['seconds']))})"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if abs(seconds) < _SHORT else f"{seconds * 1000:,.0f} ms"
