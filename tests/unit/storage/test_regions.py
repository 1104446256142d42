# SPDX-License-Identifier: Apache-2.0
"""What the statistics of a stored queue say of its memory: bytes by what they are for, hits, misses, the watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shmbroker import QueueMemory
from shmbroker._core import native
from tests.unit.storage.test_paging import LEAF, leave

if TYPE_CHECKING:
    import shmbroker
    from tests.unit.storage.conftest import Stored

SIZE = 10  # bytes of a body
LOADED = 8 * LEAF  # messages that a call loads which needs one of them


def put(queue: shmbroker.Queue, count: int, **options: Any) -> None:  # noqa: ANN401
    """Puts so many messages."""
    queue.put_many([b"x" * SIZE] * count, timeout=0, **options)


def deep(stored: Stored, leaves: int = 20, rest: int = 5) -> shmbroker.Queue:
    """A queue of which all whole leaves have left."""
    queue = stored.connection.queue("q", durable=True)
    put(queue, leaves * LEAF + rest)
    assert leave(stored, queue) == leaves
    return queue


def memory_of(queue: shmbroker.Queue) -> QueueMemory:
    """What the statistics say."""
    found = queue.statistics().memory
    assert found is not None
    return found


def expected(**counts: int | None) -> QueueMemory:
    """So many messages of each kind; the other numbers are 0."""
    sizes = ("direct", "head", "pending", "acquired", "scheduled", "away")
    numbers: dict[str, Any] = dict.fromkeys((*sizes, "hits", "misses"), 0) | {"watermark": None}
    return QueueMemory(**numbers | {name: number * SIZE if name in sizes and number else number
                                    for name, number in counts.items()})  # fmt: skip


def test_a_queue_that_is_not_stored_has_no_such_numbers(stored: Stored) -> None:
    """All its messages are in the memory; the statistics of all queues tell the two apart."""
    put(stored.connection.queue("plain"), 3)
    put(stored.connection.queue("q", durable=True), 3)
    found = {one.name: one.memory for one in stored.connection.queue_statistics()}
    assert found == {"plain": None, "q": expected(head=3)}


def test_what_has_left_is_away(stored: Stored) -> None:
    """The newest messages, which nobody comes to without a load, are pending."""
    queue = deep(stored)
    assert memory_of(queue) == expected(pending=5, away=20 * LEAF, watermark=0)
    assert memory_of(queue).total == 5 * SIZE


def test_what_was_loaded_for_a_get_waits_at_the_head(stored: Stored) -> None:
    """The get missed; those that follow hit, up to the watermark, where the next one misses."""
    queue = deep(stored)
    held = queue.get_nowait()
    loaded = {"pending": 5, "away": 20 * LEAF - LOADED, "watermark": LOADED}
    assert memory_of(queue) == expected(head=LOADED - 1, acquired=1, misses=1, **loaded)
    held.ack()
    for _ in range(LOADED - 1):
        queue.get_nowait().ack()
    assert memory_of(queue) == expected(hits=LOADED - 1, misses=1, **loaded)
    queue.get_nowait().ack()
    assert (memory_of(queue).misses, memory_of(queue).watermark) == (2, 2 * LOADED)


def test_what_a_consumer_takes_next_is_direct(stored: Stored) -> None:
    """Also while it has no credit. When it goes, this stays at the head."""
    queue = deep(stored)
    consumer = queue.consume(prefetch=2)
    assert consumer.get(timeout=60) is not None
    found = memory_of(queue)
    assert (found.direct, found.head, found.acquired) == ((LOADED - 2) * SIZE, 0, 2 * SIZE)
    consumer.close()
    found = memory_of(queue)
    assert (found.direct, found.head, found.acquired) == (0, LOADED * SIZE, 0)


def test_what_a_search_comes_to_is_direct(stored: Stored) -> None:
    """Messages that it has passed stay for others: at the head, as long as no leaf before them has left."""
    queue = stored.connection.queue("q", durable=True)
    put(queue, 3 * LEAF)
    consumer = queue.consume(selector="a = 1", prefetch=1)
    put(queue, 1, headers={"a": 1})
    assert consumer.get(timeout=60) is not None  # its search stands behind this message
    put(queue, 2 * LEAF)
    found = memory_of(queue)
    assert (found.direct, found.head, found.pending) == (2 * LEAF * SIZE, 3 * LEAF * SIZE, 0)
    assert leave(stored, queue, most=1) == 1  # the last whole one: behind the place of the search
    found = memory_of(queue)
    assert found.head == 3 * LEAF * SIZE
    assert found.direct == (LEAF - 1) * SIZE
    assert (found.pending, found.away) == (1 * SIZE, LEAF * SIZE)
    consumer.close()


def test_a_search_behind_what_has_left_has_its_own_direct_ones(stored: Stored) -> None:
    """No leaf between the place of the search and the messages is away, though some before are."""
    queue = stored.connection.queue("q", durable=True)
    put(queue, 3 * LEAF)
    consumer = queue.consume(selector="a = 1", prefetch=1)
    put(queue, 1, headers={"a": 1})
    assert consumer.get(timeout=60) is not None
    assert leave(stored, queue) == 3
    put(queue, 7)
    found = memory_of(queue)
    assert (found.direct, found.head, found.pending, found.acquired) == (7 * SIZE, 0, 0, SIZE)
    assert (found.away, found.watermark) == (3 * LEAF * SIZE, 0)
    consumer.close()
    assert memory_of(queue).pending == 8 * SIZE


def test_delayed_messages_are_scheduled(stored: Stored) -> None:
    """They are in the memory, for nobody yet."""
    queue = stored.connection.queue("q", durable=True)
    put(queue, 3)
    put(queue, 4, delay=3600)
    assert memory_of(queue) == expected(head=3, scheduled=4)


def test_the_numbers_of_a_queue_with_priorities(stored: Stored) -> None:
    """Each priority has messages of its own; the watermark is the first one in the order of delivery."""
    queue = stored.connection.queue("q", durable=True, max_priority=2)
    for priority in range(3):
        put(queue, LEAF + 3, priority=priority)
    lowest = 2 << 52
    for lane in range(3):
        assert leave(stored, queue, lane=lane << 52) == 1
    found = memory_of(queue)
    assert (found.head, found.pending, found.away) == (0, 9 * SIZE, 3 * LEAF * SIZE)
    assert found.watermark == 0
    for _ in range(2 * LEAF + 6):
        queue.get_nowait().ack()
    found = memory_of(queue)
    assert (found.pending, found.away, found.watermark) == (3 * SIZE, LEAF * SIZE, lowest)


def test_a_long_walk_takes_several_steps(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message counts once, and others may use the connection between two steps."""
    count = 1000 * LEAF
    queue = stored.connection.queue("q", durable=True)
    put(queue, count + 5)
    assert leave(stored, queue, ahead=600 * LEAF, most=100) == 100
    steps = []
    walk = native.slow.sb_queue_regions

    class Counted:
        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            return getattr(native.slow, name)

        def sb_queue_regions(self, *given: object) -> bool:
            steps.append(bool(walk(*given)))
            return steps[-1]

    monkeypatch.setattr("shmbroker._core.inspection.slow", Counted())
    assert memory_of(queue) == expected(head=900 * LEAF, pending=5, away=100 * LEAF, watermark=900 * LEAF)
    assert steps == [True, False]


@pytest.mark.parametrize("again", [False, True])
def test_a_walk_ends_with_its_queue(stored: Stored, *, again: bool) -> None:
    """Also if another queue has got the slot meanwhile."""
    queue = stored.connection.queue("q", durable=True)
    put(queue, 600 * LEAF)
    core = queue._core.connection  # noqa: SLF001
    slot, regions = queue._core.slot, native.ffi.new("sb_regions *")  # noqa: SLF001
    assert native.slow.sb_queue_regions(core.handle, slot, regions)
    seen = regions.head
    assert seen > 0
    queue.delete()
    if again:
        core.let_go(at_once=True)
        stored.keeper.turn()  # so that the storekeeper leaves it
        other = stored.connection.queue("other", durable=True)
        put(other, 5)
        assert other._core.slot == slot  # noqa: SLF001
    assert not native.slow.sb_queue_regions(core.handle, slot, regions)
    assert regions.head == seen


def test_a_start_counts_no_hits(stored: Stored) -> None:
    """What was restored without its messages is away; the numbers begin anew."""
    deep(stored)
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    assert memory_of(queue) == expected(pending=5, away=20 * LEAF, watermark=0)


def test_operations_on_many_messages_are_no_misses(stored: Stored) -> None:
    """Only what a get or a consumer had to wait for counts."""
    queue = deep(stored)
    assert len(list(queue.browse())) == 20 * LEAF + 5
    assert leave(stored, queue) == 20
    assert queue.purge() == 20 * LEAF + 5
    assert (memory_of(queue).hits, memory_of(queue).misses) == (0, 0)


def test_a_search_misses_once_for_what_it_takes(stored: Stored) -> None:
    """However many leaves it needs to find it."""
    queue = stored.connection.queue("q", durable=True)
    put(queue, 40 * LEAF)
    put(queue, 1, headers={"a": 1})
    assert leave(stored, queue) == 40
    with queue.consume(selector="a = 1", prefetch=1) as consumer:
        message = consumer.get(timeout=60)
        assert message is not None
        assert (memory_of(queue).hits, memory_of(queue).misses) == (0, 1)
        message.ack()
