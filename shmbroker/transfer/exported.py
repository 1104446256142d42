# SPDX-License-Identifier: Apache-2.0
"""A message outside of a broker: what an export has of it, and an import puts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker import properties as basic
from shmbroker._dataclasses import dataclass

if TYPE_CHECKING:
    from shmbroker.properties import BasicProperties

READY, SCHEDULED, DEAD = "ready", "scheduled", "dead"


@dataclass(frozen=True, slots=True)
class Exported:
    """A message outside of a broker. The times are nanoseconds since 1970.

    An import puts the body, the properties with their headers, the exchange, the routing key, the priority, and what is
    left of the life and of the delay. The broker gives the others anew.

    Attributes:
        body: the body.
        properties: the AMQP properties, and the headers.
        exchange: the exchange that it was published to; empty for the default exchange, and for a put.
        routing_key: the routing key, or the key of the put; ``None``: there was none.
        priority: the priority.
        sequence: the position of the message in its queue; ``None``: not known.
        state: ``"ready"``, ``"scheduled"``, ``"delivering"`` or ``"dead"``.
        timestamp_ns: the time of the put; ``None``: not known.
        expires_ns: the time at which it expires; 0 = never; ``None``: the property ``expiration`` says it.
        due_ns: the time at which it becomes ready; ``None``: at once.
        delivery_count: the number of deliveries; ``None``: not known, as of a ready message of a broker that runs.
        redelivered: whether it was delivered before.
    """

    body: bytes
    properties: BasicProperties = basic.NO_PROPERTIES
    exchange: str = ""
    routing_key: str | None = None
    priority: int = 0
    sequence: int | None = None
    state: str = READY
    timestamp_ns: int | None = None
    expires_ns: int | None = None
    due_ns: int | None = None
    delivery_count: int | None = None
    redelivered: bool = False
