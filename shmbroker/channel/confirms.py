# SPDX-License-Identifier: Apache-2.0
"""Publisher confirms: what became of each message that was published on a channel.

A publish has happened when it returns, so its confirm is there at once; only one whose message comes back is confirmed
after the application was told of that (return before its confirm).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import library
from shmbroker._process import locks

if TYPE_CHECKING:
    import concurrent.futures


class Confirms:
    """The confirms of one channel."""

    def __init__(self) -> None:
        self._changed = locks.condition()
        self._numbers = itertools.count(1)
        self.at_once = self._numbers.__next__
        """A message was published, and is confirmed by that; its number."""
        self._pending: dict[int, concurrent.futures.Future[int] | None] = {}
        self._nacked = False
        self._closed: BaseException | None = None

    def begin(self, future: concurrent.futures.Future[int] | None = None) -> int:
        """A message was published, or refused by the broker, and is not confirmed yet; its number, from 1."""
        if future is not None:
            future.set_running_or_notify_cancel()  # nobody can cancel that
        with self._changed:
            number = next(self._numbers)
            self._pending[number] = future
            return number

    def end(self, number: int, error: BaseException | None = None) -> None:
        """A message was accepted; or it was not, or came back, as the error says."""
        with self._changed:
            future = self._pending.pop(number, None)
            self._nacked = self._nacked or isinstance(error, exceptions.NackError)
            if not self._pending:
                self._changed.notify_all()
        if future is not None and error is None:
            future.set_result(number)
        elif future is not None:
            future.set_exception(error)

    def wait(self, timeout: float | None, *, inside: bool) -> bool:
        """Waits until every message was confirmed; ``True``: none was refused since the last time.

        Args:
            timeout: seconds; ``None`` = for ever.
            inside: the caller is a callback of this channel: those that came back are told of after it.

        Raises:
            Timeout: some were not confirmed in time.
        """
        library.deadline(timeout)
        with self._changed:
            done = inside or self._changed.wait_for(lambda: not self._pending or self._closed is not None, timeout)
            if self._closed is not None:
                raise self._closed
            if not done:
                text = f"{len(self._pending)} messages were not confirmed in {timeout} seconds"
                raise exceptions.Timeout(text)
            nacked, self._nacked = self._nacked, False
            return not nacked

    def close(self, error: BaseException) -> None:
        """The channel is closed: what was not confirmed never will be."""
        with self._changed:
            self._closed = error
            pending, self._pending = self._pending, {}
            self._changed.notify_all()
        for future in pending.values():
            if future is not None:
                future.set_exception(error)
