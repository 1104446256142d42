# SPDX-License-Identifier: Apache-2.0
"""Allocation of channel numbers, the lowest free number first."""

from __future__ import annotations

import heapq

from shmbroker import exceptions


class ChannelNumbers:
    """The numbers of a connection's channels, from 1.

    Args:
        most: the most numbers that can be in use.
        highest: the highest number.
    """

    def __init__(self, most: int, highest: int = 65535) -> None:
        self._most, self._highest = most, highest
        self._free: list[int] = []
        self._used: set[int] = set()
        self._next = 1

    def take(self, wanted: int | None = None) -> int:
        """Takes a free number.

        Raises:
            NoFreeChannels: as many numbers are in use as the connection allows; others may be free.
            ValueError: the wanted number is in use or out of range.
        """
        if wanted is not None and (not 1 <= wanted <= self._highest or wanted in self._used):
            why = (
                "the connection has an open channel of this number, a free number is allowed"
                if wanted in self._used
                else f"1 to {self._highest} are allowed"
            )
            msg = f"channel number {wanted}: {why}"
            raise ValueError(msg)
        if len(self._used) >= self._most:
            text = f"NOT_ALLOWED - all {self._most} channels of the connection are open"
            raise exceptions.NoFreeChannels(530, text)
        number = self._lowest() if wanted is None else wanted
        try:
            self._used.add(number)
            if self._free and self._free[0] == number:
                heapq.heappop(self._free)  # only now: a number that is neither free nor used would be lost
        except BaseException:  # a signal handler raised: the caller does not get the number
            self.give(number)
            raise
        return number

    def _lowest(self) -> int:
        while self._next in self._used:
            self._next += 1
        while self._free and (self._free[0] in self._used or self._free[0] > self._next):
            heapq.heappop(self._free)
        return self._free[0] if self._free else self._next

    def give(self, number: int) -> None:
        """Frees a number. Safe to call again, also if a signal handler raised in it."""
        self._used.discard(number)
        heapq.heappush(self._free, number)
