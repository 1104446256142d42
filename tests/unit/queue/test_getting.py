# SPDX-License-Identifier: Apache-2.0
"""Getting messages one by one: waiting, order, pausing."""

from __future__ import annotations

import itertools
import random
import threading
from queue import Empty
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import (
    assert_counts,
    await_counts,
    listing,
    nothing_to_get,
    numbered,
    put_each,
    take,
    text,
)

if TYPE_CHECKING:
    import shmbroker


def test_a_queue_that_expires_stays_while_a_get_waits(connection: shmbroker.Connection) -> None:
    """A get that waits longer than the queue may be unused finds it empty, not gone; then its time begins anew."""
    queue = connection.queue("short", expires=0.3)
    with pytest.raises(Empty):
        queue.get(timeout=1)
    queue.put(b"A")
    assert take(queue, 1) == ["A"]


def test_get_of_nothing(queue: shmbroker.Queue) -> None:
    """Empty is raised when the time is up, and leaves no waiter behind."""
    for get in (
        queue.get_nowait,
        lambda: queue.get(timeout=0),
        lambda: queue.get(timeout=0.02),
        lambda: queue.get_many(5, timeout=0),
        lambda: queue.get_many(5, timeout=0.02),
    ):
        with pytest.raises(Empty):
            get()
    assert_counts(queue, interested=0, notified=0, consumers=0)


def test_auto_ack_leaves_nothing(queue: shmbroker.Queue) -> None:
    """With auto_ack a message is gone when it is returned, and still readable."""
    queue.put_many([b"A", b"B" * 10_000, b"C"])
    first = queue.get(auto_ack=True)
    rest = queue.get_many(5, auto_ack=True)
    assert_counts(queue, message_count=0, delivering=0, acked=3)
    assert bytes(first) == b"A"
    assert rest.bodies() == [b"B" * 10_000, b"C"]


def test_get_waits_for_a_message(queue: shmbroker.Queue) -> None:
    """A get without end returns what another thread puts."""
    received: list[str] = []
    thread = threading.Thread(target=lambda: received.extend(take(queue, 1)))
    thread.start()
    await_counts(queue, interested=1)
    queue.put(b"A")
    thread.join()
    assert received == ["A"]


def test_threads_share_a_queue(queue: shmbroker.Queue) -> None:
    """Threads that put and get over one handle get each message once."""
    bodies = numbered(2000)
    received: list[list[str]] = [[], [], []]

    def get(index: int) -> None:
        while True:
            message = queue.get()
            body = text(message)
            message.ack()
            if body == "end":
                return
            received[index].append(body)

    getters = [threading.Thread(target=get, args=(index,)) for index in range(3)]
    putters = [threading.Thread(target=put_each, args=(queue, bodies[index::2])) for index in range(2)]
    for thread in (*getters, *putters):
        thread.start()
    for thread in putters:
        thread.join()
    put_each(queue, ["end"] * 3)
    for thread in getters:
        thread.join()
    assert sorted(itertools.chain(*received)) == bodies
    assert_counts(queue, message_count=0, acked=2003)


def test_a_returned_message_goes_to_its_place(queue: shmbroker.Queue) -> None:
    """However late it comes back, it is delivered before what was put after it."""
    put_each(queue, "ABCD")
    held = [queue.get() for _ in range(3)]
    for index in (1, 0, 2):
        held[index].nack()
    assert listing(queue) == list("ABCD")
    assert take(queue, 4) == list("ABCD")


def test_the_oldest_that_came_back_is_next(queue: shmbroker.Queue) -> None:
    """In whichever order they come back, over many pages."""
    chance, count = random.Random(17), 5_000
    queue.put_many([b"%d" % number for number in range(count)])
    held = {int(text(message)): message for message in queue.get_many(count, timeout=0)}
    ready: set[int] = set()
    for _ in range(400):
        middle = chance.randrange(count)
        for number in chance.sample(range(max(0, middle - 40), min(count, middle + 40)), 6):
            if number in held:
                held.pop(number).nack()
                ready.add(number)
        for _ in range(chance.randrange(min(9, len(ready) + 1))):
            message = queue.get(timeout=0)
            number = int(text(message))
            assert number == min(ready)
            ready.remove(number)
            held[number] = message
    assert len(ready) > 100


def test_a_paused_queue_gives_nothing(queue: shmbroker.Queue) -> None:
    """A paused queue takes messages and gives none; resume wakes who waits."""
    queue.pause()
    put_each(queue, "AB")
    assert nothing_to_get(queue)
    assert listing(queue) == ["A", "B"]
    received: list[str] = []
    thread = threading.Thread(target=lambda: received.extend(take(queue, 2)))
    thread.start()
    await_counts(queue, interested=1)
    queue.resume()
    thread.join()
    assert received == ["A", "B"]
