# SPDX-License-Identifier: Apache-2.0
"""The copies of dead messages: with which headers they go to which queues."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from shmbroker import properties as basic
from shmbroker._amqp import deaths
from shmbroker._core.dead import Plan
from shmbroker._core.queue import CoreQueue, PutOptions
from shmbroker._core.selecting import Selected
from shmbroker._dataclasses import replace
from shmbroker.properties import BasicProperties

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmbroker._core.dead import DeadMessage
    from shmbroker.settings import QueueSettings

Puts: TypeAlias = "tuple[tuple[Sequence[CoreQueue], PutOptions], ...]"
"""The puts of a message: target queues and options of each. Without any, the message goes nowhere."""

_REASONS = ("", deaths.REJECTED, deaths.EXPIRED, deaths.MAX_LENGTH, deaths.DELIVERY_LIMIT)
_EXPIRED = _REASONS.index(deaths.EXPIRED)
_MOST_ENCODED = 64_000  # more than a publisher may encode, so there is room for a death; SB_MAX_PREFIX, less the names
_MOST_TOLD = 24_000  # bytes of the headers that a plan adds; the core adds none to properties of more than 32 KiB
_MOST_KINDS = 4096  # that are remembered
_IN_FRONT = 6  # bytes in front of the headers in properties that have nothing else: the flags, the size of the table


class _Copies(NamedTuple):
    """The copies of a message.

    Attributes:
        names: the routing key and the exchange to which they are published.
        died: the properties of the message with its new death.
        encoded: the properties of the copies: those, with as much of the deaths as there is room for.
        routes: the queues that the copies go to, in groups; a queue that changes the lives of its messages is alone in
            its group, since the core then gives the copy its life.
    """

    names: tuple[bytes, bytes]
    died: BasicProperties
    encoded: bytes
    routes: tuple[tuple[CoreQueue, ...], ...]


class Plans:
    """The plans for the dead messages of a queue, for the deaths of one second, as long as no route changes.

    Args:
        queue: the queue.
        settings: its settings.
        route: gets the queue, an exchange with a routing key, headers, further keys, and what runs selectors over the
            properties; returns the target queues.
        now: the time of the deaths, in seconds since the epoch.
    """

    def __init__(
        self,
        queue: CoreQueue,
        settings: QueueSettings,
        route: Callable[[CoreQueue, tuple[str, str], dict[str, Any], tuple[str, ...], Selected], list[CoreQueue]],
        now: int,
    ) -> None:
        self._queue, self._route = queue, route
        self._to = settings.dead_letter_exchange, settings.dead_letter_routing_key
        self._expired_to = self._to
        if settings.drop_expired:
            self._expired_to = None, None
        elif settings.expiry_exchange is not None:
            self._expired_to = settings.expiry_exchange, settings.expiry_routing_key
        self._now = dt.datetime.fromtimestamp(now, dt.UTC)
        self._known: dict[bytes, Plan | None] = {}

    def plan(self, kind: bytes, message: Callable[[], DeadMessage]) -> Plan | None:
        """Returns the plan for the messages of a kind; ``None``: each of them needs its own :meth:`puts`.

        Args:
            kind: what stands for all that these messages have in common.
            message: returns one of them.
        """
        if kind not in self._known:
            if len(self._known) >= _MOST_KINDS:
                self.forget()
            self._known[kind] = self._plan(message())
        return self._known[kind]

    def forget(self) -> None:
        """Forgets the plans, so that each kind is routed again."""
        self._known.clear()

    def puts(self, message: DeadMessage) -> Puts:
        """Returns the puts for a message."""
        exchange, goal_key = self._goal(message)
        if exchange is None:
            return ()
        copies = self._copies(message, (exchange, goal_key), _properties_of(message) or basic.NO_PROPERTIES)
        key, to = copies.names
        options = PutOptions(0, 0, message.header.priority, key, copies.encoded, to)
        return tuple((targets, options) for targets in copies.routes)

    def _goal(self, message: DeadMessage) -> tuple[str | None, str | None]:
        """Returns the exchange, ``None``: the message goes nowhere; and a routing key, ``None``: it keeps its own."""
        return self._expired_to if message.why == _EXPIRED else self._to

    def _plan(self, message: DeadMessage) -> Plan | None:
        exchange, goal_key = self._goal(message)
        if exchange is None:
            return Plan(b"", b"", b"", (), drops_copies=False)
        given = _properties_of(message)
        if given is None:
            return None
        copies = self._copies(message, (exchange, goal_key), given)
        fresh = deaths.fresh(copies.died.headers or {}, given.headers)
        told = _encoded(BasicProperties(headers=fresh))[_IN_FRONT:]
        if len(told) > _MOST_TOLD:
            return None
        key, to = copies.names
        return Plan(to, key, told, copies.routes, drops_copies=goal_key is not None)

    def _copies(self, message: DeadMessage, goal: tuple[str, str | None], given: BasicProperties) -> _Copies:
        exchange, key = goal
        own_key = message.routing_key
        if not message.exchange and not own_key:  # it was put into the queue itself
            own_key = self._queue.name
        routing_key = own_key if key is None else key
        properties, keys = self._died(message, given, own_key, keeps_key=key is None)
        encoded = _encoded(properties)
        selected = Selected(encoded, message.header.priority)
        targets = self._route(self._queue, (exchange, routing_key), dict(properties.headers or {}), keys, selected)
        free = tuple(target for target in targets if not target.changes_lives())
        others = tuple((target,) for target in targets if target not in free)
        routes = (free, *others) if free else others
        return _Copies((routing_key.encode(), exchange.encode()), properties, encoded, routes)

    def _died(
        self, message: DeadMessage, given: BasicProperties, own_key: str, *, keeps_key: bool
    ) -> tuple[BasicProperties, tuple[str, ...]]:
        """Returns the properties of the copy, and the further routing keys of the message, from its header CC."""
        headers = dict(given.headers or {})
        copies = headers.get("CC")
        keys = tuple(key for key in copies if isinstance(key, str)) if isinstance(copies, list) else ()
        if not keeps_key:
            headers.pop("CC", None)
        reason = _REASONS[message.why] if message.why < len(_REASONS) else deaths.REJECTED
        death = deaths.Death(self._queue.name, reason, message.exchange, (own_key, *keys), self._now, given.expiration)
        changed = replace(given, headers=deaths.with_death(headers, death), expiration=None)
        return changed, keys if keeps_key else ()


def _properties_of(message: DeadMessage) -> BasicProperties | None:
    """Returns the properties of a message; ``None``: they are damaged, and its body still arrives."""
    encoded = message.properties
    try:
        return basic.decode(encoded) if encoded else basic.NO_PROPERTIES
    except ValueError:
        return None


def _encoded(properties: BasicProperties) -> bytes:
    """Encodes the properties of a copy, with as much of its deaths as there is room for."""
    for headers in deaths.ever_shorter(properties.headers or {}):
        with contextlib.suppress(TypeError, ValueError):
            return basic.encode(replace(properties, headers=headers), _MOST_ENCODED)
    return b"\0\0"  # no properties
