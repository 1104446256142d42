# SPDX-License-Identifier: Apache-2.0
"""Queues that the broker keeps for itself: how they are made and deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import queue as core_queue
from shmbroker.settings import UNBOUNDED, QueueSettings

if TYPE_CHECKING:
    from shmbroker.connection import Connection
    from shmbroker.queue import Queue


def make(connection: Connection, name: str, *, keeps: bool = False, ring_size: int = UNBOUNDED) -> Queue:
    """Makes such a queue unless it is there, and opens it.

    Args:
        connection: whose handle it is.
        name: begins with one of :data:`shmbroker._amqp.names.PREFIXES`.
        keeps: messages do not expire while they are in it; it is for messages that are moved. Otherwise it is for notes
            of the broker's own, for which the reserve of memory may be used.
        ring_size: as of any queue.

    Raises:
        OutOfMemory: the broker has none for it.
        Timeout: the topology lock was not free in ``operation_timeout``.
    """
    settings, flags = QueueSettings(ring_size=ring_size), core_queue.KEEPS if keeps else core_queue.NOTES
    while True:
        core_queue.declare(connection.core, name, settings, connection.operation_deadline(), flags)
        try:
            return connection.queue(name, passive=True)
        except exceptions.NotFound:
            continue  # deleted in between


def delete(connection: Connection, name: str) -> None:
    """Deletes such a queue, if it is there."""
    try:
        connection.queue(name, passive=True).delete()
    except exceptions.NotFound:
        return
