# SPDX-License-Identifier: Apache-2.0
"""Priorities of messages: the highest first, in order within a priority (as those of RabbitMQ, Qpid and Artemis)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import (
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    numbered,
    put_each,
    take,
    texts,
)
from scenario_support.processes import actors

from shmbroker import BasicProperties

if TYPE_CHECKING:
    import shmbroker

LOW, MIDDLE, HIGH = 0, 1, 2


def put_ranked(queue: shmbroker.Queue, *ranked: tuple[str, int | None]) -> None:
    """Put each body with its priority."""
    for body, priority in ranked:
        queue.put(body.encode(), priority=priority)


def test_b68_a_priority_above_the_highest_counts_as_the_highest(connection: shmbroker.Connection) -> None:
    """max-priority 5: p9 counts as 5, and none as 0: they come after p5 and before p0, as they were put."""
    channel = connection.channel()
    channel.queue_declare("ranked", arguments={"x-max-priority": 5})
    for body, priority in ("none", None), ("p0", 0), ("p1", 1), ("p5", 5), ("p9", 9):
        channel.basic_publish("", "ranked", body.encode(), BasicProperties(priority=priority))
    messages = [channel.basic_get("ranked", auto_ack=True) for _ in range(5)]
    assert texts(messages) == ["p5", "p9", "p1", "none", "p0"]
    assert [message.priority for message in messages if message is not None] == [5, 9, 1, 0, 0]


def test_q78_three_levels_come_one_after_the_other(connection: shmbroker.Connection) -> None:
    """3 levels, mixed order: all high ones in order, then the middle ones, then the low ones."""
    queue = connection.queue("ranked", max_priority=HIGH)
    ranked = [(f"{priority}-{number}", priority) for number in range(4) for priority in (MIDDLE, LOW, HIGH)]
    put_ranked(queue, *ranked)
    expected = [f"{priority}-{number}" for priority in (HIGH, MIDDLE, LOW) for number in range(4)]
    assert listing(queue) == expected
    assert take(queue, len(expected)) == expected
    assert_balanced(queue)


def test_q78_a_consumer_that_raises_a_priority_keeps_receiving(connection: shmbroker.Connection) -> None:
    """A consumer puts each message back with a higher priority, and gets it again (QPID-3927)."""
    queue = connection.queue("ranked", max_priority=HIGH)
    put_ranked(queue, ("a", LOW), ("b", LOW))
    seen = []
    with queue.consume(prefetch=1, timeout=5) as consumer:
        for message in consumer:
            seen.append(f"{bytes(message).decode()}{message.priority}")
            if message.priority < HIGH:
                queue.put(bytes(message), priority=message.priority + 1)
            message.ack()
            if len(seen) == 2 * (HIGH + 1):
                break
    assert seen == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert_balanced(queue)


def test_a_message_that_returns_goes_back_to_its_place(connection: shmbroker.Connection) -> None:
    """A returned message is the first of its priority again, behind higher ones, and before what came later."""
    queue = connection.queue("ranked", max_priority=HIGH)
    put_ranked(queue, ("m1", MIDDLE), ("m2", MIDDLE))
    held = queue.get(timeout=0)
    put_ranked(queue, ("h", HIGH), ("m3", MIDDLE), ("l", LOW))
    held.nack()
    assert take(queue, 5) == ["h", "m1", "m2", "m3", "l"]


@pytest.mark.parametrize("way", ["a limit", "a ring"])
def test_q66_the_oldest_of_the_lowest_priority_is_evicted(connection: shmbroker.Connection, way: str) -> None:
    """A full queue evicts the oldest message of the lowest priority that it has, whatever came last."""
    limits = {"ring_size": 3} if way == "a ring" else {"max_length": 3, "overflow": "drop-head"}
    queue = connection.queue("ranked", max_priority=HIGH, **limits)
    put_ranked(queue, ("h1", HIGH), ("l1", LOW), ("l2", LOW))
    put_ranked(queue, ("m1", MIDDLE))
    assert listing(queue) == ["h1", "m1", "l2"]
    put_ranked(queue, ("l3", LOW))
    assert listing(queue) == ["h1", "m1", "l3"]
    put_ranked(queue, ("h2", HIGH), ("h3", HIGH))
    assert listing(queue) == ["h1", "h2", "h3"]
    put_ranked(queue, ("l4", LOW))  # it is the lowest itself
    assert listing(queue) == ["h1", "h2", "h3"]
    assert_balanced(queue)


def test_t11_a_ring_keeps_the_highest_priority(connection: shmbroker.Connection) -> None:
    """ring=2 with priorities p9, p1, p1': the survivors contain p9."""
    ring = connection.queue("ring", ring_size=2, max_priority=9)
    put_ranked(ring, ("p9", 9), ("p1", 1), ("p1'", 1))
    assert listing(ring) == ["p9", "p1'"]
    assert_counts(ring, message_count=2, replaced=1, added=3)


def test_a_queue_without_priorities_keeps_the_order_of_puts(connection: shmbroker.Connection) -> None:
    """Without max_priority a priority is only shown."""
    queue = connection.queue("plain")
    put_ranked(queue, ("a", LOW), ("b", HIGH))
    assert [message.priority for message in queue.browse()] == [LOW, HIGH]
    assert take(queue, 2) == ["a", "b"]


def test_messages_of_all_priorities_are_counted_moved_and_purged(connection: shmbroker.Connection) -> None:
    """Counts, moves and purges look at every priority; a moved message keeps its own, also where no priorities are."""
    queue = connection.queue("ranked", max_priority=255)
    other = connection.queue("other")
    put_ranked(queue, *((f"{priority}", priority) for priority in (0, 7, 255, 64, 128)))
    assert len(queue) == 5
    assert queue.move("other", limit=3) == 3
    assert [(bytes(m).decode(), m.priority) for m in other.browse()] == [("255", 255), ("128", 128), ("64", 64)]
    assert other.move("ranked") == 3
    assert listing(queue) == ["255", "128", "64", "7", "0"]
    assert queue.purge() == 5
    put_each(queue, "x")
    assert take(queue, 1) == ["x"]
    assert_balanced(queue)


def test_processes_that_put_and_take_lose_no_message(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Three processes put, each its priority; a consumer gets each message once, in order within its priority."""
    queue = connection.queue("ranked", max_priority=HIGH)
    bodies = numbered(200)
    with actors(broker.name, HIGH + 1) as producers:
        for priority, producer in enumerate(producers):
            producer.begin("put", queue="ranked", bodies=bodies, priority=priority)
        got = _taken(queue, len(bodies) * len(producers))
        for producer in producers:
            producer.result()
    for priority in (LOW, MIDDLE, HIGH):
        assert [body for body, of in got if of == priority] == bodies
    assert_balanced(queue)


def test_a_killed_consumer_returns_each_message_to_its_place(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """What a killed consumer held comes back before what has a lower priority, and in order."""
    queue = connection.queue("ranked", max_priority=HIGH)
    put_ranked(queue, ("l1", LOW), ("h1", HIGH), ("m1", MIDDLE), ("h2", HIGH))
    with actors(broker.name, 1) as (victim,):
        victim.do("consume", queue="ranked")
        await_counts(queue, delivering=4)
        victim.kill()
        await_counts(queue, delivering=0, ready=4)
    assert take(queue, 4) == ["h1", "h2", "m1", "l1"]
    assert_balanced(queue)


def _taken(queue: shmbroker.Queue, count: int) -> list[tuple[str, int]]:
    taken = []
    for _ in range(count):
        with queue.get(timeout=60) as message:
            taken.append((bytes(message).decode(), message.priority))
    return taken
