# SPDX-License-Identifier: Apache-2.0
"""Frozen snapshots of a broker, its queues, exchanges, bindings, connections, groups, consumers and channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker._dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class QueueMemory:
    """Where the messages of a stored queue are, at one moment. Sizes are the bytes of bodies.

    A message in the memory counts once. ``acquired``: a consumer or the caller of a get holds it. ``direct``: it is
    ready, and a consumer that is there comes to it without a load. ``head``: it is ready behind the head of the queue,
    for consumers that come; no consumer that is there takes it next. ``pending``: any other ready one: of the newest
    ones, or loaded for a search that passed it. ``scheduled``: it is delayed, or waits as dead. ``away``: it is in the
    store only.

    ``hits`` counts the deliveries whose message was in the memory, ``misses`` those whose message had to be loaded
    first. ``watermark`` is the sequence number of the first message behind the head that is in the store only;
    ``None``: all are in the memory. With priorities, it is the first one in the order of delivery.
    """

    direct: int
    head: int
    pending: int
    acquired: int
    scheduled: int
    away: int
    hits: int
    misses: int
    watermark: int | None

    @property
    def total(self) -> int:
        """The bytes in the memory."""
        return self.direct + self.head + self.pending + self.acquired + self.scheduled


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A queue at one moment.

    At rest added == acked + expired + killed + replaced + dropped + dead_lettered + moved + message_count.

    ``message_count`` is the number of distinct live messages: ``ready + delivering + scheduled``. In a queue that is
    ``non_destructive``, ``delivering`` counts what its consumers have, too. These messages are ``ready`` as well, and
    ``message_count`` counts each once. ``bytes`` is the size of their bodies. ``killed`` counts the messages that purge
    and delete ended. ``replaced`` counts the messages that were evicted from a ring. ``dropped`` counts messages that
    overflow or reject ended, and unreadable messages.
    ``duplicates`` counts the messages that were not stored, since the queue knew their ids; they are in no other count.
    ``stops`` counts how often the queue was full, and made its producers wait until it had emptied to ``resume_at``.
    ``interested``, ``notified`` and ``not_interested`` are the lengths of the queue's lists of consumers; the first two
    include calls of get() that wait. ``non_acquiring`` counts the consumers that wait for a message and
    choose: with ``no_local`` or a selector, of a queue with message groups, or of a non-destructive one. Those without
    credit are in ``not_interested``. ``rescues`` counts
    notifications that only the housekeeper's check caused, or the same check by another process while the housekeeper
    was stopped. ``memory``: ``None`` = the queue is not stored, so all its messages are in the memory.
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
    duplicates: int
    stops: int
    consumers: int
    interested: int
    notified: int
    not_interested: int
    non_acquiring: int
    rescues: int
    memory: QueueMemory | None = None


@dataclass(frozen=True, slots=True)
class Repairs:
    """The number of inconsistencies that checks by the housekeeper and by clients corrected, by kind.

    ``notifications``: a consumer, or a call that waits, slept although a message was ready: its notification did not
    wake it, or nobody had been notified. ``room``: a producer slept although there was room. ``counts``: a count of a
    queue's lists of consumers and of waiting producers was wrong. ``accounts``: a queue's account of the messages and
    bytes that it holds was wrong. ``marks``: a returned message had no mark, so no consumer would have found it.
    ``ends``: a queue that should have ended still existed.
    """

    notifications: int = 0
    room: int = 0
    counts: int = 0
    accounts: int = 0
    marks: int = 0
    ends: int = 0

    @property
    def total(self) -> int:
        """The number of repairs of all kinds."""
        return sum(number for _, number in self._numbers())

    def __str__(self) -> str:
        """Returns the kinds whose number is not 0, with their numbers; "none" if there are none."""
        found = (f"{number} {kind}" for kind, number in self._numbers() if number)
        return ", ".join(found) or "none"

    def _numbers(self) -> list[tuple[str, int]]:
        return [(kind, getattr(self, kind)) for kind in self.__match_args__]


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """The store of a broker at one moment.

    ``state`` is "restoring" (clients wait), "verifying" (only the storekeeper reads the store, since a process still
    walks its pages), "ready", or "damaged" (nobody reads or writes it; the text of the error says what and where).
    ``sync`` is what publishers to durable queues wait for: "always" (the disk), "interval" or "none".
    ``storekeeper_pid`` is 0 if there is no storekeeper. ``turns`` counts the turns of storekeepers. ``sync_seconds``
    and ``messages_per_turn`` are averages over the last turns that wrote messages: how long the sync took, and how many
    messages it had. ``left`` and ``came_back`` count the leaves, of up to 64 messages of a queue, that have left the
    memory and have come back; a start that leaves messages in the store counts as well. ``store_full`` is what a put
    does while the disk is full: "block" or "refuse". ``is_full``: whether the disk is full now.
    """

    data_dir: str
    state: str
    sync: str
    storekeeper_pid: int
    turns: int
    sync_seconds: float
    messages_per_turn: int
    left: int
    came_back: int
    store_full: str
    is_full: bool


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """A broker at one moment.

    Sizes are in bytes, ``created_at`` is in POSIX seconds. ``housekeeper_pid`` is 0 if there is no housekeeper.
    ``housekeeper_stopped``: whether the housekeeper's process is stopped (SIGSTOP, a debugger); while it is, another
    process does its work. ``repairs`` counts the repairs that nothing explains. ``explained_repairs`` counts the
    others: a process was killed, was stopped or got no processor, memory was short, or a program that watches a queue
    for room may have reacted late. ``memory_state`` is "normal", "warning" or "blocked"; the two marks are shares of
    ``memory_limit``, ``None`` = none, see :meth:`Broker.configure`. ``store``: ``None`` = the broker has none.
    ``stalled`` counts the consumers that make no progress, of which the housekeeper has warned; see
    :class:`ConsumerInfo`.
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
    memory_state: str = "normal"
    memory_high_watermark: float | None = None
    memory_warning: float | None = None
    stalled: int = 0
    store: StoreStatistics | None = None


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """A connection: its name and process, and how many channels, consumers and unsettled messages it has now.

    The system reuses pids, so three numbers identify the process: ``pid``, its start time ``start_ticks`` in clock
    ticks since the boot (field 22 of /proc/pid/stat), and ``pid_namespace``, the inode of the pid namespace in which
    ``pid`` is valid. Each of the last two is 0 if the process could not determine it.
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


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group: its queue, the last lease it acknowledged, and the number of leases after that one.

    ``messages`` and ``bytes`` count the messages of its queue that the group holds, in leases or on the way into a
    lease. ``used_at`` is the time of the last attach, lease, acknowledgement or release, in POSIX seconds. ``pid`` is
    the process that attached the group; 0: that process has ended, has closed its connection, or has released the
    group. A group with ``pid`` 0 that holds messages is an orphan.
    """

    name: str
    queue: str
    acked: int
    leases: int
    messages: int
    bytes: int
    used_at: float
    pid: int


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A consumer of a queue, or a call of get() that waits.

    ``waiting`` marks a call of get() that waits, which is not counted as a consumer. ``state`` is the list that the
    consumer is in: "interested", "notified", "not_interested" or "non_acquiring"; "removed" if it is in none of them.
    ``channel`` is the number of its channel; 0: it has no channel, as a consumer of ``Queue.consume``.
    ``prefetch_bytes``: 0 = any number.

    ``waits_for`` is "consumer" (its application: the consumer has no credit, or its process takes nothing),
    "producer" (the queue has no message that it wants), "load" (its next message is in the store only) or "dispatch"
    (there may be a message for it in the memory, which it has not taken yet). A consumer that stands by, or whose queue
    is paused, waits for "dispatch" as long as messages are there.

    ``reached`` is the sequence number of the message at which it looks next: the head of the queue, or what its own
    search has reached if it has a selector. ``scan_lag`` is the number of positions from there to the end of the queue,
    in a queue with priorities of the priority of ``reached``. ``watermark`` is the first sequence number from
    ``reached`` on whose message is in the store only. Each of the three is ``None`` if it is not known, and
    ``watermark`` also if there is none among the next million.

    ``stalled_seconds``: for how long the consumer has made no progress, although it has credit, and waits for "load" or
    "dispatch"; 0 = it makes progress, or no housekeeper has looked. ``stalled``: the housekeeper has warned of it.
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
    prefetch_bytes: int = 0
    waits_for: str = "producer"
    reached: int | None = None
    watermark: int | None = None
    scan_lag: int | None = None
    stalled_seconds: float = 0.0
    stalled: bool = False


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    """A channel that has consumers; or, with ``number`` 0, all channels of a connection that have none.

    ``count`` is the number of channels that this object stands for. The other numbers are sums over their consumers:
    ``prefetch`` is the number of messages they may have unacked, 0 = no limit; ``unacked`` is the number they have;
    ``delivered`` is the number of messages delivered to them so far.
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
    """Lists the channels of each connection: those with consumers, by number, then an entry with number 0 for the rest.

    Args:
        connections: the connections of one broker.
        consumers: the consumers of the same broker, read after the connections.
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


@dataclass(frozen=True, slots=True)
class ExchangeInfo:
    """An exchange.

    ``name`` is "" for the default exchange. ``type`` is "direct", "fanout", "topic" or "headers". ``alternate`` is the
    exchange that gets the messages for which this exchange has no destination. ``arguments`` are the arguments of its
    declaration. ``bindings_in`` counts the bindings to this exchange, ``bindings_out`` the bindings from it.
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


@dataclass(frozen=True, slots=True)
class BindingInfo:
    """A binding from an exchange; ``destination_type`` is "queue" or "exchange"."""

    source: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """A consumer as its own process sees it.

    ``delivered`` is the number of messages delivered to the application. ``unacked`` is the number of messages that the
    consumer holds; it includes ``waiting``, the number of pulled messages that the application has not taken yet.
    """

    prefetch: int
    delivered: int
    unacked: int
    waiting: int
