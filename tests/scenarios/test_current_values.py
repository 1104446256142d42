# SPDX-License-Identifier: Apache-2.0
"""Tables of the current state: non-destructive queues with last values, which many consumers follow (as in Artemis)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scenario_support.observing import (
    arrived,
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    text,
)
from scenario_support.processes import actors

if TYPE_CHECKING:
    import shmbroker


def table(connection: shmbroker.Connection) -> shmbroker.Queue:
    """Declare a queue that keeps the newest message of each symbol, whoever reads it."""
    return connection.queue("board", non_destructive=True, last_value_key="symbol")


def read(consumer: shmbroker.Consumer, count: int) -> list[str]:
    """Take messages from a consumer, and acknowledge each; return their texts."""
    found = []
    for _ in range(count):
        message = consumer.get(timeout=60)
        found.append(text(message))
        message.ack()
    return found


def test_t43_an_attached_consumer_sees_each_update_once(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Five processes send 25 updates for each of five keys: a table of five messages, and everybody sees its changes.

    A producer sends its next update when the consumer has the one before: what a consumer was only told of may be
    replaced, as in a ring.
    """
    queue = table(connection)
    steps = 125
    seen: list[str] = []
    with actors(broker.name, 5) as producers, queue.consume() as consumer:
        for step in range(steps):
            for number, producer in enumerate(producers):
                key = "abcde"[(number + step) % 5]
                producer.begin("put_values", queue="board", values=[[key, f"{key}-{step:03d}"]], header="symbol")
            seen += read(consumer, 5)
            for producer in producers:
                producer.result()
        assert arrived(consumer) is None
    for key in "abcde":
        assert [body for body in seen if body[0] == key] == [f"{key}-{step:03d}" for step in range(steps)]
    assert_counts(queue, message_count=5, added=625, replaced=620)
    with queue.consume() as late:
        assert sorted(read(late, 5)) == [f"{key}-{steps - 1:03d}" for key in "abcde"]
        assert arrived(late) is None
        for key in "abcde":
            queue.put(b"", headers={"symbol": key}, ttl=0.05)
        await_counts(queue, message_count=0, replaced=625, expired=5)
    assert listing(queue) == []
    assert_balanced(queue)
    assert connection.doctor() == []


def test_a_consumer_that_is_slow_misses_values_and_none_comes_twice(connection: shmbroker.Connection) -> None:
    """While it has no credit, values are replaced; then it gets the latest of each key, after what it has."""
    queue = table(connection)
    with queue.consume(prefetch=1) as consumer:
        queue.put(b"a-0", headers={"symbol": "a"})
        first = consumer.get(timeout=60)
        for n in range(1, 9):
            for key in "ab":
                queue.put(f"{key}-{n}".encode(), headers={"symbol": key})
        assert text(first) == "a-0"
        first.ack()
        assert read(consumer, 1) + read(consumer, 1) == ["a-8", "b-8"]
        assert arrived(consumer) is None
