# SPDX-License-Identifier: Apache-2.0
"""Making and deleting the broker's own queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import queue as core_queue
from shmbroker.queue import open_queue
from shmbroker.settings import UNBOUNDED, QueueSettings

if TYPE_CHECKING:
    from shmbroker._session.session import Session
    from shmbroker.queue import Queue


def ensure(
    session: Session, name: str, *, no_expiry: bool = False, ring_size: int = UNBOUNDED, durable: bool = False
) -> Queue:
    """Makes a queue of the broker's own unless it exists, and opens it.

    Args:
        session: the session that opens the queue.
        name: a name that begins with one of :data:`shmbroker._amqp.names.PREFIXES`.
        no_expiry: ``True``: the queue is for messages moved there from another queue. They do not expire in it, and
            keep their sequence numbers. ``False``: the queue is for the broker's own notes. A put into it may use
            memory that plain puts leave free (the reserve, see sb_reserve.h).
        ring_size: the most messages that the queue keeps, as in the settings of any queue.
        durable: whether the queue is stored, if the broker has a store. A queue that exists stays as it is.

    Raises:
        OutOfMemory: the broker has no memory for the queue.
        Timeout: the topology lock was not free in ``operation_timeout``.
    """
    settings = QueueSettings(ring_size=ring_size, durable=durable)
    flags = core_queue.KEEPS if no_expiry else core_queue.NOTES
    while True:
        core_queue.declare(session.core, name, settings, session.operation_deadline(), flags)
        try:
            return open_queue(session, name, passive=True)
        except exceptions.NotFound:
            continue  # deleted in between


def delete(session: Session, name: str, *, if_empty: bool = False) -> None:
    """Deletes a queue of the broker's own, if it exists.

    Raises:
        PreconditionFailed: the queue has ready or scheduled messages (``if_empty``).
        Timeout: the topology lock was not free in ``operation_timeout``.
    """
    try:
        open_queue(session, name, passive=True).delete(if_empty=if_empty)
    except exceptions.NotFound:
        return
