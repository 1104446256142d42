# SPDX-License-Identifier: Apache-2.0
"""What tests of stages have in common."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import shmbroker
    from shmbroker.staging import Receipt, Stage, names

LARGE = [{"at_once": 100}, {"at_once": 1}, {"bytes_at_once": 1}]
"""Settings of stages that publish a batch at once, and message by message."""
JOB = uuid.UUID(int=7)


def staged(stage: Stage, batch: names.Batch, partition: int, *bodies: bytes, **options: Any) -> Receipt:  # noqa: ANN401
    """A partition, staged."""
    with stage.attempt(batch, partition, 0) as writer:
        writer.put_many(bodies, **options)
    return writer.receipt


def bodies(queue: shmbroker.Queue) -> list[bytes]:
    """What is ready."""
    return [bytes(message) for message in queue.browse()]


def internal(connection: shmbroker.Connection) -> list[str]:
    """The broker's own queues."""
    return sorted(set(connection.queue_names(all=True)) - set(connection.queue_names()))
