# SPDX-License-Identifier: Apache-2.0
"""Leases that are read: those with gaps, parts of those that are not whole any more, and what a reader gives back."""

from __future__ import annotations

import array
from typing import TYPE_CHECKING

import pytest
from scenario_support.groups import attached, content, own
from scenario_support.inside import connection_of, session_of
from scenario_support.observing import put_each, texts

import shmbroker
from shmbroker import exceptions
from shmbroker._core.queue import CoreQueue
from shmbroker.columns import Columns
from shmbroker.leasing.group_state import Lease, look

if TYPE_CHECKING:
    from collections.abc import Callable


def by_column(group: shmbroker.Group, *span: int | None, rows: int = 2, room: int = 100) -> str:
    """The bodies of lease 1, some rows at a time, in so much room for each time."""
    found, more = "", True
    with group.by_column(1, *span) as source:  # type: ignore[arg-type]
        while more:
            columns, bodies, ends = Columns(), bytearray(room), array.array("i", [0] * (rows + 1))
            columns.set_text("body", ends, bodies)
            count, more = source.fill(columns, rows)
            assert 0 <= count <= rows
            found += bodies[: ends[count]].decode()
    return found


def by_place(group: shmbroker.Group, *span: int | None) -> str:
    """The sequences of lease 1."""
    return "".join(str(message.sequence) for message, _ in group.places(1, *span))  # type: ignore[arg-type]


def beginning(group: shmbroker.Group) -> str:
    """The first body of lease 1, from a reader who does not go on."""
    reading = group.messages(1)
    first = bytes(next(reading)).decode()
    del reading
    return first


@pytest.fixture
def with_gaps(connection: shmbroker.Connection, queue: shmbroker.Queue) -> shmbroker.Group:
    """A group whose lease is BCD: something took A out of the queue that it filled."""
    put_each(queue, "ABCD")
    group = attached(connection)
    state = look(session_of(connection), "g")
    assert state is not None
    filling = connection.queue(state.filling, passive=True)
    queue.move(filling, limit=1)
    filling.get(auto_ack=True)
    assert group.lease(0) == 1
    state = look(session_of(connection), "g")
    assert state is not None
    assert state.leases == (Lease(filling.name, 3, 3, dense=False),)
    return group


def without(connection: shmbroker.Connection, index: int) -> None:
    """Somebody takes a message out of lease 1."""
    held = connection.queue(own(connection, "amq.lease.g.1.")[0], passive=True).get_many(index + 1)
    held[index].ack()
    for message in reversed(held[:index]):
        message.nack()


@pytest.mark.parametrize(
    ("span", "expected"),
    [((0,), "BCD"), ((1,), "CD"), ((2,), "D"), ((0, 2), "BC"), ((1, 2), "C"), ((0, 0), ""), ((3,), "")],
)
def test_a_lease_with_gaps(with_gaps: shmbroker.Group, span: tuple[int, ...], expected: str) -> None:
    """Messages are counted, not their places, however it is read."""
    assert content(with_gaps, 1, *span) == expected
    assert by_column(with_gaps, *span) == expected
    assert by_column(with_gaps, *span, rows=1) == expected
    assert by_place(with_gaps, *span) == expected.translate(str.maketrans("BCD", "123"))


def test_a_message_of_a_lease_was_not_delivered(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """It has no tag of a delivery, however it is read, and cannot be settled."""
    put_each(queue, "A")
    group = attached(connection)
    group.lease(0)
    for message in (next(group.messages(1)), next(group.places(1))[0]):
        assert (message.delivery_tag, message.queue) == (0, "q")
        for settle in (message.ack, message.nack, message.reject):
            with pytest.raises(exceptions.MessageSettled):
                settle()


@pytest.mark.parametrize("key", [None, "key"])
@pytest.mark.parametrize("length", [1, 3, 100_000])
def test_a_message_whose_place_is_told_has_no_body(
    connection: shmbroker.Connection, queue: shmbroker.Queue, length: int, key: str | None
) -> None:
    """It knows how long that is; the body is read at its place. Its key and its properties are not taken for a body."""
    queue.put(bytes(length), key=key, headers=None if key is None else {"a": 1})
    group = attached(connection)
    group.lease(0)
    [(message, place)] = group.places(1)
    assert (len(message), place.length) == (length, length)
    for read in (lambda: message.body, lambda: bytes(message)):
        with pytest.raises(exceptions.MessageSettled):
            read()


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_the_parts_of_a_lease_that_are_whole_are_read(
    connection: shmbroker.Connection, queue: shmbroker.Queue, missing: int
) -> None:
    """Those who read other parts of it are not told that a message is missing; who reads that one is."""
    put_each(queue, "ABC")
    group = attached(connection)
    group.lease(0)
    without(connection, missing)
    reads: list[Callable[..., str]] = [content_of_first, by_column]
    for read in reads:
        assert [read(group, at, at + 1) for at in range(3) if at != missing] == [
            body for at, body in enumerate("ABC") if at != missing
        ]
        with pytest.raises(exceptions.LeaseNotFound, match="or a part of it is gone"):
            read(group, missing, missing + 1)
        with pytest.raises(exceptions.LeaseNotFound, match="or a part of it is gone"):
            read(group)


def content_of_first(group: shmbroker.Group, *span: int | None) -> str:
    """The bodies of lease 1, one message at a time."""
    return content(group, 1, *span)


def test_a_lease_with_gaps_that_lacks_more(connection: shmbroker.Connection, with_gaps: shmbroker.Group) -> None:
    """It ends too early, which is an error for who reads its end; also by column, where that begins."""
    without(connection, 0)
    assert content(with_gaps, 1, 0, 2) == by_column(with_gaps, 0, 2) == "CD"
    with pytest.raises(exceptions.LeaseNotFound, match="gone"):
        list(with_gaps.messages(1))
    with pytest.raises(exceptions.LeaseNotFound, match="gone"):
        by_column(with_gaps)
    with pytest.raises(exceptions.LeaseNotFound, match="gone"), with_gaps.by_column(1, 3):
        pass


@pytest.mark.parametrize("gaps", [False, True])
def test_rows_that_find_no_room_are_the_next(
    connection: shmbroker.Connection, queue: shmbroker.Queue, with_gaps: shmbroker.Group, *, gaps: bool
) -> None:
    """So many as have room are filled, and there are more."""
    if not gaps:
        with_gaps.release()
        queue.purge()
        put_each(queue, "BCD")
        attached(connection).lease(0)
    assert by_column(with_gaps, rows=3, room=2) == "BCD"
    with with_gaps.by_column(1) as source:
        columns, bodies, ends = Columns(), bytearray(2), array.array("i", [0] * 4)
        columns.set_text("body", ends, bodies)
        assert source.fill(columns, 3) == (2, True)
        assert source.fill(columns, 0) == (0, True)
        assert source.fill(columns, 3) == (1, False)
        assert bodies[:1] == b"D"
        assert source.fill(columns, 3) == (0, False)


def test_what_is_said_of_a_lease_that_is_gone(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Its number, its length and its queue; before it is read, and while it is."""
    put_each(queue, "AB")
    group = attached(connection)
    group.lease(0)
    [name] = own(connection, "amq.lease.g.1.")
    reading = group.messages(1)
    assert bytes(next(reading)) == b"A"
    connection.queue(name, passive=True).delete()
    text = f"NOT_FOUND - lease 1 (queue '{name}', 2 messages) is gone"
    for read in (lambda: next(reading), lambda: group.messages(1), lambda: group.places(1)):
        with pytest.raises(exceptions.LeaseNotFound) as missing:
            read()
        assert (missing.value.code, missing.value.text) == (404, text)
    with pytest.raises(exceptions.LeaseNotFound) as missing, group.by_column(1):
        pass
    assert missing.value.text == text


@pytest.mark.parametrize("read", [lambda group: list(group.messages(1)), by_place, by_column, beginning])
def test_a_reader_gives_its_handle_back(
    connection: shmbroker.Connection,
    queue: shmbroker.Queue,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[shmbroker.Group], object],
) -> None:
    """When it has read, whatever of it lives on: else a lease that was acknowledged would stay in memory."""
    put_each(queue, "AB")
    group, left, leave = attached(connection), [], CoreQueue.leave
    group.lease(0)

    def noted(core: CoreQueue) -> bool:
        gone = leave(core)
        left.append((core.name, gone))
        return gone

    monkeypatch.setattr(CoreQueue, "leave", noted)
    kept = read(group)
    assert left == [(own(connection, "amq.lease.g.1.")[0], True)]
    assert kept


def test_a_reader_whose_connection_closes_ends(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """With the error of a closed connection, if it goes on; else with none."""
    put_each(queue, "AB")
    group = attached(connection_of(queue))
    group.lease(0)
    with broker.connect() as closing:
        reader = shmbroker.Group(closing, "q", "g")
        reading = reader.messages(1)
        assert texts([next(reading)]) == ["A"]
        with reader.by_column(1):
            closing.close()
    with pytest.raises(exceptions.ConnectionClosed):
        next(reading)
