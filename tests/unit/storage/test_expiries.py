# SPDX-License-Identifier: Apache-2.0
"""Messages that expire leave the memory like others, and end when their time has come, wherever they are."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
from shmbroker._core import native, paging
from shmbroker._housekeeper.housekeeper import Housekeeper
from shmbroker._storekeeper import expiries, room
from shmbroker.storage import leaves, rows
from tests.unit.storage.conftest import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shmbroker._storekeeper.following import Following

LEAF = 64
BODY = bytes(2000)
LANE_END = 1 << 51  # behind all messages of a lane
SHORT, LONG = 1.5, 3600.0  # seconds; what expires within one second does not leave


class Lazy(Stored):
    """A broker whose housekeeper a test drives as well, and whose storekeeper loads nothing ahead.

    So what comes back into the memory was loaded because it expired.
    """

    def work_until(self, is_done: Callable[[], bool]) -> None:
        """Let both work until something is so."""
        with contextlib.closing(Housekeeper(self.name)) as housekeeper:
            assert housekeeper.begin()
            while not is_done():
                self.keeper.turn()
                self.keeper.make_room()
                housekeeper._turn()  # noqa: SLF001
                self.keeper.rest(time.monotonic_ns() + 1_000_000)


@pytest.fixture
def lazy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lazy]:
    """A broker with an empty store."""
    monkeypatch.setattr(room.Room, "load_ahead", lambda *_: False)
    with contextlib.closing(Lazy(tmp_path)) as made:
        yield made


def absent(queue: shmbroker.Queue, lane: int = 0) -> list[int]:
    """Which leaves of a lane of the queue are not in the memory, by number."""
    found, at = [], lane << rows.LANE_SHIFT
    while (one := paging.absent(queue._core, at, (lane + 1) << rows.LANE_SHIFT)) is not None:  # noqa: SLF001
        found.append(one.sequence % (1 << rows.LANE_SHIFT) // LEAF)
        at = rows.leaf_of(one.sequence) + LEAF
    return found


def leave(stored: Stored, queue: shmbroker.Queue) -> paging.Left:
    """Let all leaves leave that may, as the storekeeper does."""
    stored.keeper.turn()
    stored.keeper.settle()
    (one,) = (one for one in stored.keeper._following.values() if one.queue.name == queue.name)  # noqa: SLF001
    (lane,) = stored.keeper._core.lanes(one.queue)  # noqa: SLF001
    found = paging.leave(one.queue, one.transients.behind(lane), 0, 1000)
    stored.keeper._expiries.left(one, found.expiring)  # noqa: SLF001
    return found


def test_a_queue_of_messages_that_expire_is_larger_than_the_memory(tmp_path: Path) -> None:
    """They leave, and come back in their order, each with what is left of its life."""
    with contextlib.closing(Stored(tmp_path, "32M")) as small:
        queue = small.connection.queue("q", durable=True)
        for number in range(200):
            queue.put_many([b"%06d" % (number * LEAF + at) + BODY for at in range(LEAF)], ttl=LONG, timeout=0)
            small.keeper.turn()
            small.keeper.make_room()
        assert len(absent(queue)) > 100
        for number in range(200 * LEAF):
            message = queue.get_nowait()
            assert int(bytes(message)[:6]) == number
            assert message.expires_at is not None
            assert LONG / 2 < message.expires_at - time.time() <= LONG
            message.ack()
            if number % (4 * LEAF) == 0:
                small.keeper.turn()
                small.keeper.make_room()
        assert small.connection.doctor() == []


def test_messages_expire_that_are_not_in_the_memory(lazy: Lazy) -> None:
    """The storekeeper loads those that have expired, and only them; the housekeeper ends them."""
    queue = lazy.connection.queue("q", durable=True)
    queue.put_many([BODY] * LEAF, ttl=LONG, timeout=0)
    queue.put_many([BODY] * LEAF, ttl=SHORT, timeout=0)
    queue.put_many([BODY] * LEAF, timeout=0)
    queue.put_many([BODY] * LEAF, ttl=SHORT, timeout=0)
    queue.put(BODY, timeout=0)
    assert [one.sequence // LEAF for one in leave(lazy, queue).expiring] == [3, 1, 0]
    assert absent(queue) == [0, 1, 2, 3]
    lazy.work_until(lambda: queue.statistics().ready == 2 * LEAF + 1)
    assert absent(queue) == [0, 2]
    assert queue.statistics().expired == 2 * LEAF
    assert lazy.connection.doctor() == []


def test_the_messages_of_a_leaf_expire_one_after_the_other(lazy: Lazy) -> None:
    """The leaf may leave again meanwhile; each message ends at its time."""
    queue = lazy.connection.queue("q", durable=True)
    began = time.monotonic()
    queue.put_many([BODY] * (LEAF - 2), ttl=LONG, timeout=0)
    queue.put(BODY, ttl=SHORT, timeout=0)
    queue.put(BODY, ttl=2 * SHORT, timeout=0)
    queue.put(BODY, timeout=0)
    assert leave(lazy, queue).leaves == 1
    lazy.work_until(lambda: queue.statistics().expired == 1)
    assert leave(lazy, queue).leaves == 1
    assert queue.statistics().ready == LEAF
    lazy.work_until(lambda: queue.statistics().expired == 2)
    assert time.monotonic() - began >= 2 * SHORT
    assert leave(lazy, queue).leaves == 1
    assert not lazy.keeper.make_room()


@pytest.mark.parametrize("way", ["restart", "take_over"])
def test_the_next_storekeeper_knows_them(lazy: Lazy, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks into the store, some values in each call: those of several queues, and of other lanes."""
    monkeypatch.setattr(expiries, "_VALUES", 1)
    queue = lazy.connection.queue("q", durable=True, max_priority=3)
    other = lazy.connection.queue("other", durable=True)
    for priority in (0, 2):
        queue.put_many([b""] * (leaves.GROUP + LEAF), priority=priority, timeout=0)
        queue.put_many([b""] * (LEAF + 1), priority=priority, ttl=SHORT, timeout=0)
    other.put_many([b""] * LEAF, ttl=SHORT, timeout=0)
    other.put(b"", timeout=0)
    lazy.keeper.turn()
    lazy.keeper.settle()
    for one in (queue, other):
        for lane in range(5):
            paging.leave(one._core, (lane << rows.LANE_SHIFT) + LANE_END, 0, 1000)  # noqa: SLF001 - nobody learns the timers
    getattr(lazy, way)()
    queue, other = (lazy.connection.queue(name, passive=True) for name in ("q", "other"))
    assert absent(other) == [0]
    lazy.work_until(lambda: other.statistics().ready == 1 and queue.statistics().ready == 2 * (leaves.GROUP + LEAF))
    assert 0 in absent(queue, 1)
    assert 0 in absent(queue, 3)
    assert lazy.connection.doctor() == []


@pytest.mark.parametrize("settings", [{"durable": True}, {"overflow": "page"}], ids=["durable", "page"])
def test_the_next_storekeeper_knows_transient_messages(
    lazy: Lazy, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that had to be written, though they end with the memory."""
    monkeypatch.setattr(room, "BEGIN", 0.0)
    queue = lazy.connection.queue("q", **settings)
    passing = shmbroker.BasicProperties(delivery_mode=1)
    queue.put_many([BODY] * LEAF, properties=passing, timeout=0)
    for _ in range(leaves.GROUP):
        queue.put(b"", properties=passing, timeout=0)
    queue.put_many([BODY] * LEAF, properties=passing, ttl=SHORT, timeout=0)
    queue.put(BODY, timeout=0)
    while leave(lazy, queue).leaves == 0:
        pass
    assert len(absent(queue)) == 2 + leaves.GROUP // LEAF
    lazy.take_over()
    lazy.work_until(lambda: queue.statistics().expired == LEAF)
    assert absent(queue) == [*range(1 + leaves.GROUP // LEAF)]


def test_one_that_expired_in_the_store_goes_where_dead_letters_go(lazy: Lazy) -> None:
    """As one that expired in the memory does."""
    dead = lazy.connection.queue("dead", durable=True)
    queue = lazy.connection.queue("q", durable=True, dead_letter_exchange="", dead_letter_routing_key="dead")
    queue.put_many([b"%d" % number for number in range(LEAF)], ttl=SHORT, timeout=0)
    queue.put(BODY, timeout=0)
    assert leave(lazy, queue).leaves == 1
    lazy.work_until(lambda: dead.statistics().ready == LEAF)
    assert [int(bytes(message)) for message in dead.browse()] == [*range(LEAF)]
    assert queue.statistics().ready == 1


def test_a_get_passes_what_has_expired_in_the_store(lazy: Lazy) -> None:
    """Nobody need wait for the storekeeper."""
    queue = lazy.connection.queue("q", durable=True)
    queue.put_many([BODY] * LEAF, ttl=SHORT, timeout=0)
    queue.put(b"this", timeout=0)
    assert leave(lazy, queue).leaves == 1
    until = time.monotonic() + SHORT
    while time.monotonic() < until:
        lazy.keeper.rest(time.monotonic_ns() + 1_000_000)
    with queue.get_nowait() as message:
        assert bytes(message) == b"this"


def test_those_that_find_no_memory_come_later(lazy: Lazy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storekeeper tries again, and meanwhile does what else there is to do."""
    queue = lazy.connection.queue("q", durable=True)
    queue.put_many([BODY] * 2 * LEAF, ttl=SHORT, timeout=0)
    queue.put(BODY, timeout=0)
    assert leave(lazy, queue).leaves == 2
    later: list[int] = []
    again = lazy.keeper._expiries.again  # noqa: SLF001

    def notes(one: Following, sequence: int) -> None:
        later.append(sequence)
        again(one, sequence)

    monkeypatch.setattr(lazy.keeper._expiries, "again", notes)  # noqa: SLF001
    with monkeypatch.context() as patched:
        patched.setattr(lazy.keeper._room._loader, "come_back", lambda *_, **__: native.NO_MEMORY)  # noqa: SLF001
        lazy.work_until(lambda: len(later) == 2)
    with monkeypatch.context() as patched:
        patched.setattr(room, "HIGH", 0.0)
        lazy.work_until(lambda: len(later) == 4)
    assert later == [0] * 4
    assert absent(queue) == [0, 1]
    lazy.work_until(lambda: queue.statistics().ready == 1)


def test_a_queue_that_is_gone_is_not_looked_at(lazy: Lazy) -> None:
    """What was known of it, or was to be read, is dropped; another queue is not concerned."""
    queues = [lazy.connection.queue(name, durable=True) for name in ("q", "other")]
    for queue in queues:
        queue.put_many([BODY] * LEAF, ttl=LONG, timeout=0)
        queue.put(BODY, timeout=0)
        assert leave(lazy, queue).leaves == 1
    known = lazy.keeper._expiries  # noqa: SLF001
    for one in lazy.keeper._following.values():  # noqa: SLF001
        known.read(one)
    queues[0].delete()
    lazy.keeper.turn()
    assert [group.following.queue.name for group in known._times] == ["other"]  # noqa: SLF001
    assert [group.following.queue.name for *_, group in known._next] == ["other"]  # noqa: SLF001
    assert [one.queue.name for one, _ in known._unread] == ["other"]  # noqa: SLF001
