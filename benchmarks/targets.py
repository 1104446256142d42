# SPDX-License-Identifier: Apache-2.0
"""What is to be reached, as something that can be computed from a result."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from benchmarks.harness import Outcome, Result


@dataclass(frozen=True)
class Verdict:
    """A target, what was measured for it, and whether that is enough.

    Attributes:
        text: The target.
        value: What was measured; None if it was not.
        met: Whether the target is met; None if it was not measured.
        worst: The same of the worst run, against the best run of the others; None
            if the target compares with nothing.
    """

    text: str
    value: float | None
    met: bool | None
    worst: float | None = None


class Target(Protocol):
    """Something that a contender should reach."""

    @property
    def text(self) -> str:
        """The target, in a few words."""

    def judge(self, result: Result, outcome: Outcome) -> Verdict:
        """Return whether the outcome reached it."""


@dataclass(frozen=True)
class AtLeast:
    """At least so many times as good as other contenders of the same run.

    Attributes:
        ratio: The smallest ratio that will do.
        than: Names of the contenders to beat; all peers if empty.
        without: Names of the contenders that do not count.
        called: What these are called.
        worst: The smallest ratio that will do for the worst run against their best
            run; None: any.
    """

    ratio: float
    than: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    called: str = "the best peer"
    worst: float | None = None

    @property
    def text(self) -> str:
        """The target, in a few words."""
        also = "" if self.worst is None else f", the worst run >= {self.worst:g} x its best"
        return f">= {self.ratio:g} x {self.called}{also}"

    def judge(self, result: Result, outcome: Outcome) -> Verdict:
        """Return whether the outcome reached it."""
        if self.than:
            found = [result.outcome(name) for name in self.than]
            chosen = [one for one in found if one is not None]
        else:
            chosen = [one for one in result.others() if one.name not in self.without]
        value, worst = result.against_best(outcome, chosen), result.worst_against_best(outcome, chosen)
        if value is None or worst is None:
            return Verdict(self.text, None, None)
        return Verdict(self.text, value, value >= self.ratio and worst >= (self.worst or 0), worst)


@dataclass(frozen=True)
class Either:
    """One of two targets is enough. The verdict has the figures of the one that is met, or of the first.

    Attributes:
        one: A target.
        other: Another one.
    """

    one: Target
    other: Target

    @property
    def text(self) -> str:
        """The target, in a few words."""
        return f"{self.one.text}, or {self.other.text}"

    def judge(self, result: Result, outcome: Outcome) -> Verdict:
        """Return whether the outcome reached one of them."""
        verdicts = [target.judge(result, outcome) for target in (self.one, self.other)]
        best = next(
            (one for one in verdicts if one.met), next((one for one in verdicts if one.met is not None), verdicts[0])
        )
        return Verdict(self.text, best.value, best.met, best.worst)


@dataclass(frozen=True)
class Flat:
    """At most so many times the cost of the first contender of the measurement.

    Attributes:
        factor: The largest factor that will do.
        last: The largest one that will do for the last contender; None: as for the others.
    """

    factor: float
    last: float | None = None

    @property
    def text(self) -> str:
        """The target, in a few words."""
        also = "" if self.last is None else f", the last <= {self.last:g} x"
        return f"<= {self.factor:g} x the first{also}"

    def judge(self, result: Result, outcome: Outcome) -> Verdict:
        """Return whether the outcome reached it."""
        first = result.outcomes[0].median
        if not first or outcome.median is None:
            return Verdict(self.text, None, None)
        value = outcome.median / first
        allowed = self.factor if self.last is None or outcome is not result.outcomes[-1] else self.last
        return Verdict(self.text, value, value <= allowed)


@dataclass(frozen=True)
class Limit:
    """At most, or at least, a fixed value.

    Attributes:
        value: The limit, in the metric's unit.
        unit: For people.
        at_least: Whether more is better.
    """

    value: float
    unit: str
    at_least: bool = False

    @property
    def text(self) -> str:
        """The target, in a few words."""
        return f"{'>=' if self.at_least else '<'} {self.value:,g} {self.unit}"

    def judge(self, result: Result, outcome: Outcome) -> Verdict:  # noqa: ARG002 (one interface for all targets)
        """Return whether the outcome reached it."""
        value = outcome.median
        if value is None:
            return Verdict(self.text, None, None)
        met = value >= self.value if self.at_least else value < self.value
        return Verdict(self.text, value, met)


@dataclass(frozen=True)
class Detail:
    """A limit of something else that every run measured, such as a ratio to what it did in the same moment.

    Attributes:
        name: Of the detail.
        value: The limit; `None`: the detail is only shown.
        called: What it is.
        at_least: Whether more is better.
    """

    name: str
    value: float | None
    called: str
    at_least: bool = False

    @property
    def text(self) -> str:
        """The target, in a few words."""
        return self.called if self.value is None else f"{'>=' if self.at_least else '<='} {self.value:g} {self.called}"

    def judge(self, result: Result, outcome: Outcome) -> Verdict:  # noqa: ARG002 (one interface for all targets)
        """Return whether the median of the runs reached it."""
        found = [sample.details[self.name] for sample in outcome.samples if self.name in sample.details]
        if not found or outcome.median is None:
            return Verdict(self.text, None, None)
        value = statistics.median(found)
        if self.value is None:
            return Verdict(self.text, value, None)
        return Verdict(self.text, value, value >= self.value if self.at_least else value <= self.value)
