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

Plan: TypeAlias = "tuple[tuple[Sequence[CoreQueue], PutOptions], ...]"
"""The puts of a message: target queues and options of each. Without any, the message goes nowhere."""

_REASONS = ("", deaths.REJECTED, deaths.EXPIRED, deaths.MAX_LENGTH, deaths.DELIVERY_LIMIT)
_MOST_ENCODED = 64_000  # more than a publisher may encode, so there is room for a death; SB_MAX_PREFIX, less the names


class Plans:
    """The plans for dead messages of a queue that go in one commit. Those that differ in their body alone share one.

    Args:
        queue: the queue.
        to: its dead-letter exchange, ``None``: it has none; and its dead-letter routing key, ``None``: each message
            keeps its own.
        route: gets the queue, an exchange with a routing key, headers, further keys, and what runs selectors over the
            properties; returns the target queues.
    """

    def __init__(
        self,
        queue: CoreQueue,
        to: tuple[str | None, str | None],
        route: Callable[[CoreQueue, tuple[str, str], dict[str, Any], tuple[str, ...], Selected], list[CoreQueue]],
    ) -> None:
        self._queue, self._route = queue, route
        self._exchange, self._key = to
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
        if self._exchange is None:
            return ()
        own_key = message.routing_key
        if not message.exchange and not own_key:  # it was put into the queue itself
            own_key = self._queue.name
        routing_key = own_key if self._key is None else self._key
        properties, keys = self._died(message, own_key)
        encoded = _encoded(properties)
        selected = Selected(encoded, message.header.priority)
        to = self._exchange, routing_key
        targets = self._route(self._queue, to, dict(properties.headers or {}), keys, selected)
        names = routing_key.encode(), self._exchange.encode()

        def options(ttl: float | None) -> PutOptions:
            life = 0.0 if ttl is None else max(1e-9, ttl)
            return PutOptions(life, 0, message.header.priority, names[0], encoded, names[1])

        limits = [(target, target.message_ttl()) for target in targets]
        free = tuple(target for target, ttl in limits if ttl is None)
        limited = tuple(((target,), options(ttl)) for target, ttl in limits if ttl is not None)
        return ((free, options(None)), *limited) if free else limited

    def _died(self, message: DeadMessage, own_key: str) -> tuple[BasicProperties, tuple[str, ...]]:
        """Returns the properties of the copy, and the further routing keys of the message, from its header CC."""
        given = _properties_of(message)
        headers = dict(given.headers or {})
        copies = headers.get("CC")
        keys = tuple(key for key in copies if isinstance(key, str)) if isinstance(copies, list) else ()
        if self._key is not None:
            headers.pop("CC", None)
        reason = _REASONS[message.why] if message.why < len(_REASONS) else deaths.REJECTED
        death = deaths.Death(self._queue.name, reason, message.exchange, (own_key, *keys), self._now, given.expiration)
        changed = replace(given, headers=deaths.with_death(headers, death), expiration=None)
        return changed, keys if self._key is None else ()


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
