# SPDX-License-Identifier: Apache-2.0
"""The hunt: which evidence meets which faults, in what order, and what is learnt from it.

At first each fault meets the few quick programs, or tests, that are likely to find it: most are found so. What is left
goes evidence by evidence, many faults in force at once: a run that passes clears all of them, and one that fails is
halved until the faults are found that fail alone. A group has one fault of each function at most. Faults that hide each
other all the same count as not found: the score can be too low for that, never too high.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tests.mutations.core.evidence import PYTHON, STAGES, Evidence, Runner
from tests.mutations.core.tree import EQUIVALENT
from tests.mutations.equivalents import equivalents
from tests.mutations.point import of_one_each
from tests.mutations.pool import flow, say
from tests.mutations.report import Known
from tests.mutations.results import RESULTS, Results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from tests.mutations.core.tree import Core, Tree
    from tests.mutations.point import Point

LIKELY, LIKELY_SECONDS = 8, 0.3  # programs that a fault meets alone, and how long they take at most
TESTS, TESTS_SECONDS = 6, 4.0  # of Python that a fault meets alone, in one process; seconds that they take at most
SOME_PROGRAMS, SOME_TESTS = "some programs", "some tests of Python"  # as evidence: those that a fault met alone
LARGEST, BEST = 64, 0.7  # of a group: the most, and how many of its faults are expected to be found
PRIOR_FAULTS, PRIOR_FOUND = 40, 4  # what a stage's rate is before it has begun
WEIGHT = 10  # of the stage's rate beside what this evidence has shown


def seek(runner: Runner, number: int, able: Sequence[tuple[Evidence, float]]) -> tuple[list[str], str | None]:
    """Runs evidence on one fault until some finds it.

    Args:
        runner: Runs it.
        number: The fault.
        able: What reaches it, and how many seconds each takes.

    Returns:
        What passed, and what found it.
    """
    passed: list[str] = []
    for one, seconds in able:
        if runner.finds(one, [number], seconds):
            return passed, one.name
        passed.append(one.name)
    return passed, None


def seek_tests(runner: Runner, number: int, able: Sequence[tuple[Evidence, float]]) -> tuple[list[str], str | None]:
    """Runs tests of Python on one fault, all in one process, until some finds it; returns what `seek` does."""
    tests = [one.name for one, _ in able]
    finder = runner.first_that_finds(tests, [number], sum(seconds for _, seconds in able))
    return tests if finder is None else tests[: tests.index(finder)], finder


def sift(runner: Runner, one: Evidence, seconds: float, numbers: Sequence[int], *, fails: bool = False) -> set[int]:
    """Finds those of these faults that fail alone.

    Args:
        runner: Runs the evidence.
        one: The evidence.
        seconds: How long it takes without a fault.
        numbers: The faults.
        fails: Whether it is known that all of them together fail.
    """
    if (len(numbers) == 1 or not fails) and not runner.finds(one, numbers, seconds):
        return set()
    if len(numbers) == 1:
        return set(numbers)
    middle = len(numbers) // 2
    first = sift(runner, one, seconds, numbers[:middle])
    return first | sift(runner, one, seconds, numbers[middle:], fails=not first)


def survey(runner: Runner, one: Evidence) -> tuple[float, bytes]:
    """Runs evidence without a fault: how many seconds it takes, and one byte for each fault, 1 if it is reached.

    Raises:
        RuntimeError: It fails without any fault.
    """
    run, seen = runner.survey(one)
    if not run.passed:
        message = f"{one.name} fails without any fault"
        raise RuntimeError(message)
    return run.seconds, seen


def survey_tests(runner: Runner, one: Evidence, count: int) -> dict[str, tuple[float, bytes]]:
    """The same of each test in a file of Python tests; those that fail without any fault are left out."""
    return runner.survey_tests(one.name, count)


def _within(timed: list[tuple[Evidence, float]]) -> list[tuple[Evidence, float]]:
    """As many of them, from the first on, as take no longer than TESTS_SECONDS; one at least."""
    sums = list(accumulate(seconds for _, seconds in timed))
    return timed[: max(1, bisect_right(sums, TESTS_SECONDS))]


class Hunt:
    """Faults, the evidence that reaches each, and what is known of them.

    Args:
        tree: Where programs and results are.
        core: All faults.
        evidence: What is run.
        pool: Where it is run.
        width: How many processes the pool has.
    """

    def __init__(self, tree: Tree, core: Core, evidence: Sequence[Evidence], pool: Executor, width: int = 1) -> None:
        self.core, self.evidence, self.pool, self.width = core, evidence, pool, width
        self.numbers = {point.key: number for number, point in enumerate(core.points, 1)}
        self.runner = Runner(tree)
        self.results = Results(tree.folder / RESULTS)
        self.equivalent = equivalents(core.points, EQUIVALENT)
        self.reach: dict[str, tuple[float, bytes]] = {}
        self.tests: list[Evidence] = []  # of Python
        files = {point.key: point.file for point in core.points}
        found_in = [(files.get(key), name) for key, name in self.results.killed_by().items()]
        self.merits = Counter(found_in)  # how much this evidence found in this file
        for one in evidence:
            found = self.results.reach(core.digest, one.name)
            if found is not None:
                self.reach[one.name] = found

    def known(self) -> Known:
        """What is known by now."""
        results = self.results
        return Known(results.killed_by(), results.passed(), self.equivalent, results.unreached())

    def passed_by_all(self) -> list[str]:
        """The evidence that each of the survivors passes which it reaches."""
        known, found = self.known(), []
        left = [point for point in self.core.points if known.outcome(point) == "survived"]
        for one in [*(one for one in self.evidence if one.stage != PYTHON and one.name in self.reach), *self.tests]:
            met = self.results.met(one.name)
            if all(point.key in met for point in left if self._reaches(one, point)):
                found.append(one.name)
        return found

    def look(self, *, anew: bool = False) -> None:
        """Runs all evidence once without a fault, to see what it reaches and how long it takes.

        Args:
            anew: Also what was seen before: the evidence may have changed.

        Raises:
            RuntimeError: It fails without any fault.
        """
        if anew:
            self.reach.clear()
        programs = [one for one in self.evidence if one.stage != PYTHON]
        calls: Iterator[tuple[Any, ...]]
        calls = ((one, survey, self.runner, one) for one in programs if one.name not in self.reach)
        for one, found in flow(self.pool, self.width, calls):
            self._keep_reach(one.name, *found)
        files = [one for one in self.evidence if one.stage == PYTHON]
        count = len(self.core.points)
        calls = ((one, survey_tests, self.runner, one, count) for one in files if one.name not in self.reach)
        for one, tests in flow(self.pool, self.width, calls):
            for name, found in tests.items():
                self._keep_reach(name, *found)
            self._keep_reach(one.name, 0.0, b"")
            say(f"{one.name}: {len(tests)} tests")
        self._find_tests(files)

    def _find_tests(self, files: Sequence[Evidence]) -> None:
        for file in files:
            for name in self.results.evidence_of(self.core.digest, f"{file.name}::"):
                found = self.results.reach(self.core.digest, name)
                if found is not None:
                    self.reach[name] = found
                    self.tests.append(Evidence(name, PYTHON, (name,)))

    def _keep_reach(self, name: str, seconds: float, numbers: bytes) -> None:
        self.reach[name] = (seconds, numbers)
        self.results.set_reach(self.core.digest, name, seconds, numbers)

    def hunt(self, points: Sequence[Point]) -> None:
        """Tries those of these faults that were not found yet, stage by stage."""
        for stage in STAGES:
            evidence = self.tests if stage == PYTHON else [one for one in self.evidence if one.stage == stage]
            if stage == STAGES[0]:
                quick = [one for one in evidence if self.reach[one.name][0] <= LIKELY_SECONDS]
                self._fault_by_fault(quick, points, seek, LIKELY)
            if stage == PYTHON:
                quick = [one for one in evidence if self.reach[one.name][0] <= TESTS_SECONDS / 2]
                self._fault_by_fault(quick, points, seek_tests, TESTS)
            self._evidence_by_evidence(evidence, points)
        known = self.known()
        for point in points:
            if known.outcome(point) == "untried":
                self.results.add_unreached(point.key)

    def _open(self, points: Sequence[Point]) -> list[Point]:
        killed = self.results.killed_by()
        return [point for point in points if point.key not in killed and point.key not in self.equivalent]

    def _reaches(self, one: Evidence, point: Point) -> bool:
        return bool(self.reach[one.name][1][self.numbers[point.key]])

    def _fault_by_fault(
        self, evidence: Sequence[Evidence], points: Sequence[Point], seeks: Callable[..., Any], most: int
    ) -> None:
        passed, some = self.results.passed(), SOME_TESTS if seeks is seek_tests else SOME_PROGRAMS
        width = {one.name: sum(self.reach[one.name][1]) for one in evidence}

        def price(one: Evidence, point: Point) -> float:
            """The cheapest first, for what it found in this file; of those that are alike the one that reaches less."""
            return self.reach[one.name][0] * width[one.name] / (1 + self.merits[point.file, one.name])

        def calls() -> Iterator[tuple[Any, ...]]:
            for point in self._open(points):
                done = passed.get(point.key, set()) & width.keys()
                if some in passed.get(point.key, ()):
                    continue
                able = [one for one in evidence if one.name not in done and self._reaches(one, point)]
                able.sort(key=lambda one: price(one, point))
                if able and len(done) < most:
                    timed = [(one, self.reach[one.name][0]) for one in able[: most - len(done)]]
                    yield point, seeks, self.runner, self.numbers[point.key], _within(timed)

        for point, (names, finder) in flow(self.pool, self.width, calls()):
            self._keep(point, [*names, some], finder)
            if finder:
                say(f"{point.file}:{point.line} {point.function}: {point}: killed by {finder}")

    def _evidence_by_evidence(self, evidence: Sequence[Evidence], points: Sequence[Point]) -> None:
        open_ = self._open(points)
        reached = {one.name: sum(self._reaches(one, point) for point in open_) for one in evidence}
        faults, found = PRIOR_FAULTS, PRIOR_FOUND
        for one in sorted(evidence, key=lambda one: self.reach[one.name][0] / (1 + reached[one.name])):
            met = self.results.met(one.name)
            able = [point for point in self._open(points) if self._reaches(one, point) and point.key not in met]
            if able:
                begin = time.monotonic()
                here = self._sift(one, able, found / faults)
                faults, found = faults + len(able), found + here
                say(f"{one.name}: {len(able)} faults, {here} found, {time.monotonic() - begin:.0f} s")

    def _sift(self, one: Evidence, able: Sequence[Point], rate: float) -> int:
        """Tries this evidence on these faults, in groups; returns how many it found.

        Args:
            one: The evidence.
            able: The faults.
            rate: The part of the faults that evidence of this stage finds.
        """
        seconds = self.reach[one.name][0]
        left, ended, found = list(able), 0, 0

        def calls() -> Iterator[tuple[Any, ...]]:
            nonlocal left
            while left:
                expected = (found + WEIGHT * rate) / (ended + WEIGHT)
                group, left = of_one_each(left, max(1, min(LARGEST, int(BEST / expected))))
                yield group, sift, self.runner, one, seconds, [self.numbers[point.key] for point in group]

        some = SOME_TESTS if one.stage == PYTHON else SOME_PROGRAMS
        for group, numbers in flow(self.pool, self.width, calls()):
            ended, found = ended + len(group), found + len(numbers)
            hits = [point for point in group if self.numbers[point.key] in numbers]
            passed = [point.key for point in group if self.numbers[point.key] not in numbers]
            self.results.add_met(one.name, passed)
            self.results.add_all(((key, some) for key in passed), found=False)
            for point in hits:
                self._keep(point, [], one.name)
                say(f"{point.file}:{point.line} {point.function}: {point}: killed by {one.name}")
        return found

    def _keep(self, point: Point, passed: Sequence[str], finder: str | None) -> None:
        for name in passed:
            self.results.add(point.key, name, found=False)
        if finder is not None:
            self.results.add(point.key, finder, found=True)
            self.merits[point.file, finder] += 1
