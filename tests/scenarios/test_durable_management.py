# SPDX-License-Identifier: Apache-2.0
"""Management of durable queues that are larger than the memory of their broker.

What an operation makes is stored, and leaves the memory, before the operation goes on. Limits hold for messages that
are not in the memory.
"""

from __future__ import annotations

import contextlib
import queue as standard_queue
from typing import TYPE_CHECKING

import pytest
from scenario_support.lasting import LEAF, Lasting, absent
from scenario_support.observing import assert_balanced, assert_counts
from scenario_support.waiting import eventually

import shmbroker
from shmbroker._core import patience

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNT, SIZE = 6_000, 4_096
"""Twice what the memory has room for."""
KEPT = 100


@pytest.fixture
def lasting(broker_name: str, tmp_path: Path) -> Iterator[Lasting]:
    """Begin a broker with room for about 12 MB of messages; what its publishers put is stored soon after."""
    with contextlib.closing(Lasting(broker_name, tmp_path, "32M", sync="interval")) as made:
        yield made


def filled(lasting: Lasting, count: int = COUNT, size: int = SIZE, **settings: object) -> shmbroker.Queue:
    """A durable queue with the numbers from 0 on, some of which have left the memory."""
    queue = lasting.connection.queue("q", durable=True, **settings)
    for first in range(0, count, LEAF):
        bodies = [b"%08d" % number + bytes(size - 8) for number in range(first, min(count, first + LEAF))]
        queue.put_many(bodies, headers={"odd": first // LEAF % 2}, timeout=120)
    assert_counts(queue, message_count=count, ready=count)
    return queue


def is_larger_than_the_memory(queue: shmbroker.Queue) -> None:
    """Wait until messages of the queue have left the memory."""
    eventually(lambda: absent(queue) > COUNT // LEAF // 4, "messages that leave the memory")


def numbers(queue: shmbroker.Queue) -> list[int]:
    """The ready messages."""
    return [int(bytes(message)[:8]) for message in queue.browse()]


# ---- what makes many messages ----


def test_a_copy_of_more_than_the_memory(lasting: Lasting) -> None:
    """The copies leave the memory while the command goes on; both queues have all messages, in their order."""
    queue = filled(lasting)
    is_larger_than_the_memory(queue)
    target = lasting.connection.queue("t", durable=True)
    assert queue.copy(target) == COUNT
    assert numbers(target) == numbers(queue) == [*range(COUNT)]


def test_another_priority_for_more_than_the_memory(lasting: Lasting) -> None:
    """The messages get it in some commits; each of them leaves the memory where it goes."""
    queue = filled(lasting, max_priority=2)
    assert queue.change_priority(2) == COUNT
    assert numbers(queue) == [*range(COUNT)]
    assert_counts(queue, message_count=COUNT, ready=COUNT, moved=COUNT)


def test_a_move_of_more_than_the_memory(lasting: Lasting) -> None:
    """Page by page: the other queue has all messages, in their order."""
    queue = filled(lasting)
    is_larger_than_the_memory(queue)
    target = lasting.connection.queue("t", durable=True)
    assert queue.move(target) == COUNT
    assert numbers(target) == [*range(COUNT)]
    assert len(queue) == 0
    assert_balanced(queue)


def test_a_purge_of_selected_messages(lasting: Lasting) -> None:
    """Every other leaf ends; the rest stays, and is whole."""
    queue = filled(lasting)
    is_larger_than_the_memory(queue)
    odd = [number for number in range(COUNT) if number // LEAF % 2]
    assert queue.purge(selector="odd = 1") == len(odd)
    assert numbers(queue) == sorted({*range(COUNT)} - {*odd})


def test_what_finds_no_room_says_how_far_it_came(lasting: Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies in a queue that is not durable stay in the memory: when that is full, the error counts them."""
    monkeypatch.setattr(patience, "PATIENCE_NS", 200_000_000)
    queue = filled(lasting)
    is_larger_than_the_memory(queue)
    target = lasting.connection.queue("t")
    with pytest.raises(shmbroker.OutOfMemory, match=r"; ([0-9]+) messages were copied") as caught:
        queue.copy(target)
    assert f"; {len(target)} messages were copied" in str(caught.value)
    assert numbers(target) == [*range(len(target))]
    assert len(target) > KEPT


# ---- what ends many messages that go to a dead-letter queue ----


def test_more_than_the_memory_expires(lasting: Lasting) -> None:
    """The dead letters go on while the command runs, and leave the memory where they come to; nothing is stuck."""
    letters = lasting.connection.queue("dead", durable=True)
    queue = filled(lasting, dead_letter_exchange="", dead_letter_routing_key="dead")
    is_larger_than_the_memory(queue)
    assert queue.expire() == COUNT
    with pytest.raises(standard_queue.Empty):
        queue.get_nowait()
    eventually(lambda: len(letters) == COUNT, "the dead letters")
    assert numbers(letters) == [*range(COUNT)]
    assert_counts(queue, message_count=0, dead_lettered=COUNT)


def test_a_consumer_rejects_more_than_the_memory(lasting: Lasting) -> None:
    """It loads no faster than the dead letters go on."""
    letters = lasting.connection.queue("dead", durable=True)
    queue = filled(lasting, dead_letter_exchange="", dead_letter_routing_key="dead")
    is_larger_than_the_memory(queue)
    for number in range(COUNT):
        message = queue.get(timeout=60)
        assert int(bytes(message)[:8]) == number
        message.reject()
    eventually(lambda: len(letters) == COUNT, "the dead letters")
    assert numbers(letters) == [*range(COUNT)]


def test_a_limit_sends_more_than_the_memory_to_a_dead_letter_queue(lasting: Lasting) -> None:
    """The evicted messages go on while the limit is enforced, by the caller and by the storekeeper."""
    letters = lasting.connection.queue("dead", durable=True)
    queue = filled(lasting, dead_letter_exchange="", dead_letter_routing_key="dead")
    is_larger_than_the_memory(queue)
    queue.configure(max_length=KEPT, overflow="drop-head", trim=True)
    assert len(queue) == KEPT
    eventually(lambda: len(letters) == COUNT - KEPT, "the dead letters")
    assert sorted(numbers(letters)) == [*range(COUNT - KEPT)]
    assert numbers(queue) == [*range(COUNT - KEPT, COUNT)]


# ---- limits ----


@pytest.mark.parametrize(
    "limits",
    [
        {"max_length": KEPT, "overflow": "drop-head"},
        {"max_bytes": KEPT * SIZE, "overflow": "drop-head"},
        {"ring_size": KEPT},
    ],
    ids=lambda limits: next(iter(limits)),
)
def test_a_trim_removes_what_is_not_in_the_memory(lasting: Lasting, limits: dict[str, object]) -> None:
    """When the call returns, the limit holds: the newest messages are there."""
    queue = filled(lasting)
    is_larger_than_the_memory(queue)
    with lasting.keeper_stopped():
        queue.configure(trim=True, **limits)
        assert queue.statistics().ready == KEPT
    assert numbers(queue) == [*range(COUNT - KEPT, COUNT)]
    assert_balanced(queue)


@pytest.mark.parametrize(
    "limits", [{"max_length": KEPT}, {"max_bytes": KEPT * SIZE}], ids=lambda limits: next(iter(limits))
)
def test_a_limit_holds_without_a_consumer(lasting: Lasting, limits: dict[str, int]) -> None:
    """The storekeeper loads what exceeds the limit, and evicts it: no call on the queue is needed."""
    queue = filled(lasting)
    is_larger_than_the_memory(queue)
    queue.configure(overflow="drop-head", **limits)
    eventually(lambda: queue.statistics().ready == KEPT, "a queue that keeps its limit")
    assert numbers(queue) == [*range(COUNT - KEPT, COUNT)]


def test_a_ring_that_is_not_trimmed_keeps_its_messages(lasting: Lasting) -> None:
    """Its bound falls as consumers take messages, also those that come back for them."""
    queue = filled(lasting)
    is_larger_than_the_memory(queue)
    queue.configure(ring_size=KEPT)
    queue.put(b"%08d" % COUNT)
    for number in range(1, 2 * LEAF):
        message = queue.get(timeout=60)
        assert int(bytes(message)[:8]) == number
        message.ack()
    assert_counts(queue, ready=COUNT - 2 * LEAF + 1, replaced=1)
