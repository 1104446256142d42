# SPDX-License-Identifier: Apache-2.0
"""A plugin of the warm pytest: chooses faults by the list of numbers that the mutated module looks at.

It also notes which functions are called while tests are collected: a fault of those is not in force then.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.mutations.warm import serve

if TYPE_CHECKING:
    from collections.abc import Sequence

CHOSEN = "_sb_chosen"  # the list of numbers, a global of the module
NUMBERS, MODULE = "_sb_numbers", "_sb_module"  # of `sys`: that list, if it is given; the globals of the module


class Noting(list[int]):
    """Numbers that choose no fault; it notes which functions ask for theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[int] = set()

    def __getitem__(self, number: Any) -> Any:  # noqa: ANN401 -- a list has overloads
        """Is 0 for each function."""
        self.asked.add(number)
        return 0


_noting = Noting()


def _choose(mutants: Sequence[int], _seen: str) -> None:
    """Puts these faults in force, in a module that is imported already, and in one that will be."""
    setattr(sys, NUMBERS, list(mutants))
    module = getattr(sys, MODULE, None)
    if module is not None:
        module[CHOSEN] = list(mutants)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Notes from now on: the first to import the module may be a conftest."""
    setattr(sys, NUMBERS, _noting)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Serves, instead of running what was collected."""
    asked = sorted(_noting.asked)
    serve(session, _choose, asked)
    return True
