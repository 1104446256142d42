# SPDX-License-Identifier: Apache-2.0
"""What a process of the runner does: a survey of one file of tests, and the trial of one fault."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from tests.mutations.apart import Run, found
from tests.mutations.package.points import with_fault
from tests.mutations.package.survey import test_file
from tests.mutations.package.workshop import Reach, workshop

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tests.mutations.package.bench import Bench
    from tests.mutations.point import Point

SURVEY_SECONDS = 1800.0
START_SECONDS = 2.0  # of pytest
ENDED = {0, 1, 2}  # what pytest returns when the tests passed, failed or could not be imported


@dataclass(frozen=True)
class Batch:
    """Tests that are run in one process, in this order, and how many seconds each takes without a fault."""

    tests: Mapping[str, float]


@dataclass(frozen=True)
class Verdict:
    """How a trial ended: the tests that passed, and the one that found the fault."""

    passed: tuple[str, ...]
    finder: str | None


def survey(file: str) -> tuple[dict[str, Reach], bool]:
    """What each test of a file comes to; tests that fail or are left out are missing. Also whether some did."""
    run, notes = workshop().survey(file, SURVEY_SECONDS)
    lines = [json.loads(line) for line in notes.splitlines()]
    return {name: Reach(seconds, b64decode(places)) for name, seconds, places in lines}, run.passed


def attempt(point: Point, batches: Sequence[Batch], files: Collection[str]) -> Verdict:
    """Runs batches of tests on a fault until one finds it.

    Args:
        point: The fault.
        batches: What is run.
        files: The files of tests that other faults of its module need.
    """
    bench = workshop().bench(point.file, files)
    if not bench.can_try(point.key):
        return attempt_anew(point, batches)
    passed = list[str]()
    for batch in batches:
        tests = bench.usable(batch.tests)
        while tests:
            run, last = bench.run(tests, [point.key])
            if run.passed:
                break
            if bench.is_evidence(last):
                return Verdict(tuple(passed), last)
            del tests[last]
        passed += tests
    return Verdict(tuple(passed), None)


def attempt_together(points: Sequence[Point], batch: Batch) -> dict[str, str]:
    """Runs tests on faults of several functions of a module, all in force.

    A fault that is found is not in force any more when the other tests are run. Faults that hide each other are not
    found. Those of functions that imports call are tried one by one.

    Args:
        points: Faults of one module, of each function one at most.
        batch: What is run.

    Returns:
        For the key of each fault that makes a test fail alone, that test.
    """
    module, files, found_by = points[0].file, {test_file(test) for test in batch.tests}, dict[str, str]()
    bench = workshop().bench(module, files)
    for point in points:
        finder = None if bench.can_try(point.key) else attempt_anew(point, [batch]).finder
        if finder is not None:
            found_by[point.key] = finder
    bench = workshop().bench(module, files)  # its text stands there again
    tests, keys = bench.usable(batch.tests), [point.key for point in points if bench.can_try(point.key)]
    while tests and keys:
        run, last = bench.run(tests, keys)
        if run.passed:
            break
        found_now = sift(bench, {last: tests[last]}, keys) if bench.is_evidence(last) else set[str]()
        found_by |= dict.fromkeys(found_now, last)
        keys = [key for key in keys if key not in found_now]
        following = islice(tests.items(), list(tests).index(last) + (not found_now), None)
        tests = dict(following)
    return found_by


def sift(bench: Bench, test: Mapping[str, float], keys: Sequence[str]) -> set[str]:
    """Those of these faults that fail this test alone. All of them together fail it."""
    if len(keys) == 1:
        return set(keys) if not bench.run(test, keys)[0].passed else set()
    middle = len(keys) // 2
    return {
        key
        for half in (keys[:middle], keys[middle:])
        if len(half) == 1 or not bench.run(test, half)[0].passed
        for key in sift(bench, test, half)
    }


def attempt_anew(point: Point, batches: Sequence[Batch]) -> Verdict:
    """The same as `attempt`, with a pytest of its own for each batch, which imports the module with the fault."""
    here, passed = workshop(), list[str]()
    faulty = {point.file: with_fault(here.original[point.file], point)}
    for batch in batches:
        tests, notes = tuple(batch.tests), ""

        def trial(limit: float, tests: Sequence[str] = tests) -> Run:
            nonlocal notes
            here.write(faulty)
            run, notes = here.run(tests, limit)
            return run

        def control(limit: float, tests: Sequence[str] = tests) -> Run:
            here.write({})
            return here.run(tests, limit)[0]

        run = found(trial, control, sum(batch.tests.values()) + START_SECONDS)
        if run.passed:
            passed += tests
        elif run.hung or run.code in ENDED or control(SURVEY_SECONDS).passed:
            return Verdict(tuple(passed), notes or tests[0])
    return Verdict(tuple(passed), None)
