# SPDX-License-Identifier: Apache-2.0
"""What can be known about a broker, its queues, exchanges, connections and consumers: frozen snapshots."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclasses.dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A queue at one moment.

    At rest added == acked + expired + killed + replaced + dropped + dead_lettered + moved + message_count.

    ``message_count`` is the number of distinct live messages: ``ready + delivering + scheduled``. ``bytes`` are those
    of their bodies. ``killed`` counts purge and delete, ``replaced`` the victims of a ring, ``dropped`` overflow,
    reject, and unreadable messages. ``interested``, ``notified`` and ``not_interested`` are the consumer lists of seed
    002; ``non_acquiring`` counts consumers of channels with ``no_local``. ``rescues`` counts notifications that only
    the housekeeper's check brought about.
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
class Repairs:
    """How often upkeep has mended something, by kind.

    ``notifications``: a consumer, or a call that waits, slept beside a message that it had been chosen for. ``room``: a
    producer slept beside room. ``counts``: those of a queue's consumer lists were wrong. ``accounts``: those of what a
    queue with limits holds. ``marks``: no consumer would have found a message that had come back. ``ends``: a queue
    should have been gone.
    """

    notifications: int = 0
    room: int = 0
    counts: int = 0
    accounts: int = 0
    marks: int = 0
    ends: int = 0

    @property
    def total(self) -> int:
        """Of all kinds."""
        return sum(dataclasses.astuple(self))

    def __str__(self) -> str:
        """The kinds that there were, with their numbers."""
        found = (f"{number} {kind}" for kind, number in dataclasses.asdict(self).items() if number)
        return ", ".join(found) or "none"


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """A broker at one moment.

    Sizes in bytes, ``created_at`` in POSIX seconds, ``housekeeper_pid`` 0 when there is none. ``housekeeper_stopped``:
    its process is stopped (SIGSTOP, a debugger); another one does its work meanwhile. ``repairs`` are those that
    nothing explains; ``explained_repairs`` those of what a process left that was killed, stopped, or got no processor.
    """

    name: str
    memory_limit: int
    memory_used: int
    segments: int
    queue_count: int
    connection_count: int
    process_count: int
    housekeeper_pid: int
    housekeeper_stopped: bool
    created_at: float
    rescues: int
    stopped_rescues: int
    reaped: int
    memory_structures: int
    memory_bodies: int
    repairs: Repairs
    explained_repairs: Repairs


@dataclasses.dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """A connection: its name and process, its open channels, its counted consumers and the messages it holds.

    A pid is used again, so three numbers identify the process: ``pid``, its start time ``start_ticks`` in clock ticks
    since the boot (field 22 of /proc/pid/stat), and ``pid_namespace``, the inode of the namespace that has this pid.
    Each of the last two is 0 if the process did not know it.
    """

    id: int
    name: str
    pid: int
    created_at: float
    consumers: int
    holding: int
    channels: int
    start_ticks: int = 0
    pid_namespace: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group: its queue, the last lease it acknowledged, and how many leases it has after that one.

    ``messages`` and ``bytes`` are what it keeps from its queue, in leases or on the way into one. ``used_at`` is when
    something was last leased or acknowledged, or the group attached, in POSIX seconds; ``pid`` the process that
    attached it, 0 when that one has ended: with messages, it is an orphan then.
    """

    name: str
    queue: str
    acked: int
    leases: int
    messages: int
    bytes: int
    used_at: float
    pid: int


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A consumer of a queue. ``waiting`` marks a call of get() that waits: it is not counted as a consumer.

    ``state`` is the list it is in: "interested", "notified", "not_interested" or "non_acquiring". ``channel`` is the
    number of its channel, 0 for one of ``Queue.consume`` and the like.
    """

    queue: str
    connection: int
    channel: int
    pid: int
    state: str
    priority: int
    prefetch: int
    unacked: int
    delivered: int
    waiting: bool


@dataclasses.dataclass(frozen=True, slots=True)
class ChannelInfo:
    """A channel that has consumers; or, with ``number`` 0, all channels of a connection that have none.

    ``count`` is how many channels it stands for. Of its consumers: ``prefetch`` is how many messages they may have
    unacked together, 0 = any number; ``unacked`` how many they have, ``delivered`` how many they were ever given.
    """

    connection: int
    connection_name: str
    pid: int
    number: int
    count: int
    consumers: int
    prefetch: int
    unacked: int
    delivered: int


def channel_infos(connections: Iterable[ConnectionInfo], consumers: Iterable[ConsumerInfo]) -> list[ChannelInfo]:
    """What connections and consumers tell of the channels, by connection and number.

    Args:
        connections: of one broker.
        consumers: of the same, asked after the connections.
    """
    members: dict[tuple[int, int], list[ConsumerInfo]] = {}
    for consumer in consumers:
        if consumer.channel and not consumer.waiting:
            members.setdefault((consumer.connection, consumer.channel), []).append(consumer)
    found = []
    for connection in connections:
        busy = sorted(number for owner, number in members if owner == connection.id)
        found += [_channel(connection, number, members[connection.id, number]) for number in busy]
        if connection.channels > len(busy):
            found.append(_channel(connection, 0, [], connection.channels - len(busy)))
    return found


def _channel(connection: ConnectionInfo, number: int, consumers: list[ConsumerInfo], count: int = 1) -> ChannelInfo:
    unlimited = any(one.prefetch == 0 for one in consumers)
    return ChannelInfo(
        connection=connection.id,
        connection_name=connection.name,
        pid=connection.pid,
        number=number,
        count=count,
        consumers=len(consumers),
        prefetch=0 if unlimited else sum(one.prefetch for one in consumers),
        unacked=sum(one.unacked for one in consumers),
        delivered=sum(one.delivered for one in consumers),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ExchangeInfo:
    """An exchange.

    ``name`` is "" for the default exchange, ``type`` "direct", "fanout", "topic" or "headers". ``alternate`` is the
    exchange that gets what this one has no destination for, ``arguments`` are those it was declared with.
    ``bindings_in`` counts the bindings that lead to it, ``bindings_out`` those from it.
    """

    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    alternate: str | None
    arguments: dict[str, Any]
    bindings_in: int
    bindings_out: int


@dataclasses.dataclass(frozen=True, slots=True)
class BindingInfo:
    """A binding from an exchange; ``destination_type`` is "queue" or "exchange"."""

    source: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """A consumer as its own process sees it.

    Messages delivered to the application, unacked, and pulled but not taken yet.
    """

    prefetch: int
    delivered: int
    unacked: int
    waiting: int
