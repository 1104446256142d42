# SPDX-License-Identifier: Apache-2.0
"""The hunt: which tests meet which fault, in what order, and what is learnt from it.

Module by module, each fault first meets alone the few tests that are likely to find it: most are found so. The faults
that are left meet the other tests in groups: all faults of a group are in force, one of each function. Faults that hide
each other count as not found: the score can be too low for that, never too high.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from tests.mutations.package.survey import Surveys, stage_of, test_file
from tests.mutations.package.trial import START_SECONDS, Batch, attempt, attempt_together, survey
from tests.mutations.point import of_one_each
from tests.mutations.pool import flow, say
from tests.mutations.report import Known

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from typing import Any

    from tests.mutations.point import Point
    from tests.mutations.results import Results

BATCH_SECONDS = 0.3  # of tests in the first batch; each has three times as much as the one before
BATCH_TESTS = 100
ALONE_SECONDS = 0.7  # of tests that a fault meets alone; more cost less in groups
LARGEST = 16  # of a group
SOME_TESTS = "some tests"  # as evidence: those that a fault met alone
Able: TypeAlias = "dict[Point, dict[str, float]]"  # for each fault the tests that it can meet, and how long each takes


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
        self._passed: dict[str, set[str]] = {}  # for a test the faults that it has met
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
            budget: Seconds that the tests of a group of faults take, if there is none; one test is run in any case.
        """
        files = {point.key: point.file for point in points}
        self.merits.update((files[key], name) for key, name in self.results.killed_by().items() if key in files)
        reaching = self._reaching(self._open(points))
        for module in dict.fromkeys(point.file for point in points):
            able: Able = {}
            for point in self._open([point for point in points if point.file == module]):
                tests = reaching[(point.file, point.place)]
                if tests:
                    able[point] = {test: seconds for test, seconds in tests.items() if point.key not in self._met(test)}
                else:
                    self.results.add_unreached(point.key)
                    say(f"{_named(point)}: UNREACHED")
            self._hunt_alone(able, pool, width, min(budget, ALONE_SECONDS))
            self._hunt_together(able, pool, width, budget)

    def _open(self, points: Sequence[Point]) -> list[Point]:
        killed = self.results.killed_by()
        return [point for point in points if point.key not in killed and point.key not in self.equivalent]

    def _hunt_alone(self, able: Able, pool: Executor, width: int, budget: float) -> None:
        """Each fault that has met nothing meets the tests that are likely to find it; they collect the same files."""
        passed = self.results.passed()
        new = {point: tests for point, tests in able.items() if SOME_TESTS not in passed.get(point.key, ())}
        batches = [batch for point, tests in new.items() for batch in self._batches(point.file, tests, budget)]
        files = frozenset(test_file(test) for batch in batches for test in batch.tests)

        def calls() -> Iterator[tuple[Any, ...]]:
            for point, tests in new.items():
                collected = {test: seconds for test, seconds in tests.items() if test_file(test) in files}
                yield point, attempt, point, self._batches(point.file, collected, budget), files

        for point, verdict in flow(pool, width, calls()):
            self._keep([point], verdict.passed, {point.key: verdict.finder} if verdict.finder else {})

    def _hunt_together(self, able: Able, pool: Executor, width: int, budget: float) -> None:
        """What is left meets the other tests in groups."""

        def calls() -> Iterator[tuple[Any, ...]]:
            left = self._open(list(able))
            while left:
                group, left = of_one_each(left, LARGEST)
                tests = {
                    test: seconds
                    for point in group
                    for test, seconds in able[point].items()
                    if point.key not in self._met(test)
                }
                batches = self._batches(group[0].file, tests, budget)
                if batches:
                    batch = Batch(dict(chain.from_iterable(one.tests.items() for one in batches)))
                    yield (group, batch), attempt_together, group, batch

        for (group, batch), found_by in flow(pool, width, calls()):
            self._keep(group, batch.tests, found_by)

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

    def _met(self, test: str) -> set[str]:
        """Keys of the faults that this test has passed in spite of."""
        if test not in self._passed:
            self._passed[test] = self.results.met(self._evidence(test))
        return self._passed[test]

    def _batches(self, module: str, tests: Mapping[str, float], budget: float) -> list[Batch]:
        """The tests in the order of their trial.

        The first are cheap, come to little besides, as a test of one module does, and found much in this one.
        """

        def price(test: str) -> tuple[int, float]:
            seconds = (START_SECONDS / 10 + tests[test]) * self.breadth[test]
            return self.stage[test_file(test)], seconds / (1 + self.merits[module, test])

        batches: list[Batch] = []
        batch: dict[str, float] = {}
        spent, most = 0.0, BATCH_SECONDS
        for test in sorted(tests, key=price):
            if batch and (spent + tests[test] > most or len(batch) >= BATCH_TESTS):
                batches.append(Batch(batch))
                budget, batch, spent, most = budget - spent, {}, 0.0, 3 * most
            if batches and tests[test] > budget - spent:
                continue
            batch[test] = tests[test]
            spent += tests[test]
        return [*batches, Batch(batch)] if batch else batches

    def _keep(self, points: Sequence[Point], passed: Iterable[str], found_by: Mapping[str, str]) -> None:
        """Keeps what became of these faults: which tests all passed that are not found, and what found the others."""
        left = [point.key for point in points if point.key not in found_by]
        for test in passed if left else ():
            self.results.add_met(self._evidence(test), left)
            self._met(test).update(left)
        self.results.add_all(((key, SOME_TESTS) for key in left), found=False)
        for point in points:
            finder = found_by.get(point.key)
            if finder is not None:
                self.results.add(point.key, finder, found=True)
                self.merits[point.file, finder] += 1
            say(f"{_named(point)}: {f'killed by {finder}' if finder else 'survived until now'}")


def _named(point: Point) -> str:
    return f"{point.file}:{point.line} {point.function}: {point}"
