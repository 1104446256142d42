# SPDX-License-Identifier: Apache-2.0
"""How clients share a broker's memory: what bodies take, shares, and the turn of one client."""

from __future__ import annotations

import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of

pytest.importorskip("pyarrow")

import shmbroker
from shmbroker._core import native
from shmbroker._core.journal import topology_lock
from shmbroker.spark.handover import memory_share
from shmbroker.spark.handover.memory_share import MemoryShare, exclusive_turn, taken

if TYPE_CHECKING:
    from collections.abc import Callable

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("size", "takes"),
    [
        (0, 640),
        (1000, 1890),
        (1001, 1891),
        (80 * KIB - 512, 100 * KIB),
        (80 * KIB - 511, 96 * KIB),
        (96 * KIB - 512, 96 * KIB),
        (96 * KIB - 511, 112 * KIB),
        (MIB, 2 * MIB),
        (2 * MIB - 512, 2 * MIB),
        (2 * MIB - 511, 4 * MIB),
        (4 * MIB - 512, 4 * MIB),
        (4 * MIB - 511, 6 * MIB),
    ],
)
def test_what_a_body_takes(size: int, takes: int) -> None:
    """A short one a quarter more, others a slot of the next size; a long one whole chunks."""
    assert taken(size) == takes


def test_a_share_of_the_memory(broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of what there is for each connection, and one more; it is looked at twice a second."""
    now = 0.5
    clock = type("Clock", (), {"monotonic": staticmethod(lambda: now)})
    monkeypatch.setattr(memory_share, "time", clock)
    share = MemoryShare(broker.name)
    assert share.limit == 64 * MIB
    assert share.most_in_one == 8 * MIB
    with broker.connect():
        count = broker.statistics().connection_count
        assert share.bytes == 64 * MIB // (4 * (count + 1))
        with broker.connect():
            now = 0.75
            assert share.bytes == 64 * MIB // (4 * (count + 1))
            now = 1.0
            assert share.bytes == 64 * MIB // (4 * (count + 2))
            now = 1.25
        assert share.bytes == 64 * MIB // (4 * (count + 2))
        now = 1.5
        assert share.bytes == 64 * MIB // (4 * (count + 1))


class Fixed(MemoryShare):
    """A share of so many bytes."""

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def bytes(self) -> int:
        """So many."""
        return self._size


def test_how_many_requests_may_be_under_way() -> None:
    """As many as fit with their answers, beside the two answers that Spark looks at; an answer is like its request."""
    one, two = taken(100 * KIB), taken(300 * KIB)
    for count in range(4):
        exact = Fixed(2 * one + count * (one + one))
        assert exact.window(100 * KIB, 0, 10) == exact.window(100 * KIB, 100 * KIB, 10) == count
        assert exact.window(100 * KIB, 0, 2) == min(count, 2)
        assert Fixed(exact.bytes - 1).window(100 * KIB, 0, 10) == max(0, count - 1)
        exact = Fixed(2 * two + count * (one + two))
        assert exact.window(100 * KIB, 300 * KIB, 10) == count
        assert Fixed(exact.bytes - 1).window(100 * KIB, 300 * KIB, 10) == max(0, count - 1)
    assert Fixed(0).window(100 * KIB, 0, 10) == 0


def test_what_fits_a_share() -> None:
    """Requests, an answer to each of them, and the two that Spark looks at; exactly."""
    sizes = [100 * KIB, 200 * KIB]
    size = taken(100 * KIB) + taken(200 * KIB) + 4 * taken(300 * KIB)
    assert Fixed(size).fits(sizes, 300 * KIB)
    assert not Fixed(size - 1).fits(sizes, 300 * KIB)
    assert Fixed(2 * taken(5)).fits([], 5)
    assert not Fixed(2 * taken(5) - 1).fits([], 5)


class EndedError(Exception):
    """The wait ends."""


def test_a_turn_is_of_one_client(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Another process waits, and looks now and then; with its end the next one has it."""
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise EndedError

    with broker.connect() as other:
        held = other.queue(memory_share.TURN, exclusive=True)
        with pytest.raises(EndedError), exclusive_turn(connection, look):
            pytest.fail("others have the turn")
        assert len(looks) == 3
        held.delete()
    with exclusive_turn(connection, look), broker.connect() as other:
        assert memory_share.TURN in connection.queue_names()
        with pytest.raises(shmbroker.ResourceLocked):
            other.queue(memory_share.TURN)
    assert memory_share.TURN not in connection.queue_names()


def test_a_turn_ends_with_an_error(connection: shmbroker.Connection) -> None:
    """Of what is done in it."""
    for _ in range(2):
        with pytest.raises(EndedError), exclusive_turn(connection, lambda: pytest.fail("nobody has it")):
            raise EndedError
        assert memory_share.TURN not in connection.queue_names()


def test_a_turn_is_given_on(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for another process's tries it again after a moment of 10 to 30 ms."""
    found: list[Any] = [None, None, connection.queue("stands in")]
    monkeypatch.setattr(memory_share, "_try", lambda _connection: found.pop(0))
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(secrets, "randbelow", lambda most: most - 1)
    looks = []
    with exclusive_turn(connection, lambda: looks.append(1)):
        assert found == []
    assert pauses == pytest.approx([0.0298, 0.0298])
    assert len(looks) == 2
    assert connection.queue_names() == []


def test_threads_of_a_process_take_turns(
    connection: shmbroker.Connection, until_true: Callable[[Callable[[], object]], None]
) -> None:
    """One waits for the other, and looks now and then."""
    looks: list[int] = []
    order: list[str] = []

    def second() -> None:
        with exclusive_turn(connection, lambda: looks.append(1)):
            order.append("second")

    with exclusive_turn(connection, lambda: None):
        waiting = threading.Thread(target=second)
        waiting.start()
        until_true(lambda: len(looks) > 2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]
    assert memory_share.TURN not in connection.queue_names()


def test_a_turn_that_cannot_be_ended_at_once(
    broker: shmbroker.Broker, until_true: Callable[[Callable[[], object]], None]
) -> None:
    """A stopped process holds the topology lock: nobody waits for it, and the turn ends when the lock is free."""
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise EndedError

    locked, free = threading.Event(), threading.Event()

    def hold() -> None:
        with broker.connect() as holder, topology_lock(core_of(holder), native.deadline(None), "a test"):
            locked.set()
            free.wait()

    holding = threading.Thread(target=hold)
    with broker.connect(operation_timeout=0) as connection, broker.connect() as other:
        try:
            with exclusive_turn(connection, lambda: pytest.fail("nobody has it")):
                holding.start()
                locked.wait()
            with pytest.raises(EndedError), exclusive_turn(connection, look):
                pytest.fail("it has not ended yet")
        finally:
            free.set()
            holding.join()
        until_true(lambda: memory_share.TURN not in other.queue_names())
        with exclusive_turn(connection, lambda: None):
            assert memory_share.TURN in other.queue_names()
        assert memory_share.TURN not in other.queue_names()


def test_a_turn_that_cannot_be_ended_any_more(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection was closed, and the turn ended with that: nobody tries again."""
    errors: list[Exception] = [
        shmbroker.Timeout("held"),
        shmbroker.Timeout("held"),
        shmbroker.ConnectionClosed(text=""),
    ]

    def fails(_: shmbroker.Queue) -> int:
        raise errors.pop(0)

    monkeypatch.setattr(shmbroker.Queue, "delete", fails)
    with exclusive_turn(connection, lambda: None):
        pass
    (late,) = memory_share._late  # noqa: SLF001
    late.join()
    assert errors == []
