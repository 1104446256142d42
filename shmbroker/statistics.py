# SPDX-License-Identifier: Apache-2.0
"""What can be known about a broker, its queues, connections and consumers: frozen snapshots."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A queue at one moment.

    At rest added == acked + expired + killed + replaced + dropped + dead_lettered + moved + message_count.

    ``message_count`` is the number of distinct live messages: ``ready + delivering + scheduled``. ``bytes`` are those
    of their bodies. ``killed`` counts purge and delete, ``replaced`` the victims of a ring, ``dropped`` overflow and
    reject. ``interested``, ``notified`` and ``not_interested`` are the consumer lists of seed 002; ``non_acquiring``
    the browsers. ``rescues`` counts notifications that only the housekeeper's check brought about.
    """

    name: str
    message_count: int
    ready: int
    delivering: int
    scheduled: int
    bytes: int
    added: int
    acked: int
    expired: int
    killed: int
    replaced: int
    dropped: int
    dead_lettered: int
    moved: int
    redelivered: int
    consumers: int
    interested: int
    notified: int
    not_interested: int
    non_acquiring: int
    rescues: int


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """A broker at one moment.

    Sizes in bytes, ``created_at`` in POSIX seconds, ``housekeeper_pid`` 0 when there is none.
    """

    name: str
    memory_limit: int
    memory_used: int
    segments: int
    queue_count: int
    connection_count: int
    process_count: int
    housekeeper_pid: int
    created_at: float
    rescues: int
    stopped_rescues: int
    reaped: int


@dataclasses.dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """A connection: its name and process, its counted consumers and the messages it holds."""

    id: int
    name: str
    pid: int
    created_at: float
    consumers: int
    holding: int


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A consumer of a queue. ``waiting`` marks a call of get() that waits: it is not counted as a consumer.

    ``state`` is the list it is in: "interested", "notified", "not_interested" or "non_acquiring".
    """

    queue: str
    connection: int
    pid: int
    state: str
    priority: int
    prefetch: int
    unacked: int
    delivered: int
    waiting: bool


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """A consumer as its own process sees it.

    Messages delivered to the application, unacked, and pulled but not taken yet.
    """

    prefetch: int
    delivered: int
    unacked: int
    waiting: int
