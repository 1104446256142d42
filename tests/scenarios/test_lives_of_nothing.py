# SPDX-License-Identifier: Apache-2.0
"""A life of 0: the message is for a consumer that waits for it now; otherwise it expires (B59)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import Inbox
from scenario_support.dead_letters import EXCHANGE, dead_letter_queue, next_dead, reasons
from scenario_support.observing import assert_balanced, assert_counts, await_counts, nothing_to_get, text
from scenario_support.processes import Actor
from scenario_support.waiting import eventually

from shmbroker import BasicProperties

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

NOW = BasicProperties(expiration="0")
SELECTOR = {"x-filter-jms-selector": "colour = 'red'"}
TOLD_NOW = BasicProperties(expiration="0", headers={"colour": "red"})


@pytest.fixture
def dead(connection: shmbroker.Connection) -> shmbroker.Queue:
    """Declare a dead-letter exchange and the queue behind it."""
    return dead_letter_queue(connection)


def await_credit(queue: shmbroker.Queue) -> None:
    """Wait until a consumer waits for messages."""

    def waits() -> bool:
        found = queue.statistics()
        return found.interested + found.non_acquiring > 0

    eventually(waits)


def transact(connection: shmbroker.Connection, body: bytes) -> None:
    """Publish in a transaction."""
    channel = connection.channel()
    channel.tx_select()
    channel.basic_publish("", "q", body, TOLD_NOW)
    channel.tx_commit()


# Each puts a message that lives no time into the queue.
WAYS: dict[str, Callable[[shmbroker.Connection, bytes], object]] = {
    "put": lambda connection, body: connection.queue("q").put(body, properties=TOLD_NOW),
    "publish": lambda connection, body: connection.channel().basic_publish("", "q", body, NOW),
    "publish with headers": lambda connection, body: connection.channel().basic_publish("", "q", body, TOLD_NOW),
    "commit": transact,
}


@pytest.mark.parametrize("way", WAYS)
def test_b59_a_message_that_lives_no_time_goes_to_a_consumer_that_waits(
    broker: shmbroker.Broker, connection: shmbroker.Connection, dead: shmbroker.Queue, way: str
) -> None:
    """A consumer of another process with credit gets each; when it has left, the next one is dead."""
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    with Actor(broker.name) as consumer:
        consumer.do("consume", queue="q", prefetch=1)
        for body in "A", "B":
            await_credit(queue)
            WAYS[way](connection, body.encode())
            (message,) = consumer.do("receive", timeout=60, settle="ack")
            assert message["body"] == body
        consumer.do("close_consumer")
    WAYS[way](connection, b"C")
    assert reasons(next_dead(dead)) == [("q", "expired", 1)]
    assert_counts(queue, acked=2, dead_lettered=1, message_count=0)
    assert_balanced(queue)


@pytest.mark.parametrize("ttl", [0, None])
def test_b59_so_does_a_get_that_waits(
    broker: shmbroker.Broker, connection: shmbroker.Connection, ttl: float | None
) -> None:
    """The queue has a time to live of 0, or the message."""
    queue = connection.queue("q", message_ttl=ttl)
    with Actor(broker.name) as other:
        other.begin("get", queue="q", timeout=60, settle="ack")
        await_credit(queue)
        queue.put(b"A", properties=NOW if ttl is None else None)
        (message,) = other.result()
    assert message["body"] == "A"
    assert_counts(queue, acked=1, expired=0)
    assert_balanced(queue)


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({}, {}),
        ({}, SELECTOR),
        ({"message_groups": "sticky"}, {}),
        ({"max_priority": 5}, SELECTOR),
        ({"ring_size": 3}, {}),
        ({"max_length": 0, "overflow": "drop"}, {}),
        ({"consumers_before_dispatch": 1}, {}),
        ({"single_active_consumer": True}, {}),
    ],
)
def test_b59_and_a_callback(
    connection: shmbroker.Connection,
    channel: shmbroker.Channel,
    settings: dict[str, object],
    arguments: dict[str, object],
) -> None:
    """The consumer of a channel gets it, in queues of several kinds, with a selector as well."""
    queue = connection.queue("q", message_ttl=0, **settings)
    inbox = Inbox()
    channel.basic_consume("q", inbox, auto_ack=True, arguments=arguments)
    await_credit(queue)
    queue.put(b"A", headers={"colour": "red"}, group="g")
    inbox.wait(1)
    assert inbox.texts() == ["A"]
    await_counts(queue, message_count=0, expired=0)
    assert_balanced(queue)


def test_b59_beyond_the_credit_it_dies(connection: shmbroker.Connection, dead: shmbroker.Queue) -> None:
    """A consumer that holds as many messages as it may waits for none."""
    queue = connection.queue("q", message_ttl=0, dead_letter_exchange=EXCHANGE)
    with queue.consume(prefetch=1) as consumer:
        await_credit(queue)
        queue.put(b"A")
        held = consumer.get(timeout=60)
        queue.put(b"B")
        message = next_dead(dead)
        assert (text(message), reasons(message)) == ("B", [("q", "expired", 1)])
        assert text(held) == "A"
        held.ack()
    assert_balanced(queue)


def test_b59_without_a_consumer_it_is_gone(connection: shmbroker.Connection, dead: shmbroker.Queue) -> None:
    """Queue TTL 0 and nobody waits: no get finds the message, and it goes to the dead-letter exchange."""
    queue = connection.queue("q", message_ttl=0, dead_letter_exchange=EXCHANGE)
    queue.put(b"A")
    assert nothing_to_get(queue)
    assert reasons(next_dead(dead)) == [("q", "expired", 1)]
    assert_balanced(queue)


@pytest.mark.parametrize("properties", [NOW, TOLD_NOW])
def test_b59_each_queue_of_a_fanout_decides(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue, properties: BasicProperties
) -> None:
    """Of two queues that get a message one has a consumer: there it is delivered, in the other one it dies."""
    queues = [connection.queue(name, dead_letter_exchange=EXCHANGE) for name in ("here", "there")]
    for queue in queues:
        channel.queue_bind(queue.name, "amq.fanout")
    with queues[0].consume() as consumer:
        for number in range(2):  # the second time the route is known
            await_credit(queues[0])
            channel.basic_publish("amq.fanout", "", str(number).encode(), properties)
            with consumer.get(timeout=60) as message:
                assert text(message) == str(number)
            assert reasons(next_dead(dead)) == [("there", "expired", 1)]
    for queue in queues:
        assert_balanced(queue)


def test_b59_a_consumer_that_is_stopped_does_not_keep_it(
    broker: shmbroker.Broker, connection: shmbroker.Connection, dead: shmbroker.Queue
) -> None:
    """SIGSTOP: the message waits for its process a second at most, then it is dead."""
    queue = connection.queue("q", message_ttl=0, dead_letter_exchange=EXCHANGE)
    with Actor(broker.name) as consumer:
        consumer.do("consume", queue="q")
        await_credit(queue)
        consumer.stop()
        queue.put(b"A")
        assert reasons(next_dead(dead)) == [("q", "expired", 1)]
        consumer.resume()
        assert consumer.do("arrived") == []
    assert_balanced(queue)
