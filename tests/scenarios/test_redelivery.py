# SPDX-License-Identifier: Apache-2.0
"""Returned messages: how often a queue delivers one, and how long it waits before the next delivery."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.dead_letters import (
    EXCHANGE,
    dead_letter_queue,
    death,
    deaths_of,
    next_dead,
    reasons,
    without_housekeeper,
)
from scenario_support.observing import (
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    nothing_to_get,
    numbered,
    put_each,
    take,
    text,
)
from scenario_support.processes import Actor, actors
from scenario_support.waiting import eventually

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Callable

CLOCKS = 0.1
"""How much the wall clock may be set meanwhile, in seconds."""
NEVER = 600.0
"""A delay that no test waits for."""
SERVES = "import shmbroker, sys; shmbroker.Broker(sys.argv[1]).serve_forever()"


def nack(queue: shmbroker.Queue) -> tuple[str, int]:
    """Get the next message and return it to its place; return its body and its number of deliveries."""
    message = queue.get(timeout=60)
    message.nack()
    return text(message), message.delivery_count


def raise_inside(queue: shmbroker.Queue) -> tuple[str, int]:
    """Raise while the message is held."""
    with pytest.raises(ZeroDivisionError), queue.get(timeout=60) as message:
        raise ZeroDivisionError
    return text(message), message.delivery_count


def nack_batch(queue: shmbroker.Queue) -> tuple[str, int]:
    """Return a batch of one message."""
    batch = queue.get_many(1, timeout=60)
    seen = text(batch[0]), batch[0].delivery_count
    batch.nack()
    return seen


# ---- attempts ----


@pytest.mark.parametrize("give_back", [nack, raise_inside, nack_batch])
def test_t29_after_its_last_attempt_a_message_is_dead(
    connection: shmbroker.Connection,
    channel: shmbroker.Channel,
    give_back: Callable[[shmbroker.Queue], tuple[str, int]],
) -> None:
    """max_attempts=2: the second return brings it to every queue behind the exchange; the source counts 0 and 0.

    It keeps its exchange, routing key and id.
    """
    queues = [dead_letter_queue(connection, name) for name in ("dead", "dead too")]
    queue = connection.queue("q", max_delivery_attempts=2, dead_letter_exchange=EXCHANGE)
    channel.exchange_declare("work", "fanout")
    channel.queue_bind("q", "work")
    channel.basic_publish("work", "k", b"A", shmbroker.BasicProperties(message_id="one of its own"))
    assert give_back(queue) == ("A", 1)
    assert_counts(queue, ready=1, scheduled=0)
    assert give_back(queue) == ("A", 2)
    for dead in queues:
        message = next_dead(dead)
        assert (text(message), message.routing_key, message.delivery_count) == ("A", "k", 1)
        assert message.properties.message_id == "one of its own"
        assert not message.redelivered
        assert deaths_of(message) == [death("q", "delivery_limit", "k", exchange="work")]
    await_counts(queue, message_count=0, delivering=0, scheduled=0, dead_lettered=1)
    assert_balanced(queue)


@pytest.mark.parametrize("way", ["nack", "reject with requeue", "recover", "close of the channel", "transaction"])
def test_a_channel_that_returns_a_message_uses_an_attempt(connection: shmbroker.Connection, way: str) -> None:
    """x-delivery-limit 1: nack, reject, recover, a commit of these, and the close of the channel end the message."""
    dead = dead_letter_queue(connection)
    with connection.channel() as channel:
        channel.queue_declare("q", arguments={"x-delivery-limit": 1, "x-dead-letter-exchange": EXCHANGE})
        if way == "transaction":
            channel.tx_select()
        channel.basic_publish("", "q", b"A")
        if way == "transaction":
            channel.tx_commit()
        message = channel.basic_get("q")
        assert message is not None
        if way in {"nack", "transaction"}:
            channel.basic_nack(message.delivery_tag)
        elif way == "reject with requeue":
            channel.basic_reject(message.delivery_tag, requeue=True)
        elif way == "recover":
            channel.basic_recover(requeue=True)
        if way == "transaction":
            channel.tx_commit()
    assert reasons(next_dead(dead)) == [("q", "delivery_limit", 1)]
    await_counts(connection.queue("q", passive=True), message_count=0, dead_lettered=1)


@pytest.mark.parametrize("exchange", ["amq.fanout", "nowhere"])
def test_t30_without_a_queue_behind_the_exchange_it_is_dropped(broker_name: str, exchange: str) -> None:
    """max_attempts=1 and an exchange without queues, or none: dropped, counters consistent, one warning."""
    keeper = subprocess.Popen(
        [sys.executable, "-P", "-c", SERVES, broker_name], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    broker = shmbroker.Broker(broker_name)
    try:
        eventually(lambda: broker_name in shmbroker.brokers() and broker.statistics().housekeeper_pid == keeper.pid)
        with broker.connect() as connection:
            queue = connection.queue("q", max_delivery_attempts=1, dead_letter_exchange=exchange)
            put_each(queue, "ABC")
            for body in "ABC":
                assert nack(queue) == (body, 1)
            await_counts(queue, message_count=0, dropped=3, dead_lettered=0)
            assert_balanced(queue)
    finally:
        broker.stop(purge=True)
        _, said = keeper.communicate()
    assert said.count("a dead message was dropped") == 1
    assert "'q'" in said
    assert repr(exchange) in said


def test_without_an_exchange_the_last_attempt_drops(connection: shmbroker.Connection) -> None:
    """max_delivery_attempts alone: the message is dropped when it is returned the last time."""
    queue = connection.queue("q", max_delivery_attempts=2)
    put_each(queue, "A")
    assert [nack(queue), nack(queue)] == [("A", 1), ("A", 2)]
    assert_counts(queue, message_count=0, dropped=1, dead_lettered=0)
    assert_balanced(queue)


def test_what_does_not_return_may_use_the_last_attempt(connection: shmbroker.Connection) -> None:
    """The last delivery is a delivery like others: acked, or taken with auto_ack, the message does not die."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", max_delivery_attempts=1, dead_letter_exchange=EXCHANGE)
    put_each(queue, "ABC")
    assert take(queue, 1) == ["A"]
    assert text(queue.get(timeout=60, auto_ack=True)) == "B"
    queue.get(timeout=60).give_back()
    message = queue.get(timeout=60)
    assert (text(message), message.delivery_count) == ("C", 1)
    message.ack()
    assert_counts(queue, acked=3, message_count=0, dead_lettered=0)
    assert nothing_to_get(dead)


def test_the_limit_can_change(connection: shmbroker.Connection) -> None:
    """A new limit counts for the next return, also of messages that were delivered before."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    put_each(queue, "A")
    for number in range(1, 4):
        assert nack(queue) == ("A", number)
    queue.configure(max_delivery_attempts=2)
    queue.get(timeout=60).give_back()  # no attempt, so the limit does not count
    assert_counts(queue, ready=1)
    assert nack(queue) == ("A", 4)
    assert reasons(next_dead(dead)) == [("q", "delivery_limit", 1)]


@pytest.mark.parametrize("over", ["a consumer", "get", "a channel"])
def test_a_message_that_kills_its_consumers_is_dead(
    broker: shmbroker.Broker, connection: shmbroker.Connection, over: str
) -> None:
    """Each killed consumer uses an attempt; after the last, the message is dead, and the next one comes."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", max_delivery_attempts=3, dead_letter_exchange=EXCHANGE)
    put_each(queue, ["deadly"])
    with actors(broker.name, 3) as victims:
        for number, victim in enumerate(victims, start=1):
            if over == "a channel":
                assert victim.do("consume_on_channel", queue="q", count=1) == ["deadly"]
            else:
                task = {"task": "get", "queue": "q"}
                if over == "a consumer":
                    victim.do("consume", queue="q", prefetch=1)
                    task = {"task": "receive"}
                (received,) = victim.do(**task)
                assert (received["body"], received["delivery_count"]) == ("deadly", number)
                assert received["redelivered"] is (number > 1)
            victim.kill()
            expected = {"ready": 1} if number < len(victims) else {"dead_lettered": 1, "message_count": 0}
            await_counts(queue, delivering=0, **expected)
    put_each(queue, ["harmless"])
    assert take(queue, 1) == ["harmless"]
    message = next_dead(dead)
    assert (text(message), reasons(message)) == ("deadly", [("q", "delivery_limit", 1)])
    assert nothing_to_get(dead)
    assert_balanced(queue)


def test_t32_a_clean_close_uses_no_attempt(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """The close of a consumer, and of a connection, uses no attempt and brings no delay; the kill of a process does."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", max_delivery_attempts=1, dead_letter_exchange=EXCHANGE, redelivery_delay=NEVER)
    put_each(queue, "A")
    with queue.consume() as consumer:
        assert text(consumer.get(timeout=60)) == "A"
    assert_counts(queue, ready=1, scheduled=0)
    with broker.connect() as closes:
        assert text(closes.queue("q", passive=True).get(timeout=60)) == "A"
    assert_counts(queue, ready=1, scheduled=0)
    with Actor(broker.name) as victim:
        (received,) = victim.do("get", queue="q")
        assert (received["delivery_count"], received["redelivered"]) == (1, True)
        victim.kill()
    assert reasons(next_dead(dead)) == [("q", "delivery_limit", 1)]
    await_counts(queue, message_count=0, dead_lettered=1)


def test_only_what_the_killed_process_was_given_uses_an_attempt(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A consumer that is killed with several messages in its prefetch ends those at their last attempt, in order."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", max_delivery_attempts=1, dead_letter_exchange=EXCHANGE)
    put_each(queue, "ABCD")
    with Actor(broker.name) as victim:
        assert [one["body"] for one in victim.do("get", queue="q", count=2)] == ["A", "B"]
        victim.kill()
        await_counts(queue, message_count=2, ready=2, dead_lettered=2)
    assert sorted([text(next_dead(dead)), text(next_dead(dead))]) == ["A", "B"]
    assert take(queue, 2) == ["C", "D"]


# ---- delay ----


def delay_of(queue: shmbroker.Queue, *messages: shmbroker.Message) -> list[tuple[float, float]]:
    """Return messages; for each, return between which two numbers of seconds lies how long it waits."""
    before = time.time()
    for message in messages:
        message.nack()
    after = time.time()
    waiting = [one for one in queue.browse(state="scheduled") if isinstance(one, shmbroker.QueuedMessage)]
    ends = [one.due_at for one in waiting if one.due_at is not None]
    assert len(ends) == len(messages)
    return [(end - after - CLOCKS, end - before + CLOCKS) for end in ends]


def waits_of(queue: shmbroker.Queue, rounds: int) -> list[float]:
    """Return how long the message of a queue waits after each of its returns, in seconds."""
    waits = []
    message = queue.get(timeout=60)
    for number in range(2, rounds + 2):
        before = time.monotonic()
        message.nack()
        message = queue.get(timeout=60)
        waits.append(time.monotonic() - before)
        assert message.delivery_count == number
        assert message.redelivered
    message.ack()
    return waits


def test_t33_the_wait_grows_by_the_factor_up_to_the_most(connection: shmbroker.Connection) -> None:
    """Delay 0.05 x 2 capped at 0.15: the message waits at least 0.05, 0.1, 0.15, 0.15 seconds."""
    queue = connection.queue("q", redelivery_delay=0.05, redelivery_multiplier=2, max_redelivery_delay=0.15)
    put_each(queue, "A")
    for wait, least in zip(waits_of(queue, 4), [0.05, 0.1, 0.15, 0.15], strict=True):
        assert wait >= least
    assert_counts(queue, acked=1, message_count=0)


def test_t33_each_wait_is_as_long_as_it_should_be(connection: shmbroker.Connection) -> None:
    """Delay 5 x 2 capped at 15: the message is due after 5, 10, 15, 15 seconds."""
    queue = connection.queue("q", redelivery_delay=5, redelivery_multiplier=2, max_redelivery_delay=15)
    put_each(queue, "A")
    for expected in (5, 10, 15, 15):
        ((least, most),) = delay_of(queue, queue.get(timeout=60))
        assert least <= expected <= most
        assert queue.deliver_scheduled() == 1


def test_t33_the_collision_factor_makes_waits_longer_and_shorter(connection: shmbroker.Connection) -> None:
    """Delay 60, factor 0.5: each message is due after 30 to 90 seconds, some before 60 and some after."""
    queue = connection.queue("q", redelivery_delay=60, redelivery_collision_factor=0.5)
    put_each(queue, numbered(100))
    waits = delay_of(queue, *(queue.get(timeout=60) for _ in range(100)))
    assert all(most >= 30 and least <= 90 for least, most in waits)
    for low, high in ((30, 45), (45, 60), (60, 75), (75, 90)):
        assert any(low <= least and most <= high for least, most in waits)


def test_t33_the_most_ends_the_growth(connection: shmbroker.Connection) -> None:
    """Delay 0.05 x 1000 would take 50 seconds, then a day: the most that is allowed makes it 0.06."""
    queue = connection.queue("q")
    queue.configure(redelivery_delay=0.05, redelivery_multiplier=1000, max_redelivery_delay=0.06)
    put_each(queue, "A")
    assert all(wait >= least for wait, least in zip(waits_of(queue, 6), [0.05] + 5 * [0.06], strict=True))


def test_t33_the_collision_factor_spreads_the_waits(connection: shmbroker.Connection) -> None:
    """Delay 0.2, factor 0.5: messages that are returned together come after 0.1 seconds or later, in another order."""
    queue = connection.queue("q", redelivery_delay=0.2, redelivery_collision_factor=0.5)
    bodies = numbered(30)
    put_each(queue, bodies)
    held = [queue.get(timeout=60) for _ in bodies]
    before = time.monotonic()
    for message in held:
        message.nack()
    returned = [text(queue.get(timeout=60, auto_ack=True)) for _ in range(1)]
    assert time.monotonic() >= before + 0.1
    returned += [text(queue.get(timeout=60, auto_ack=True)) for _ in bodies[1:]]
    assert sorted(returned) == bodies
    assert returned != bodies


def test_settings_of_the_delay_as_arguments(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """x-redelivery-delay and the others count milliseconds."""
    arguments = {
        "x-redelivery-delay": 50, "x-redelivery-multiplier": 1.5, "x-max-redelivery-delay": 70, "x-delivery-limit": 4,
        "x-redelivery-collision-factor": 0.25,
    }  # fmt: skip
    channel.queue_declare("q", arguments=arguments)
    queue = connection.queue("q", passive=True)
    found = queue.settings
    assert (found.redelivery_delay, found.redelivery_multiplier, found.max_redelivery_delay) == (0.05, 1.5, 0.07)
    assert found.max_delivery_attempts == 4
    assert found.redelivery_collision_factor == 0.25
    queue.configure(redelivery_collision_factor=0)
    put_each(queue, "A")
    assert all(wait >= least for wait, least in zip(waits_of(queue, 3), [0.05, 0.07, 0.07], strict=True))


def test_a_delayed_message_is_invisible_and_returns_to_its_place(connection: shmbroker.Connection) -> None:
    """While it waits it counts as scheduled, others are delivered; due, it is in its place again."""
    queue = connection.queue("q", redelivery_delay=0.2)
    put_each(queue, "AB")
    held = queue.get(timeout=60)
    queue.configure(redelivery_delay=NEVER)
    held.nack()
    assert_counts(queue, message_count=2, ready=1, scheduled=1, delivering=0)
    assert listing(queue) == ["B"]
    assert (queue.purge(), nothing_to_get(queue)) == (1, True)
    queue.configure(redelivery_delay=0.2)
    put_each(queue, "CD")
    assert nack(queue) == ("C", 1)
    assert listing(queue) == ["D"]
    await_counts(queue, ready=2, scheduled=1)
    assert listing(queue) == ["C", "D"]
    assert take(queue, 2) == ["C", "D"]
    assert queue.delete() == 1


def test_a_delayed_message_keeps_its_priority_and_body(connection: shmbroker.Connection) -> None:
    """Due, it comes after what has a higher priority and before what has a lower one; its long body is whole."""
    queue = connection.queue("q", max_priority=2, redelivery_delay=0.05)
    body = b"x" * 1024 * 1024
    queue.put(body, priority=1)
    queue.get(timeout=60).nack()
    for name, priority in ("low", 0), ("high", 2), ("same", 1):
        queue.put(name.encode(), priority=priority)
    await_counts(queue, ready=4, scheduled=0)
    received = []
    for _ in range(4):
        with queue.get(timeout=60) as message:
            received.append(bytes(message))
    assert received == [b"high", body, b"same", b"low"]
    assert_counts(queue, message_count=0, bytes=0)


def test_a_message_that_expires_while_it_waits(connection: shmbroker.Connection) -> None:
    """It dies as expired when its time to live ends, not when its delay does."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", redelivery_delay=NEVER, dead_letter_exchange=EXCHANGE)
    queue.put(b"A", ttl=0.5)
    assert nack(queue) == ("A", 1)
    assert reasons(next_dead(dead)) == [("q", "expired", 1)]
    await_counts(queue, message_count=0, scheduled=0, dead_lettered=1)
    assert_balanced(queue)


def test_t18_a_full_ring_has_no_delay(connection: shmbroker.Connection) -> None:
    """Ring full: a returned message that is the oldest is replaced, and does not wait; with room it waits (R23)."""
    ring = connection.queue("ring", ring_size=3, redelivery_delay=NEVER)
    put_each(ring, "A")
    held = ring.get(timeout=60)
    put_each(ring, "BCD")
    held.nack()
    assert_counts(ring, message_count=3, ready=3, scheduled=0, replaced=1)
    assert listing(ring) == ["B", "C", "D"]
    assert nack(ring) == ("B", 1)
    assert_counts(ring, message_count=3, ready=2, scheduled=1, replaced=1)
    assert_balanced(ring)


def test_r23_a_message_that_comes_due_in_a_full_ring_is_replaced(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """With room a returned message waits; due, it is the oldest of a ring that is full meanwhile, and is replaced."""
    ring = connection.queue("ring", ring_size=2, redelivery_delay=0.01)
    put_each(ring, "A")
    with without_housekeeper(broker):
        assert nack(ring) == ("A", 1)
        assert_counts(ring, scheduled=1, ready=0)
        put_each(ring, "BC")
        assert_counts(ring, scheduled=1, ready=2, replaced=0)
    await_counts(ring, message_count=2, ready=2, scheduled=0, replaced=1)
    assert listing(ring) == ["B", "C"]
    assert_balanced(ring)


def test_r24_the_last_attempt_comes_before_the_ring(connection: shmbroker.Connection) -> None:
    """Ring full, the message at its last attempt: it goes to the dead letters, and nothing is replaced."""
    dead = dead_letter_queue(connection)
    ring = connection.queue("ring", ring_size=3, max_delivery_attempts=1, dead_letter_exchange=EXCHANGE)
    put_each(ring, "A")
    held = ring.get(timeout=60)
    put_each(ring, "BCD")
    held.nack()
    assert reasons(next_dead(dead)) == [("ring", "delivery_limit", 1)]
    await_counts(ring, message_count=3, ready=3, replaced=0, dead_lettered=1)
    assert_balanced(ring)
