# SPDX-License-Identifier: Apache-2.0
"""The rows of two tables: what each consumer waits for, and what the memory has of each stored queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import shmbroker


@dataclass(frozen=True)
class ConsumerRow:
    """One consumer, or a call of `get` that waits.

    Attributes:
        queue: Its queue.
        connection: Number of its connection.
        pid: Process of the connection.
        waits_for: "consumer", "producer", "load" or "dispatch".
        stalled: Seconds without progress, although it has credit and messages are there; None: it makes progress.
        unacked: Messages that it holds.
        prefetch: How many it may hold.
        delivered: Messages delivered to its application.
        scan_lag: Positions of the queue that it has not looked at; None: that is not known.
        watermark: The first sequence number before it whose message is in the store only; None: there is none.
    """

    queue: str
    connection: int
    pid: int
    waits_for: str
    stalled: float | None
    unacked: int
    prefetch: int
    delivered: int
    scan_lag: int | None
    watermark: int | None


@dataclass(frozen=True)
class MemoryRow:
    """One stored queue. The sizes are bytes of bodies, as those of `shmbroker.QueueMemory`.

    Attributes:
        queue: Its name.
        direct: Of messages that its consumers come to without a load.
        head: Of messages that stay for consumers that come.
        pending: Of other ready messages, such as the newest ones.
        acquired: Of messages that consumers hold.
        scheduled_bytes: Of messages that are not yet due.
        away: Of messages that are in the store only.
        hits: Deliveries whose message was in the memory.
        misses: Deliveries whose message was loaded first.
        watermark: The first sequence number whose message is in the store only; None: there is none.
    """

    queue: str
    direct: int
    head: int
    pending: int
    acquired: int
    scheduled_bytes: int
    away: int
    hits: int
    misses: int
    watermark: int | None


def consumer_row(now: shmbroker.ConsumerInfo) -> ConsumerRow:
    """Return the row of a consumer.

    Args:
        now: What is known of it.
    """
    return ConsumerRow(
        queue=now.queue,
        connection=now.connection,
        pid=now.pid,
        waits_for=now.waits_for,
        stalled=now.stalled_seconds if now.stalled else None,
        unacked=now.unacked,
        prefetch=now.prefetch,
        delivered=now.delivered,
        scan_lag=now.scan_lag,
        watermark=now.watermark,
    )


def memory_row(queue: str, now: shmbroker.QueueMemory) -> MemoryRow:
    """Return the row of a stored queue.

    Args:
        queue: Its name.
        now: Where its messages are.
    """
    return MemoryRow(
        queue=queue,
        direct=now.direct,
        head=now.head,
        pending=now.pending,
        acquired=now.acquired,
        scheduled_bytes=now.scheduled,
        away=now.away,
        hits=now.hits,
        misses=now.misses,
        watermark=now.watermark,
    )
