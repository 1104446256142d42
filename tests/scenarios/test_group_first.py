# SPDX-License-Identifier: Apache-2.0
"""The first message of a group for its consumer (ActiveMQ: JMSXGroupFirstForConsumer, Artemis: group-first-key)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import arrived, assert_balanced, await_counts, text
from scenario_support.processes import actors
from scenario_support.waiting import eventually

from shmbroker import BasicProperties

if TYPE_CHECKING:
    from collections.abc import Iterable

    import shmbroker

BOTH = pytest.mark.parametrize("priorities", [0, 9])


def grouped(connection: shmbroker.Connection, kind: str, **settings: object) -> shmbroker.Queue:
    """Declare a queue with message groups."""
    return connection.queue("grouped", message_groups=kind, **settings)


def put_grouped(queue: shmbroker.Queue, *bodies: str) -> None:
    """Put each body; what lies before its hyphen is its group, which is none if nothing lies there."""
    for body in bodies:
        queue.put(body.encode(), group=body.partition("-")[0] or None)


def firsts(messages: Iterable[shmbroker.Message]) -> list[str]:
    """The bodies of those messages that are the first ones of their groups."""
    return [text(message) for message in messages if message.group_first]


@BOTH
def test_t48_the_first_message_of_each_group_says_so(connection: shmbroker.Connection, priorities: int) -> None:
    """Groups that share a bucket have a first message each; one without a group is no first one."""
    queue = grouped(connection, "sticky", group_buckets=1, max_priority=priorities)
    with queue.consume() as consumer:
        put_grouped(queue, "A-1", "A-2", "B-1", "-1", "A-3", "B-2", "C-1")
        got = [consumer.get(timeout=60) for _ in range(7)]
        assert firsts(got) == ["A-1", "B-1", "C-1"]
        for message in got:
            message.ack()
        put_grouped(queue, "B-3", "D-1", "A-4")
        later = [consumer.get(timeout=60) for _ in range(3)]
        assert firsts(later) == ["D-1"]
        for message in later:
            message.ack()
    assert_balanced(queue)


@BOTH
def test_t48_a_group_that_was_closed_begins_again(connection: shmbroker.Connection, priorities: int) -> None:
    """After JMSXGroupSeq -1 the next message of the group is a first one, though the consumer is the same."""
    queue = grouped(connection, "sticky", max_priority=priorities)
    with queue.consume(prefetch=4) as consumer:
        put_grouped(queue, "A-1", "A-2")
        queue.put(b"A-last", group="A", headers={"JMSXGroupSeq": -1})
        put_grouped(queue, "A-new", "A-next")
        seen = []
        for _ in range(5):
            message = consumer.get(timeout=60)
            seen.append((text(message), message.group_first))
            message.ack()
        assert seen == [("A-1", True), ("A-2", False), ("A-last", False), ("A-new", True), ("A-next", False)]
    assert_balanced(queue)


@BOTH
def test_t48_a_group_that_is_handed_over_begins_again(
    connection: shmbroker.Connection, other: shmbroker.Connection, priorities: int
) -> None:
    """A consumer that comes gets half of the groups: the first message of each of these is a first one for it."""
    queue = grouped(connection, "sticky", max_priority=priorities)
    with queue.consume(prefetch=20, ack_batch=1) as first:
        put_grouped(queue, *(f"g{number}-0" for number in range(10)))
        held = [first.get(timeout=60) for _ in range(10)]
        assert len(firsts(held)) == 10
        with other.queue("grouped").consume(prefetch=20) as second:
            for message in held:
                message.ack()
            put_grouped(queue, *(f"g{number % 10}-{1 + number // 10}" for number in range(20)))
            await_counts(queue, ready=0)
            moved = list(iter(lambda: arrived(second), None))
            kept = list(iter(lambda: arrived(first), None))
            assert moved
            assert len(moved) + len(kept) == 20
            assert firsts(moved) == [body for body in map(text, moved) if body.endswith("-1")]
            assert all(body.endswith("-1") for body in firsts(kept))  # it may have got a group that it gave up
            for message in moved + kept:
                message.ack()
    assert_balanced(queue)


@BOTH
def test_t48_the_group_of_a_killed_owner_begins_again(
    broker: shmbroker.Broker, connection: shmbroker.Connection, priorities: int
) -> None:
    """The owner dies with the first message: it comes again as the first one of the next owner; the second does not."""
    queue = grouped(connection, "sticky", max_priority=priorities)
    put_grouped(queue, "A-1", "A-2")
    with actors(broker.name, 1) as (holder,):
        assert [message["body"] for message in holder.do("get", queue="grouped")] == ["A-1"]
        holder.kill()
    with queue.consume() as consumer:
        got = [consumer.get(timeout=60) for _ in range(2)]
        assert [message.redelivered for message in got] == [True, False]
        assert firsts(got) == ["A-1"]
        for message in got:
            message.ack()
    assert_balanced(queue)


@BOTH
def test_a_first_message_that_returns_is_first_again(connection: shmbroker.Connection, priorities: int) -> None:
    """A first message that its consumer returns is a first one when it comes again; a second one is not."""
    queue = grouped(connection, "sticky", max_priority=priorities)
    put_grouped(queue, "A-1", "A-2")
    with queue.consume(prefetch=2) as consumer:
        held = [consumer.get(timeout=60) for _ in range(2)]
        assert firsts(held) == ["A-1"]
        held[1].nack()
        again = consumer.get(timeout=60)
        assert (text(again), again.group_first, again.redelivered) == ("A-2", False, True)
        held[0].nack()
        first = consumer.get(timeout=60)
        assert (text(first), first.group_first) == ("A-1", True)
        first.ack()
        again.ack()
    assert_balanced(queue)


def test_a_shared_group_comes_anew_when_its_consumer_holds_none(connection: shmbroker.Connection) -> None:
    """While a consumer holds messages of a shared group the later ones are no first ones; then one is."""
    queue = grouped(connection, "shared")
    put_grouped(queue, "A-1", "A-2", "A-3")
    got = [queue.get(timeout=60) for _ in range(2)]
    assert firsts(got) == ["A-1"]
    assert [message.group_first for message in queue.browse()] == [False]
    for message in got:
        message.ack()
    last = queue.get(timeout=60)
    assert last.group_first
    last.ack()
    assert_balanced(queue)


def test_many_groups_have_a_first_message_each(connection: shmbroker.Connection) -> None:
    """5,000 sticky groups, two messages of each: the first 5,000 messages are first ones, and no other."""
    queue = grouped(connection, "sticky")
    count = 5000
    for _ in range(2):
        for number in range(count):
            queue.put(b"x", group=f"group-{number}")
    with queue.consume(prefetch=100, ack_batch=50) as consumer:
        seen = []
        for _ in range(2 * count):
            message = consumer.get(timeout=60)
            seen.append(message.group_first)
            message.ack()
    assert seen == [True] * count + [False] * count
    assert_balanced(queue)


def test_channels_show_the_first_message(connection: shmbroker.Connection) -> None:
    """`method.group_first` of a callback, and that of a message that basic_get returned."""
    channel = connection.channel()
    channel.queue_declare("grouped", arguments={"x-message-groups": "sticky"})
    for body in "A-1", "A-2", "B-1":
        channel.basic_publish("", "grouped", body.encode(), BasicProperties(headers={"JMSXGroupID": body[0]}))
    found: list[tuple[str, bool]] = []
    tag = channel.basic_consume(
        "grouped", lambda _, method, __, body: found.append((bytes(body).decode(), method.group_first)), auto_ack=True
    )
    expected = [("A-1", True), ("A-2", False), ("B-1", True)]
    eventually(lambda: len(found) == len(expected), "all came")
    assert found == expected
    channel.basic_cancel(tag)
    channel.basic_publish("", "grouped", b"A-3", BasicProperties(headers={"JMSXGroupID": "A"}))
    got = channel.basic_get("grouped", auto_ack=True, timeout=60)
    assert got is not None
    assert got.group_first
    assert_balanced(connection.queue("grouped"))
