# SPDX-License-Identifier: Apache-2.0
"""Evidence: the programs and tests that can find a fault, in stages, and one run of them."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutations.apart import Run, clear, found, run_limited
from tests.mutations.core.tree import ROOT, Tree
from tests.mutations.core.warm import warm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.mutations.warm import Warm

PYTHON = "python"
STAGES = ("quick", "kills", "orders", "long", PYTHON)
TABLE = re.compile(
    r"^(?:static )?const (?:test_case CASES|operation OPERATIONS|scenario SCENARIOS)\[\] = \{(.*?)^\};",
    re.DOTALL | re.MULTILINE,
)
ENTRY = re.compile(r'^    \{"([^"]+)",', re.MULTILINE)
NO_STEP = "100000"  # the operation ends before that step; what it leaves is checked too
SAMPLE = "29"  # one step of 29 is killed
MOST = "300"  # schedules of a scenario
RUNS = "100"  # random ones
FORK_SECONDS, SURVEY_SECONDS = 0.5, 1800.0


@dataclass(frozen=True)
class Evidence:
    """One run that passes on the core as it is.

    Args:
        name: What the results call it.
        stage: One of STAGES.
        command: The program of the C tests and its arguments; or a file of Python tests, or one of them by its id.
    """

    name: str
    stage: str
    command: tuple[str, ...]


def _entries(*patterns: str) -> list[str]:
    texts = [
        path.read_text(encoding="utf-8")
        for pattern in patterns
        for path in sorted((ROOT / "tests" / "c").glob(pattern))
    ]
    return [name for text in texts for table in TABLE.findall(text) for name in ENTRY.findall(table)]


def all_evidence() -> Iterator[Evidence]:
    """All there is, stage by stage."""
    cases, operations, scenarios = _entries("interleavings/*.c"), _entries("operations.c"), _entries("races/*.c")
    for name in _entries("units/*.c"):
        yield Evidence(f"units '{name}'", "quick", ("units", name))
    for name in scenarios:
        yield Evidence(f"races -kind plain '{name}'", "quick", ("races", "-kind", "plain", name))
    for name in operations:
        yield Evidence(f"kill_at_step '{name}', no kill", "quick", ("kill_at_step", name, NO_STEP))
    for name in cases:
        yield Evidence(f"interleavings '{name}'", "quick", ("interleavings", name))
    for name in operations:
        yield Evidence(f"kill_at_step -every {SAMPLE} '{name}'", "kills", ("kill_at_step", "-every", SAMPLE, name))
    for kind in ("orders", "delays", "random", "kills"):
        for name in scenarios:
            bounds = ("-most", MOST, "-random", RUNS)
            yield Evidence(f"races -kind {kind} '{name}'", "orders", ("races", *bounds, "-kind", kind, name))
    yield Evidence("segments", "long", ("segments",))
    yield Evidence("stress 100", "long", ("stress", "100"))
    yield Evidence("fuzz -count 20", "long", ("fuzz", "-count", "20"))
    for name in python_files():
        yield Evidence(name, PYTHON, (name,))


def python_files() -> list[str]:
    """The files of Python tests."""
    folders = [ROOT / "tests" / name for name in ("unit", "scenarios", "property")]
    return [str(path.relative_to(ROOT)) for folder in folders for path in sorted(folder.rglob("test_*.py"))]


_warm: list[Warm] = []  # of this process


class Runner:
    """Runs evidence on the mutated core, with the /dev/shm of this process.

    Args:
        tree: The folder that holds the programs.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def run(
        self, evidence: Evidence, *, mutants: Sequence[int] = (), seen: Path | None = None, limit: float = 600.0
    ) -> Run:
        """Runs it once, with these faults in force; what it leaves is removed."""
        environment = os.environ | {"SB_MUTANT": " ".join(map(str, mutants))}
        if seen is not None:
            environment["SB_MUTANT_SEEN"] = str(seen)
        command = [str(self.tree.programs / evidence.command[0]), *evidence.command[1:]]
        run = run_limited(command, limit, cwd=ROOT, environment=environment)
        clear()
        return run

    def survey(self, evidence: Evidence) -> tuple[Run, bytes]:
        """Runs it once without a fault; one byte for each fault comes with it, 1 if the run reached its place."""
        with tempfile.NamedTemporaryFile() as seen:
            return self.run(evidence, seen=Path(seen.name)), Path(seen.name).read_bytes()

    @property
    def warm(self) -> Warm:
        """The pytest of this process, with all tests of Python."""
        if not _warm:
            _warm.append(warm(self.tree, python_files(), ROOT))
        return _warm[0]

    def survey_tests(self, file: str, count: int) -> dict[str, tuple[float, bytes]]:
        """What each test of a file comes to without a fault, and how long it takes.

        Args:
            file: Of Python tests.
            count: How many faults there are.
        """
        tests = [name for name in self.warm.tests if name.startswith(f"{file}::")]
        return self.warm.survey(tests, count, SURVEY_SECONDS) if tests else {}

    def first_that_finds(self, tests: Sequence[str], mutants: Sequence[int], seconds: float) -> str | None:
        """The first of these Python tests that fails with these faults, or does not end, and passes without them.

        Args:
            tests: By their ids.
            mutants: The numbers of the faults.
            seconds: How long all of them took without a fault.
        """
        last = ""

        def trial(limit: float) -> Run:
            nonlocal last
            run, last = self.warm.run(tests, mutants, limit)
            return run

        if found(trial, lambda limit: self.warm.run(tests, (), limit)[0], seconds + FORK_SECONDS).passed:
            return None
        return last if self.warm.run([last], (), SURVEY_SECONDS)[0].passed else None

    def finds(self, evidence: Evidence, mutants: Sequence[int], seconds: float) -> bool:
        """Whether it fails with these faults, or does not end.

        A run that takes too long is compared with one without a fault, so that a busy machine finds nothing.

        Args:
            evidence: What is run.
            mutants: The numbers of the faults.
            seconds: How long it took without a fault.
        """
        if evidence.stage == PYTHON:
            return self.first_that_finds([evidence.name], mutants, seconds) is not None
        return not found(
            lambda limit: self.run(evidence, mutants=mutants, limit=limit),
            lambda limit: self.run(evidence, limit=limit),
            seconds,
        ).passed
