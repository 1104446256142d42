# SPDX-License-Identifier: Apache-2.0
"""Samples of a broker, and the rows with rates that two of them give."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Sample:
    """What a broker said at one moment.

    Attributes:
        taken: On the monotonic clock, in seconds.
        broker: About the broker as a whole.
        queues: About each queue, by name.
    """

    taken: float
    broker: shmbroker.BrokerStatistics
    queues: Mapping[str, shmbroker.QueueStatistics]


@dataclass(frozen=True)
class Row:
    """One queue.

    Attributes:
        queue: Its name.
        ready: Messages that can be taken.
        delivering: Messages that consumers hold.
        scheduled: Messages that are not yet due.
        rate_in: Messages added per second; None as long as it is not known.
        rate_out: Messages that left per second, whatever became of them.
        bytes: Bodies of its messages.
        interested: Consumers that can be woken.
        notified: Consumers that have been woken.
        not_interested: Consumers that want nothing now.
        browsers: Consumers that only look.
    """

    queue: str
    ready: int
    delivering: int
    scheduled: int
    rate_in: float | None
    rate_out: float | None
    bytes: int
    interested: int
    notified: int
    not_interested: int
    browsers: int


@dataclass(frozen=True)
class Snapshot:
    """The rows of all queues, and the broker they belong to."""

    broker: shmbroker.BrokerStatistics
    rows: tuple[Row, ...]


def take_sample(connection: shmbroker.Connection, broker: str) -> Sample:
    """Ask a broker how things are.

    Args:
        connection: A connection to it.
        broker: Its name.
    """
    return Sample(
        taken=time.monotonic(),
        broker=shmbroker.Broker(broker).statistics(),
        queues={one.name: one for one in connection.queue_statistics()},
    )


def left(queue: shmbroker.QueueStatistics) -> int:
    """Return how many messages have left a queue since it was made.

    Args:
        queue: Its counters.
    """
    return (
        queue.acked + queue.expired + queue.killed + queue.replaced + queue.dropped + queue.dead_lettered + queue.moved
    )


def compare(before: Sample | None, now: Sample) -> Snapshot:
    """Return the rows of a sample, with the rates since an earlier one.

    Args:
        before: The earlier sample; without it no rate is known.
        now: The later one.
    """
    seconds = now.taken - before.taken if before else 0.0
    earlier = before.queues if before else {}
    rows = (_row(queue, earlier.get(name), seconds) for name, queue in now.queues.items())
    return Snapshot(now.broker, tuple(rows))


def _row(
    now: shmbroker.QueueStatistics,
    before: shmbroker.QueueStatistics | None,
    seconds: float,
) -> Row:
    rate_in = rate_out = None
    if before is not None and seconds > 0:
        # A queue that was deleted and made again counts from 0: no negative rates.
        rate_in = max(0, now.added - before.added) / seconds
        rate_out = max(0, left(now) - left(before)) / seconds
    return Row(
        queue=now.name,
        ready=now.ready,
        delivering=now.delivering,
        scheduled=now.scheduled,
        rate_in=rate_in,
        rate_out=rate_out,
        bytes=now.bytes,
        interested=now.interested,
        notified=now.notified,
        not_interested=now.not_interested,
        browsers=now.non_acquiring,
    )
