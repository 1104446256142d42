# SPDX-License-Identifier: Apache-2.0
"""Messages that are not due yet."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
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
    texts,
)
from scenario_support.processes import actors

if TYPE_CHECKING:
    import shmbroker

DELAY_SECONDS = 5.0
"""Long enough to look at the queue before a delayed message is due, on a machine that is busy with others too."""


def test_q59_a_held_message_is_invisible_until_it_is_due(
    queue: shmbroker.Queue,
) -> None:
    """Before its time nobody sees it; when past, it is delivered without an event."""
    due_at = time.monotonic() + DELAY_SECONDS
    queue.put(b"A", delay=DELAY_SECONDS)
    assert nothing_to_get(queue)
    assert listing(queue) == []
    assert_counts(queue, message_count=1, scheduled=1, ready=0, delivering=0)
    message = queue.get(timeout=60)
    assert time.monotonic() >= due_at
    assert text(message) == "A"
    assert message.delivery_count == 1
    assert not message.redelivered
    message.ack()
    assert_counts(queue, message_count=0, scheduled=0, acked=1)


@pytest.mark.parametrize("delay", [None, 0])
def test_q59_without_delay_it_is_delivered_at_once(queue: shmbroker.Queue, delay: float | None) -> None:
    """No delay, or a delay of nothing: ready when put returns."""
    queue.put(b"A", delay=delay)
    assert_counts(queue, ready=1, scheduled=0)
    assert take(queue, 1) == ["A"]


def test_q59_held_messages_come_due_when_all_others_are_gone(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """The publisher is killed, a process sleeps in get: it is woken when it is due."""
    with actors(broker.name, 2) as (producer, consumer):
        producer.do("put", queue="q", bodies=["A"], delay=DELAY_SECONDS)
        producer.kill()
        consumer.begin("get", queue="q", settle="ack")
        assert_counts(queue, scheduled=1, message_count=1)
        assert consumer.result()[0]["body"] == "A"
    assert_counts(queue, scheduled=0, message_count=0, acked=1)


def test_t21_the_same_due_time_keeps_the_order(queue: shmbroker.Queue) -> None:
    """Ten messages due at once are delivered in the order of sending, none before."""
    bodies = numbered(10)
    due_at = time.monotonic() + DELAY_SECONDS
    queue.put_many([body.encode() for body in bodies], delay=DELAY_SECONDS)
    assert_counts(queue, scheduled=10, ready=0, message_count=10)
    assert nothing_to_get(queue)
    await_counts(queue, scheduled=0, ready=10)
    assert time.monotonic() >= due_at
    assert take(queue, 10) == bodies
    assert_balanced(queue)


def test_t21_a_waiting_consumer_gets_none_before_its_time(
    queue: shmbroker.Queue,
) -> None:
    """The same with a consumer that waits all the time."""
    bodies = numbered(10)
    with queue.consume() as consumer:
        due_at = time.monotonic() + DELAY_SECONDS
        queue.put_many([body.encode() for body in bodies], delay=DELAY_SECONDS)
        received = []
        for _ in bodies:
            message = consumer.get(timeout=60)
            assert time.monotonic() >= due_at
            received.append(text(message))
            message.ack()
    assert received == bodies
    assert_counts(queue, message_count=0, acked=10)


@pytest.mark.parametrize("way", ["get", "get_many", "consume"])
def test_q59_a_message_that_came_due_is_in_its_place(queue: shmbroker.Queue, way: str) -> None:
    """Due, it comes before what was sent later and after what was sent before.

    "A held message lies HELD at its position and turns AVAILABLE in place" (DESIGN 4.3).
    """
    put_each(queue, "AB")
    queue.put(b"C", delay=0.2)
    queue.put(b"D")
    await_counts(queue, scheduled=0, ready=4)
    assert listing(queue) == list("ABCD")
    if way == "get":
        received = take(queue, 4)
    elif way == "get_many":
        received = texts(queue.get_many(4))
    else:
        with queue.consume() as consumer:
            received = [text(consumer.get(timeout=60)) for _ in range(4)]
    assert received == list("ABCD")


def test_t22_a_waiting_consumer_gets_each_when_it_is_due(
    queue: shmbroker.Queue,
) -> None:
    """Due last comes last, whatever was sent first; one without delay comes at once."""
    delays = {"D": 12.0, "C": 9.0, "B": 6.0, "A": 3.0}
    with queue.consume() as consumer:
        due_at = {}
        for body, delay in delays.items():
            due_at[body] = time.monotonic() + delay
            queue.put(body.encode(), delay=delay)
        put_each(queue, ["normal"])
        received = []
        for _ in range(5):
            message = consumer.get(timeout=60)
            assert time.monotonic() >= due_at.get(text(message), 0.0)
            received.append(text(message))
            message.ack()
    assert received == ["normal", "A", "B", "C", "D"]
    assert_counts(queue, message_count=0, scheduled=0, acked=5)
