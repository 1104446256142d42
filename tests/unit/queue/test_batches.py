# SPDX-License-Identifier: Apache-2.0
"""Many messages in a call: put_many, get_many, and batches that are settled as a whole."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import assert_balanced, assert_counts, listing, numbered, put_each, take, text, texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker


def test_put_many_takes_any_iterable(queue: shmbroker.Queue) -> None:
    """put_many takes a generator and returns how many it put; none is none."""

    def bodies() -> Iterator[bytes]:
        yield b"A"
        yield b"B"

    assert queue.put_many(bodies()) == 2
    assert queue.put_many([]) == 0
    assert take(queue, 2) == ["A", "B"]


def test_put_many_of_very_many(queue: shmbroker.Queue) -> None:
    """Thousands of bodies in one call keep their order."""
    bodies = numbered(10_000)
    assert queue.put_many([body.encode() for body in bodies]) == 10_000
    received: list[str] = []
    while len(received) < 10_000:
        batch = queue.get_many(1000)
        received += [body.decode() for body in batch.bodies()]
        batch.ack()
    assert received == bodies


def test_get_many_takes_what_is_there(queue: shmbroker.Queue) -> None:
    """get_many waits for one, then returns what is there up to the maximum."""
    put_each(queue, "ABCDE")
    batch = queue.get_many(3)
    assert len(batch) == 3
    assert texts(batch) == list("ABC")
    assert text(batch[0]) == "A"
    assert text(batch[-1]) == "C"
    assert batch.bodies() == [b"A", b"B", b"C"]
    with pytest.raises(IndexError):
        batch[3]
    batch.ack()
    assert texts(queue.get_many(10)) == ["D", "E"]
    assert_counts(queue, delivering=2, acked=3)


def test_a_batch_is_returned_as_a_whole(queue: shmbroker.Queue) -> None:
    """nack() of a batch returns all, in place; without requeue it drops all."""
    put_each(queue, "ABCD")
    queue.get_many(3).nack()
    assert listing(queue) == list("ABCD")
    batch = queue.get_many(2)
    assert [message.redelivered for message in batch] == [True, True]
    batch.nack(requeue=False)
    assert listing(queue) == ["C", "D"]
    assert_counts(queue, delivering=0, message_count=2, redelivered=2)
    assert_balanced(queue)


def test_a_large_batch_keeps_its_order_and_is_settled_but_for_what_was_settled_already(queue: shmbroker.Queue) -> None:
    """More than one step of the core on the way in, and more than is settled with the GIL on the way out."""
    bodies = [b"%04d" % number * 256 for number in range(1500)]
    assert queue.put_many(bodies) == 1500
    taken: list[shmbroker.MessageBatch] = []
    while sum(map(len, taken)) < 1500:
        taken.append(queue.get_many(1500 - sum(map(len, taken))))
    assert [body for batch in taken for body in batch.bodies()] == bodies
    taken[0][3].nack()
    for batch in taken:
        batch.ack()
    assert_counts(queue, ready=1, delivering=0, acked=1499)
    assert bytes(queue.get(auto_ack=True)) == bodies[3]
    assert queue.put_many([b"a"] * 1500) == 1500
    small = queue.get_many(1500)
    assert len(small) == 1500
    small.ack()
    assert_counts(queue, ready=0, delivering=0, acked=3000)


class Taker:
    """An object in a cycle that takes messages of a queue when the garbage collector finalizes it."""

    def __init__(self, queue: shmbroker.Queue, taken: list[bytes]) -> None:
        self.queue, self.taken, self.cycle = queue, taken, self

    def __del__(self) -> None:
        self.taken.extend(bytes(message) for message in self.queue.get_many(3, timeout=0))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the collector runs only between two instructions of Python")
def test_a_batch_that_the_collector_interrupts_keeps_its_messages(queue: shmbroker.Queue) -> None:
    """The collector may run while the batch is made, and a finalizer may take the next messages of the same queue."""
    queue.put_many([b"A", b"B", b"C", b"D", b"E", b"F"])
    taken: list[bytes] = []
    thresholds = gc.get_threshold()
    gc.collect()
    gc.disable()
    Taker(queue, taken)
    try:
        gc.set_threshold(1, 1, 1)
        gc.enable()
        batch = queue.get_many(3, timeout=0)
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    found = [bytes(message) for message in batch]
    assert sorted(found + taken) == [b"A", b"B", b"C", b"D", b"E", b"F"]
    assert found == sorted(found)
