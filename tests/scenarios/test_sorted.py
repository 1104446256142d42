# SPDX-License-Identifier: Apache-2.0
"""Sorted queues: messages are delivered in the order of a header (as those of Qpid)."""

from __future__ import annotations

import asyncio
import random
from queue import Empty
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.observing import (
    arrived,
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    put_each,
    take,
    text,
    texts,
)
from scenario_support.processes import actors
from scenario_support.waiting import eventually

from shmbroker import BasicProperties, aio
from shmbroker.exceptions import PreconditionFailed

if TYPE_CHECKING:
    import shmbroker

HEADER = "rank"


def in_order(connection: shmbroker.Connection, **settings: Any) -> shmbroker.Queue:  # noqa: ANN401
    """Declare a queue that is sorted by the header `rank`."""
    return connection.queue("sorted", sort_key=HEADER, **settings)


def put_ranked(queue: shmbroker.Queue, *ranks: object, **options: Any) -> None:  # noqa: ANN401
    """Put a message for each rank, whose body is the rank."""
    for rank in ranks:
        queue.put(str(rank).encode(), headers={HEADER: rank}, **options)


def test_q79_ascending_order_and_ties_as_they_came(connection: shmbroker.Connection) -> None:
    """By key; messages with equal keys as they came; those without the key first."""
    queue = in_order(connection)
    put_ranked(queue, 5, 1, 3)
    for body, rank in (("a", 3), ("b", 1), ("c", 3)):
        queue.put(body.encode(), headers={HEADER: rank})
    put_each(queue, ["none"])
    put_each(queue, ["other"], headers={"other": 0})
    assert take(queue, 8) == ["none", "other", "1", "b", "3", "a", "c", "5"]
    assert_balanced(queue)
    assert connection.doctor() == []


def test_q79_an_insertion_before_the_cursor_is_still_delivered(connection: shmbroker.Connection) -> None:
    """A message with a smaller key than those that were delivered is the next, for a get and for a consumer."""
    queue = in_order(connection)
    put_ranked(queue, 10, 20, 30)
    assert take(queue, 2) == ["10", "20"]
    put_ranked(queue, 5)
    assert take(queue, 1) == ["5"]
    with queue.consume(prefetch=1) as consumer:
        held = consumer.get(timeout=60)
        assert text(held) == "30"
        put_ranked(queue, 50, 40, 3)
        held.ack()
        for expected in ("3", "40", "50"):
            message = consumer.get(timeout=60)
            assert text(message) == expected
            message.ack()
    assert_counts(queue, message_count=0)


def test_q79_order_of_unlike_keys(connection: shmbroker.Connection) -> None:
    """None, lists and tables are no key; numbers of all types are compared exactly, then strings, then bytes."""
    queue = in_order(connection)
    order = [[1], {"a": 1}, float("nan"), None, float("-inf"), -(2**63), -1, False, 0.5, True, 2**53, 2**53 + 1]
    order += [float("inf"), "", "0", "Z", "a", "abcdefgh", "abcdefgh0", "abcdefgha", "ä", b"", b"a"]
    mixed = list(enumerate(order))
    firsts, rest = mixed[:4], mixed[4:]
    random.Random(79).shuffle(rest)
    for number, rank in firsts + rest:
        queue.put(str(number).encode(), headers={HEADER: rank})
    assert take(queue, len(order)) == [str(number) for number in range(len(order))]


def test_q79_several_processes_share_a_sorted_queue(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Producers and consumers at the same time: each message is delivered once, and what is put at rest is in order.

    Each of three processes takes what is there when all has been put: each of them sees ascending keys.
    """
    queue = in_order(connection)
    chance = random.Random(1)
    keys = [f"{chance.random():.12f}" for _ in range(3000)]
    with actors(broker.name, 3) as processes:
        for number, process in enumerate(processes):
            values = [(key, key) for key in keys[number::3]]
            process.begin("put_values", queue="sorted", values=values, header=HEADER)
        for process in processes:
            process.result()
        for process in processes:
            process.begin("get_what_is_there", queue="sorted")
        received = [process.result() for process in processes]
    assert all(bodies == sorted(bodies) for bodies in received)
    assert sorted(body for bodies in received for body in bodies) == sorted(keys)
    assert_balanced(queue)
    assert connection.doctor() == []


def test_q79_nothing_is_lost_between_processes_that_come_and_return(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Consumers that return messages, gets that wait, a storm of puts: each message is acknowledged exactly once."""
    queue = in_order(connection)
    keys = [f"{(n * 7919) % 1000:04d}-{n}" for n in range(1000)]
    with actors(broker.name, 4) as (first, second, dabbler, wanderer):
        for number, process in enumerate((first, second)):
            process.begin("put_values", queue="sorted", values=[(k, k) for k in keys[number::2]], header=HEADER)
        dabbler.begin("dabble", queue="sorted", until=1000, seed=1)
        wanderer.begin("come_and_go", queue="sorted", until=1000, seed=2)
        first.result()
        second.result()
        received = dabbler.result() + wanderer.result()
    assert sorted(received) == sorted(keys)
    assert_counts(queue, acked=1000, message_count=0)
    assert connection.doctor() == []


def test_q79_messages_of_a_killed_process_have_their_place_again(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A process holds the smallest messages, and is killed: they come first again, marked redelivered."""
    queue = in_order(connection)
    put_ranked(queue, 3, 1, 2, 5, 4)
    with actors(broker.name, 1) as (holder,):
        assert [m["body"] for m in holder.do("get", queue="sorted", count=3)] == ["1", "2", "3"]
        assert take(queue, 1) == ["4"]
        holder.kill()
    eventually(lambda: queue.statistics().ready == 4, "the messages are back")
    messages = [queue.get(timeout=60) for _ in range(4)]
    assert texts(messages) == ["1", "2", "3", "5"]
    assert [m.redelivered for m in messages] == [True, True, True, False]
    for message in messages:
        message.ack()
    assert connection.doctor() == []


def test_q79_returned_messages_are_sorted_again(connection: shmbroker.Connection) -> None:
    """A message that is returned is the next if its key is the smallest, however many others were delivered."""
    queue = in_order(connection)
    put_ranked(queue, *range(300, 0, -1))
    held = [queue.get(timeout=60) for _ in range(200)]
    for number in (150, 7, 30):
        held[number].nack()
    assert take(queue, 4) == ["8", "31", "151", "201"]


def test_q79_consumers_channels_and_aio(
    connection: shmbroker.Connection, other: shmbroker.Connection, channel: shmbroker.Channel, broker: shmbroker.Broker
) -> None:
    """The order holds for a consumer, a channel's get and consumer, and asyncio."""
    queue = in_order(connection)
    put_ranked(queue, 4, 2, 3, 1)
    with other.queue("sorted").consume(prefetch=2) as consumer:
        assert texts(consumer.get(timeout=60) for _ in range(2)) == ["1", "2"]
        assert arrived(consumer) is None
    assert [channel.basic_get("sorted", auto_ack=True).body for _ in range(2)] == [b"1", b"2"]
    received: list[bytes] = []
    put_ranked(queue, 0)
    channel.basic_consume("sorted", lambda _c, _m, _p, body: received.append(body), auto_ack=True)
    eventually(lambda: len(received) == 3, "the consumer got all")
    assert received == [b"0", b"3", b"4"]
    channel.close()
    await_counts(queue, consumers=0)

    async def get_all() -> list[str]:
        async with await aio.connect(broker.name) as there:
            queue_there = await there.queue("sorted")
            return [text(await queue_there.get(timeout=60)) for _ in range(3)]

    put_ranked(queue, "b", "c", "a")
    assert asyncio.run(get_all()) == ["a", "b", "c"]


def test_q79_a_selector_chooses_within_the_order(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """A consumer with a selector gets what it wants in the order of the keys; others get the rest in that order."""
    queue = in_order(connection)
    for rank, color in ((3, "red"), (1, "blue"), (2, "red"), (4, "blue")):
        queue.put(f"{color}-{rank}".encode(), headers={HEADER: rank, "color": color})
    with other.queue("sorted").consume(selector="color = 'red'") as consumer:
        assert texts(consumer.get(timeout=60) for _ in range(2)) == ["red-2", "red-3"]
        queue.put(b"red-0", headers={HEADER: 0, "color": "red"})
        assert text(consumer.get(timeout=60)) == "red-0"
        assert take(queue, 2) == ["blue-1", "blue-4"]
    assert take(queue, 3) == ["red-0", "red-2", "red-3"]


def test_q79_the_messages_of_a_transaction_come_together(
    connection: shmbroker.Connection, channel: shmbroker.Channel
) -> None:
    """Messages of an open transaction hold up none; after the commit they have their places."""
    queue = in_order(connection)
    put_ranked(queue, 5, 2)
    channel.tx_select()
    for rank in (1, 4):
        properties = BasicProperties(headers={HEADER: rank})
        channel.basic_publish("", "sorted", str(rank).encode(), properties)
    assert take(queue, 1) == ["2"]
    channel.tx_commit()
    assert take(queue, 3) == ["1", "4", "5"]


def test_q79_delays_expiry_and_limits(connection: shmbroker.Connection) -> None:
    """A delayed message has its place when it is due; an expired one is passed; a ring keeps the newest."""
    queue = in_order(connection)
    put_ranked(queue, 2)
    put_ranked(queue, 1, delay=0.05)
    put_ranked(queue, 0, ttl=0.001)
    eventually(lambda: queue.statistics().expired == 1 and queue.statistics().ready == 2, "due and expired")
    assert take(queue, 2) == ["1", "2"]
    ring = connection.queue("ring", sort_key=HEADER, ring_size=3)
    put_ranked(ring, 1, 5, 3, 4, 2)
    assert take(ring, 3) == ["2", "3", "4"]
    limited = connection.queue("limited", sort_key=HEADER, max_length=2, overflow="drop")
    put_ranked(limited, 3, 2, 1)
    assert take(limited, 2) == ["2", "3"]
    put_ranked(limited, 1)
    assert take(limited, 1) == ["1"]


def test_q79_purge_move_and_browse(connection: shmbroker.Connection) -> None:
    """A browser shows the messages as they came; a moved message has its place; a purge removes all."""
    queue = in_order(connection)
    put_ranked(queue, 3, 1, 2)
    assert listing(queue) == ["3", "1", "2"]
    source = connection.queue("source")
    put_ranked(source, 0, 9)
    assert take(queue, 1) == ["1"]
    assert source.move(queue) == 2
    assert take(queue, 2) == ["0", "2"]
    assert queue.purge() == 2
    with pytest.raises(Empty):
        queue.get(timeout=0)
    put_ranked(queue, 8, 7)
    assert take(queue, 2) == ["7", "8"]


def test_q79_a_queue_of_many_messages(connection: shmbroker.Connection) -> None:
    """5,000 random keys, put while a third of the messages is taken: each get finds the smallest that is there."""
    queue = in_order(connection)
    chance = random.Random(5)
    there: list[int] = []
    for n in range(5000):
        rank = chance.randrange(10**6)
        put_ranked(queue, rank)
        there.append(rank)
        if n % 3 == 0:
            expected = min(there)
            there.remove(expected)
            assert take(queue, 1) == [str(expected)]
    assert take(queue, len(there)) == [str(rank) for rank in sorted(there)]


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ({"message_groups": "sticky"}, "message_groups='sticky'"),
        ({"max_priority": 3}, "max_priority=3"),
        ({"last_value_key": "k"}, "last_value_key='k'"),
    ],
    ids=["groups", "priorities", "last values"],
)
def test_q79_other_orders_are_refused(connection: shmbroker.Connection, others: dict[str, Any], named: str) -> None:
    """Settings that determine another order raise a ValueError that names both."""
    with pytest.raises(ValueError, match=f"sort_key='rank', {named}: only one of them may be set"):
        in_order(connection, **others)


def test_q79_declarations(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """The argument x-sort-key declares such a queue; another header for an existing queue is refused."""
    channel.queue_declare("sorted", arguments={"x-sort-key": HEADER})
    queue = connection.queue("sorted")
    assert queue.settings.sort_key == HEADER
    put_ranked(queue, 2, 1)
    assert take(queue, 2) == ["1", "2"]
    with pytest.raises(PreconditionFailed, match="x-sort-key"):
        connection.queue("sorted", sort_key="another")
