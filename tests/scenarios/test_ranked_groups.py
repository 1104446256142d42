# SPDX-License-Identifier: Apache-2.0
"""Message groups in a queue with priorities: of the messages that a consumer may have, the highest priority first."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import arrived, assert_balanced, await_counts, nothing_to_get, take, text, texts
from scenario_support.processes import actors

if TYPE_CHECKING:
    import shmbroker

BOTH = pytest.mark.parametrize("kind", ["sticky", "shared"])
LOOKS = 1024  # SB_CHOICE_LOOKS: a search that passed so many messages goes on later


def ranked(connection: shmbroker.Connection, kind: str, **settings: object) -> shmbroker.Queue:
    """Declare a queue with message groups and ten priorities."""
    return connection.queue("grouped", message_groups=kind, max_priority=9, **settings)


def put(queue: shmbroker.Queue, *bodies: str) -> None:
    """Put each body: group, priority and number, such as A7-1; no group if it begins with the priority."""
    for body in bodies:
        rank = body.partition("-")[0]
        queue.put(body.encode(), group=rank[:-1] or None, priority=int(rank[-1]))


@BOTH
def test_q49_priorities_are_strict_among_what_a_consumer_may_have(
    connection: shmbroker.Connection, other: shmbroker.Connection, kind: str
) -> None:
    """Group A is busy: another consumer gets the others by priority, then A's by priority, in order in each."""
    queue = ranked(connection, kind)
    with queue.consume(prefetch=1) as first:
        put(queue, "A5-0")
        busy = first.get(timeout=60)
        put(queue, "A9-1", "B1-1", "A0-1", "C7-1", "B1-2", "A9-2", "C8-1", "B7-1")
        with other.queue("grouped").consume(prefetch=8) as second:
            rest = [second.get(timeout=60) for _ in range(5)]
            assert texts(rest) == ["C8-1", "C7-1", "B7-1", "B1-1", "B1-2"]
            assert arrived(second) is None
            first.suspend()
            busy.ack()
            first.close()
            freed = [second.get(timeout=60) for _ in range(3)]
            assert texts(freed) == ["A9-1", "A9-2", "A0-1"]
            for message in rest + freed:
                message.ack()
    assert_balanced(queue)


@BOTH
def test_t47_a_later_message_of_a_higher_priority_comes_first_in_its_group(
    connection: shmbroker.Connection, kind: str
) -> None:
    """As in Artemis and Qpid the queue is ordered by priority first, and a group only decides the consumer."""
    queue = ranked(connection, kind)
    put(queue, "A1-1", "A1-2")
    with queue.consume(prefetch=1) as consumer:
        message = consumer.get(timeout=60)
        put(queue, "A4-1", "A1-3")
        got = [text(message)]
        message.ack()
        for _ in range(3):
            message = consumer.get(timeout=60)
            got.append(text(message))
            message.ack()
        assert got == ["A1-1", "A4-1", "A1-2", "A1-3"]
    assert_balanced(queue)


@BOTH
def test_what_returns_keeps_its_place_in_its_priority(
    connection: shmbroker.Connection, other: shmbroker.Connection, kind: str
) -> None:
    """A message that a consumer returns comes before the later ones of its group and priority, for any consumer."""
    queue = ranked(connection, kind)
    put(queue, "A3-1", "A3-2", "B3-1", "A6-1")
    with queue.consume(prefetch=2) as first:
        held = [first.get(timeout=60) for _ in range(2)]
        assert texts(held) == ["A6-1", "A3-1"]
        with other.queue("grouped").consume(prefetch=9) as second:
            passed = second.get(timeout=60)
            assert text(passed) == "B3-1"
            first.suspend()
            for message in held:
                message.nack()
            first.close()
            rest = [second.get(timeout=60) for _ in range(3)]
            assert texts(rest) == ["A6-1", "A3-1", "A3-2"]
            for message in [passed, *rest]:
                message.ack()
    assert_balanced(queue)


@BOTH
def test_q51_the_group_of_a_dead_consumer_goes_to_another_by_priority(
    broker: shmbroker.Broker, connection: shmbroker.Connection, kind: str
) -> None:
    """c1 dies with a message of A: c2, which passed the others of A, gets all of A by priority."""
    queue = ranked(connection, kind)
    put(queue, "A5-1", "B2-1")
    with actors(broker.name, 1) as (holder,):
        assert [message["body"] for message in holder.do("get", queue="grouped")] == ["A5-1"]
        put(queue, "A1-1", "A8-1", "A5-2")
        with queue.consume(prefetch=10) as consumer:
            passed = consumer.get(timeout=60)
            assert text(passed) == "B2-1"
            assert arrived(consumer) is None
            holder.kill()
            rest = [consumer.get(timeout=60) for _ in range(4)]
            assert texts(rest) == ["A8-1", "A5-1", "A5-2", "A1-1"]
            for message in [passed, *rest]:
                message.ack()
    assert_balanced(queue)


@BOTH
def test_q55_many_messages_of_a_busy_group_block_no_lower_priority(
    connection: shmbroker.Connection, other: shmbroker.Connection, kind: str
) -> None:
    """A busy group has more ready messages in a high and in a low priority than a search passes at once."""
    queue = ranked(connection, kind)
    put(queue, "A9-0")
    with queue.consume(prefetch=1) as first:
        busy = first.get(timeout=60)
        for priority in 8, 1:
            queue.put_many([b"x"] * (LOOKS + 100), group="A", priority=priority)
        put(queue, "B0-1", "B5-1")
        with other.queue("grouped").consume(prefetch=4) as second:
            rest = [second.get(timeout=60) for _ in range(2)]
            assert texts(rest) == ["B5-1", "B0-1"]
            for message in rest:
                message.ack()
        busy.ack()
    queue.purge()


def test_q54_what_was_passed_is_delivered_although_its_claimant_takes_no_more(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """SHARED: c2 has passed A in two priorities; c1 takes and acks one more, then stops: c2 gets the rest."""
    queue = ranked(connection, "shared")
    for _ in range(20):
        put(queue, "A5-0")
        one = queue.get(timeout=60)
        with other.queue("grouped").consume() as second:
            put(queue, "A7-1", "A2-1", "A2-2", "B1-1")
            passed = second.get(timeout=60)
            assert text(passed) == "B1-1"
            second.suspend()
            one.ack()
            two = queue.get(timeout=60)
            assert text(two) == "A7-1"
            second.resume()
            assert arrived(second) is None
            two.ack()
            rest = [second.get(timeout=60) for _ in range(2)]
            assert texts(rest) == ["A2-1", "A2-2"]
            for message in [passed, *rest]:
                message.ack()
    assert_balanced(queue)


@pytest.mark.timeout(300)
def test_processes_that_share_groups_get_each_in_order(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Of each group and priority each process gets the messages in order; each message comes once."""
    queue = ranked(connection, "shared")
    chance = random.Random(broker.name)
    bodies = [f"{chance.choice('ABCDE')}{chance.choice('069')}-{number:03}" for number in range(300)]
    put(queue, *bodies)
    with actors(broker.name, 3) as takers:
        for taker in takers:
            taker.begin("get", queue="grouped", count=100, timeout=60, settle="ack")
        parts = [[message["body"] for message in taker.result()] for taker in takers]
    for part in parts:
        for rank in {body[:2] for body in bodies}:
            mine = [body for body in part if body.startswith(rank)]
            assert mine == sorted(mine)
    assert sorted(body for part in parts for body in part) == sorted(bodies)
    assert_balanced(queue)


@BOTH
def test_a_full_ring_evicts_the_lowest_priority_whatever_its_group(
    connection: shmbroker.Connection, other: shmbroker.Connection, kind: str
) -> None:
    """ring_size: the oldest message of the lowest priority goes, also if its group is busy; the order stays."""
    queue = ranked(connection, kind, ring_size=3)
    put(queue, "A5-0")
    busy = queue.get(timeout=60)
    put(queue, "A1-1", "A9-1", "B2-1", "B3-1")
    await_counts(queue, ready=3)
    elsewhere = other.queue("grouped")
    assert take(elsewhere, 2) == ["B3-1", "B2-1"]
    assert nothing_to_get(elsewhere)
    busy.ack()
    assert take(elsewhere, 1) == ["A9-1"]
    assert nothing_to_get(queue)
