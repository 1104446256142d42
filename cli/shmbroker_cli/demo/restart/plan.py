# SPDX-License-Identifier: Apache-2.0
"""The broker of the restart: its queues, its exchange, and what a message is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import shmbroker
    from shmbroker.settings import QueueSettings
    from shmbroker.statistics import BindingInfo

MEMORY = "32M"
ORDERS, RANKED, ARCHIVE, RECEIPTS = "orders", "ranked", "archive", "receipts"
DEBITS, CREDITS = "debits", "credits"
LEDGER = "ledger"  # the exchange of the transactions
HIGHEST = 3  # priority
QUEUES: dict[str, dict[str, Any]] = {
    ORDERS: {"max_delivery_attempts": 1000},
    RANKED: {"max_priority": HIGHEST},
    ARCHIVE: {},
    DEBITS: {},
    CREDITS: {},
    RECEIPTS: {},
}
COMPARED = (ORDERS, RANKED, ARCHIVE, DEBITS, CREDITS)
DEEP = 9_000  # messages of the archive that are there when all processes are killed: more than the memory has room for
LARGE, SMALL = 4096, 100  # bytes of a body
NUMBER = 8  # bytes of a body that say which message it is


@dataclass(frozen=True)
class Topology:
    """What a broker has beside messages.

    Attributes:
        settings: The settings of each queue, by name.
        exchanges: The name and the type of each exchange, and whether it is durable.
        bindings: The bindings.
    """

    settings: dict[str, QueueSettings]
    exchanges: list[tuple[str, str, bool]]
    bindings: list[BindingInfo]


def declare(connection: shmbroker.Connection) -> None:
    """Declare the queues, the exchange, and its bindings.

    Args:
        connection: A connection of an empty broker.
    """
    for name, settings in QUEUES.items():
        connection.queue(name, durable=True, **settings)
    with connection.channel() as channel:
        channel.exchange_declare(LEDGER, "direct", durable=True)
        for name in (DEBITS, CREDITS):
            channel.queue_bind(name, LEDGER, name)


def topology(connection: shmbroker.Connection) -> Topology:
    """Return the queues, exchanges and bindings of a broker.

    Args:
        connection: A connection of the broker.
    """
    return Topology(
        settings={name: connection.queue(name, passive=True).settings for name in sorted(connection.queue_names())},
        exchanges=sorted((one.name, one.type, one.durable) for one in connection.exchanges()),
        bindings=sorted(connection.bindings(), key=lambda one: (one.source, one.destination, one.routing_key)),
    )


def body_of(queue: str, number: int) -> bytes:
    """Return the body of a message.

    Args:
        queue: The queue for which it is.
        number: Which message of the queue it is, from 0.
    """
    return number.to_bytes(NUMBER).ljust(LARGE if queue == ARCHIVE else SMALL, b".")


def number_in(body: bytes) -> int:
    """Return which message of its queue a body is of.

    Args:
        body: What `body_of` returned.
    """
    return int.from_bytes(body[:NUMBER])


def priority_of(queue: str, number: int) -> int:
    """Return the priority of a message.

    Args:
        queue: Its queue.
        number: Which message of the queue it is.
    """
    return number % (HIGHEST + 1) if queue == RANKED else 0
