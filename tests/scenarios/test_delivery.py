# SPDX-License-Identifier: Apache-2.0
"""Consumers and what they are delivered: first come, returned, expired, skipped."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.dead_letters import EXCHANGE, dead_letter_queue, next_dead, reasons
from scenario_support.observing import (
    Gathered,
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    nothing_to_get,
    put_each,
    take,
    text,
    texts,
)
from scenario_support.processes import actors
from scenario_support.waiting import eventually, until_clock

from shmbroker.exceptions import MessageSettled

if TYPE_CHECKING:
    import shmbroker

TTL_SECONDS = 3.0  # long enough to get a message before that, on a machine that is busy with others too


def test_q01_consumer_on_an_empty_queue_gets_what_comes(queue: shmbroker.Queue) -> None:
    """A consumer that was there first gets the message, and none after its close."""
    consumer = queue.consume()
    await_counts(queue, consumers=1, interested=1, not_interested=0)
    queue.put(b"first")
    message = consumer.get(timeout=60)
    assert text(message) == "first"
    assert not message.redelivered
    message.ack()
    await_counts(queue, consumers=1, interested=1, notified=0, acked=1)
    consumer.close()
    await_counts(queue, consumers=0, interested=0, notified=0, not_interested=0)
    queue.put(b"second")
    assert_counts(queue, ready=1, delivering=0, message_count=1)
    assert take(queue, 1) == ["second"]
    assert_balanced(queue)


def test_q02_messages_that_were_there_first_come_in_order(
    queue: shmbroker.Queue,
) -> None:
    """What was put before the consumer came is delivered at once, in order."""
    put_each(queue, "AB")
    with queue.consume() as consumer:
        for expected in "AB":
            message = consumer.get(timeout=60)
            assert text(message) == expected
            message.ack()
    assert_counts(queue, message_count=0, acked=2, redelivered=0)


def test_q03_only_the_returned_message_comes_again(queue: shmbroker.Queue) -> None:
    """A of A, B, C is returned: A alone comes again, A alone is marked redelivered."""
    put_each(queue, "ABC")
    with queue.consume() as consumer:
        first = [consumer.get(timeout=60) for _ in range(3)]
        assert texts(first) == list("ABC")
        first[0].nack()
        again = consumer.get(timeout=60)
        assert text(again) == "A"
        assert again.redelivered
        assert [m.redelivered for m in first[1:]] == [False, False]
        queue.put(b"D")
        last = consumer.get(timeout=60)
        assert text(last) == "D"
        assert not last.redelivered
        for message in (again, *first[1:], last):
            message.ack()
    assert_counts(queue, message_count=0, acked=4, redelivered=1)
    assert nothing_to_get(queue)
    assert_balanced(queue)


def test_q05_a_returned_message_goes_to_exactly_one_of_two(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Two equal consumers share A and B; A returned makes three deliveries in all."""
    queue = connection.queue("q")
    with broker.connect() as other:
        consumers = [
            queue.consume(prefetch=1),
            other.queue("q").consume(prefetch=1),
        ]
        await_counts(queue, consumers=2, interested=2)
        put_each(queue, "AB")
        gathered = Gathered(consumers)
        gathered.wait(2)
        assert sorted(body for _, body in gathered.order) == ["A", "B"]
        assert [len(messages) for messages in gathered.messages] == [1, 1]
        owner = next(i for i, body in gathered.order if body == "A")
        gathered.messages[owner].pop().nack()
        gathered.wait(3)
        assert gathered.order[-1][1] == "A"
        assert gathered.messages[gathered.order[-1][0]][-1].redelivered
        gathered.ack()
        gathered.wait(3)
        assert_counts(queue, message_count=0, acked=2, redelivered=1)
        assert nothing_to_get(queue)
        for consumer in consumers:
            consumer.close()


def test_q05_a_message_of_a_killed_process_goes_to_exactly_one_of_two(
    broker: shmbroker.Broker, queue: shmbroker.Queue
) -> None:
    """The same where A comes back because the process that held it was killed."""
    with actors(broker.name, 3) as (victim, *others):
        put_each(queue, "A")
        assert victim.do("get", queue="q")[0]["body"] == "A"
        for other in others:
            other.do("consume", queue="q")
        await_counts(queue, interested=2, delivering=1)
        victim.kill()
        await_counts(queue, redelivered=1, delivering=1)
        queue.put(b"B")
        await_counts(queue, delivering=2)
        received = []
        for other in others:
            other.begin("receive_all", until=2, queue="q")
        for other in others:
            received += other.result()
        assert sorted(m["body"] for m in received) == ["A", "B"]
        flags = {m["body"]: m["redelivered"] for m in received}
        assert flags == {"A": True, "B": False}
        assert_counts(queue, message_count=0, acked=2, redelivered=1)


def test_q06_expired_while_held_is_not_delivered_again(queue: shmbroker.Queue) -> None:
    """A message that expires while held, then comes back, is expired, not delivered."""
    queue.put(b"A", ttl=TTL_SECONDS)
    message = queue.get(timeout=60)
    until_clock(time.monotonic() + TTL_SECONDS)
    assert_counts(queue, delivering=1, message_count=1, expired=0)
    message.nack()
    assert nothing_to_get(queue)
    await_counts(queue, expired=1, message_count=0, delivering=0, ready=0, redelivered=0)
    queue.put(b"B")
    assert take(queue, 1) == ["B"]
    assert_balanced(queue)


def test_q08_return_of_an_old_message_does_not_disturb_later_ones(
    queue: shmbroker.Queue,
) -> None:
    """An old message returned to its consumer comes once more, later ones once."""
    put_each(queue, "ABC")
    with queue.consume(prefetch=2) as consumer:
        gathered = Gathered([consumer])
        gathered.wait(2)
        a, b = gathered.messages[0]
        b.ack()
        gathered.wait(3)
        a.nack()
        gathered.wait(4)
        assert [body for _, body in gathered.order] == ["A", "B", "C", "A"]
        for message in gathered.messages[0][2:]:
            message.ack()
        gathered.messages[0].clear()
        put_each(queue, "DE")
        gathered.wait(6)
        assert [body for _, body in gathered.order[4:]] == ["D", "E"]
        gathered.ack()
    assert_counts(queue, message_count=0, acked=5, redelivered=1)


@pytest.mark.parametrize("way", ["get", "consume"])
def test_q09_a_message_somebody_else_took_is_skipped(queue: shmbroker.Queue, way: str) -> None:
    """What was removed before its delivery is skipped, its neighbours are delivered."""
    put_each(queue, "ABC")
    first, second = queue.get(), queue.get()
    second.ack()
    first.nack()
    if way == "get":
        assert take(queue, 2) == ["A", "C"]
    else:
        with queue.consume() as consumer:
            for expected in "AC":
                message = consumer.get(timeout=60)
                assert text(message) == expected
                message.ack()
    assert_counts(queue, message_count=0, acked=3)


def test_q09_a_message_that_expired_in_the_middle_is_skipped(
    queue: shmbroker.Queue,
) -> None:
    """The same for one that expired between its neighbours."""
    queue.put(b"A")
    queue.put(b"B", ttl=TTL_SECONDS)
    expired_at = time.monotonic() + TTL_SECONDS
    queue.put(b"C")
    until_clock(expired_at)
    eventually(lambda: listing(queue) == ["A", "C"])
    assert take(queue, 2) == ["A", "C"]
    await_counts(queue, message_count=0, acked=2, expired=1)
    assert_balanced(queue)


def test_q81_a_failure_restores_the_credit(connection: shmbroker.Connection) -> None:
    """A consumer with one credit fails at a message: the message returns, and the credit with it; or it is rejected.

    An error inside the message's block returns it. A rejection leads it to the alternate, the dead-letter exchange.
    """
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    put_each(queue, "AB")
    with queue.consume(prefetch=1) as consumer:
        for attempt in 1, 2:
            with pytest.raises(ZeroDivisionError), consumer.get(timeout=60) as message:
                raise ZeroDivisionError
            assert (text(message), message.delivery_count) == ("A", attempt)
        assert nothing_to_get(dead)
        message = consumer.get(timeout=60)
        assert (text(message), message.delivery_count) == ("A", 3)
        message.reject()
        message = consumer.get(timeout=60)
        assert (text(message), message.delivery_count) == ("B", 1)
        message.ack()
    dead_one = next_dead(dead)
    assert (text(dead_one), reasons(dead_one)) == ("A", [("q", "rejected", 1)])
    await_counts(queue, acked=1, dead_lettered=1, message_count=0, consumers=0)
    assert_balanced(queue)


def test_q81_a_browser_that_fails_leads_nothing_to_the_alternate(connection: shmbroker.Connection) -> None:
    """A browser does not acquire: it can neither return nor reject, and an error in its loop changes nothing."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE, max_delivery_attempts=1)
    put_each(queue, "AB")
    for settle in ("ack", "nack", "reject"):
        with pytest.raises(MessageSettled):
            getattr(next(queue.browse()), settle)()
    with pytest.raises(ZeroDivisionError), next(queue.browse()):
        raise ZeroDivisionError
    assert_counts(queue, ready=2, delivering=0, dead_lettered=0, redelivered=0)
    assert take(queue, 2) == ["A", "B"]
    assert nothing_to_get(dead)
