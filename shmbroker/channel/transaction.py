# SPDX-License-Identifier: Apache-2.0
"""Transactions: the publishes and acknowledgements of a channel since its last commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shmbroker import exceptions
from shmbroker._core.transaction import Settlement, commit_waiting
from shmbroker._process import locks
from shmbroker.message import REQUEUE

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
    """An ack, reject or requeue that waits for the commit, with a settlement for each delivery that it covers."""

    delivery_tag: int
    multiple: bool
    settlements: tuple[Settlement, ...]


class Transaction:
    """The operations of one channel that wait for its commit. The core applies all of them in one step, or none."""

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._publishes: list[Publish] = []
        self._settles: list[Settle] = []
        self._settled: set[int] = set()
        self._deliveries: list[TransactionalDelivery] = []

    def publish(self, exchange: str, routing_key: str, body: bytes, content: Content, *, mandatory: bool) -> None:
        """Adds a message."""
        with self._lock:
            self._publishes.append(Publish(exchange, routing_key, body, content, mandatory))

    def settle(self, core: CoreChannel, delivery_tag: int, disposition: int, *, multiple: bool) -> bool:
        """Adds an ack, reject or requeue to the transaction.

        ``False``: the tag has no unacked delivery, so nothing is added. The tag 0 with ``multiple`` (all deliveries) is
        valid even if there are none: ``True``, and nothing is added.
        """
        with self._lock:
            fresh = self._untouched(core, delivery_tag, disposition, multiple=multiple)
            if not fresh:
                return multiple and delivery_tag == 0
            self._settled.update(one.token for one in fresh)
            last = fresh[-1].delivery_tag  # so that the commit covers no later delivery
            self._settles.append(Settle(last, multiple, fresh))
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
        found = core.collect(delivery_tag, disposition, multiple=multiple)
        return tuple(one for one in found if one.token not in self._settled)

    def note(self, delivery: TransactionalDelivery) -> None:
        """Marks a delivery that was settled by its own method, not by its tag, as settled; a rollback unmarks it."""
        with self._lock:
            delivery.mark(settled=True)
            self._deliveries.append(delivery)

    def commit(self, publishing: Publishing, core: CoreChannel | None, until: int) -> list[Publish]:
        """Commits the transaction; returns the mandatory messages that were routed to no queue."""
        with self._lock:
            settlements = [one for settle in self._settles for one in settle.settlements]
            while True:
                routed = [
                    (one, publishing.targets(one.exchange, one.routing_key, one.content)) for one in self._publishes
                ]
                publications = [
                    publication
                    for one, targets in routed
                    if targets
                    for publication in publishing.publications(
                        one.exchange, one.routing_key, one.body, one.content, targets
                    )
                ]
                try:
                    commit_waiting(publishing.core, publications, settlements, until)
                except exceptions.NotFound:
                    publishing.forget_routes()  # a queue was deleted after the routing
                else:
                    break
            if core is not None:
                for settle in self._settles:
                    core.forget(settle.delivery_tag, multiple=settle.multiple)
            self._clear()
        return [one for one, targets in routed if one.mandatory and not targets]

    def rollback(self) -> None:
        """Discards the transaction; its deliveries are unacked again."""
        with self._lock:
            for delivery in self._deliveries:
                delivery.mark(settled=False)
            self._clear()

    def _clear(self) -> None:
        self._publishes, self._settles, self._deliveries = [], [], []
        self._settled = set()
