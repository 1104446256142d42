# SPDX-License-Identifier: Apache-2.0
"""Runs contenders in turn, several times, and keeps what they did.

All contenders of a measurement run interleaved (A B C A B C ...), so that a change
of the machine's mood meets all of them alike. A run that could not verify its own
result is kept, marked, and spoils the exit code; a contender that raises is out of
the measurement, and the others go on.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from benchmarks.machine import Disturbance
from benchmarks.samples import Metric, Sample, Summary, summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.targets import Target

DEFAULT_RUNS = 7
QUICK_RUNS = 3
FOREIGN_CORES = "foreign_cores"


@dataclass(frozen=True)
class Settings:
    """How thoroughly to measure.

    Attributes:
        runs: Times that each contender runs.
        quick: Whether to send less and leave out what takes long: good for seeing
            that everything works, not for quoting.
        peers: Whether the peers run too.
    """

    runs: int = DEFAULT_RUNS
    quick: bool = False
    peers: bool = False

    @property
    def seconds(self) -> float:
        """How long one run of a stream should take."""
        return 0.15 if self.quick else 0.5

    @property
    def trips(self) -> int:
        """Round trips in one run of a ping-pong."""
        return 500 if self.quick else 3000

    @property
    def timeout(self) -> float:
        """Seconds after which a run is given up."""
        return 30.0 if self.quick else 120.0


class Kind(StrEnum):
    """Whose contender it is."""

    PEER = "peer"
    OURS = "shmbroker"
    BOUND = "bound"  # what the machine allows: nobody's way to pass messages


class Status(StrEnum):
    """How a contender came out of a measurement."""

    OK = "ok"
    NOT_RUN = "not run"
    UNVERIFIED = "unverified"
    FAILED = "failed"


class Contender(ABC):
    """Something that is measured.

    Attributes:
        name: Shown in tables; unique within its measurement.
        kind: Whose it is.
        short: Heads a narrow column.
        targets: What it should reach, for contenders of our own.
        waiting: `"spinning"` if it keeps a core busy while it waits.
        accountable: Whether all its workers end with each run, so that the
            processor time of others can be told from its own.
    """

    def __init__(self, name: str, kind: Kind = Kind.OURS, short: str = "") -> None:
        """Give it a name.

        Args:
            name: Shown in tables.
            kind: Whose it is.
            short: Heads a narrow column; the name if empty.
        """
        self.name = name
        self.kind = kind
        self.short = short or name
        self.targets: tuple[Target, ...] = ()
        self.waiting = "sleeping"
        self.accountable = True

    def version(self) -> str:
        """Return the version of what is measured, if it has one of its own."""
        return ""

    def available(self) -> str | None:
        """Return the reason why it cannot run here, or None if it can."""
        return None

    def prepare(self) -> None:  # noqa: B027 (many need none)
        """Get ready: called once before the first run, in the parent."""

    @abstractmethod
    def run(self) -> Sample:
        """Run once."""

    def close(self) -> None:  # noqa: B027 (many need none)
        """Clean up: called once, also after a failed `prepare`."""


@dataclass
class Outcome:
    """What became of one contender."""

    contender: Contender
    status: Status = Status.OK
    reason: str = ""
    version: str = ""
    samples: list[Sample] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The contender's name."""
        return self.contender.name

    @property
    def summary(self) -> Summary | None:
        """The runs summed up, or None if there is none."""
        return summarize(self.samples) if self.samples else None

    @property
    def median(self) -> float | None:
        """The median, or None unless every run verified its result."""
        if self.status is not Status.OK or self.summary is None:
            return None
        return self.summary.median

    def fail(self, status: Status, reason: str) -> None:
        """Record that something went wrong; the first reason stays."""
        if self.status is Status.OK:
            self.status = status
            self.reason = reason


@dataclass(frozen=True)
class Measurement:
    """Contenders that are run together and compared.

    Attributes:
        name: For `--only` and the JSON file.
        title: For people.
        metric: What is measured.
        contenders: In the order of running and printing.
        baseline: Whether ratios refer to the peers or to the first contender.
        processes: Worker processes of one run: with fewer cores it warns.
    """

    name: str
    title: str
    metric: Metric
    contenders: Sequence[Contender]
    baseline: str = "peers"
    processes: int = 2


@dataclass(frozen=True)
class Result:
    """A finished measurement."""

    measurement: Measurement
    outcomes: list[Outcome]

    def outcome(self, name: str) -> Outcome | None:
        """Return what became of the contender of this name, if it took part."""
        return next((one for one in self.outcomes if one.name == name), None)

    def others(self) -> list[Outcome]:
        """Return those that ratios refer to: measured and verified."""
        if self.measurement.baseline == "peers":
            chosen = [one for one in self.outcomes if one.contender.kind is Kind.PEER]
        else:
            chosen = self.outcomes[:1]
        return [one for one in chosen if one.median is not None]

    def ratio(self, outcome: Outcome, other: Outcome) -> float | None:
        """Return how many times better one contender is than another."""
        if not outcome.median or not other.median:
            return None
        return self.measurement.metric.ratio(outcome.median, other.median)

    def against_best(self, outcome: Outcome, others: Iterable[Outcome]) -> float | None:
        """Return how many times better one is than the best of some others."""
        ratios = [self.ratio(outcome, one) for one in others if one is not outcome]
        known = [ratio for ratio in ratios if ratio is not None]
        return min(known) if known else None

    def worst_against_best(self, outcome: Outcome, others: Iterable[Outcome]) -> float | None:
        """Return how many times better the worst run of one is than the best run of some others."""
        metric, own = self.measurement.metric, outcome.summary
        found = [one.summary for one in others if one is not outcome and one.median is not None]
        runs = [
            metric.ratio(metric.worst(own), metric.best(one)) for one in found if own is not None and one is not None
        ]
        return min(runs) if runs and outcome.median is not None else None

    @property
    def verified(self) -> bool:
        """Whether everything that ran did so without fault, and something ran."""
        statuses = {one.status for one in self.outcomes} - {Status.NOT_RUN}
        return statuses == {Status.OK}


def _prepare(outcome: Outcome) -> bool:
    reason = outcome.contender.available()
    if reason is not None:
        outcome.fail(Status.NOT_RUN, reason)
        return False
    try:
        outcome.version = outcome.contender.version()
        outcome.contender.prepare()
    except Exception as error:  # noqa: BLE001 (one contender must not stop the others)
        outcome.fail(Status.FAILED, _describe(error))
        return False
    return True


def _run(outcome: Outcome) -> bool:
    disturbance = Disturbance()
    try:
        sample = outcome.contender.run()
    except Exception as error:  # noqa: BLE001 (one contender must not stop the others)
        outcome.fail(Status.FAILED, _describe(error))
        return False
    if outcome.contender.accountable:
        foreign = disturbance.foreign_cores()
        details = {**sample.details, FOREIGN_CORES: foreign}
        sample = dataclasses.replace(sample, details=details)
    outcome.samples.append(sample)
    if not sample.verified:
        outcome.fail(Status.UNVERIFIED, sample.fault)
    return True


def _close(outcome: Outcome) -> None:
    try:
        outcome.contender.close()
    except Exception as error:  # noqa: BLE001 (the others must be closed too)
        outcome.fail(Status.FAILED, f"close: {_describe(error)}")


def _describe(error: Exception) -> str:
    text = str(error).strip()
    return text if type(error).__name__ in text else f"{type(error).__name__}: {text}"


def measure(measurement: Measurement, runs: int, progress: Callable[[str], None]) -> Result:
    """Run all contenders of a measurement in turn.

    Args:
        measurement: What to run.
        runs: Times that each of them runs, at least 1.
        progress: Told what is being done.

    Returns:
        What became of each contender.
    """
    outcomes = [Outcome(contender) for contender in measurement.contenders]
    try:
        live = []
        for outcome in outcomes:
            progress(f"{measurement.name}: preparing {outcome.name}")
            if _prepare(outcome):
                live.append(outcome)
        for number in range(1, runs + 1):
            for outcome in list(live):
                progress(f"{measurement.name}: run {number}/{runs}, {outcome.name}")
                if not _run(outcome):
                    live.remove(outcome)
    finally:
        for outcome in outcomes:
            if outcome.status is not Status.NOT_RUN:
                _close(outcome)
    return Result(measurement, outcomes)


def as_json(result: Result) -> dict[str, Any]:
    """Return a result as plain values for the JSON file.

    Args:
        result: A finished measurement.
    """
    others = result.others()
    entries = []
    for outcome in result.outcomes:
        summary = outcome.summary
        ratios = {other.name: result.ratio(outcome, other) for other in others}
        entries.append(
            {
                "name": outcome.name,
                "kind": str(outcome.contender.kind),
                "version": outcome.version,
                "status": str(outcome.status),
                "reason": outcome.reason,
                "summary": dataclasses.asdict(summary) if summary else None,
                "vs_best": result.against_best(outcome, others),
                "vs": {name: ratio for name, ratio in ratios.items() if ratio},
                "targets": [dataclasses.asdict(target.judge(result, outcome)) for target in outcome.contender.targets],
                "runs": [dataclasses.asdict(sample) for sample in outcome.samples],
            }
        )
    measurement = result.measurement
    return {
        "name": measurement.name,
        "title": measurement.title,
        "metric": measurement.metric.name,
        "unit": measurement.metric.unit,
        "baseline": measurement.baseline,
        "verified": result.verified,
        "contenders": entries,
    }
