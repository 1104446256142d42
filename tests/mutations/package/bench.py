# SPDX-License-Identifier: Apache-2.0
"""A module with all its faults, and a pytest that has collected tests of it: a run costs a fork, not a start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.mutations.apart import Run, found
from tests.mutations.package import chooser
from tests.mutations.package.points import points_of
from tests.mutations.package.schemata import Schema
from tests.mutations.warm import Warm

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

FORK_SECONDS, CONTROL_SECONDS = 0.5, 600.0


class Bench:
    """Runs tests on faults of one module.

    Args:
        module: Its path below the root.
        text: The module as it is.
        files: The files of tests that are collected.
        root: The checkout.
        folder: Where this may write.
    """

    def __init__(self, module: str, text: str, files: Iterable[str], root: Path, folder: Path) -> None:
        self.module, self.files = module, frozenset(files)
        self._path, self._root, self._folder = folder / "chosen", root, folder
        self._schema = Schema(text, points_of(module, text), self._path)
        self._passes: dict[str, bool] = {}  # without a fault
        self._warm: Warm | None = None
        self.text = self._schema.text

    def begin(self) -> None:
        """Collects the tests. The text of the module must stand in its place by now."""
        self._choose([])
        self._warm = Warm(chooser.__name__, sorted(self.files), self._root, self._folder, {})
        self._called = self._schema.in_functions(self._warm.told)

    def can_try(self, key: str) -> bool:
        """Whether this fault is in force wherever a test meets it."""
        return key not in self._called

    def run(self, tests: Mapping[str, float], keys: Sequence[str]) -> tuple[Run, str]:
        """Runs these tests with these faults in force, until one fails; says which was the last, too.

        Args:
            tests: By their ids; for each how many seconds it takes without a fault.
            keys: The faults, of one function one at most.
        """
        last = ""

        def trial(limit: float) -> Run:
            nonlocal last
            run, last = self._run(list(tests), limit, keys)
            return run

        run = found(trial, lambda limit: self._run([last], limit, [])[0], max(tests.values()) + FORK_SECONDS)
        return run, last

    def is_evidence(self, test: str) -> bool:
        """Whether this test was collected, and passes without a fault."""
        if test not in self._passes:
            assert self._warm is not None
            good = test in self._warm.tests and self._run([test], CONTROL_SECONDS, [])[0].passed
            self._passes[test] = good
        return self._passes[test]

    def usable(self, tests: Mapping[str, float]) -> dict[str, float]:
        """Those of these tests that were collected, and of which it is not known that they fail without a fault."""
        assert self._warm is not None
        collected = set(self._warm.tests)
        return {test: took for test, took in tests.items() if test in collected and self._passes.get(test, True)}

    def close(self) -> None:
        """Ends it."""
        if self._warm is not None:
            self._warm.close()
            self._warm = None

    def _run(self, tests: Sequence[str], limit: float, keys: Sequence[str]) -> tuple[Run, str]:
        assert self._warm is not None
        return self._warm.run(tests, self._choose(keys), limit)

    def _choose(self, keys: Sequence[str]) -> list[int]:
        """Writes the numbers for the processes that tests start."""
        numbers = self._schema.chosen(keys)
        self._path.write_text(" ".join(map(str, numbers)), encoding="ascii")
        self._path.chmod(0o644)  # a test may run processes of another user
        return numbers
