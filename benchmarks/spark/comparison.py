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
        """Runs both in turn; the first round is not counted."""
        seconds: tuple[list[float], list[float]] = ([], [])
        for run in range(runs + 1):
            for (_, way), taken in zip((self.ours, self.theirs), seconds, strict=True):
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
    unit = {"speed": "times the speed", "time": "times the time", "more": "ms more"}[made["judged"]]
    scale = 1000 if made["judged"] == "more" else 1
    sign = "at least" if made["judged"] == "speed" else "at most"
    goal = "-" if made["goal"] is None else f"{sign} {made['goal'] * scale:g}: {'met' if made['met'] else 'missed'}"
    return [made["name"], _way(made["ours"]), _way(made["theirs"]), f"{made['value'] * scale:.2f} {unit}", goal]


def _way(one: dict[str, Any]) -> str:
    least, most = min(one["seconds"]) * 1000, max(one["seconds"]) * 1000
    return f"{one['name']} {one['median'] * 1000:,.0f} ms ({least:,.0f} to {most:,.0f})"
