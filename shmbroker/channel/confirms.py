# SPDX-License-Identifier: Apache-2.0
"""Publisher confirms: the outcome of each message published on a channel.

A publish takes effect before it returns, so its message is confirmed immediately; in a broker with a store, when the
message is in the store: see :mod:`shmbroker.channel.stored_confirms`. A returned message is confirmed after the
application has been told of the return.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._process import locks

if TYPE_CHECKING:
    from collections.abc import Callable


class Confirms:
    """The confirms of one channel.

    Args:
        count: counts a message; returns its number, from 1. ``None``: the next integer.
    """

    def __init__(self, count: Callable[[], int] | None = None) -> None:
        self._changed = locks.condition()
        self._next = itertools.count(1).__next__ if count is None else count
        self._pending: dict[int, concurrent.futures.Future[int] | None] = {}
        self._nacked = False
        self._closed: BaseException | None = None

    @property
    def at_once(self) -> Callable[[], int]:
        """Counts a message that was published, and is confirmed; returns its number."""
        return self._next

    @property
    def at_once_of_transient(self) -> Callable[[], int]:
        """The same for a message that does not go into the store."""
        return self._take

    def _take(self) -> int:
        """Counts a message whose confirm does not depend on a store; returns its number."""
        return self._next()

    def begin(self, future: concurrent.futures.Future[int] | None = None) -> int:
        """Counts a message; returns its number, from 1. :meth:`end` reports its outcome later, also to ``future``."""
        if future is not None:
            future.set_running_or_notify_cancel()  # a caller cannot cancel it any more
        number = self._take()
        try:
            with self._changed:
                self._pending[number] = future
        except BaseException:  # a signal handler raised: the caller does not get the number
            self.end(number)
            raise
        return number

    def known(
        self,
        future: concurrent.futures.Future[int] | None,
        error: BaseException | None,
        *,
        transient: bool = False,  # noqa: ARG002 - there is no store
    ) -> int:
        """Counts a message whose outcome is known, as :meth:`begin` and :meth:`end` do; returns its number.

        The message is never pending, so a signal handler that raises cannot leave it unconfirmed.

        Args:
            future: as for :meth:`begin`.
            error: as for :meth:`end`.
            transient: whether the message does not go into the store.
        """
        if isinstance(error, exceptions.NackError):
            self._nacked = True
        number = self._take()
        tell(future, number, error)
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
        tell(future, number, error)

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
        last = 0 if inside else self._awaited()
        with self._changed:
            done = inside or self._changed.wait_for(
                lambda: self._closed is not None or not self._unconfirmed(last), timeout
            )
            if self._closed is not None:
                raise self._closed
            if not done:
                text = f"{self._unconfirmed(last)} messages were not confirmed in time"
                raise exceptions.Timeout(text)
            nacked, self._nacked = self._nacked, False
            return not nacked

    def _awaited(self) -> int:
        """Begins a wait; returns the number of the last message that has to be in the store at its end."""
        return 0

    def _unconfirmed(self, last: int) -> int:  # noqa: ARG002 - there is no store
        """Returns how many messages are unconfirmed; of those that the store lacks, up to the number ``last``."""
        return len(self._pending)

    def close(self, error: BaseException) -> None:
        """Fails the unconfirmed messages of a closed channel. Safe to call again, if a signal handler raised."""
        with self._changed:
            self._closed = self._closed or error
            self._changed.notify_all()
        for number, future in list(self._pending.items()):
            tell(future, number, self._closed)


def tell(future: concurrent.futures.Future[int] | None, number: int, error: BaseException | None) -> None:
    """Gives a future the outcome of its message, unless it has one: of a confirm, or of a close."""
    with contextlib.suppress(concurrent.futures.InvalidStateError):
        if future is not None and error is None:
            future.set_result(number)
        elif future is not None:
            future.set_exception(error)
