# SPDX-License-Identifier: Apache-2.0
"""What one run gives, and how several runs are summed up.

The median stands for a contender, with the smallest and largest run and the
median absolute deviation (MAD) beside it: one disturbed run moves none of them
far, and an average would hide it.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

THOUSAND = 1000.0


@dataclass(frozen=True)
class Metric:
    """What a measurement measures.

    Attributes:
        name: What the value is, for people.
        unit: Of the values in the JSON file.
        higher_is_better: Decides which way round ratios are.
        latency: Whether a run gives percentiles rather than one value.
    """

    name: str
    unit: str
    higher_is_better: bool
    latency: bool = False

    def ratio(self, value: float, other: float) -> float:
        """Return how many times better `value` is than `other`; neither may be zero.

        >>> LATENCY.ratio(10.0, 30.0)
        3.0
        """
        if self.higher_is_better:
            return value / other
        return other / value

    def best(self, summary: Summary) -> float:
        """Return the value of the best run."""
        return summary.max if self.higher_is_better else summary.min

    def worst(self, summary: Summary) -> float:
        """Return the value of the worst run."""
        return summary.min if self.higher_is_better else summary.max

    def show(self, value: float) -> str:
        """Return a value as people read it, in few characters.

        >>> RATE.show(691_234.0)
        '691 k'
        """
        if self.unit == "ns":
            return f"{value / THOUSAND:,.2f}"
        if self.unit != "1/s":
            return f"{value:,.3g}" if value < THOUSAND else f"{value:,.0f}"
        if value >= THOUSAND**2:
            return f"{value / THOUSAND**2:.2f} M"
        if value < THOUSAND:
            return f"{value:.0f}"
        digits = 0 if value >= 100 * THOUSAND else 1
        return f"{value / THOUSAND:.{digits}f} k"


RATE = Metric("messages per second", "1/s", higher_is_better=True)
CALLS = Metric("callbacks per second", "1/s", higher_is_better=True)
LATENCY = Metric("round trip, us", "ns", higher_is_better=False, latency=True)
COST = Metric("cost per message, us", "ns", higher_is_better=False)
MILLISECONDS = Metric("time, ms", "ms", higher_is_better=False)
BYTES = Metric("bytes per queue", "B", higher_is_better=False)
PERCENT = Metric("processor time, % of one core", "%", higher_is_better=False)


@dataclass(frozen=True)
class Percentiles:
    """The shape of one run's latencies, in the metric's unit."""

    p50: float
    p99: float
    p999: float
    max: float


def percentiles(values: Sequence[float]) -> Percentiles:
    """Return the percentiles of some latencies (nearest rank).

    Args:
        values: At least one latency.

    >>> percentiles(range(1, 1001))
    Percentiles(p50=500, p99=990, p999=999, max=1000)
    """
    ordered = sorted(values)

    def rank(per_mille: int) -> float:
        return ordered[max(0, -(-len(ordered) * per_mille // 1000) - 1)]

    return Percentiles(rank(500), rank(990), rank(999), ordered[-1])


@dataclass(frozen=True)
class Sample:
    """One run of one contender.

    Attributes:
        value: In the metric's unit; for latencies the p50.
        count: Messages that arrived (or operations that were done).
        checksum: Of what arrived.
        verified: Whether count, content and, where promised, order were right.
        fault: What was wrong, if anything.
        shape: The percentiles, for latencies.
        details: Further numbers worth keeping in the JSON file.
    """

    value: float
    count: int
    checksum: int
    verified: bool
    fault: str = ""
    shape: Percentiles | None = None
    details: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """Several runs of one contender; of latencies, the median of each percentile."""

    median: float
    min: float
    max: float
    mad: float
    runs: int
    shape: Percentiles | None = None


def summarize(samples: Sequence[Sample]) -> Summary:
    """Sum up the runs of one contender.

    Args:
        samples: At least one run.
    """
    values = [sample.value for sample in samples]
    median = statistics.median(values)
    shapes = [sample.shape for sample in samples if sample.shape is not None]
    shape = None
    if shapes:
        shape = Percentiles(
            statistics.median(one.p50 for one in shapes),
            statistics.median(one.p99 for one in shapes),
            statistics.median(one.p999 for one in shapes),
            max(one.max for one in shapes),
        )
    mad = statistics.median(abs(value - median) for value in values)
    return Summary(median, min(values), max(values), mad, len(values), shape)
