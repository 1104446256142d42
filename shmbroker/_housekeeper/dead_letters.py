# SPDX-License-Identifier: Apache-2.0
"""Carries dead messages out: each goes to the queues that the dead-letter exchange of its queue routes it to.

One commit publishes the copy to all these queues, and ends the message in its own. So the message is in its queue or in
the others, whenever this process is killed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import time
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker import properties as basic
from shmbroker._amqp import deaths
from shmbroker._core import native
from shmbroker._core.dead import CARRIED_OUT, GIVEN_UP, Dead, DeadMessage
from shmbroker._core.queue import PutOptions
from shmbroker._core.transaction import Publication, Settlement, commit
from shmbroker._dataclasses import replace
from shmbroker._topology.shared import exchanges_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue
    from shmbroker._topology.binding import ToQueue
    from shmbroker.properties import BasicProperties

_logger = logging.getLogger("shmbroker")
_REASONS = ("", deaths.REJECTED, deaths.EXPIRED, deaths.MAX_LENGTH, deaths.DELIVERY_LIMIT)
_AGAIN_SECONDS = 0.1  # before a message that found no room or memory is tried again
_MOST_KNOWN = 10_000
_MOST_ENCODED = 64_000  # more than a publisher may encode, so there is room for a death; SB_MAX_PREFIX, less the names


class DeadLetters:
    """Carries out the dead messages of all queues of a broker.

    Args:
        connection: the housekeeper's connection.
        open_queue: takes the name of a queue and returns its handle; ``None``: there is no such queue.
    """

    def __init__(self, connection: CoreConnection, open_queue: Callable[[str], CoreQueue | None]) -> None:
        self._connection, self._open = connection, open_queue
        self._dead = Dead(connection)
        self._targets: dict[tuple[int, int], tuple[str | None, str | None]] = {}
        self._told: set[tuple[int, int]] = set()

    def carry_out(self, queue: CoreQueue, position: int) -> int:
        """Carries out the dead message at a position; returns when to try again, 0: never."""
        message = self._dead.take(queue, position)
        if message is None:
            return 0
        try:
            done = self._carry_out(queue, message)
        except (exceptions.BrokerError, exceptions.OutOfMemory, MemoryError):
            done = False
        if done:
            return 0
        self._dead.give_back(queue, message)
        return time.monotonic_ns() + int(_AGAIN_SECONDS * native.NANOSECONDS)

    def _carry_out(self, queue: CoreQueue, message: DeadMessage) -> bool:
        if not message.exchange and not message.routing_key:  # put without a key
            message = message._replace(routing_key=queue.name)
        exchange, key = self._exchange_of(queue)
        properties = _properties_of(message)
        dead, keys = _died(queue.name, message, properties, keeps_keys=key is None)
        routing_key = message.routing_key if key is None else key
        targets = self._route(exchange, routing_key, dead, keys)
        if not targets and exchange is not None:
            self._tell(queue, exchange, routing_key)
        end = Settlement(queue, message.header.tag, CARRIED_OUT if targets else GIVEN_UP)
        publications = _publications(message, exchange or "", routing_key, dead, targets)
        return commit(self._connection, publications, [end]).status in {native.OK, native.SETTLED}

    def _exchange_of(self, queue: CoreQueue) -> tuple[str | None, str | None]:
        """Returns the dead-letter exchange of a queue, and its routing key; ``None``: there is none."""
        of = queue.slot, queue.incarnation
        if of not in self._targets:
            if len(self._targets) >= _MOST_KNOWN:
                self._targets.clear()
            found, _ = queue.settings()
            self._targets[of] = found.dead_letter_exchange, found.dead_letter_routing_key
        return self._targets[of]

    def _route(
        self, exchange: str | None, routing_key: str, properties: BasicProperties, keys: tuple[str, ...]
    ) -> list[CoreQueue]:
        if exchange is None:
            return []
        headers = properties.headers or {}
        try:
            routed = exchanges_of(self._connection).route(self._connection, exchange, routing_key, headers, keys)
        except exceptions.NotFound:  # the exchange need not exist
            return []
        opened = (self._reach(to) for to in routed if not deaths.closes_circle(headers, to.name))
        return [queue for queue in opened if queue is not None]

    def _reach(self, to: ToQueue) -> CoreQueue | None:
        queue = self._open(to.name)
        return queue if queue is not None and to.incarnation in {0, queue.incarnation} else None

    def _tell(self, queue: CoreQueue, exchange: str, routing_key: str) -> None:
        of = queue.slot, queue.incarnation
        if of not in self._told:
            self._told.add(of)
            text = "queue %r: a dead message was dropped: exchange %r leads it, with key %r, to no queue (said once)"
            _logger.warning(text, queue.name, exchange, routing_key)


def _properties_of(message: DeadMessage) -> BasicProperties:
    try:
        return basic.decode(message.properties) if message.properties else basic.NO_PROPERTIES
    except ValueError:  # damaged: the body still arrives
        return basic.NO_PROPERTIES


def _died(
    queue: str, message: DeadMessage, given: BasicProperties, *, keeps_keys: bool
) -> tuple[BasicProperties, tuple[str, ...]]:
    """Returns the properties of the copy, and the further routing keys of the message, from its header CC."""
    headers = dict(given.headers or {})
    copies = headers.get("CC")
    keys = tuple(key for key in copies if isinstance(key, str)) if isinstance(copies, list) else ()
    if not keeps_keys:
        headers.pop("CC", None)
    death = deaths.Death(
        queue,
        _REASONS[message.why] if message.why < len(_REASONS) else deaths.REJECTED,
        message.exchange,
        (message.routing_key, *keys),
        dt.datetime.now(dt.UTC).replace(microsecond=0),
        given.expiration,
    )
    changed = replace(given, headers=deaths.with_death(headers, death), expiration=None)
    return changed, keys if keeps_keys else ()


def _encode(properties: BasicProperties) -> bytes:
    """Encodes the properties of a copy, with as much of its deaths as there is room for."""
    shorter = (replace(properties, headers=headers) for headers in deaths.ever_shorter(properties.headers or {}))
    for one in shorter:
        with contextlib.suppress(TypeError, ValueError):
            return basic.encode(one, _MOST_ENCODED)
    return b"\0\0"  # no properties


def _publications(
    message: DeadMessage, exchange: str, routing_key: str, properties: BasicProperties, targets: list[CoreQueue]
) -> list[Publication]:
    """Makes the publications of the copy. A queue that limits the life of its messages gets one of its own."""
    if not targets:
        return []
    encoded = _encode(properties)

    def options(ttl: float | None) -> PutOptions:
        life = 0.0 if ttl is None else max(1e-9, ttl)
        return PutOptions(life, 0, message.header.priority, routing_key.encode(), encoded, exchange.encode())

    limits = [(queue, queue.message_ttl()) for queue in targets]
    free = tuple(queue for queue, ttl in limits if ttl is None)
    found = [Publication(message.body, free, options(None))] if free else []
    return found + [Publication(message.body, (queue,), options(ttl)) for queue, ttl in limits if ttl is not None]
