# SPDX-License-Identifier: Apache-2.0
"""The queues, the processes, and the classes of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.chaos import content
from tests.chaos.dead_letters import plan as dead_letters
from tests.chaos.dead_letters.plan import ARCHIVE, ATTEMPTS, DEAD, DELAY, EXCHANGE, HEAD, HIGHEST, RING
from tests.chaos.roles import Role

if TYPE_CHECKING:
    import shmbroker

STICKY, SHARED, RANKED, BOARD = "sticky", "shared", "ranked", "board"
GROUPED = (STICKY, SHARED)
SOURCES = (STICKY, SHARED, RANKED, RING, HEAD)
QUEUES = (*SOURCES, DEAD, ARCHIVE)
DELAYED = (RANKED, HEAD)
GROUPS = 12
COLOURS = ("red", "blue")
ROOM = 150
ALIKE = 8  # so many messages of a producer in a row are of one class: one call can put them

_MORTAL: dict[str, Any] = {"dead_letter_exchange": EXCHANGE, "max_delivery_attempts": ATTEMPTS}
_WAITING: dict[str, Any] = {"redelivery_delay": DELAY, "redelivery_multiplier": 2, "max_redelivery_delay": 0.04}
SETTINGS: dict[str, dict[str, Any]] = {
    STICKY: {**_MORTAL, "message_groups": "sticky"},
    SHARED: {**_MORTAL, "message_groups": "shared", "max_length": ROOM},
    RANKED: {**_MORTAL, **_WAITING, "max_priority": HIGHEST, "max_length": ROOM, "overflow": "reject-publish"},
    RING: {**_MORTAL, "ring_size": dead_letters.LONG, "max_priority": HIGHEST},
    HEAD: {**_MORTAL, **_WAITING, "max_length": dead_letters.SHORT, "max_bytes": "1M", "overflow": "drop-head"},
    BOARD: {"non_destructive": True, "ring_size": 40},
    DEAD: dead_letters.SETTINGS[DEAD],
    ARCHIVE: dead_letters.SETTINGS[ARCHIVE],
}

CAST = (
    Role("publisher", (STICKY,)),
    Role("publisher", (STICKY, SHARED)),
    Role("publisher", (SHARED,)),
    Role("publisher", (RANKED,)),
    Role("publisher", (RANKED, RING, HEAD)),
    Role("handler", (STICKY,)),
    Role("handler", (STICKY,)),
    Role("handler", (STICKY, SHARED)),
    Role("handler", (SHARED,)),
    Role("handler", (SHARED,)),
    Role("handler", (RANKED,)),
    Role("handler", (RANKED,)),
    Role("handler", (RANKED, RING, HEAD)),
    Role("poster", (BOARD,)),
    Role("reader", (BOARD,)),
    Role("reader", (BOARD,)),
    Role("gatherer", (DEAD,)),
    Role("gatherer", (DEAD, ARCHIVE)),
)


class Class(NamedTuple):
    """What a message is put with."""

    group: str
    priority: int
    colour: str


def class_of(message: int) -> Class:
    """The class of a message."""
    number = message // ALIKE * 2654435761 % 2**32 >> 8
    return Class(f"g{number % GROUPS}", number // GROUPS % (HIGHEST + 1), COLOURS[number // 64 % len(COLOURS)])


def row_of(message: int, queue: str) -> tuple[str | int, ...]:
    """In which order a message has its place: messages of one producer and one row come in the order of their puts."""
    found = class_of(message)
    among = (found.group,) if queue in GROUPED else (found.priority, found.colour)
    return queue, content.producer_of(message), *among


def declare(connection: shmbroker.Connection) -> dict[str, shmbroker.Queue]:
    """Declare the queues, and the exchange from which both dead-letter queues get every dead message."""
    queues = {name: connection.queue(name, **settings) for name, settings in SETTINGS.items()}
    with connection.channel() as channel:
        channel.exchange_declare(EXCHANGE, "fanout")
        for name in (DEAD, ARCHIVE):
            channel.queue_bind(name, EXCHANGE)
    return queues
