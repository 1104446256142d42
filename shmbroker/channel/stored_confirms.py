# SPDX-License-Identifier: Apache-2.0
"""Publisher confirms in a broker with a store: a message is confirmed when it is in the store.

A turn of the storekeeper has all that was published before it began. So messages wait as a range of numbers, not one by
one. A publish counts its message, and asks for a turn only if none is awaited. The end of a turn confirms all messages
that had been counted when the turn was asked for. If more were counted meanwhile, the thread that waits for turns asks
for the next one.
"""

from __future__ import annotations

import functools
import logging
import operator
from typing import TYPE_CHECKING

from shmbroker.channel.confirms import Confirms, tell

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable

    from shmbroker._session.store_waits import StoreWaits

_END = 1 << 62  # no channel publishes as many messages
_log = logging.getLogger("shmbroker")


class StoredConfirms(Confirms):
    """The confirms of one channel in a broker with a store.

    Args:
        store_waits: tells when what was published is in the store.
    """

    def __init__(self, store_waits: StoreWaits) -> None:
        # Unlike `itertools.count`, this iterator tells how far it is. Both are compiled: no thread sees a half step.
        self._numbers = iter(range(1, _END))
        super().__init__(self._numbers.__next__)
        self._store_waits = store_waits
        self._futures: dict[int, concurrent.futures.Future[int]] = {}  # of messages that are not in the store
        self._exempt: set[int] = set()  # the numbers above `_stored` of messages that do not go into the store
        self._stored = 0  # the messages up to this number are in the store, or are exempt
        self._asked = 0  # a turn is done or awaited that has the messages up to this number

    def _last(self) -> int:
        return _END - 1 - operator.length_hint(self._numbers)

    @property
    def at_once(self) -> Callable[[], int]:
        """Counts a message that was published, and is confirmed when it is in the store; returns its number."""
        return self._published

    def _published(self) -> int:
        number = self._next()
        # After the number was taken: `_synced` sets `_stored` before it looks at the last number. So it sees this
        # number, or the next line sees that no turn is awaited.
        if self._asked <= self._stored:
            self._ask()
        return number

    def _take(self) -> int:
        with self._changed:
            number = self._next()
            self._exempt.add(number)
            self._pass_exempt()
        return number

    def _pass_exempt(self) -> None:
        while self._stored + 1 in self._exempt:
            self._stored += 1
            self._exempt.discard(self._stored)

    def known(
        self,
        future: concurrent.futures.Future[int] | None,
        error: BaseException | None,
        *,
        transient: bool = False,
    ) -> int:
        """Counts a message that was published, or has ended with an error; returns its number.

        With a future, this reports to the future: an error immediately, otherwise when the message is in the store. A
        transient message is confirmed immediately.
        """
        if error is not None or transient:
            return super().known(future, error)
        if future is None:
            return self._published()
        future.set_running_or_notify_cancel()  # a caller cannot cancel it any more
        with self._changed:  # a turn that has the number finds the future
            number = self._next()
            self._futures[number] = future
        if self._asked <= self._stored:
            self._ask()
        return number

    def _ask(self) -> None:
        """Asks for a turn that has all messages that were counted. Safe to call again, if a signal handler raised."""
        with self._changed:
            last = self._last()
        self._store_waits.after(functools.partial(self._synced, last))
        self._asked = max(self._asked, last)

    def _synced(self, last: int, error: BaseException | None) -> None:
        """Confirms the messages up to ``last``, which are in the store. The thread that waits for turns calls it.

        With an error, which fails them, the store may lack them: the connection was closed, or the broker purged.
        """
        with self._changed:
            self._closed = self._closed or error
            if last > self._stored:
                self._stored = last
                self._exempt = {number for number in self._exempt if number > last}
                self._pass_exempt()
            done = [(number, self._futures.pop(number)) for number in sorted(self._futures) if number <= last]
            self._changed.notify_all()
        for number, future in done:
            try:
                tell(future, number, error)
            except BaseException:  # noqa: BLE001 - of an application's callback; the other futures are still told
                _log.exception("a callback of the future of message %d raised", number)
        if self._asked <= self._stored < self._last():
            self._ask()

    def _awaited(self) -> int:
        last = self._last()
        if max(self._asked, self._stored) < last:
            self._ask()
        return last

    def _unconfirmed(self, last: int) -> int:
        exempt = sum(number <= last for number in self._exempt)
        return super()._unconfirmed(last) + max(0, last - self._stored - exempt)

    def close(self, error: BaseException) -> None:
        """Fails the unconfirmed messages of a closed channel. Safe to call again, if a signal handler raised."""
        super().close(error)
        for number, future in list(self._futures.items()):
            tell(future, number, self._closed)
