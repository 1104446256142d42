# SPDX-License-Identifier: Apache-2.0
"""put_many where not all bodies go in one call of the core."""

from __future__ import annotations

from queue import Full
from typing import Any

import pytest
from scenario_support.observing import assert_counts, listing

import shmbroker
from shmbroker._core import native
from shmbroker.exceptions import NotFound

KINDS: dict[str, Any] = {"bytes": bytes, "bytearray": bytearray, "memoryview": memoryview}


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_as_find_room(connection: shmbroker.Connection, kind: str) -> None:
    """The first ones, in order; their number is returned, and none at all is an error."""
    queue = connection.queue("full", max_length=3)
    bodies = [KINDS[kind](body) for body in (b"A", b"B", b"C", b"D", b"E")]
    assert queue.put_many(bodies, timeout=0) == 3
    assert listing(queue) == ["A", "B", "C"]
    with pytest.raises(Full, match="queue 'full' is full: 3 messages are ready"):
        queue.put_many(bodies, timeout=0)
    queue.get(auto_ack=True)
    assert queue.put_many(bodies, timeout=0) == 1
    assert listing(queue) == ["B", "C", "A"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_has_the_options(queue: shmbroker.Queue, kind: str) -> None:
    """Key, priority and headers are kept with every message."""
    assert queue.put_many([KINDS[kind](body) for body in (b"A", b"B")], key="k", priority=3, headers={"a": 1}) == 2
    found = [(bytes(one), one.key, one.priority, one.headers) for one in queue.get_many(5)]
    assert found == [(b"A", "k", 3, {"a": 1}), (b"B", "k", 3, {"a": 1})]


def test_bodies_of_several_kinds(queue: shmbroker.Queue) -> None:
    """A view with gaps among them is put as what it shows."""
    assert queue.put_many([b"A", memoryview(b"b.c.")[::2], bytearray(b"D"), b"E"]) == 4
    assert listing(queue) == ["A", "bc", "D", "E"]


def test_short_bodies_before_long_ones(connection: shmbroker.Connection) -> None:
    """What is too much to be copied in one go goes in several, and nothing twice."""
    queue = connection.queue("full", max_length=300)
    bodies = [b"%03d" % number for number in range(256)] + [
        b"%03d" % number + bytes(70_000) for number in range(256, 303)
    ]
    assert queue.put_many(bodies, timeout=0) == 300
    assert [bytes(message)[:3] for message in queue.browse()] == [b"%03d" % number for number in range(300)]
    assert_counts(queue, added=300)


def test_where_memory_has_to_be_mapped_in_between(queue: Any) -> None:  # noqa: ANN401 - its parts
    """What was put before that is not put again."""
    real = queue._put_many  # noqa: SLF001 - its own parts

    def put_one(bodies: tuple[bytes, ...], first: int, options: int, drop: bool) -> int:  # noqa: FBT001 - as the core's
        done: int = real(bodies[: first + 1], first, options, drop)
        return done | (native.GROW << 32 if first + 1 < len(bodies) else 0)

    queue._put_many = put_one  # noqa: SLF001 - its own parts
    assert queue.put_many([b"A", b"B", b"C"]) == 3
    assert listing(queue) == ["A", "B", "C"]


def test_what_can_never_fit_among_them(connection: shmbroker.Connection) -> None:
    """What is before it is put; alone or first it is an error."""
    queue = connection.queue("q", max_bytes=10)
    for make in KINDS.values():
        assert queue.put_many([make(b"A"), make(bytes(11)), make(b"B")], timeout=0) == 1
        with pytest.raises(shmbroker.NeverFits, match="a body of 11 bytes can never fit max_bytes=10"):
            queue.put_many([make(bytes(11)), make(b"B")], timeout=0)
        assert queue.purge() == 1


def test_a_deleted_queue_gets_none(connection: shmbroker.Connection) -> None:
    """It is an error, whatever was put before."""
    queue = connection.queue("q")
    queue.delete()
    for make in KINDS.values():
        with pytest.raises(NotFound, match="queue 'q'"):
            queue.put_many([make(b"A"), make(b"B")])


def test_the_connection_knows_of_a_call_that_drops_the_gil(queue: Any) -> None:  # noqa: ANN401 - its parts
    """Short bodies go without; for long ones the call is counted, so that closing the connection waits for its end."""
    queue.put(b"x")  # the broker has memory for messages then
    seen: list[tuple[int, bool, int]] = []
    real, connection = queue._put_many, queue._core_connection  # noqa: SLF001 - its own parts

    def put_many(bodies: tuple[bytes, ...], first: int, options: int, drop: bool) -> int:  # noqa: FBT001 - as the core's
        seen.append((first, drop, connection.calls))
        found: int = real(bodies, first, options, drop)
        return found

    queue._put_many = put_many  # noqa: SLF001 - its own parts
    assert queue.put_many([b"A", b"B"]) == 2
    assert queue.put_many([bytes(200_000)] * 2, timeout=0) == 2
    assert queue.put_many([bytearray(b"C"), bytearray(b"D")], timeout=0) == 2
    assert seen == [(0, False, 0), (0, False, 0), (0, True, 1), (0, False, 0), (0, True, 1)]
    assert connection.calls == 0
    assert len(queue) == 7
