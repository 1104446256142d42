# SPDX-License-Identifier: Apache-2.0
"""Samples of a broker, and the rows of the tables. The rates in the rows come from two samples."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import shmbroker
from shmbroker_cli.exchanges import flags
from shmbroker_cli.processes import ProcessFacts, ProcessId, cpu_percent, look_at, process_of
from shmbroker_cli.top.fields import CHANNELS, CLIENTS, CONSUMERS, EXCHANGES, MEMORY, QUEUES
from shmbroker_cli.top.waiting import ConsumerRow, MemoryRow, consumer_row, memory_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@dataclass(frozen=True)
class Sample:
    """What a broker said at one moment.

    Attributes:
        taken: The moment, in seconds of the monotonic clock.
        broker: About the broker as a whole.
        queues: About each queue, by name.
        exchanges: About each exchange.
        channels: About each channel with consumers. A connection that has channels without consumers has one more
            entry, about all of these.
        connections: About each connection.
        processes: What the operating system says of the processes that have the connections; a process that it does not
            show is missing.
        consumers: About each consumer, and each call of `get` that waits.
    """

    taken: float
    broker: shmbroker.BrokerStatistics
    queues: Mapping[str, shmbroker.QueueStatistics]
    exchanges: Sequence[shmbroker.ExchangeInfo] = ()
    channels: Sequence[shmbroker.ChannelInfo] = ()
    connections: Sequence[shmbroker.ConnectionInfo] = ()
    processes: Mapping[ProcessId, ProcessFacts] = field(default_factory=dict)
    consumers: Sequence[shmbroker.ConsumerInfo] = ()


@dataclass(frozen=True)
class Row:
    """One queue.

    Attributes:
        queue: Its name.
        ready: Messages that can be taken.
        delivering: Messages that were taken, by consumers or by gets, and are not settled.
        scheduled: Messages that are not yet due.
        rate_in: Messages added per second; None as long as that is not known.
        rate_out: Messages that left the queue per second, for whatever reason; None as long as that is not known.
        bytes: Bytes of the bodies of its messages.
        interested: Consumers and waiting gets that can be woken.
        notified: Consumers and waiting gets that have been woken.
        not_interested: Consumers that want nothing now.
        non_acquiring: `no_local` consumers that wait.
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
    non_acquiring: int


@dataclass(frozen=True)
class ExchangeRow:
    """One exchange.

    Attributes:
        exchange: Its name, empty for the default one.
        type: Its type, such as "topic".
        bindings_in: How many bindings lead to it.
        bindings_out: How many bindings lead from it.
        alternate: The exchange for messages that this one has no queue for; empty: none.
        flags: Its other attributes, in words.
    """

    exchange: str
    type: str
    bindings_in: int
    bindings_out: int
    alternate: str
    flags: str


@dataclass(frozen=True)
class ChannelRow:
    """One channel with consumers; or together, all channels without consumers of one connection.

    Attributes:
        connection: Name of its connection.
        id: Number of the connection.
        pid: Process of the connection.
        channel: Its number, 0 for channels without consumers.
        count: How many channels the row stands for.
        consumers: How many consumers it has.
        prefetch: Messages that its consumers may have unacked, 0 for any number.
        unacked: Unacked messages of its consumers.
        delivered: Messages delivered to its consumers.
        rate_out: Messages delivered per second; None as long as that is not known.
    """

    connection: str
    id: int
    pid: int
    channel: int
    count: int
    consumers: int
    prefetch: int
    unacked: int
    delivered: int
    rate_out: float | None


@dataclass(frozen=True)
class ClientRow:
    """One process with connections. None means that the value is not known.

    Attributes:
        client: Name of its first connection. If other connections have other names, " +" and the number of these names.
        pid: Its process id.
        connections: How many connections it has.
        consumers: How many consumers its connections have.
        holding: Messages that its connections have taken and not settled.
        cpu_percent: Processor time that it used since the earlier sample, in percent of one processor.
        memory: Its resident memory in bytes, with the pages of the broker's memory that it has touched.
        memory_shared: The part of `memory` that other processes may share.
        age: Seconds since its start.
    """

    client: str
    pid: int
    connections: int
    consumers: int
    holding: int
    cpu_percent: float | None
    memory: int | None
    memory_shared: int | None
    age: float | None


AnyRow = Row | ExchangeRow | ChannelRow | ClientRow | ConsumerRow | MemoryRow


@dataclass(frozen=True)
class Snapshot:
    """The rows of all tables, and the broker they belong to.

    Attributes:
        broker: About the broker as a whole.
        rows: Its queues.
        exchanges: Its exchanges.
        channels: Its channels.
        clients: The processes of its connections.
        consumers: Its consumers.
        memory: Its stored queues.
    """

    broker: shmbroker.BrokerStatistics
    rows: tuple[Row, ...]
    exchanges: tuple[ExchangeRow, ...] = ()
    channels: tuple[ChannelRow, ...] = ()
    clients: tuple[ClientRow, ...] = ()
    consumers: tuple[ConsumerRow, ...] = ()
    memory: tuple[MemoryRow, ...] = ()

    def table(self, name: str) -> tuple[AnyRow, ...]:
        """Return the rows of a table.

        Args:
            name: One of `fields.TABLES`.
        """
        tables: dict[str, tuple[AnyRow, ...]] = {
            QUEUES: self.rows,
            EXCHANGES: self.exchanges,
            CHANNELS: self.channels,
            CLIENTS: self.clients,
            CONSUMERS: self.consumers,
            MEMORY: self.memory,
        }
        return tables[name]

    @property
    def channel_count(self) -> int:
        """How many channels are open."""
        return sum(row.count for row in self.channels)


def take_sample(connection: shmbroker.Connection, broker: str) -> Sample:
    """Take a sample of a broker.

    Args:
        connection: A connection to the broker.
        broker: The name of the broker.
    """
    taken = time.monotonic()
    connections = connection.connections()
    return Sample(
        taken=taken,
        broker=shmbroker.Broker(broker).statistics(),
        queues={one.name: one for one in connection.queue_statistics()},
        exchanges=connection.exchanges(),
        channels=connection.channels(),
        connections=connections,
        processes=look_at(map(process_of, connections)),
        consumers=connection.consumers(),
    )


def left(queue: shmbroker.QueueStatistics) -> int:
    """Return how many messages have left a queue since the queue was made.

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
    channels = {(one.connection, one.number): one for one in before.channels} if before else {}
    return Snapshot(
        now.broker,
        tuple(rows),
        tuple(map(_exchange_row, now.exchanges)),
        tuple(_channel_row(one, channels.get((one.connection, one.number)), seconds) for one in now.channels),
        tuple(_client_rows(now, before.processes if before else {})),
        tuple(map(consumer_row, now.consumers)),
        tuple(memory_row(name, queue.memory) for name, queue in now.queues.items() if queue.memory is not None),
    )


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
        non_acquiring=now.non_acquiring,
    )


def _exchange_row(now: shmbroker.ExchangeInfo) -> ExchangeRow:
    return ExchangeRow(
        exchange=now.name,
        type=now.type,
        bindings_in=now.bindings_in,
        bindings_out=now.bindings_out,
        alternate=now.alternate or "",
        flags=flags(now),
    )


def _channel_row(now: shmbroker.ChannelInfo, before: shmbroker.ChannelInfo | None, seconds: float) -> ChannelRow:
    rate = None
    if before is not None and seconds > 0:
        # The sum no longer counts the messages of a consumer that was cancelled: no negative rates.
        rate = max(0, now.delivered - before.delivered) / seconds
    return ChannelRow(
        connection=now.connection_name,
        id=now.connection,
        pid=now.pid,
        channel=now.number,
        count=now.count,
        consumers=now.consumers,
        prefetch=now.prefetch,
        unacked=now.unacked,
        delivered=now.delivered,
        rate_out=rate,
    )


def _client_rows(now: Sample, before: Mapping[ProcessId, ProcessFacts]) -> Iterator[ClientRow]:
    clients: dict[ProcessId, list[shmbroker.ConnectionInfo]] = {}
    for one in now.connections:
        clients.setdefault(process_of(one), []).append(one)
    for process, connections in clients.items():
        facts = now.processes.get(process)
        name, *others = dict.fromkeys(one.name for one in connections)
        yield ClientRow(
            client=f"{name} +{len(others)}" if others else name,
            pid=process.pid,
            connections=len(connections),
            consumers=sum(one.consumers for one in connections),
            holding=sum(one.holding for one in connections),
            cpu_percent=cpu_percent(before.get(process), facts) if facts else None,
            memory=facts.memory if facts else None,
            memory_shared=facts.memory_shared if facts else None,
            age=facts.age if facts else None,
        )
