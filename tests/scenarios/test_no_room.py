# SPDX-License-Identifier: Apache-2.0
"""Queues of length 0, and of no byte: they hand a message over to a consumer that waits, or do what overflow says."""

from __future__ import annotations

import queue as standard_queue
import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.dead_letters import dead_letter_queue, next_dead, reasons
from scenario_support.observing import assert_balanced, assert_counts, await_counts, nothing_to_get, put_each, text
from scenario_support.processes import Actor
from scenario_support.waiting import becomes

from shmbroker.exceptions import PublishRejected

if TYPE_CHECKING:
    from collections.abc import Mapping

    import shmbroker

NOTHING = [{"max_length": 0}, {"max_bytes": 0}]


@pytest.mark.parametrize("limit", NOTHING)
@pytest.mark.parametrize("overflow", ["drop-head", "drop"])
def test_a_message_without_a_consumer_is_dropped(
    connection: shmbroker.Connection, limit: Mapping[str, int], overflow: str
) -> None:
    """Nobody waits: each message is dropped before its put returns."""
    queue = connection.queue("q", overflow=overflow, **limit)
    put_each(queue, "abc")
    assert_counts(queue, ready=0, dropped=3, added=3)
    assert nothing_to_get(queue)
    assert_balanced(queue)


@pytest.mark.parametrize("limit", NOTHING)
def test_dropped_messages_are_dead_letters(connection: shmbroker.Connection, limit: Mapping[str, int]) -> None:
    """With drop-head and a dead-letter exchange, each message goes there, as in RabbitMQ."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", overflow="drop-head", dead_letter_exchange="dlx", **limit)
    queue.put(b"x")
    assert reasons(next_dead(dead)) == [("q", "maxlen", 1)]
    assert_counts(queue, dead_lettered=1, message_count=0)
    assert_balanced(queue)


@pytest.mark.parametrize("limit", NOTHING)
@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_all_messages_are_rejected(
    broker: shmbroker.Broker, connection: shmbroker.Connection, limit: Mapping[str, int], overflow: str
) -> None:
    """A queue that rejects rejects each message, also beside a consumer that waits, as in RabbitMQ."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", overflow=overflow, dead_letter_exchange="dlx", **limit)
    with Actor(broker.name) as consumer:
        consumer.do("consume", queue="q")
        with pytest.raises(PublishRejected, match=r"^queue 'q' rejects the message: 0 messages are ready"):
            queue.put(b"x")
        with connection.channel() as channel:
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"y")
            assert channel.wait_for_confirms() is False
    if overflow == "reject-publish-dlx":
        assert sorted(text(next_dead(dead)) for _ in range(2)) == ["x", "y"]
    assert_counts(queue, ready=0, delivering=0)
    assert_balanced(queue)


@pytest.mark.parametrize("limit", NOTHING)
@pytest.mark.parametrize("overflow", ["drop-head", "drop"])
def test_a_waiting_consumer_gets_as_many_as_its_credit(
    broker: shmbroker.Broker, connection: shmbroker.Connection, limit: Mapping[str, int], overflow: str
) -> None:
    """A consumer of another process waits with a credit of ten: it gets ten messages, also in a burst; others go."""
    queue = connection.queue("q", overflow=overflow, **limit)
    with Actor(broker.name) as consumer:
        consumer.do("consume", queue="q", prefetch=10)
        put_each(queue, [f"m{number}" for number in range(10)])
        await_counts(queue, delivering=10, ready=0, dropped=0)
        put_each(queue, ["late"])  # its credit is used up
        assert_counts(queue, delivering=10, ready=0, dropped=1)
        assert [one["body"] for one in consumer.do("receive", count=10, settle="ack")] == [f"m{n}" for n in range(10)]
        put_each(queue, ["again"])
        assert consumer.do("receive", settle="ack")[0]["body"] == "again"
    assert_counts(queue, acked=11, dropped=1)
    assert_balanced(queue)


def test_a_consumer_of_a_channel_gets_them(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """x-max-length 0, with the default overflow of a channel: what RabbitMQ's users do."""
    channel = connection.channel()
    channel.queue_declare("q", arguments={"x-max-length": 0})
    queue = other.queue("q", passive=True)
    assert (queue.settings.max_length, queue.settings.overflow) == (0, "drop-head")
    got: standard_queue.Queue[bytes] = standard_queue.Queue()
    queue.put(b"nobody")
    channel.basic_consume("q", lambda _channel, _method, _properties, body: got.put(body), auto_ack=True)
    becomes(lambda: queue.statistics().interested, 1)
    put_each(queue, "abc")
    assert [got.get(timeout=60) for _ in range(3)] == [b"a", b"b", b"c"]
    assert_counts(queue, dropped=1, ready=0)


def test_a_waiting_get_gets_it(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """A call that waits for a message is a consumer of credit one: what comes after its message finds no credit."""
    queue = connection.queue("q", max_length=0, overflow="drop-head")
    mine = other.queue("q", passive=True)
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(text(mine.get(auto_ack=True))))
    thread.start()
    becomes(lambda: queue.statistics().interested, 1)
    put_each(queue, "a")
    thread.join()  # before that, the queue would drop "a" to keep "b" for the call
    assert got == ["a"]
    put_each(queue, "b")
    assert_counts(queue, ready=0, dropped=1)


def test_what_a_killed_consumer_leaves(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A consumer is stopped before it takes what was kept for it, then killed: nothing stays in the queue."""
    queue = connection.queue("q", max_length=0, overflow="drop-head")
    with Actor(broker.name) as consumer:
        consumer.do("consume", queue="q", prefetch=10)
        consumer.stop()
        put_each(queue, "abc")
        consumer.kill()
        await_counts(queue, consumers=0, message_count=0)
    assert_counts(queue, added=3, dropped=3)
    assert_balanced(queue)


def test_what_a_closed_consumer_gives_back(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """A consumer that closes gives its messages back: the queue has no room for them."""
    queue = connection.queue("q", max_length=0, overflow="drop-head")
    with other.queue("q", passive=True).consume(prefetch=5):
        put_each(queue, "abc")
        await_counts(queue, delivering=3)
    assert_counts(queue, ready=0, delivering=0, dropped=3)
    assert_balanced(queue)


def test_a_lowered_limit(connection: shmbroker.Connection) -> None:
    """A queue whose limit becomes 0 drops what it has with the next put."""
    queue = connection.queue("q", max_length=5, overflow="drop-head")
    put_each(queue, "abc")
    queue.configure(max_length=0)
    queue.put(b"d")
    assert_counts(queue, ready=0, dropped=4)
    queue.configure(max_length=-1)
    queue.put(b"e")
    assert_counts(queue, ready=1)


def test_an_empty_body_takes_no_byte(connection: shmbroker.Connection) -> None:
    """A queue of no byte keeps empty bodies, whatever its overflow."""
    for overflow in ("drop-head", "drop", "reject-publish"):
        queue = connection.queue(overflow, max_bytes=0, overflow=overflow)
        queue.put(b"")
        queue.put(b"")
        assert_counts(queue, ready=2, dropped=0)


@pytest.mark.parametrize("limit", NOTHING)
def test_a_queue_that_blocks_has_room(connection: shmbroker.Connection, limit: Mapping[str, int]) -> None:
    """With overflow="block" a put would wait for ever: the settings are refused, and name each other."""
    (name,) = limit
    with pytest.raises(ValueError, match=rf"^overflow='block', {name}=0: a put would wait for ever; drop, drop-head"):
        connection.queue("q", **limit)
    queue = connection.queue("q", max_length=1)
    with pytest.raises(ValueError, match=rf"^overflow='block', {name}=0"):
        queue.configure(**limit)


@pytest.mark.parametrize("value", [0, -2, 1.5, "x"])
def test_t20_a_ring_of_nothing_stays_refused(connection: shmbroker.Connection, value: object) -> None:
    """ring_size is -1 or from 1, as before."""
    with pytest.raises(ValueError, match=r"^ring_size=.*: -1 \(no limit\) or an integer from 1"):
        connection.queue("q", ring_size=value)


@pytest.mark.parametrize("value", [-2, 1.5, "x", True])
def test_what_a_limit_may_be(connection: shmbroker.Connection, value: object) -> None:
    """max_length is -1 or from 0."""
    with pytest.raises(ValueError, match=r"^max_length=.*: -1 \(no limit\) or an integer from 0"):
        connection.queue("q", max_length=value, overflow="drop")
