# SPDX-License-Identifier: Apache-2.0
"""Publisher confirms: the outcome of each message published on a channel.

A publish takes effect before it returns, so its message is confirmed immediately; in a broker with a store, when the
message is in the store. A returned message is confirmed after the application has been told of the return.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._process import locks

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._session.store_waits import StoreWaits


class Confirms:
    """The confirms of one channel.

    Args:
        store_waits: tells when what was published is in the store; ``None``: the broker has no store.
    """

    def __init__(self, store_waits: StoreWaits | None = None) -> None:
        self._changed = locks.condition()
        self._next = itertools.count(1).__next__
        self._store_waits = store_waits
        self.at_once: Callable[[], int] = self._next if store_waits is None else self._stored
        """Counts a message that is published, and confirmed unless it goes into the store; returns its number."""
        self._pending: dict[int, concurrent.futures.Future[int] | None] = {}
        self._nacked = False
        self._closed: BaseException | None = None

    def begin(self, future: concurrent.futures.Future[int] | None = None) -> int:
        """Counts a message; returns its number, from 1. :meth:`end` reports its outcome later, also to ``future``."""
        if future is not None:
            future.set_running_or_notify_cancel()  # a caller cannot cancel it any more
        number = self._next()
        try:
            with self._changed:
                self._pending[number] = future
        except BaseException:  # a signal handler raised: the caller does not get the number
            self.end(number)
            raise
        return number

    def known(self, future: concurrent.futures.Future[int] | None, error: BaseException | None) -> int:
        """Counts a message whose outcome is known, as :meth:`begin` and :meth:`end` do; returns its number.

        The message is never pending, so a signal handler that raises cannot leave it unconfirmed.
        """
        if error is None and self._store_waits is not None:
            return self._stored(future)
        if isinstance(error, exceptions.NackError):
            self._nacked = True
        number = self._next()
        _tell(future, number, error)
        return number

    def _stored(self, future: concurrent.futures.Future[int] | None = None) -> int:
        """Counts a message that was published, and is confirmed when it is in the store; returns its number."""
        number = self.begin(future)
        try:
            if self._store_waits is not None:
                self._store_waits.after(functools.partial(self.end, number))
        except BaseException:  # a signal handler raised: the caller does not get the number
            self.end(number)
            raise
        return number

    def end(self, number: int, error: BaseException | None = None) -> None:
        """Reports the outcome of a message that :meth:`begin` counted. It is unconfirmed no more.

        With an UnroutableError, no queue got the message: it was returned. With a NackError, a queue rejected it. The
        future gets the error.
        """
        with self._changed:
            future = self._pending.pop(number, None)
            self._nacked = self._nacked or isinstance(error, exceptions.NackError)
            if not self._pending:
                self._changed.notify_all()
        _tell(future, number, error)

    def wait(self, timeout: float | None, *, inside: bool) -> bool:
        """Waits until every message is confirmed or refused; ``True``: none was refused since the last call.

        Args:
            timeout: seconds; ``None`` = for ever.
            inside: whether the caller is a callback of this channel. Then the call does not wait, even if messages are
                unconfirmed: a returned message is confirmed only after the callback has ended.

        Raises:
            Timeout: some were not confirmed in time.
            BrokerError: the channel was closed; the error that :meth:`close` got.
        """
        native.deadline(timeout)
        with self._changed:
            done = inside or self._changed.wait_for(lambda: not self._pending or self._closed is not None, timeout)
            if self._closed is not None:
                raise self._closed
            if not done:
                text = f"{len(self._pending)} messages were not confirmed in time"
                raise exceptions.Timeout(text)
            nacked, self._nacked = self._nacked, False
            return not nacked

    def close(self, error: BaseException) -> None:
        """Fails the unconfirmed messages of a closed channel. Safe to call again, if a signal handler raised."""
        with self._changed:
            self._closed = self._closed or error
            self._changed.notify_all()
        for number, future in list(self._pending.items()):
            _tell(future, number, self._closed)


def _tell(future: concurrent.futures.Future[int] | None, number: int, error: BaseException | None) -> None:
    """Gives a future the outcome of its message, unless it has one: of a confirm, or of a close."""
    with contextlib.suppress(concurrent.futures.InvalidStateError):
        if future is not None and error is None:
            future.set_result(number)
        elif future is not None:
            future.set_exception(error)
