# SPDX-License-Identifier: Apache-2.0
"""The verdicts of `make bench`: medians, and the worst run of ours against the best run of the others."""

from __future__ import annotations

import pytest

from benchmarks import report
from benchmarks.harness import Contender, Kind, Measurement, Outcome, Result
from benchmarks.samples import COST, RATE, Metric, Sample
from benchmarks.targets import AtLeast, Flat, Target


class Done(Contender):
    """A contender whose runs are known."""

    def run(self) -> Sample:
        """Is not called: the runs are known."""
        raise NotImplementedError


def outcome(name: str, kind: Kind, values: list[float], *targets: Target) -> Outcome:
    """Returns what became of a contender with these runs."""
    contender = Done(name, kind)
    contender.targets = targets
    return Outcome(contender, samples=[Sample(value, 1, 0, verified=True) for value in values])


def result(metric: Metric, *outcomes: Outcome, baseline: str = "peers") -> Result:
    """Returns a finished measurement."""
    contenders = [one.contender for one in outcomes]
    return Result(Measurement("rows", "Some rows", metric, contenders, baseline), list(outcomes))


PEERS = {RATE: ([4.0, 5.0, 6.0], [1.0, 7.0, 2.0]), COST: ([1 / 4, 1 / 5, 1 / 6], [1 / 1, 1 / 7, 1 / 2])}
OURS = {RATE: [10.0, 8.0, 12.0], COST: [1 / 10, 1 / 8, 1 / 12]}


@pytest.mark.parametrize("metric", [RATE, COST], ids=["rate", "cost"])
@pytest.mark.parametrize(
    ("ratio", "worst", "met"), [(2.0, None, True), (2.1, None, False), (2.0, 1.14, True), (2.0, 1.15, False)]
)
def test_the_best_peer(metric: Metric, ratio: float, worst: float | None, *, met: bool) -> None:
    """Of medians the best peer counts; of single runs the best of any peer, against our worst."""
    ours = outcome("ours", Kind.OURS, OURS[metric], AtLeast(ratio, worst=worst))
    slow, uneven = (outcome(name, Kind.PEER, values) for name, values in zip("pq", PEERS[metric], strict=True))
    found = result(metric, ours, slow, uneven)
    verdict = ours.contender.targets[0].judge(found, ours)
    assert verdict.met is met
    assert (verdict.value, verdict.worst) == (pytest.approx(2.0), pytest.approx(8 / 7))
    word = "met" if met else "MISSED"
    assert report.targets(found) == [f"ours: {verdict.text}: 2, the worst run 1.14: {word}"]
    assert report.goals([found]).splitlines()[1].split()[-3:] == ["2", "1.14", word]


def test_no_peer_ran() -> None:
    """Then nothing was measured for the target, and the table of goals leaves it out."""
    ours = outcome("ours", Kind.OURS, [1.0], AtLeast(1.0, worst=1.0))
    found = result(RATE, ours)
    assert report.targets(found) == ["ours: >= 1 x the best peer, the worst run >= 1 x its best: not measured"]
    assert report.goals([found]) == ""


@pytest.mark.parametrize(("values", "met"), [((1.2, 1.3), [True, True]), ((1.21, 1.31), [False, False])])
def test_the_last_point_of_a_sweep(values: tuple[float, float], met: list[bool]) -> None:
    """The last contender may cost more than those before it."""
    target = Flat(1.2, last=1.3)
    rows = [outcome(str(at), Kind.OURS, [value], target) for at, value in enumerate((1.0, *values))]
    found = result(COST, *rows, baseline="first")
    assert [target.judge(found, row).met for row in rows] == [True, *met]
    assert target.text == "<= 1.2 x the first, the last <= 1.3 x"
