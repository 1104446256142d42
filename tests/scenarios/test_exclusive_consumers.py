# SPDX-License-Identifier: Apache-2.0
"""One consumer for the whole queue: single active consumers (exclusive queues of Artemis), and exclusive consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import Inbox, assert_closed, refused
from scenario_support.observing import (
    arrived,
    assert_balanced,
    assert_counts,
    await_counts,
    numbered,
    put_each,
    take,
    text,
    texts,
)
from scenario_support.processes import Actor, actors
from scenario_support.waiting import becomes

from shmbroker.exceptions import AccessRefused, ResourceLocked

if TYPE_CHECKING:
    import shmbroker

IN_USE = "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"


@pytest.mark.parametrize("end", ["close", "kill"])
def test_t46_the_next_consumer_gets_all_in_order_with_what_returned_first(
    broker: shmbroker.Broker, connection: shmbroker.Connection, end: str
) -> None:
    """All go to the first consumer; when it is gone, the next gets all that is left, what was returned first.

    The consumers are in processes. Where the first is killed, what it had is marked as delivered before.
    """
    queue = connection.queue("q", single_active_consumer=True)
    bodies = numbered(40)
    with actors(broker.name, 2) as (first, second):
        first.do("consume", queue="q", prefetch=20)
        second.do("consume", queue="q", prefetch=40)
        put_each(queue, bodies)
        await_counts(queue, consumers=2, delivering=20, ready=20)
        got = first.do("receive", count=10, timeout=60, settle="ack")
        assert [message["body"] for message in got] == bodies[:10]
        await_counts(queue, delivering=20, ready=10, acked=10)
        assert [message["body"] for message in first.do("receive", count=5, timeout=60)] == bodies[10:15]
        assert second.do("arrived") == []
        if end == "close":
            first.do("close_consumer")
        else:
            first.kill()
        got = second.do("receive", count=30, timeout=60, settle="ack")
        assert [message["body"] for message in got] == bodies[10:]
        assert [message["redelivered"] for message in got[:5]] == [True] * 5
        assert not any(message["redelivered"] for message in got[20:])
        await_counts(queue, consumers=1, message_count=0, acked=40)
    await_counts(queue, consumers=0)
    assert_balanced(queue)


def test_t46_the_third_takes_over_from_the_second(connection: shmbroker.Connection) -> None:
    """Three consumers: each gets all there is until it closes, the one that came first before the others."""
    queue = connection.queue("q", single_active_consumer=True)
    consumers = [queue.consume() for _ in range(3)]
    for number, consumer in enumerate(consumers):
        bodies = numbered(10, first=10 * number)
        put_each(queue, bodies)
        becomes(lambda consumer=consumer: consumer.statistics().waiting, 10)
        assert [one.statistics().waiting for one in consumers[number + 1 :]] == [0] * (2 - number)
        received = [consumer.get(timeout=60) for _ in bodies]
        assert texts(received) == bodies
        for message in received:
            message.ack()
        consumer.close()
    assert_counts(queue, acked=30, consumers=0, message_count=0)


def test_q74_an_exclusive_consumer_and_others_exclude_each_other(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """The queue of an exclusive consumer refuses each other one, and the other way round; after its end it does not."""
    with Actor(broker.name) as owner:
        owner.do("claim", queue="q")
        for exclusive in False, True:
            channel = connection.channel()
            with refused(AccessRefused, IN_USE):
                channel.basic_consume("q", Inbox(), exclusive=exclusive)
            assert_closed(channel, because="exclusive use")
    await_counts(queue, consumers=0)
    with connection.channel() as shares:
        inbox = Inbox(ack=True)
        tag = shares.basic_consume("q", inbox)
        with connection.channel() as claims, refused(AccessRefused, IN_USE):
            claims.basic_consume("q", Inbox(), exclusive=True)
        shares.basic_cancel(tag)
        shares.basic_consume("q", inbox, exclusive=True)
        shares.basic_publish("", "q", b"A")
        assert [delivery.text for delivery in inbox.wait(1)] == ["A"]


def test_q74_a_consumer_of_queues_may_be_exclusive(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """`consume(exclusive=True)` excludes others and is excluded; of several queues it has all or none."""
    connection.queue("other")
    with Actor(broker.name) as owner:
        owner.do("consume", queue="q", exclusive=True)
        for exclusive in False, True:
            with pytest.raises(AccessRefused, match=IN_USE):
                queue.consume(exclusive=exclusive)
        with pytest.raises(AccessRefused, match="queue 'other' and queue 'q' in vhost '/' in exclusive use"):
            connection.consumer(["other", "q"], exclusive=True)
        await_counts(connection.queue("other"), consumers=0)
        put_each(queue, "A")
        (message,) = owner.do("receive", timeout=60)
        assert message["body"] == "A"
        owner.kill()
    with connection.consumer(["other", "q"], exclusive=True) as consumer:
        with consumer.get(timeout=60) as again:
            assert (text(again), again.delivery_count) == ("A", 2)
        for name in "other", "q":
            with pytest.raises(AccessRefused, match=f"queue '{name}'"):
                connection.queue(name).consume()
    with queue.consume(), pytest.raises(AccessRefused, match=IN_USE):
        queue.consume(exclusive=True)
    assert_balanced(queue)


def test_q74_a_single_active_queue_has_no_exclusive_consumer(connection: shmbroker.Connection) -> None:
    """Its consumers take turns, so none may keep the others out."""
    queue = connection.queue("q", single_active_consumer=True)
    with pytest.raises(AccessRefused, match=IN_USE):
        queue.consume(exclusive=True)
    assert_counts(queue, consumers=0)


def test_a_consumer_of_a_queue_may_skip_what_its_connection_put(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """`consume(no_local=True)` leaves the messages of its own connection to others; it is refused beside groups."""
    put_each(queue, ["own"])
    with Actor(broker.name) as other, queue.consume(no_local=True) as consumer:
        other.do("put", queue="q", bodies=["of another process"])
        with consumer.get(timeout=60) as message:
            assert text(message) == "of another process"
        assert arrived(consumer) is None
    assert take(queue, 1) == ["own"]
    grouped = connection.queue("grouped", message_groups="sticky")
    with pytest.raises(ValueError, match="no_local=True: a consumer of queue 'grouped', which has message groups"):
        grouped.consume(no_local=True)


def test_q74_a_killed_exclusive_consumer_leaves_the_queue_free(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """The process of an exclusive consumer is killed: the queue accepts consumers again, and loses nothing."""
    put_each(queue, "AB")
    with Actor(broker.name) as owner:
        owner.do("claim", queue="q")
        owner.kill()
        await_counts(queue, consumers=0, ready=2, delivering=0)
    inbox = Inbox(ack=True)
    with connection.channel() as channel:
        channel.basic_consume("q", inbox, exclusive=True)
        assert [delivery.text for delivery in inbox.wait(2)] == ["A", "B"]
    assert_balanced(queue)


def test_q74_an_exclusive_queue_has_another_error(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A consumer on the exclusive queue of another connection gets 405, not 403; one of the owner's is allowed.

    The queue goes when the process that owns it is killed, and the name is free.
    """
    with Actor(broker.name) as owner:
        owner.do("on_channel", method="queue_declare", queue="q", exclusive=True)
        with refused(ResourceLocked):
            connection.channel().basic_consume("q", Inbox())
        with connection.channel() as channel:
            channel.basic_publish("", "q", b"A")
        assert owner.do("consume_on_channel", queue="q", count=1) == ["A"]
        owner.kill()
        becomes(connection.queue_names, [])
    assert len(connection.queue("q")) == 0
