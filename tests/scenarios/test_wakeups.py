# SPDX-License-Identifier: Apache-2.0
"""Who is woken, by what, and that nobody sleeps through a message."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from scenario_support.actor import linger
from scenario_support.observing import (
    assert_balanced,
    assert_counts,
    await_counts,
    numbered,
    put_each,
    text,
    texts,
)
from scenario_support.processes import actors
from scenario_support.waiting import becomes

if TYPE_CHECKING:
    import shmbroker

ROUNDS = 1500
LONGEST_PAUSE_SECONDS = 0.0003
"""Longer than a consumer spins before it sleeps, so that all phases are hit."""


def test_q29_one_message_wakes_one_of_many_idle_consumers(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """Three sleep, one message comes: one is notified, two are left in peace.

    The consumers' processes are stopped, so that the lists can be looked at before
    anybody runs. Should the housekeeper meanwhile have judged that the notified one
    is stopped, it has notified another, which the queue counts as a rescue.
    """
    with actors(broker.name, 3) as consumers:
        for consumer in consumers:
            consumer.do("consume", queue="q", prefetch=1)
        await_counts(queue, consumers=3, interested=3, notified=0)
        for consumer in consumers:
            consumer.stop()
        queue.put(b"A")
        seen = queue.statistics()
        assert seen.interested + seen.notified == 3, seen
        assert 1 <= seen.notified <= 1 + seen.rescues, seen
        for consumer in consumers:
            consumer.resume()
        await_counts(queue, delivering=1, not_interested=1, interested=2, notified=0)


def test_q29_as_many_messages_wake_as_many_consumers(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """Three sleep, three messages come before anybody runs: all three are notified."""
    with actors(broker.name, 3) as consumers:
        for consumer in consumers:
            consumer.do("consume", queue="q", prefetch=1)
        await_counts(queue, consumers=3, interested=3)
        for consumer in consumers:
            consumer.stop()
        put_each(queue, "ABC")
        assert_counts(queue, notified=3, interested=0, ready=3)
        for consumer in consumers:
            consumer.resume()
        await_counts(queue, delivering=3, ready=0, not_interested=3)
        received = [consumer.do("receive", settle="ack")[0] for consumer in consumers]
        assert sorted(m["body"] for m in received) == list("ABC")
        await_counts(queue, message_count=0, acked=3)


def test_q29_every_browser_sees_a_message(queue: shmbroker.Queue) -> None:
    """However many browse, each sees each message, and no consumer misses one."""
    put_each(queue, "AB")
    readers = [queue.browse() for _ in range(4)]
    assert [text(next(reader)) for reader in readers] == ["A"] * 4
    with queue.consume(prefetch=1) as consumer:
        assert [text(next(reader)) for reader in readers] == ["B"] * 4
        for expected in "AB":
            message = consumer.get(timeout=60)
            assert text(message) == expected
            message.ack()


def test_q29_resuming_wakes_as_many_consumers_as_have_work(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """A backlog that becomes available at once, by resume, wakes all it has work for."""
    with actors(broker.name, 3) as consumers:
        for consumer in consumers:
            consumer.do("consume", queue="q", prefetch=1)
        await_counts(queue, consumers=3, interested=3)
        queue.pause()
        put_each(queue, "ABC")
        assert_counts(queue, notified=0, interested=3, ready=3)
        for consumer in consumers:
            consumer.stop()
        queue.resume()
        seen = queue.statistics()
        assert (seen.notified, seen.rescues) == (3, 0), seen
        for consumer in consumers:
            consumer.resume()
        await_counts(queue, delivering=3, ready=0)


@pytest.mark.parametrize("way", ["get", "consumer"])
def test_q30_a_message_is_taken_however_the_race_goes(
    broker: shmbroker.Broker, queue: shmbroker.Queue, way: str
) -> None:
    """A put that meets a consumer about to sleep is consumed with no further event.

    One message at a time, at all moments of the consumer's falling asleep. Nothing
    else happens until it is taken; nor had the housekeeper to come to the rescue, as the broker's fixture sees.
    """
    chance = random.Random(30)
    with actors(broker.name, 1) as (consumer,):
        consumer.begin("echo", queue="q", count=ROUNDS, way=way)
        for body in numbered(ROUNDS):
            queue.put(body.encode())
            assert consumer.item() == body
            linger(chance.uniform(0, LONGEST_PAUSE_SECONDS))
        assert consumer.result() is None
        assert_counts(queue, message_count=0, acked=ROUNDS)
        assert_balanced(queue)


def test_q30_a_get_that_gives_up_lets_others_have_the_message(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """A get whose time is up just when it is chosen passes the message on."""
    bodies = numbered(ROUNDS)
    with actors(broker.name, 2) as (dabbler, waiter):
        dabbler.begin("dabble", queue="q", until=ROUNDS, seed=30)
        waiter.do("consume", queue="q", prefetch=1)
        waiter.begin("receive_all", until=ROUNDS, queue="q")
        chance = random.Random(31)
        for number, body in enumerate(bodies, start=1):
            queue.put(body.encode())
            becomes(lambda: queue.statistics().acked, number)
            linger(chance.uniform(0, LONGEST_PAUSE_SECONDS))
        received = dabbler.result() + [m["body"] for m in waiter.result()]
        assert sorted(received) == bodies
        assert_counts(queue, message_count=0)


def test_q30_a_stopped_consumer_holds_nothing_back(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """One that is notified and stopped does not keep the message from the other."""
    with actors(broker.name, 2) as workers:
        for worker in workers:
            worker.do("consume", queue="q", prefetch=1)
        await_counts(queue, interested=2)
        queue.put(b"first")
        await_counts(queue, delivering=1)
        holders = [worker for worker in workers if worker.do("arrived")]
        assert len(holders) == 1
        holders[0].do("settle", how="ack")
        await_counts(queue, interested=2, message_count=0)
        (stopped,) = (w for w in workers if w is not holders[0])
        stopped.stop()
        put_each(queue, "A")
        received = holders[0].do("receive", settle="ack")
        assert received[0]["body"] == "A"
        put_each(queue, "B")
        received = holders[0].do("receive", settle="ack")
        assert received[0]["body"] == "B"
        stopped.resume()
        await_counts(queue, message_count=0, interested=2, notified=0)


@pytest.mark.parametrize("end", ["close", "kill"])
def test_q32_what_a_leaving_consumer_was_told_of_goes_to_others(
    broker: shmbroker.Broker, queue: shmbroker.Queue, end: str
) -> None:
    """A consumer leaves while it holds messages: they all come to the one who stays."""
    bodies = numbered(20)
    with actors(broker.name, 1) as (leaver,):
        leaver.do("consume", queue="q", prefetch=10)
        with queue.consume(prefetch=100) as stayer:
            await_counts(queue, consumers=2, interested=2)
            put_each(queue, bodies)
            await_counts(queue, ready=0, delivering=20)
            if end == "close":
                leaver.do("close_consumer")
            else:
                leaver.kill()
            received = [stayer.get(timeout=60) for _ in bodies]
            assert sorted(texts(received)) == bodies
            await_counts(queue, consumers=1, ready=0, delivering=20)
            for message in received:
                message.ack()
        await_counts(queue, message_count=0, acked=20, consumers=0)
        assert_balanced(queue)


def test_q32_a_notified_consumer_that_dies_passes_the_message_on(
    broker: shmbroker.Broker, queue: shmbroker.Queue
) -> None:
    """The one notified is killed before it ran: the other gets all without an event."""
    with actors(broker.name, 2) as (victim, stayer):
        victim.do("consume", queue="q")
        await_counts(queue, interested=1)
        victim.stop()
        queue.put(b"A")
        stayer.begin("get", queue="q", timeout=None, settle="ack")
        victim.kill()
        assert stayer.result()[0]["body"] == "A"
        await_counts(queue, consumers=0, message_count=0, acked=1)
