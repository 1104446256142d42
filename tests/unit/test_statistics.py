# SPDX-License-Identifier: Apache-2.0
"""Statistics: what they count, and that they add up."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import (
    assert_balanced,
    assert_counts,
    await_counts,
    put_each,
)
from scenario_support.processes import actors
from scenario_support.waiting import becomes, eventually

from shmbroker.statistics import Repairs

if TYPE_CHECKING:
    import shmbroker


def test_every_way_a_message_can_go_is_counted_once(
    connection: shmbroker.Connection,
) -> None:
    """Acked, expired, purged, replaced, dropped, moved and live make up the added."""
    queue = connection.queue("q", ring_size=20)
    other = connection.queue("other")
    put_each(queue, "abcdefghijklmnopqrstuvwxyz")
    assert_counts(queue, added=26, replaced=6, ready=20)
    queue.get().ack()
    queue.get().reject()
    assert queue.move("other", limit=3) == 3
    queue.put(b"short", ttl=0.05)
    queue.put(b"late", delay=3600)
    held = queue.get()
    await_counts(queue, expired=1)
    assert_balanced(queue)
    assert_counts(
        queue,
        added=28,
        acked=1,
        moved=3,
        delivering=1,
        scheduled=1,
        ready=14,
        message_count=16,
        replaced=6,
        dropped=1,
    )
    assert queue.purge() == 14
    held.nack()
    assert_counts(queue, killed=14, ready=1, delivering=0)
    assert_balanced(queue)
    assert_counts(other, added=3, ready=3)
    assert_balanced(other)


@pytest.mark.parametrize("overflow", ["drop", "drop-head"])
def test_dropped_messages_are_added_ones(connection: shmbroker.Connection, overflow: str) -> None:
    """What overflow drops was added and dropped, whichever end it is taken from."""
    queue = connection.queue("q", max_length=2, overflow=overflow)
    put_each(queue, "abcde")
    assert_counts(queue, message_count=2, dropped=3, added=5)
    assert_balanced(queue)


def test_bytes_are_those_of_the_bodies(queue: shmbroker.Queue) -> None:
    """The bytes of a queue are the sum of the live bodies."""
    queue.put(b"x" * 100)
    queue.put(b"x" * 1000)
    assert_counts(queue, bytes=1100)
    message = queue.get()
    assert_counts(queue, bytes=1100)
    message.ack()
    assert_counts(queue, bytes=1000)
    queue.purge()
    assert_counts(queue, bytes=0)


def test_statistics_are_a_snapshot(queue: shmbroker.Queue) -> None:
    """Statistics are frozen: they neither change nor can be changed."""
    before = queue.statistics()
    queue.put(b"A")
    assert before.message_count == 0
    assert before.name == "q"
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.message_count = 1


def test_counters_balance_while_processes_die(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """Producers and consumers killed in the middle of their work leave a balance."""
    for seed in range(3):
        acked = queue.statistics().acked
        with actors(broker.name, 2) as (producer, consumer):
            bodies = [f"{seed}-{number}" for number in range(5000)]
            producer.begin("put", queue="q", bodies=bodies)
            consumer.begin("come_and_go", queue="q", until=10**9, seed=seed)
            eventually(lambda goal=acked + 200: queue.statistics().acked > goal)
            producer.kill()
            consumer.kill()
        await_counts(queue, delivering=0, consumers=0)
    becomes(lambda: len(list(queue.browse())), queue.statistics().ready)
    assert_balanced(queue)


def test_the_broker_counts_its_clients(broker: shmbroker.Broker) -> None:
    """Connections and queues of a broker are counted, and named memory is used."""
    before = broker.statistics()
    assert before.name == broker.name
    assert before.memory_limit == 256 * 2**20
    assert abs(time.time() - before.created_at) < 3600
    with broker.connect() as connection:
        connection.queue("a")
        connection.queue("b")
        during = broker.statistics()
        assert during.connection_count == before.connection_count + 1
        assert during.queue_count == 2
        assert before.memory_used <= during.memory_used <= during.memory_limit
    becomes(
        lambda: broker.statistics().connection_count,
        before.connection_count,
    )


def test_memory_used_follows_the_messages(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """Bodies that are put take memory, and give it back when they are acked."""
    queue.put(b"x")
    queue.get().ack()
    before = broker.statistics().memory_used
    for _ in range(10):
        queue.put(bytes(2**20))
    assert broker.statistics().memory_used >= before + 10 * 2**20
    queue.get_many(10).ack()
    eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)


def test_a_dead_client_is_counted_as_reaped(broker: shmbroker.Broker) -> None:
    """A killed process goes from the broker's count of processes."""
    before = broker.statistics()
    with actors(broker.name, 1) as (victim,):
        assert broker.statistics().process_count == before.process_count + 1
        victim.kill()
        becomes(lambda: broker.statistics().process_count, before.process_count)
    assert broker.statistics().reaped > before.reaped


def test_the_housekeeper_is_a_process(broker: shmbroker.Broker) -> None:
    """The number of the housekeeper's process is that of one that lives."""
    pid = eventually(lambda: broker.statistics().housekeeper_pid)
    os.kill(pid, 0)


def test_repairs_are_told_by_kind() -> None:
    """Those that there were, with their numbers, and how many they are in all."""
    found = Repairs(notifications=1, room=2, counts=30, accounts=4, marks=5, ends=6)
    assert str(found) == "1 notifications, 2 room, 30 counts, 4 accounts, 5 marks, 6 ends"
    assert found.total == 48
    assert (str(Repairs(room=3, ends=1)), Repairs(room=3, ends=1).total) == ("3 room, 1 ends", 4)
    assert (str(Repairs()), Repairs().total) == ("none", 0)
