# SPDX-License-Identifier: Apache-2.0
"""Several consumers: shares, turns, and priorities."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import (
    Gathered,
    assert_balanced,
    assert_counts,
    await_counts,
    numbered,
    put_each,
    text,
    texts,
)
from scenario_support.processes import actors

if TYPE_CHECKING:
    import shmbroker

LONGEST_TURN = 64
"""A turn takes a batch (DESIGN 4.2, step 5): no more than this of one consumer."""


def test_q33_one_message_at_a_time_goes_round(queue: shmbroker.Queue) -> None:
    """Four equal consumers get forty messages, one at a time, by turns.

    Who was chosen is read from the consumers' statistics: to ask one for its message
    before would be to give it a turn.
    """
    consumers = [queue.consume(prefetch=1) for _ in range(4)]
    order = []
    for body in numbered(40):
        await_counts(queue, interested=4, notified=0)
        queue.put(body.encode())
        await_counts(queue, delivering=1, not_interested=1)
        (chosen,) = (c for c in consumers if c.statistics().unacked == 1)
        order.append(consumers.index(chosen))
        message = chosen.get(timeout=60)
        assert text(message) == body
        message.ack()
    shares = [order.count(index) for index in range(4)]
    assert max(shares) - min(shares) <= 1, order
    for start in range(0, 40, 4):
        assert len(set(order[start : start + 4])) >= 3, order
    for consumer in consumers:
        consumer.close()


def test_q33_one_message_at_a_time_goes_round_the_processes(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """The same with three processes, whose turns are seen by who acks."""
    with actors(broker.name, 3) as workers:
        for worker in workers:
            worker.do("consume", queue="q", prefetch=1)
            worker.begin("receive_all", until=30, queue="q")
        for number, body in enumerate(numbered(30), start=1):
            await_counts(queue, interested=3, notified=0)
            queue.put(body.encode())
            await_counts(queue, acked=number)
        shares = [len(worker.result()) for worker in workers]
        assert sum(shares) == 30
        assert max(shares) - min(shares) <= 2, shares


def test_q34_a_backlog_is_shared_by_the_consumers_of_a_connection(
    queue: shmbroker.Queue,
) -> None:
    """Two consumers of one connection take a backlog by turns, not one drains it."""
    bodies = numbered(400)
    consumers = [queue.consume(prefetch=400) for _ in range(2)]
    await_counts(queue, interested=2)
    queue.pause()
    put_each(queue, bodies)
    assert_counts(queue, ready=400, delivering=0)
    queue.resume()
    await_counts(queue, ready=0, delivering=400)
    gathered = Gathered(consumers)
    gathered.wait(400)
    owners = {body: index for index, body in gathered.order}
    runs = [len(list(run)) for _, run in itertools.groupby(owners[b] for b in bodies)]
    shares = [len(messages) for messages in gathered.messages]
    assert min(shares) >= 100, shares
    assert max(runs) <= LONGEST_TURN, runs
    gathered.ack()
    for consumer in consumers:
        consumer.close()
    assert_balanced(queue)


def test_q34_consumers_of_several_queues_take_turns(
    connection: shmbroker.Connection,
) -> None:
    """Three queues with a backlog and a consumer each: none waits for another's end."""
    queues = [connection.queue(name) for name in ("a", "b", "c")]
    for queue in queues:
        put_each(queue, numbered(200))
    consumers = [queue.consume(prefetch=10) for queue in queues]
    for queue in queues:
        await_counts(queue, delivering=10)
    gathered = Gathered(consumers)
    gathered.wait(30)
    for _ in range(19):
        total = len(gathered.order)
        gathered.ack()
        gathered.wait(total + 30)
    assert gathered.texts() == [numbered(10, first=190)] * 3
    gathered.ack()
    for consumer, queue in zip(consumers, queues, strict=True):
        consumer.close()
        assert_counts(queue, message_count=0, acked=200)


def test_q34_one_target_over_several_queues_favours_none(
    connection: shmbroker.Connection,
) -> None:
    """A consumer over two queues with a backlog takes from them in fair rotation."""
    prefetch = 2
    queues = [connection.queue(name) for name in ("a", "b")]
    for queue in queues:
        put_each(queue, numbered(100))
    with connection.consumer(queues, prefetch=prefetch) as consumer:
        shares = {"a": 0, "b": 0}
        bodies: dict[str, list[str]] = {"a": [], "b": []}
        for _ in range(200):
            message = consumer.get(timeout=60)
            name = getattr(message.queue, "name", message.queue)
            shares[name] += 1
            bodies[name].append(text(message))
            message.ack()
            assert abs(shares["a"] - shares["b"]) <= 2 * prefetch, shares
    assert bodies == {"a": numbered(100), "b": numbered(100)}


def test_q36_a_low_priority_consumer_alone_receives(queue: shmbroker.Queue) -> None:
    """A low priority does not keep the only consumer from its messages."""
    with queue.consume(priority=-5) as low:
        await_counts(queue, interested=1)
        put_each(queue, "AB")
        received = [low.get(timeout=60) for _ in range(2)]
        assert texts(received) == ["A", "B"]
        for message in received:
            message.ack()


def test_q37_the_high_priority_consumer_gets_both(queue: shmbroker.Queue) -> None:
    """Low and high attached, two sends: both go to high, low gets nothing."""
    with queue.consume(priority=1) as low, queue.consume(priority=2) as high:
        await_counts(queue, interested=2)
        put_each(queue, "AB")
        gathered = Gathered([low, high])
        gathered.wait(2)
        assert gathered.texts() == [[], ["A", "B"]]
        await_counts(queue, delivering=2, interested=2, notified=0)
        gathered.ack()


def test_q37_in_processes_the_high_priority_consumer_gets_all(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """The same where each lives in its own process, and a burst comes."""
    with actors(broker.name, 2) as (low, high):
        low.do("consume", queue="q", priority=0, prefetch=50)
        high.do("consume", queue="q", priority=10, prefetch=50)
        await_counts(queue, interested=2)
        bodies = numbered(50)
        put_each(queue, bodies)
        received = high.do("receive", count=50, timeout=60, settle="ack")
        assert [m["body"] for m in received] == bodies
        await_counts(queue, message_count=0, acked=50)


def test_q40_beyond_the_credit_of_high_low_gets_the_rest(
    queue: shmbroker.Queue,
) -> None:
    """Three messages wait, high has credit two: low gets the third, with no event."""
    with (
        queue.consume(priority=1) as low,
        queue.consume(priority=2, prefetch=2) as high,
    ):
        await_counts(queue, interested=2)
        queue.pause()
        put_each(queue, "ABC")
        queue.resume()
        gathered = Gathered([low, high])
        gathered.wait(3)
        assert gathered.texts() == [["C"], ["A", "B"]]
        assert_counts(queue, ready=0, delivering=3)
        gathered.ack()


def test_q40_in_processes_low_gets_the_rest(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """The same where each lives in its own process, fifty times over."""
    with actors(broker.name, 2) as (low, high):
        low.do("consume", queue="q", priority=0)
        high.do("consume", queue="q", priority=1, prefetch=2)
        for _ in range(50):
            await_counts(queue, interested=2, notified=0, message_count=0)
            put_each(queue, "ABC")
            await_counts(queue, ready=0, delivering=3)
            low_got = low.do("receive", timeout=60, settle="ack")
            high_got = high.do("receive", count=2, timeout=60, settle="ack")
            assert [m["body"] for m in high_got + low_got] == ["A", "B", "C"]
        await_counts(queue, message_count=0, acked=150)


def test_q41_low_serves_while_high_has_no_credit(queue: shmbroker.Queue) -> None:
    """High is full: low gets the backlog. High is free again: new ones go to high."""
    with (
        queue.consume(priority=1) as low,
        queue.consume(priority=2, prefetch=2) as high,
    ):
        await_counts(queue, interested=2)
        put_each(queue, "ABCDE")
        gathered = Gathered([low, high])
        gathered.wait(5)
        assert gathered.texts() == [["C", "D", "E"], ["A", "B"]]
        await_counts(queue, not_interested=1, interested=1, notified=0)
        for message in gathered.messages[1]:
            message.ack()
        gathered.messages[1].clear()
        await_counts(queue, not_interested=0, interested=2, notified=0)
        put_each(queue, "FG")
        gathered.wait(7)
        assert gathered.texts() == [["C", "D", "E"], ["F", "G"]]
        gathered.ack()


def test_q41_low_serves_while_the_process_of_high_is_stopped(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """While high is stopped low gets the backlog; then high is preferred again."""
    with actors(broker.name, 2) as (low, high):
        low.do("consume", queue="q", priority=1)
        high.do("consume", queue="q", priority=2)
        await_counts(queue, interested=2)
        high.stop()
        put_each(queue, "ABC")
        received = low.do("receive", count=3, timeout=None, settle="ack")
        assert [m["body"] for m in received] == ["A", "B", "C"]
        high.resume()
        await_counts(queue, interested=2, notified=0, message_count=0)
        put_each(queue, "DE")
        received = high.do("receive", count=2, timeout=None, settle="ack")
        assert [m["body"] for m in received] == ["D", "E"]
        await_counts(queue, message_count=0, acked=5)


@pytest.mark.parametrize("end", ["close", "kill"])
def test_t44_all_go_to_the_highest_priority_until_it_is_gone(
    broker: shmbroker.Broker, queue: shmbroker.Queue, end: str
) -> None:
    """Priorities 3, 2, 1: the first gets all; it ends after 50 of 100, the other 50 go to the second, in order."""
    bodies = numbered(100)
    with actors(broker.name, 3) as (first, second, third):
        for priority, consumer in (1, third), (2, second), (3, first):
            consumer.do("consume", queue="q", priority=priority, prefetch=100)
        await_counts(queue, interested=3)
        put_each(queue, bodies)
        await_counts(queue, delivering=100, notified=0, ready=0)
        assert [m["body"] for m in first.do("receive", count=50, timeout=60, settle="ack")] == bodies[:50]
        assert [second.do("arrived"), third.do("arrived")] == [[], []]
        if end == "close":
            first.do("close_consumer")
        else:
            first.kill()
        assert [m["body"] for m in second.do("receive", count=50, timeout=60, settle="ack")] == bodies[50:]
        await_counts(queue, message_count=0, acked=100, consumers=2)
        assert third.do("arrived") == []
    assert_balanced(queue)


def test_t52_a_message_does_not_wait_for_an_idle_consumer(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """Five processes have asked for a message in vain; a message comes: whichever of them asks next gets it."""
    with actors(broker.name, 5) as idle:
        for asker in idle:
            asker.do("get_what_is_there", queue="q")
        for number, asker in enumerate([*idle, *reversed(idle)]):
            assert_counts(queue, ready=0, delivering=0, consumers=0)
            put_each(queue, [f"m{number}"])
            assert asker.do("get_what_is_there", queue="q") == [f"m{number}"]
            assert_counts(queue, acked=number + 1, message_count=0)
    assert_balanced(queue)


def test_t52_polling_to_the_end_gets_every_message(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """200 messages, taken without waiting until there is none: exactly 200, though others have asked in vain."""
    bodies = numbered(200)
    with actors(broker.name, 5) as idle:
        for asker in idle:
            assert asker.do("get_what_is_there", queue="q") == []
        put_each(queue, bodies)
        assert idle[2].do("get_what_is_there", queue="q") == bodies
        for asker in idle:
            assert asker.do("get_what_is_there", queue="q") == []
        put_each(queue, bodies)
        for asker in idle:
            asker.begin("get_what_is_there", queue="q")
        shares = [asker.result() for asker in idle]
        assert sorted(body for share in shares for body in share) == bodies
        assert all(share == sorted(share) for share in shares)
    assert_counts(queue, acked=400, message_count=0)
    assert_balanced(queue)
