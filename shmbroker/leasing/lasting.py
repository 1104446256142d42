# SPDX-License-Identifier: Apache-2.0
"""Where the leases of a queue are: in the store of the broker, or in its memory only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker._session.queues import core_of

if TYPE_CHECKING:
    from shmbroker.queue import Queue


def store_of(queue: Queue) -> int:
    """Returns the id of the store that keeps the queue, and its leases.

    Returns:
        A random number that was made with the store. Each start from the store has the same, also under another name
        and from a restored backup. 0: the broker has no store, or the queue is not durable, or is exclusive: then it
        ends with the memory.
    """
    core = core_of(queue)
    return core.connection.attachment.store_id if core.lasts else 0
