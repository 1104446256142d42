# SPDX-License-Identifier: Apache-2.0
"""Queues that are full: puts that are refused, wait, or drop something."""

from __future__ import annotations

import threading
from queue import Full

import pytest
from scenario_support.inside import core_of
from scenario_support.observing import assert_balanced, assert_counts, listing, put_each, take
from scenario_support.waiting import becomes

import shmbroker
from shmbroker.exceptions import OutOfMemory


def test_a_full_queue_refuses(connection: shmbroker.Connection) -> None:
    """overflow="block": Full when the time is up, whichever way it was put."""
    queue = connection.queue("q", max_length=2)
    assert queue.put_many([b"A", b"B", b"C", b"D"], timeout=0) == 2
    for put in (
        lambda: queue.put_nowait(b"C"),
        lambda: queue.put(b"C", timeout=0),
        lambda: queue.put(b"C", timeout=0.02),
        lambda: queue.put_many([b"C"], timeout=0),
    ):
        with pytest.raises(Full) as full:
            put()
        assert not isinstance(full.value, OutOfMemory)
    assert listing(queue) == ["A", "B"]
    assert_counts(queue, added=2, dropped=0)
    held = queue.get()
    queue.put(b"C", timeout=0)
    held.nack()
    assert_counts(queue, ready=3)
    with pytest.raises(Full):
        queue.put_nowait(b"D")
    assert take(queue, 3) == ["A", "B", "C"]
    assert_balanced(queue)


def test_a_full_queue_refuses_by_bytes(connection: shmbroker.Connection) -> None:
    """max_bytes bounds the ready bodies; a body that can never fit is refused immediately."""
    queue = connection.queue("q", max_bytes=100)
    queue.put(b"x" * 60)
    with pytest.raises(Full):
        queue.put(b"x" * 41, timeout=0)
    queue.put(b"x" * 40, timeout=0)
    assert_counts(queue, bytes=100, ready=2)
    with pytest.raises(shmbroker.NeverFits):
        queue.put(b"x" * 101, timeout=None)
    queue.purge()
    queue.put(b"x" * 100, timeout=0)
    assert_counts(queue, bytes=100, ready=1)


@pytest.mark.parametrize("room", ["get", "purge", "configure", "move", "expire"])
def test_a_blocked_put_goes_on_when_there_is_room(
    broker: shmbroker.Broker, connection: shmbroker.Connection, room: str
) -> None:
    """A put that waits for room is woken by whatever makes some, not by upkeep alone, as the broker's fixture sees."""
    queue = connection.queue("q", max_length=1)
    connection.queue("other")
    queue.put(b"A", ttl=3.0 if room == "expire" else None)
    done = threading.Event()
    with broker.connect() as second:
        producer = second.queue("q")

        def put() -> None:
            producer.put(b"B")
            done.set()

        thread = threading.Thread(target=put)
        thread.start()
        becomes(lambda: core_of(producer).facts().room_waiting, 1)
        assert not done.is_set()
        if room == "get":
            queue.get()
        elif room == "purge":
            queue.purge()
        elif room == "configure":
            queue.configure(max_length=2)
        elif room == "move":
            queue.move("other")
        thread.join()
        assert listing(queue)[-1] == "B"


def test_drop_drops_the_new_one(connection: shmbroker.Connection) -> None:
    """overflow="drop": a full queue keeps what it has; the new one is counted."""
    queue = connection.queue("q", max_length=2, overflow="drop")
    put_each(queue, "ABCD")
    assert listing(queue) == ["A", "B"]
    assert_counts(queue, dropped=2, message_count=2)
    queue.put_many([b"E"] * 3)
    assert_counts(queue, dropped=5, message_count=2)
    take(queue, 1)
    put_each(queue, "F")
    assert listing(queue) == ["B", "F"]
    assert_balanced(queue)


def test_drop_head_drops_the_oldest(connection: shmbroker.Connection) -> None:
    """overflow="drop-head": the oldest ready makes room; it counts as dropped."""
    queue = connection.queue("q", max_length=2, overflow="drop-head")
    put_each(queue, "ABCD")
    assert listing(queue) == ["C", "D"]
    assert_counts(queue, dropped=2, replaced=0, message_count=2)
    held = queue.get()
    put_each(queue, "EF")
    assert listing(queue) == ["E", "F"]
    assert_counts(queue, dropped=3, message_count=3, delivering=1)
    held.ack()
    assert_balanced(queue)


def test_drop_head_by_bytes(connection: shmbroker.Connection) -> None:
    """With max_bytes as many of the oldest go as are needed."""
    queue = connection.queue("q", max_bytes=100, overflow="drop-head")
    for size in (20, 20, 30, 30):
        queue.put(b"x" * size)
    assert_counts(queue, message_count=4, bytes=100, dropped=0)
    queue.put(b"y" * 30)
    assert_counts(queue, message_count=3, bytes=90, dropped=2)
    assert_balanced(queue)
