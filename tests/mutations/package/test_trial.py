# SPDX-License-Identifier: Apache-2.0
"""Trials of faults, alone and together, against tests of which it is known what they find."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("mutmut", reason="the group `mutation` of pyproject.toml is not installed")

from tests.mutations.apart import Run
from tests.mutations.package import trial
from tests.mutations.package.trial import Batch, Verdict, attempt, attempt_together
from tests.mutations.point import Point

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

FIRST, SECOND, THIRD = TESTS = dict.fromkeys(["a.py::test_1", "a.py::test_2", "a.py::test_3"], 1.0)


@dataclass
class Bench:
    """Answers in the place of a warm pytest.

    Args:
        fails: Whether this test fails with these faults.
        at_import: Faults of functions that imports call.
        missing: Tests that were not collected.
    """

    fails: Callable[[str, set[str]], bool]
    at_import: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    runs: list[tuple[list[str], set[str]]] = field(default_factory=list)

    def can_try(self, key: str) -> bool:
        """Whether imports do not call the function of the fault."""
        return key not in self.at_import

    def usable(self, tests: Mapping[str, float]) -> dict[str, float]:
        """Those that were collected."""
        return {test: took for test, took in tests.items() if test not in self.missing}

    def is_evidence(self, test: str) -> bool:
        """Whether the test passes without a fault."""
        return not self.fails(test, set())

    def run(self, tests: Mapping[str, float], keys: Collection[str]) -> tuple[Run, str]:
        """Until one fails."""
        self.runs.append((list(tests), set(keys)))
        last = next((test for test in tests if self.fails(test, set(keys))), list(tests)[-1])
        failed = self.fails(last, set(keys))
        return Run(passed=not failed, hung=False, seconds=0.0, code=int(failed)), last


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Bench], Bench]:
    """Give what puts a bench in the place of the workshop's."""

    class Workshop:
        def __init__(self, bench: Bench) -> None:
            self._bench = bench

        def bench(self, _module: str, _files: Collection[str]) -> Any:  # noqa: ANN401 -- stands for the real one
            return self._bench

    def begin(bench: Bench) -> Bench:
        monkeypatch.setattr(trial, "workshop", lambda: Workshop(bench))
        return bench

    return begin


def fault(key: str) -> Point:
    """A fault of a function of its own."""
    return Point("m.py", key, 1, 0, 1, "delete", "x", "", key=key)


def test_faults_are_told_apart_and_the_rest_goes_on(use: Callable[[Bench], Bench]) -> None:
    """Each is found by the first test that it fails alone; the other tests are run without it."""
    found_by = {"p": FIRST, "q": FIRST, "r": THIRD}
    bench = use(Bench(lambda test, keys: any(found_by.get(key) == test for key in keys)))
    batch = Batch(TESTS)
    assert attempt_together([fault(key) for key in "opqrs"], batch) == found_by
    assert bench.runs[-1] == ([THIRD], {"o", "s"})


def test_faults_that_fail_only_together_are_not_found(use: Callable[[Bench], Bench]) -> None:
    """The tests behind that one are run all the same."""
    use(Bench(lambda test, keys: (test == FIRST and {"p", "q"} <= keys) or (test == SECOND and "r" in keys)))
    assert attempt_together([fault(key) for key in "pqr"], Batch(TESTS)) == {"r": SECOND}


def test_a_test_that_fails_without_a_fault_finds_none(use: Callable[[Bench], Bench]) -> None:
    """Neither of one fault nor of several; nor does one that was not collected."""
    use(Bench(lambda test, keys: test == FIRST or (test == SECOND and "p" in keys), missing={THIRD}))
    assert attempt_together([fault(key) for key in "pq"], Batch(TESTS)) == {"p": SECOND}
    assert attempt(fault("p"), [Batch(TESTS)], {"a.py"}) == Verdict((), SECOND)
    assert attempt(fault("s"), [Batch(TESTS)], {"a.py"}) == Verdict((SECOND,), None)


def test_a_fault_of_what_imports_call_is_imported(
    use: Callable[[Bench], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pytest of its own runs the tests, since the one that is warm has imported the module without it."""
    bench = use(Bench(lambda _test, _keys: False, at_import={"p", "q"}))
    finders = {"p": "anew: p", "q": None}
    monkeypatch.setattr(trial, "attempt_anew", lambda point, _batches: Verdict((), finders[point.key]))
    assert attempt(fault("p"), [Batch(TESTS)], {"a.py"}).finder == "anew: p"
    assert bench.runs == []
    assert attempt_together([fault(key) for key in "opq"], Batch(TESTS)) == {"p": "anew: p"}
    assert [keys for _, keys in bench.runs] == [{"o"}]
