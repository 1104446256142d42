# SPDX-License-Identifier: Apache-2.0
"""The copies of dead messages: with which headers they go to which queues."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING, Any, TypeAlias

from shmbroker import properties as basic
from shmbroker._amqp import deaths
from shmbroker._core.queue import CoreQueue, PutOptions
from shmbroker._core.selecting import Selected
from shmbroker._dataclasses import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmbroker._core.dead import DeadMessage
    from shmbroker.properties import BasicProperties
    from shmbroker.settings import QueueSettings

Plan: TypeAlias = "tuple[tuple[Sequence[CoreQueue], PutOptions], ...]"
"""The puts of a message: target queues and options of each. Without any, the message goes nowhere."""

_REASONS = ("", deaths.REJECTED, deaths.EXPIRED, deaths.MAX_LENGTH, deaths.DELIVERY_LIMIT)
_EXPIRED = _REASONS.index(deaths.EXPIRED)
_MOST_ENCODED = 64_000  # more than a publisher may encode, so there is room for a death; SB_MAX_PREFIX, less the names


class Plans:
    """The plans for dead messages of a queue that go in one commit. Those that differ in their body alone share one.

    Args:
        queue: the queue.
        settings: its settings.
        route: gets the queue, an exchange with a routing key, headers, further keys, and what runs selectors over the
            properties; returns the target queues.
    """

    def __init__(
        self,
        queue: CoreQueue,
        settings: QueueSettings,
        route: Callable[[CoreQueue, tuple[str, str], dict[str, Any], tuple[str, ...], Selected], list[CoreQueue]],
    ) -> None:
        self._queue, self._route = queue, route
        self._to = settings.dead_letter_exchange, settings.dead_letter_routing_key
        self._expired_to = self._to
        if settings.drop_expired:
            self._expired_to = None, None
        elif settings.expiry_exchange is not None:
            self._expired_to = settings.expiry_exchange, settings.expiry_routing_key
        self._now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        self._known: dict[Any, Plan] = {}

    def plan(self, message: DeadMessage) -> Plan:
        """Returns the plan for a message."""
        header = message.header
        key = message.why, header.priority, header.exchange_length, header.key_length, message.head
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._make(message)
        return found

    def _make(self, message: DeadMessage) -> Plan:
        exchange, key = self._expired_to if message.why == _EXPIRED else self._to
        if exchange is None:
            return ()
        own_key = message.routing_key
        if not message.exchange and not own_key:  # it was put into the queue itself
            own_key = self._queue.name
        routing_key = own_key if key is None else key
        properties, keys = self._died(message, own_key, keeps_key=key is None)
        encoded = _encoded(properties)
        selected = Selected(encoded, message.header.priority)
        to = exchange, routing_key
        targets = self._route(self._queue, to, dict(properties.headers or {}), keys, selected)
        names = routing_key.encode(), exchange.encode()

        options = PutOptions(0, 0, message.header.priority, names[0], encoded, names[1])
        free = tuple(target for target in targets if not target.changes_lives())
        others = tuple(((target,), options) for target in targets if target not in free)
        return ((free, options), *others) if free else others

    def _died(self, message: DeadMessage, own_key: str, *, keeps_key: bool) -> tuple[BasicProperties, tuple[str, ...]]:
        """Returns the properties of the copy, and the further routing keys of the message, from its header CC."""
        given = _properties_of(message)
        headers = dict(given.headers or {})
        copies = headers.get("CC")
        keys = tuple(key for key in copies if isinstance(key, str)) if isinstance(copies, list) else ()
        if not keeps_key:
            headers.pop("CC", None)
        reason = _REASONS[message.why] if message.why < len(_REASONS) else deaths.REJECTED
        death = deaths.Death(self._queue.name, reason, message.exchange, (own_key, *keys), self._now, given.expiration)
        changed = replace(given, headers=deaths.with_death(headers, death), expiration=None)
        return changed, keys if keeps_key else ()


def _properties_of(message: DeadMessage) -> BasicProperties:
    encoded = message.properties
    try:
        return basic.decode(encoded) if encoded else basic.NO_PROPERTIES
    except ValueError:  # damaged: the body still arrives
        return basic.NO_PROPERTIES


def _encoded(properties: BasicProperties) -> bytes:
    """Encodes the properties of a copy, with as much of its deaths as there is room for."""
    for headers in deaths.ever_shorter(properties.headers or {}):
        with contextlib.suppress(TypeError, ValueError):
            return basic.encode(replace(properties, headers=headers), _MOST_ENCODED)
    return b"\0\0"  # no properties
