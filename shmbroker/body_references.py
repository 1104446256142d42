# SPDX-License-Identifier: Apache-2.0
"""Places of messages: with a place, any process of the broker can read a body without taking the message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker._core.bodies import Place as Place  # noqa: PLC0414, TC001 - for the layers above
from shmbroker._core.native import MAX_BODY, MAX_GENERATION, MAX_SLOT
from shmbroker._session.queues import core_of
from shmbroker._session.session import session_of
from shmbroker.message import browsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker.connection import Connection
    from shmbroker.message import Message
    from shmbroker.queue import Queue


def is_possible(place: Place) -> bool:
    """Whether the numbers of a place are in their ranges. Check a place from another process before it is used."""
    return 0 < place.slot <= MAX_SLOT and 0 <= place.generation <= MAX_GENERATION and 0 <= place.length <= MAX_BODY


def of_queue(queue: Queue) -> Iterator[tuple[Message, Place]]:
    """Yields each ready message of a queue without its body, and its place; oldest first. Takes no message."""
    position = 0
    while (found := core_of(queue).browse_place(position)) is not None:
        data, position, place = found
        yield browsed(queue, data), place


def body_at(connection: Connection, place: Place) -> memoryview | None:
    """Reads the body of a message in place, without taking the message.

    The memoryview keeps the slot of the body, whatever happens to the message. A body is copied instead if it has at
    most 4 KiB, is stored in several parts, was published to more than four queues, or is already being read in place
    this way. It is also copied if the broker has no memory to record the reader.

    Returns:
        The body; ``None``: the message is gone.
    """
    return session_of(connection).core.body_at(place)
