# SPDX-License-Identifier: Apache-2.0
"""Waiting for a condition. Tests never sleep to synchronise, they wait here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

WATCHDOG_SECONDS = 240.0
"""How long a condition may take. Not a maximum time of the product: only a guard."""

PAUSE_SECONDS = 0.002


def eventually(predicate: Callable[[], T], what: str = "the condition") -> T:
    """Ask again and again until the answer is true, and return it.

    Raises:
        AssertionError: If it never was before the watchdog's deadline.
    """
    deadline = time.monotonic() + WATCHDOG_SECONDS
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() > deadline:
            message = f"not within {WATCHDOG_SECONDS:.0f} s: {what}"
            raise AssertionError(message)
        time.sleep(PAUSE_SECONDS)


def becomes(read: Callable[[], T], expected: T) -> None:
    """Wait until `read()` gives `expected`; fail showing what it gave last."""
    deadline = time.monotonic() + WATCHDOG_SECONDS
    while True:
        seen = read()
        if seen == expected:
            return
        if time.monotonic() > deadline:
            assert seen == expected, f"still so after {WATCHDOG_SECONDS:.0f} s"
        time.sleep(PAUSE_SECONDS)


def until_clock(moment: float) -> None:
    """Wait until `time.monotonic()` has passed `moment`: the clock is the condition."""
    eventually(lambda: time.monotonic() > moment, f"the clock to pass {moment}")
