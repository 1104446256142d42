# SPDX-License-Identifier: Apache-2.0
"""Handles of a queue: what they say of it, and how they are closed and opened again."""

from __future__ import annotations

from queue import Empty
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import assert_counts, put_each, text
from scenario_support.waiting import eventually

from shmbroker.exceptions import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker


def test_len_is_the_number_ready(queue: shmbroker.Queue) -> None:
    """len() counts what is ready: not the delivered, not the delayed."""
    put_each(queue, "ABC")
    queue.put(b"late", delay=3600)
    queue.get()
    assert len(queue) == 2


def test_a_queue_says_what_it_is(queue: shmbroker.Queue) -> None:
    """The representation names the queue; the handle closes more than once."""
    assert "q" in repr(queue)
    assert queue.name == "q"
    queue.close()
    queue.close()


def test_a_closed_handle(connection: shmbroker.Connection) -> None:
    """What was taken can be settled, and its consumer goes on; other uses say that it is closed. The queue stays."""
    with connection.queue("q") as queue:
        consumer = queue.consume(prefetch=1)
        put_each(queue, "ABC")
        first = consumer.get()
        second = queue.get()
    queue.close()
    uses: list[Callable[[], object]] = [
        lambda: queue.put(b"x"),
        lambda: queue.put(b"x", ttl=1),
        lambda: queue.put_many([b"x"]),
        lambda: queue.get(timeout=0),
        queue.get,
        lambda: queue.get_many(3, timeout=0),
        queue.consume,
        lambda: list(queue.browse()),
        queue.purge,
        queue.delete,
        queue.statistics,
        lambda: len(queue),
        queue.pause,
        lambda: queue.configure(ring_size=3),
        lambda: queue.reserve(3).__enter__(),
    ]
    for use in uses:
        with pytest.raises(ConnectionClosed, match="'q' is closed"):
            use()
    assert "closed" in repr(queue)
    again = connection.queue("q", passive=True)
    assert again is not queue
    assert_counts(again, ready=1, delivering=2, consumers=1)
    second.nack()
    first.ack()
    assert text(consumer.get()) == "B"
    consumer.close()
    again.close()
    connection.queue("q").delete()
    assert connection.queue_names() == []


def test_a_handle_is_closed_and_opened_many_times(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """It takes no memory, whether messages were held meanwhile or not; closing the connection returns them."""
    connection.queue("q").close()
    before = broker.statistics().memory_used
    held = []
    with broker.connect() as many:
        for _ in range(100):
            with many.queue("q") as queue:
                queue.put(b"A")
                held.append(queue.get())
                queue.put(b"B")
                queue.get(auto_ack=True)
        assert_counts(many.queue("q"), delivering=100, ready=0)
        for message in held[:50]:
            message.ack()
    queue = connection.queue("q")
    assert_counts(queue, ready=50, delivering=0, acked=150)
    queue.purge()
    eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)


def test_a_closed_handle_that_found_nothing_before(queue: shmbroker.Queue) -> None:
    """It is closed, and not empty, to a call that does not wait."""
    uses: list[Callable[[], object]] = [
        queue.get_nowait,
        lambda: queue.get(timeout=0),
        lambda: queue.get_many(1, timeout=0),
    ]
    for use in uses:
        with pytest.raises(Empty):
            use()
    queue.close()
    for use in uses:
        with pytest.raises(ConnectionClosed, match="queue 'q' is closed"):
            use()
