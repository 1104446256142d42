# SPDX-License-Identifier: Apache-2.0
"""Calls in a pool of processes, a few at a time, so that what was learnt from one counts for the next."""

from __future__ import annotations

import sys
from concurrent.futures import FIRST_COMPLETED, wait
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor, Future

AT_ONCE = 2  # calls that are under way or wait for a process, for each process


def say(text: str) -> None:
    """Prints a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def flow(pool: Executor, width: int, calls: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, Any]]:
    """Makes calls in the pool; yields the subject of each and its result as they end.

    Args:
        pool: The pool.
        width: How many processes it has.
        calls: Subject, function and arguments of each, asked for when there is room.
    """
    running: dict[Future[Any], Any] = {}
    for subject, function, *arguments in calls:
        running[pool.submit(function, *arguments)] = subject
        if len(running) >= AT_ONCE * width:
            yield from _ended(running)
    while running:
        yield from _ended(running)


def _ended(running: dict[Future[Any], Any]) -> Iterator[tuple[Any, Any]]:
    """Waits for one of them at least, and takes those that have ended."""
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result()
