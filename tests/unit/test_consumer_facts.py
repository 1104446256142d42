# SPDX-License-Identifier: Apache-2.0
"""What a consumer says of itself, the bounds of its options, its descriptor, and how it rests."""

from __future__ import annotations

import os
import select
import threading
from queue import Empty
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.observing import assert_counts, await_counts, put_each, take, text

import shmbroker
from shmbroker.exceptions import ConnectionClosedByBroker, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("option", "low", "high"),
    [("prefetch", 1, 2**20), ("priority", 1 - 2**31, 2**31 - 1), ("ack_batch", 1, 2**20)],
)
def test_the_bounds_of_options(queue: shmbroker.Queue, option: str, low: int, high: int) -> None:
    """The lowest and the highest value are allowed, and the next ones are not."""
    for value in (low, high):
        options: dict[str, Any] = {option: value}
        queue.consume(**options).close()
    for value in (low - 1, high + 1):
        options = {option: value}
        with pytest.raises(ValueError, match=f"{option}={value}: an integer from {low} to {high} is allowed"):
            queue.consume(**options)
    assert_counts(queue, consumers=0)


def test_the_bounds_of_the_interval(queue: shmbroker.Queue) -> None:
    """More than nothing, and at most an hour."""
    for value in (1e-6, 3600):
        queue.consume(ack_interval=value).close()
    for bad in (0, 3600.1, "1"):
        with pytest.raises(ValueError, match=r"ack_interval=.*: more than 0 and at most 3600 seconds"):
            queue.consume(ack_interval=bad)  # type: ignore[arg-type]


def test_a_consumer_needs_a_queue(connection: shmbroker.Connection) -> None:
    """One at least."""
    with pytest.raises(ValueError, match="at least one queue"):
        connection.consumer([])


def test_a_consumer_says_what_it_is(connection: shmbroker.Connection) -> None:
    """Its queues by name, its options, and that it has ended."""
    connection.queue("a")
    connection.queue("b")
    consumer = connection.consumer(["a", "b"], prefetch=3, priority=-2, auto_ack=True)
    (facts,) = connection.consumers("a")
    assert (facts.prefetch, facts.priority, consumer._auto_ack) == (3, -2, True)  # noqa: SLF001
    assert repr(consumer) == "<Consumer of 'a', 'b'>"
    assert [consumer._queue_name(number) for number in range(3)] == ["a", "b", ""]  # noqa: SLF001
    assert [consumer._next_delivery_tag() for _ in range(3)] == [1, 2, 3]  # noqa: SLF001
    consumer.cancel()
    assert repr(consumer) == "<Consumer of 'a', 'b', closed>"
    consumer.close()


def test_a_consumer_that_rests_leaves_messages_to_others(queue: shmbroker.Queue) -> None:
    """Until it is told to go on."""
    with queue.consume() as consumer:
        consumer.suspend()
        put_each(queue, "AB")
        assert take(queue, 1) == ["A"]
        with pytest.raises(Empty):
            consumer.get(timeout=0)
        consumer.resume()
        assert text(consumer.get()) == "B"


def test_the_descriptor_of_a_consumer(queue: shmbroker.Queue) -> None:
    """It is readable as long as a get would not wait; cleared, it becomes so again for what waits and what comes."""
    with queue.consume() as consumer:
        descriptor = consumer.fileno()
        assert consumer.fileno() == descriptor
        assert select.select([consumer], [], [], 0)[0] == []
        put_each(queue, "AB")
        assert select.select([consumer], [], [])[0] == [consumer]
        await_counts(queue, delivering=2)
        consumer.clear()
        assert select.select([consumer], [], [], 0)[0] == [consumer]
        consumer.get().ack()
        consumer.get().ack()
        consumer.clear()
        assert select.select([consumer], [], [], 0)[0] == []
        put_each(queue, "C")
        assert select.select([consumer], [], [])[0] == [consumer]
        assert text(consumer.get()) == "C"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def expect_end(consumer: shmbroker.Consumer, end: Callable[[], object], error: type[Exception]) -> None:
    """Its descriptor becomes readable, and is so again as often as it is cleared."""
    poll = select.poll()
    poll.register(consumer, select.POLLIN)
    assert poll.poll(0) == []
    end()
    for _ in range(2):
        assert poll.poll() != []
        with pytest.raises(error):
            consumer.get(timeout=0)
        consumer.clear()


@pytest.mark.parametrize("holds", [False, True])
def test_the_descriptor_tells_of_a_deleted_queue(
    broker: shmbroker.Broker, queue: shmbroker.Queue, *, holds: bool
) -> None:
    """Also while the consumer holds all that its prefetch allows: a get raises NotFound, and does not wait."""
    with queue.consume(prefetch=1) as consumer, broker.connect() as other:
        held = []
        if holds:
            put_each(queue, "A")
            held.append(consumer.get())
        expect_end(consumer, other.queue("q").delete, NotFound)


def test_the_descriptor_tells_of_a_purged_broker(broker_name: str) -> None:
    """A get then raises ConnectionClosedByBroker, and does not wait."""
    shmbroker.Broker(broker_name).start()
    with shmbroker.connect(broker_name) as connection:
        consumer = connection.queue("q").consume()
        purging = threading.Thread(target=lambda: shmbroker.Broker(broker_name).stop(purge=True))
        expect_end(consumer, purging.start, ConnectionClosedByBroker)
    purging.join()
