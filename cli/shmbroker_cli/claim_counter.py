# SPDX-License-Identifier: Apache-2.0
"""Counts the messages that several workers handle together, and tells the workers when to stop."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SHORTEST_LOOK = 0.05  # seconds; the least time between two looks at the queue while no worker has claimed a message


class ClaimCounter:
    """Counts the messages that several workers handle, up to a limit for all of them together.

    A worker claims each message before it handles it, and reports the outcome afterwards.
    Methods may be called from any thread.
    """

    def __init__(self, limit: int | None) -> None:
        """Count up to a limit.

        Args:
            limit: Number of messages that all workers together may handle; None: any number.
        """
        self._limit = limit
        self._running = 0
        self._closed = False
        self._changed = threading.Condition()
        self._last_change = time.monotonic()
        self.done = 0
        self.failure: str | None = None

    def claim(self) -> bool:
        """Claim one more message. Waits while the messages done and in progress add up to the limit.

        Returns:
            Whether the worker may handle a message; False: no worker shall handle any more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_room())
            if self._closed:
                return False
            self._running += 1
            self._note()
            return True

    def finish(self) -> None:
        """Report that a claimed message is done."""
        with self._changed:
            self._running -= 1
            self.done += 1
            self._note()

    def fail(self, text: str) -> None:
        """Report that a claimed message could not be dealt with; all workers stop.

        Args:
            text: Why.
        """
        with self._changed:
            self._running -= 1
            self._closed = True
            self.failure = self.failure or text
            self._note()

    def give_back(self) -> None:
        """Report that a worker ended without handling its claimed message: another may be claimed in its place."""
        with self._changed:
            self._running -= 1
            self._note()

    def close(self) -> None:
        """Let no worker claim another message: `claim` returns False from then on, also to workers that wait in it."""
        with self._changed:
            self._closed = True
            self._note()

    def wait(self, idle: float | None, more: Callable[[], bool]) -> None:
        """Wait until the limit is reached, a worker fails, `close` is called, or the workers are idle.

        Args:
            idle: Seconds without a message after which the workers count as idle; None: never.
            more: Returns whether the queue has ready messages, or a worker holds one. If so, the workers
                count as still starting, not as idle.
        """
        with self._changed:
            while not (self._closed or self._is_full()):
                left = None
                if idle is not None and not self._running:
                    left = self._last_change + idle - time.monotonic()
                    if left <= 0:
                        if not more():
                            return
                        left = max(idle, SHORTEST_LOOK)
                self._changed.wait(left)

    def _has_room(self) -> bool:
        return self._limit is None or self._running + self.done < self._limit

    def _is_full(self) -> bool:
        return self._limit is not None and self.done >= self._limit

    def _note(self) -> None:
        self._last_change = time.monotonic()
        self._changed.notify_all()
