# SPDX-License-Identifier: Apache-2.0
"""The hunt: which tests meet which fault, in what order, and what is learnt from it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.mutations.package.survey import Surveys, stage_of, test_file
from tests.mutations.package.trial import START_SECONDS, Batch, Verdict, attempt, survey
from tests.mutations.pool import flow, say
from tests.mutations.report import Known

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from typing import Any

    from tests.mutations.point import Point
    from tests.mutations.results import Results

BATCH_SECONDS = 2.0  # of tests in the first batch; each has three times as much as the one before
BATCH_TESTS = 100


class Hunt:
    """Faults, the tests that reach each, and what is known of them.

    Args:
        surveys: What tests reach.
        results: What is known of faults.
        equivalent: Those that change nothing, with the reason for each.
        tests: The files of tests that are run.
    """

    def __init__(self, surveys: Surveys, results: Results, equivalent: Mapping[str, str], tests: Sequence[str]) -> None:
        self.surveys, self.results, self.equivalent = surveys, results, equivalent
        self.stage = {name: stage_of(name) for name in tests}
        self.merits: Counter[tuple[str, str]] = Counter()  # how many faults of a file this test has found
        self.breadth: dict[str, int] = {}  # how many statements this test comes to

    def known(self) -> Known:
        """What is known by now."""
        return Known(self.results.killed_by(), self.results.passed(), self.equivalent, self.results.unreached())

    def look(self, pool: Executor, width: int) -> None:
        """Surveys the files of tests of which nothing is known as they are."""
        calls = ((file, survey, file) for file in self.stage if not self.surveys.has(file))
        for file, (tests, passed) in flow(pool, width, calls):
            self.surveys.add(file, tests)
            say(f"{file}: {len(tests)} tests{'' if passed else '; some fail on the copy, and are left out'}")

    def hunt(self, points: Sequence[Point], pool: Executor, width: int, budget: float) -> None:
        """Tries those of these faults that were not found yet.

        Args:
            points: The faults.
            pool: Where tests are run.
            width: How many processes the pool has.
            budget: Seconds that the tests of one fault take, if there is none; the first batch may take longer.
        """
        killed, passed = self.results.killed_by(), self.results.passed()
        files = {point.key: point.file for point in points}
        self.merits.update((files[key], name) for key, name in killed.items() if key in files)
        open_ = [point for point in points if point.key not in killed and point.key not in self.equivalent]
        reaching = self._reaching(open_)

        def calls() -> Iterator[tuple[Any, ...]]:
            for point in open_:
                tests = reaching[(point.file, point.place)]
                if not tests:
                    self.results.add_unreached(point.key)
                    say(f"{_named(point)}: UNREACHED")
                    continue
                done = passed.get(point.key, set())
                able = {test: seconds for test, seconds in tests.items() if self._evidence(test) not in done}
                batches = self._batches(point, able, budget)
                if batches:
                    yield point, attempt, point, batches

        for point, verdict in flow(pool, width, calls()):
            self._keep(point, verdict)
            say(f"{_named(point)}: {f'killed by {verdict.finder}' if verdict.finder else 'SURVIVED'}")

    def _reaching(self, points: Sequence[Point]) -> dict[tuple[str, int], dict[str, float]]:
        """For the place of each fault the tests that come to it, and how long each takes."""
        wanted = {(point.file, point.place) for point in points}
        found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
        for file in self.stage:
            for one in self.surveys.reaching(file):
                self.breadth[one.test] = one.seen.count(1)
                for place in wanted:
                    if one.to(*place):
                        found[place][one.test] = one.seconds
        return found

    def _evidence(self, test: str) -> str:
        """What results call a test that passes: when its file changes, it is tried again."""
        return f"{test} {self.surveys.text(test_file(test))}"

    def _batches(self, point: Point, tests: Mapping[str, float], budget: float) -> list[Batch]:
        """The tests in the order of their trial.

        The first are cheap, come to little besides, as a test of one module does, and found much in this file.
        """

        def price(test: str) -> tuple[int, float]:
            seconds = (START_SECONDS / 10 + tests[test]) * self.breadth[test]
            return self.stage[test_file(test)], seconds / (1 + self.merits[point.file, test])

        batches: list[Batch] = []
        batch: list[str] = []
        spent, most = 0.0, BATCH_SECONDS
        for test in sorted(tests, key=price):
            if batch and (spent + tests[test] > most or len(batch) >= BATCH_TESTS):
                batches.append(Batch(tuple(batch), spent))
                budget, batch, spent, most = budget - spent, [], 0.0, 3 * most
            if batches and tests[test] > budget - spent:
                continue
            batch.append(test)
            spent += tests[test]
        return [*batches, Batch(tuple(batch), spent)] if batch else batches

    def _keep(self, point: Point, verdict: Verdict) -> None:
        self.results.add_all(((point.key, self._evidence(test)) for test in verdict.passed), found=False)
        if verdict.finder is not None:
            self.results.add(point.key, verdict.finder, found=True)
            self.merits[point.file, verdict.finder] += 1


def _named(point: Point) -> str:
    return f"{point.file}:{point.line} {point.function}: {point}"
