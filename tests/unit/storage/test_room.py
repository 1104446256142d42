# SPDX-License-Identifier: Apache-2.0
"""When messages leave the memory of a broker, and when they are loaded before they are needed."""

from __future__ import annotations

import collections
import contextlib
import queue as standard_queue
from typing import TYPE_CHECKING

import pytest

from shmbroker._core import native, paging
from shmbroker._storekeeper import room
from shmbroker.storage import rows
from tests.unit.storage.conftest import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import shmbroker

LEAF = 64
LANE_END = 1 << 51  # behind all messages of a lane
BODY = bytes(2000)
EVERYTHING = 1 << 52


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Stored]:
    """A broker whose memory has room for about 12 MB of messages."""
    with contextlib.closing(Stored(tmp_path, "32M")) as made:
        yield made


def put_leaves(stored: Stored, queue: shmbroker.Queue, count: int) -> None:
    """Puts so many leaves, and lets the storekeeper take a turn after each."""
    for _ in range(count):
        queue.put_many([BODY] * LEAF, timeout=0)
        stored.keeper.turn()


def absent(queue: shmbroker.Queue) -> list[int]:
    """Which leaves of the queue are not in the memory, by number."""
    found, at = [], 0
    while (one := paging.absent(queue._core, at, EVERYTHING)) is not None:  # noqa: SLF001
        found.append(one.sequence // LEAF)
        at = rows.leaf_of(one.sequence) + LEAF
    return found


def part_in_use(queue: shmbroker.Queue) -> float:
    """The part of the memory for messages that is in use."""
    facts = queue._core.connection.attachment.facts(in_full=True)  # noqa: SLF001
    return min(facts.memory_used, facts.memory_bodies) / (facts.memory_limit - facts.memory_structures)


def test_nothing_leaves_below_the_high_mark(small: Stored) -> None:
    """There is room."""
    queue = small.connection.queue("q", durable=True)
    put_leaves(small, queue, 20)
    assert part_in_use(queue) < room.HIGH
    assert not small.keeper.make_room()
    assert absent(queue) == []


def test_the_newest_leave_above_the_high_mark(small: Stored) -> None:
    """Until the use is below the low mark. Consumers need the first ones next."""
    queue = small.connection.queue("q", durable=True)
    number = 0
    while part_in_use(queue) < room.HIGH:
        put_leaves(small, queue, 1)
        number += 1
    small.keeper.make_room()
    gone = absent(queue)
    assert part_in_use(queue) <= room.LOW
    assert gone == [*range(gone[0], gone[-1] + 1)]
    assert gone[-1] >= number - 2
    assert gone[0] > number // 3


def test_a_queue_keeps_room_for_more(small: Stored) -> None:
    """However much is put, the memory suffices, and everything is there in its order."""
    queue = small.connection.queue("q", durable=True)
    for number in range(200):
        queue.put_many([b"%06d" % (number * LEAF + at) + BODY for at in range(LEAF)], timeout=0)
        small.keeper.turn()
        small.keeper.make_room()
    for number in range(200 * LEAF):
        message = queue.get_nowait()
        assert int(bytes(message)[:6]) == number
        message.ack()
        if number % (4 * LEAF) == 0:
            small.keeper.turn()
            small.keeper.make_room()


def test_what_has_left_stays_away_while_nobody_takes_a_message(small: Stored) -> None:
    """What is loaded ahead takes only room below the low mark, so it need not leave again for what is put next."""
    queue = small.connection.queue("q", durable=True)
    for _ in range(300):
        put_leaves(small, queue, 1)
        small.keeper.make_room()
    store = small.broker.statistics().store
    assert store is not None
    assert store.left > 200
    assert store.came_back < 20


def test_what_comes_next_is_loaded_before_it_is_needed(small: Stored) -> None:
    """When there is room again."""
    queue = small.connection.queue("q", durable=True)
    put_leaves(small, queue, 30)
    small.keeper.settle()
    assert paging.leave(queue._core, LANE_END, 0, 1000).leaves > 0  # noqa: SLF001
    assert absent(queue)[0] == 0
    assert small.keeper.make_room()
    assert absent(queue) == [] or absent(queue)[0] > 0
    while small.keeper.make_room():
        pass
    assert absent(queue) == []


@pytest.mark.parametrize("used", [0.0, 1.0], ids=["empty", "full"])
def test_a_limit_holds_for_what_is_not_in_the_memory(small: Stored, used: float) -> None:
    """What exceeds it comes back and ends, however full the memory is."""
    queue = small.connection.queue("q", durable=True)
    put_leaves(small, queue, 30)
    small.keeper.settle()
    assert paging.leave(queue._core, LANE_END, 0, 1000).leaves > 0  # noqa: SLF001
    queue.configure(max_length=10 * LEAF, overflow="drop-head")
    small.keeper._room._used = used  # noqa: SLF001 - as after a look
    while queue.statistics().ready > 10 * LEAF:
        small.keeper.turn()
        assert small.keeper.make_room()
    assert [message.sequence for message in queue.browse()] == [*range(20 * LEAF, 30 * LEAF)]


def test_a_limit_that_holds_evicts_nothing(small: Stored) -> None:
    """What comes next is loaded before it is needed, as for any queue."""
    queue = small.connection.queue("q", durable=True)
    put_leaves(small, queue, 30)
    small.keeper.settle()
    assert paging.leave(queue._core, LANE_END, 0, 1000).leaves > 0  # noqa: SLF001
    queue.configure(max_length=30 * LEAF, overflow="drop-head")
    while small.keeper.make_room():
        pass
    assert absent(queue) == []
    assert queue.statistics().dropped == 0


MANY = 150 * LEAF


@pytest.mark.parametrize(
    "limits",
    [{"max_length": MANY}, {"max_bytes": MANY * len(BODY)}, {"ring_size": MANY}],
    ids=lambda limits: next(iter(limits)),
)
def test_a_queue_that_got_a_limit_begins_again(small: Stored, limits: dict[str, int]) -> None:
    """In the same memory, which has no room for all of its messages. The limit holds then."""
    queue = small.connection.queue("q", durable=True)
    for _ in range(MANY // LEAF):
        put_leaves(small, queue, 1)
        small.keeper.make_room()
    queue.configure(**limits)
    small.keeper.turn()
    small.restart()
    queue = small.connection.queue("q", passive=True)
    assert queue.statistics().ready == MANY
    assert len(absent(queue)) > MANY // LEAF // 2
    if "ring_size" in limits:
        queue.put(b"one more", timeout=0)
        small.keeper.turn()
        small.keeper.make_room()
        assert queue.statistics().ready == MANY
    else:
        with pytest.raises(standard_queue.Full, match="is full"):
            queue.put_nowait(b"one more")


def test_little_is_loaded_above_the_low_mark(small: Stored) -> None:
    """What others hold takes the room: only what comes first is loaded, and above the high mark nothing."""
    queue = small.connection.queue("q", durable=True)
    put_leaves(small, queue, 10)
    small.keeper.settle()
    assert paging.leave(queue._core, LANE_END, 0, 1000).leaves > 0  # noqa: SLF001
    other = small.connection.queue("other")
    while part_in_use(queue) < room.LOW + 0.02:
        other.put_many([BODY])
    before = len(absent(queue))
    while small.keeper.make_room():
        pass
    assert absent(queue)[0] == room.FEW_AHEAD
    assert len(absent(queue)) == before - room.FEW_AHEAD
    for _ in range(room.FEW_AHEAD * LEAF):
        queue.get_nowait().ack()
    while part_in_use(queue) < room.HIGH:
        other.put_many([BODY])
    assert not small.keeper.make_room()
    assert absent(queue)[0] == room.FEW_AHEAD


def test_a_queue_with_a_message_of_a_commit_that_is_under_way_stays(
    small: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store does not have that message, which looks like any other one as soon as the commit is carried out."""
    queue = small.connection.queue("q", durable=True)
    while part_in_use(queue) < room.HIGH:
        put_leaves(small, queue, 1)
    for one in small.keeper._following.values():  # noqa: SLF001
        monkeypatch.setattr(one, "_staged", {1})
    small.keeper.make_room()
    assert absent(queue) == []


def test_nothing_leaves_after_a_turn_that_failed(small: Stored) -> None:
    """The bits that the turn cleared lead to changes that the store does not have."""
    queue = small.connection.queue("q", durable=True)
    while part_in_use(queue) < room.HIGH:
        put_leaves(small, queue, 1)
    small.keeper._everything = True  # noqa: SLF001 - as after a turn that raised
    assert not small.keeper.make_room()
    assert absent(queue) == []


# ---- large messages ----

MEMORY = 32 << 20


@pytest.mark.parametrize(("size", "in_leaf"), [(MEMORY // 2048 + 1, 63), (300_000, 3), (MEMORY // 9, 1)])
def test_a_queue_of_large_messages_is_larger_than_the_memory(small: Stored, size: int, in_leaf: int) -> None:
    """So many of them lie in a leaf that it can come back; they come in order, also after a restart."""
    queue = small.connection.queue("q", durable=True)
    count = MEMORY // size
    for number in range(count):
        queue.put(number.to_bytes(4, "big") + bytes(size - 4), timeout=0)
        small.keeper.turn()
        small.keeper.make_room()
    assert queue.statistics().ready == count
    assert small.connection.doctor() == []
    small.restart()
    queue = small.connection.queue("q", passive=True)
    leaves: collections.Counter[int] = collections.Counter()
    for number in range(count):
        with queue.get_nowait() as message:
            assert int.from_bytes(bytes(message.body)[:4], "big") == number
            assert len(message.body) == size
            leaves[message.sequence // LEAF] += 1
        small.keeper.turn()
        small.keeper.make_room()
    assert max(leaves.values()) == in_leaf
    assert small.connection.doctor() == []


def test_messages_that_are_large_for_a_smaller_memory_keep_their_places(tmp_path: Path) -> None:
    """A start has a place for each; those that come later lie apart."""
    size = 20_000  # large in 32 MiB, and not in 64 MiB
    with contextlib.closing(Stored(tmp_path)) as stored:
        stored.connection.queue("q", durable=True).put_many([bytes(size)] * (LEAF + 5), timeout=0)
        stored.keeper.turn()
        stored._memory = "32M"  # noqa: SLF001
        stored.restart()
        queue = stored.connection.queue("q", passive=True)
        queue.put_many([bytes(size)] * LEAF, timeout=0)
        places = [message.sequence for message in queue.browse()]
        assert places[: LEAF + 5] == [*range(LEAF + 5)]
        assert places[-1] > 2 * LEAF + 5
        assert stored.connection.doctor() == []


def test_leaves_leave_for_a_message_that_finds_no_memory(small: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the marks as well: who needs a large message wishes for it, and the storekeeper makes room for it."""
    queue = small.connection.queue("q", durable=True)
    while part_in_use(queue) < room.LOW - 0.05:
        put_leaves(small, queue, 1)
    small.keeper.make_room()
    paging.wish(queue._core, 0)  # noqa: SLF001
    with monkeypatch.context() as patched:
        # the reserve of a small memory, and holes between bodies, are not as this test would need them
        patched.setattr(small.keeper._room._loader, "come_back", lambda *_, **__: native.NO_MEMORY)  # noqa: SLF001
        small.keeper.make_room()
    assert absent(queue) == []
    small.keeper.make_room()
    assert part_in_use(queue) <= room.LOW + 0.01 - room.SHORT
    assert 0 not in absent(queue)
    gone = absent(queue)
    small.keeper.make_room()
    later = absent(queue)
    assert len(later) < len(gone)
    assert later == gone[len(gone) - len(later) :]


def test_a_leaf_that_would_fill_the_memory_is_not_loaded_ahead(small: Stored) -> None:
    """It would leave immediately again."""
    queue = small.connection.queue("q", durable=True)
    for _ in range(3):
        queue.put(bytes(MEMORY // 9), timeout=0)
        small.keeper.turn()
    small.keeper.settle()
    assert paging.leave(queue._core, LANE_END, 0, 1000).leaves == 2  # noqa: SLF001
    assert not small.keeper.make_room()
    assert absent(queue) == [0, 1]
