# SPDX-License-Identifier: Apache-2.0
"""The housekeeper's timers: when to look at which message, the earliest first."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from shmbroker._core import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LEAST_TO_FORGET = 4096
FORGOTTEN_AT_ONCE = 1024
_RETRY_NANOSECONDS = 1_000_000


class Timers:
    """Positions of messages by the time at which each is due, in nanoseconds of the monotonic clock.

    Acknowledging a message does not remove its timer. So the housekeeper checks whether the stored timers are still
    needed: all of them, in steps, when there are more than LEAST_TO_FORGET, and more than twice as many as the last
    check found to be needed.
    """

    def __init__(self, look: Callable[[int, int], int]) -> None:
        """Starts without timers.

        Args:
            look: gets a queue's slot and a position, does what is due there, and returns when to look again;
                0: never.
        """
        self._look = look
        self._kept: list[tuple[int, int, int]] = []
        self._asked: list[tuple[int, int, int]] = []  # timers still to check; a heap, as `_kept`
        self._wanted = 0  # how many timers the last check found to be needed

    def __len__(self) -> int:
        """Returns the number of timers."""
        return len(self._kept) + len(self._asked)

    @property
    def due(self) -> int:
        """The time at which :meth:`run` is needed next; if :attr:`asks` is true, it is needed now."""
        return min((timers[0][0] for timers in (self._kept, self._asked) if timers), default=native.FOR_EVER)

    @property
    def asks(self) -> bool:
        """Whether a check of the timers has begun, and has not reached all of them."""
        return bool(self._asked)

    def add(self, slot: int, positions: Iterable[int]) -> None:
        """Schedules these positions for the next run."""
        for position in positions:
            heapq.heappush(self._kept, (0, slot, position))

    def run(self, now: int) -> None:
        """Looks at the positions that are due. Also takes a step of the check whether timers are still needed."""
        for timers in (self._kept, self._asked):
            while timers and timers[0][0] <= now:
                _, slot, position = heapq.heappop(timers)
                self._look_at(slot, position, now)
        self._forget(now)

    def _look_at(self, slot: int, position: int, now: int) -> bool:
        again = self._look(slot, position)
        if again:
            due = again if again > now else now + _RETRY_NANOSECONDS
            heapq.heappush(self._kept, (due, slot, position))
        return bool(again)

    def _forget(self, now: int) -> None:
        if not self._asked and len(self._kept) > max(LEAST_TO_FORGET, 2 * self._wanted):
            self._asked, self._kept, self._wanted = self._kept, [], 0
        for _ in range(min(FORGOTTEN_AT_ONCE, len(self._asked))):
            _, slot, position = self._asked.pop()  # removing the last entry of a heap leaves a heap
            self._wanted += self._look_at(slot, position, now)
