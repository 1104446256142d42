# SPDX-License-Identifier: Apache-2.0
"""Where messages lie: whoever knows it can read a body in place, in any process of the broker, without taking it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker._core.connection import Place as Place  # noqa: PLC0414, TC001 - for the layers above
from shmbroker._core.library import MAX_BODY, MAX_GENERATION, MAX_SLOT
from shmbroker._session.queues import core_of
from shmbroker._session.session import session_of
from shmbroker.message import browsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker.connection import Connection
    from shmbroker.message import Message
    from shmbroker.queue import Queue


def is_possible(place: Place) -> bool:
    """May a message lie there? What was told by others is asked before it is used."""
    return 0 < place.slot <= MAX_SLOT and 0 <= place.generation <= MAX_GENERATION and 0 <= place.length <= MAX_BODY


def of_queue(queue: Queue) -> Iterator[tuple[Message, Place]]:
    """The ready messages of a queue, oldest first, without their bodies, and where each lies. Nothing is taken."""
    position = 0
    while (found := core_of(queue).browse_place(position)) is not None:
        data, position, place = found
        yield browsed(queue, data), place


def body_at(connection: Connection, place: Place) -> memoryview | None:
    """The body of a message, in place: its slot is kept as long as the memoryview is there, whatever becomes of it.

    One that is short, in more than four queues, or being read by this way already is copied.

    Returns:
        ``None``: the message is gone.
    """
    return session_of(connection).core.body_at(place)
