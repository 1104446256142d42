# SPDX-License-Identifier: Apache-2.0
"""The start of a consumer: under the topology lock if a queue limits its consumers, and refused if it has no seat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error
from shmbroker._core import native
from shmbroker._core.journal import topology_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue


def attach(connection: CoreConnection, queues: Sequence[CoreQueue], until: int, start: Callable[[], int]) -> int:
    """Starts a consumer, and returns a status of the core.

    Args:
        connection: the connection of the consumer.
        queues: the queues of the consumer.
        until: the deadline for the topology lock, which only queues with ``max_consumers`` need.
        start: starts the consumer, and returns a status.

    Raises:
        AccessRefused: another consumer uses a queue exclusively; or the consumer cannot get exclusive use.
        ResourceLocked: a queue has as many consumers as its ``max_consumers`` allows.
        Timeout: another process holds the topology lock past ``until``.
    """
    what = " and ".join(queue.what for queue in queues)
    status = start()
    if status == native.UNLOCKED:
        with topology_lock(connection, until, what):
            status = start()
    if status == native.NO_SEAT:
        raise _no_seat(connection, queues)
    if status == native.ACCESS:
        raise amqp_error(exceptions.AccessRefused, f"{what} in vhost '/' in exclusive use")
    return status


def _no_seat(connection: CoreConnection, queues: Sequence[CoreQueue]) -> exceptions.ResourceLocked:
    """Names the queues that are full, with their limits; if none is any more, all of them."""
    limited = [(queue, most) for queue in queues if (most := queue.settings()[0].max_consumers) >= 0]
    full = []
    for queue, most in limited:
        seen = connection.queue_statistics(queue.slot)
        if seen is not None and seen.consumers >= most:
            full.append((queue, most))
    text = "{} in vhost '/' admits no further consumer: max_consumers{}"
    said = [text.format(queue.what, f"={most}") for queue, most in full] or [
        text.format(queue.what, "") for queue in queues
    ]
    return amqp_error(exceptions.ResourceLocked, "; ".join(said))
