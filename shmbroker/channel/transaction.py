# SPDX-License-Identifier: Apache-2.0
"""Transactions: the publishes and acknowledgements of a channel since its last commit."""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING, NamedTuple

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._core.transaction import Settlement, commit_waiting
from shmbroker._process import locks
from shmbroker.message import OPEN, REQUEUE, SETTLED
from shmbroker.properties import is_transient

if TYPE_CHECKING:
    from shmbroker._core.channel import CoreChannel
    from shmbroker._topology.publisher import Content, Publishing
    from shmbroker.channel.deliveries import TransactionalDelivery


class Publish(NamedTuple):
    """A message that waits for its commit."""

    exchange: str
    routing_key: str
    body: bytes
    content: Content
    mandatory: bool


class Settle(NamedTuple):
    """An ack, reject or requeue that waits for the commit.

    Attributes:
        delivery_tag: The tag of the last delivery that it covers.
        multiple: Whether it covers all earlier ones, too.
        settlements: A settlement for each delivery that it covers.
        delivery: The delivery that it has marked as settled; a rollback unmarks it. ``None``: there is only a tag.
    """

    delivery_tag: int
    multiple: bool
    settlements: tuple[Settlement, ...]
    delivery: TransactionalDelivery | None


class _Pending:
    """The operations from one commit or rollback to the next.

    Attributes:
        publishes: The messages, in their order.
        settles: The acks, rejects and requeues, in their order.
        statuses: The statuses of the core's commits. With OK, the core has committed all of these operations.
        rolled_back: Whether the application has rolled them back.
        core: The channel in the core, for the commit.
        unroutable: The mandatory messages among ``publishes`` that the commit routes to no queue.
    """

    def __init__(self) -> None:
        self.publishes: list[Publish] = []
        self.settles: list[Settle] = []
        self.statuses: list[int] = []
        self.rolled_back = False
        self.core: CoreChannel | None = None
        self.unroutable: collections.deque[Publish] = collections.deque()
        self._tokens: set[int] = set()
        self._counted = 0

    def settled(self) -> set[int]:
        """Returns the tokens of all messages that the operations settle."""
        # The set is made from `settles`. If the method that adds to `settles` also added to the set, an interrupt in
        # between could leave a token in the set that no commit settles.
        while self._counted < len(self.settles):
            self._tokens.update(one.token for one in self.settles[self._counted].settlements)
            self._counted += 1
        return self._tokens


class Transaction:
    """The operations of one channel that wait for its commit. The core applies all of them in one step, or none.

    A signal handler may raise anywhere. So one call of C commits and also stores the status of the commit, and one
    assignment begins a rollback. From then on the operations no longer wait. :meth:`_current` does the rest:
    immediately, or if it is interrupted, in the next call of a method.

    Attributes:
        returned: The mandatory messages that commits routed to no queue; the channel removes and returns them.
        is_awaited: Whether the last commit is waited for until the store has it: not if it had transient messages only.
    """

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._pending = _Pending()
        self.is_awaited = True
        self.returned: collections.deque[Publish] = collections.deque()

    def _current(self) -> _Pending:
        """Returns the operations that wait. After a commit or a rollback, first does the rest of it."""
        ended = self._pending
        if native.OK in ended.statuses:
            if ended.core is not None:
                for settle in ended.settles:
                    ended.core.forget(settle.delivery_tag, multiple=settle.multiple)
            # One call of C moves all, so that an interrupt loses none and returns none twice.
            self.returned.extend(itertools.starmap(ended.unroutable.popleft, [()] * len(ended.unroutable)))
            self._pending = _Pending()
        elif ended.rolled_back:
            for settle in ended.settles:
                if settle.delivery is not None:
                    settle.delivery._state = OPEN  # noqa: SLF001 - see `settle`
            self._pending = _Pending()
        return self._pending

    def publish(self, exchange: str, routing_key: str, body: bytes, content: Content, *, mandatory: bool) -> None:
        """Adds a message."""
        with self._lock:
            self._current().publishes.append(Publish(exchange, routing_key, body, content, mandatory))

    def settle(
        self,
        core: CoreChannel,
        delivery_tag: int,
        disposition: int,
        *,
        multiple: bool,
        delivery: TransactionalDelivery | None = None,
    ) -> bool:
        """Adds an ack, reject or requeue to the transaction; marks ``delivery``, which has the tag, as settled.

        ``False``: the tag has no unacked delivery, so nothing is added. The tag 0 with ``multiple`` (all deliveries) is
        valid even if there are none: ``True``, and nothing is added.
        """
        with self._lock:
            fresh = self._untouched(core, delivery_tag, disposition, multiple=multiple)
            if not fresh:
                return multiple and delivery_tag == 0
            last = fresh[-1].delivery_tag  # so that the commit covers no later delivery
            settle, add = Settle(last, multiple, fresh, delivery), self._pending.settles.append
            # No call between the mark and `add`: a signal handler that raises runs before both of them, or after both.
            if delivery is not None:
                delivery._state = SETTLED  # noqa: SLF001 - a method of the delivery would be a call
            add(settle)
            return True

    def recover(self, core: CoreChannel) -> None:
        """Requeues the unacked deliveries immediately, except those that the transaction settles at its commit."""
        with self._lock:
            for one in self._untouched(core, 0, REQUEUE, multiple=True):
                core.settle_tag(one.delivery_tag, False, REQUEUE)  # noqa: FBT003 - not multiple

    def _untouched(
        self, core: CoreChannel, delivery_tag: int, disposition: int, *, multiple: bool
    ) -> tuple[Settlement, ...]:
        """Makes a settlement for each delivery that the tag covers, except those that the transaction has settled."""
        settled = self._current().settled()
        found = core.collect(delivery_tag, disposition, multiple=multiple)
        return tuple(one for one in found if one.token not in settled)

    def commit(self, publishing: Publishing, core: CoreChannel | None, until: int) -> None:
        """Commits the transaction."""
        with self._lock:
            pending = self._current()
            pending.core = core
            only_transient = all(is_transient(one.content.given) for one in pending.publishes)
            self.is_awaited = bool(pending.settles) or not (pending.publishes and only_transient)
            settlements = [one for settle in pending.settles for one in settle.settlements]
            while True:
                routed = [
                    (one, publishing.targets_or_created(one.exchange, one.routing_key, one.content))
                    for one in pending.publishes
                ]
                publications = [
                    publication
                    for one, targets in routed
                    if targets
                    for publication in publishing.publications(
                        one.exchange, one.routing_key, one.body, one.content, targets
                    )
                ]
                for publication in publications:
                    publication.options.fails_if_known()
                pending.unroutable = collections.deque(one for one, targets in routed if one.mandatory and not targets)
                pending.statuses = []
                try:
                    commit_waiting(publishing.core, publications, settlements, until, statuses=pending.statuses)
                except exceptions.NotFound:
                    publishing.forget_routes()  # a queue was deleted after the routing
                else:
                    break
                finally:
                    # Also if a signal handler raised after the commit. If one raises in the first of these two calls,
                    # the second one does the rest.
                    try:
                        self._current()
                    finally:
                        self._current()

    def rollback(self) -> None:
        """Discards the transaction; its deliveries are unacked again."""
        with self._lock:
            try:
                self._current().rolled_back = True
                self._current()
            finally:
                self._current()  # does the rest, if a signal handler raised
