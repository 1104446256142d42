# SPDX-License-Identifier: Apache-2.0
"""What a process of the runner does: a survey of one file of tests, and the trial of one fault."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.mutations.apart import Run, found
from tests.mutations.package.points import with_fault
from tests.mutations.package.workshop import Reach, workshop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutations.point import Point

SURVEY_SECONDS = 1800.0
START_SECONDS = 2.0  # of pytest
ENDED = {0, 1, 2}  # what pytest returns when the tests passed, failed or could not be imported


@dataclass(frozen=True)
class Batch:
    """Tests that are run in one process, and how many seconds they take without a fault."""

    tests: tuple[str, ...]
    seconds: float


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


def attempt(point: Point, batches: Sequence[Batch]) -> Verdict:
    """Runs batches of tests on a fault until one finds it."""
    here, passed = workshop(), list[str]()
    faulty = {point.file: with_fault(here.original[point.file], point)}
    for batch in batches:
        notes = ""

        def trial(limit: float, batch: Batch = batch) -> Run:
            nonlocal notes
            here.write(faulty)
            run, notes = here.run(batch.tests, limit)
            return run

        def control(limit: float, batch: Batch = batch) -> Run:
            here.write({})
            return here.run(batch.tests, limit)[0]

        run = found(trial, control, batch.seconds + START_SECONDS)
        if run.passed:
            passed += batch.tests
        elif run.hung or run.code in ENDED or control(SURVEY_SECONDS).passed:
            return Verdict(tuple(passed), notes or batch.tests[0])
    return Verdict(tuple(passed), None)
