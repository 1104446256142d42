# SPDX-License-Identifier: Apache-2.0
"""Groups of which something is gone or full: a register, a queue of a lease, memory, room in their queue."""

from __future__ import annotations

import queue as standard
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.groups import attached, content, own
from scenario_support.inside import core_of, session_of
from scenario_support.observing import listing, put_each

import shmbroker
from shmbroker import exceptions
from shmbroker._core.queue import KEEPS
from shmbroker._system_queues import queues
from shmbroker._system_queues.register import Register
from shmbroker.leasing.group_state import look

if TYPE_CHECKING:
    from collections.abc import Callable


def delete(connection: shmbroker.Connection, prefix: str) -> None:
    """Deletes the one queue of that prefix, as an operator may."""
    [name] = own(connection, prefix)
    connection.queue(name, passive=True).delete()


def filling(connection: shmbroker.Connection) -> str:
    """The queue that the user of group g fills."""
    state = look(session_of(connection), "g")
    assert state is not None
    return state.filling


def full(*_: object, **__: object) -> Any:  # noqa: ANN401
    """A call that finds no memory."""
    text = "none is left"
    raise exceptions.OutOfMemory(text)


@pytest.fixture
def none_to_fill(
    connection: shmbroker.Connection, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> shmbroker.Group:
    """A group that has leased A, and found no memory then for the queue of the next lease."""
    put_each(queue, "A")
    group = attached(connection)
    with monkeypatch.context() as patch:
        patch.setattr(queues, "ensure", full)
        assert group.lease(0) == 1
    assert filling(connection) == ""
    return group


# ---- the register is gone ----


@pytest.mark.parametrize("bodies", ["", "A"])
def test_without_its_register_a_group_is_released(
    connection: shmbroker.Connection, queue: shmbroker.Queue, bodies: str
) -> None:
    """Its user is told, with something to lease and without; nothing but what it had is left."""
    group = attached(connection)
    put_each(queue, bodies)
    before = own(connection, "amq.lease.")
    delete(connection, "amq.group.")
    with pytest.raises(exceptions.GroupInUse, match="was released"):
        group.lease(0)
    assert own(connection) == before
    with pytest.raises(exceptions.GroupInUse, match="was released"):
        group.ack(0)


@pytest.mark.parametrize("call", [lambda group: group.lease(0), lambda group: group.ack(1), lambda group: group.begun])
def test_without_its_register_a_group_whose_change_was_interrupted_is_released(
    connection: shmbroker.Connection,
    queue: shmbroker.Queue,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[shmbroker.Group], object],
) -> None:
    """Its user is told the same."""
    put_each(queue, "A")
    group = attached(connection)
    with monkeypatch.context() as patch:
        patch.setattr(Register, "replace", full)
        with pytest.raises(exceptions.OutOfMemory):
            group.lease(0)
    delete(connection, "amq.group.")
    with pytest.raises(exceptions.GroupInUse, match="was released"):
        call(group)


def test_who_did_not_attach_is_told_so_whatever_the_register_says(
    connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """It is not looked at; who attaches the group, or reads it, is told that it is damaged."""
    queues.ensure(session_of(connection), "amq.group.g").put(b"of something else")
    group = shmbroker.Group(connection, queue, "g")
    with pytest.raises(exceptions.GroupInUse, match="is not attached here"):
        group.lease(0)
    for use in (group.attach, lambda: group.leased):
        with pytest.raises(exceptions.CorruptSegment, match="message 0 was not written by the broker"):
            use()


def test_who_reads_a_group_follows_it_through_a_release(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """The next group of that name is seen, also by who did not look in between."""
    put_each(queue, "A")
    reader, late = (shmbroker.Group(other, "q", "g") for _ in range(2))
    group = attached(connection)
    group.lease(0)
    assert (reader.leased, late.leased) == (1, 1)
    group.release()
    assert reader.leased == 0
    group.attach()
    group.lease(0)
    assert (reader.leased, late.leased) == (1, 1)
    assert content(reader, 1) == content(late, 1) == "A"


# ---- queues of leases are gone ----


def test_a_deleted_queue_of_an_earlier_user_is_passed_over(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """By a user who had it open, and by the next who attaches; then it is not named any more."""
    put_each(queue, "ABCD")
    with broker.connect() as earlier:
        attached(earlier)
        name = filling(connection)
        stray = connection.queue(name, passive=True)
        queue.move(stray, limit=2)
        group = attached(connection)
        assert group.begun == 2
        stray.delete()
        assert group.begun == 0
        assert group.lease(0, max_messages=1) == 1
        group.attach()
        assert group.begun == 0
    state = look(session_of(connection), "g")
    assert state is not None
    assert name in state.strays
    assert group.lease(1) == 2
    state = look(session_of(connection), "g")
    assert state is not None
    assert state.strays == ()
    assert (content(group, 1), content(group, 2)) == ("C", "D")


def test_a_release_passes_over_a_lease_that_is_gone(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """The others come back."""
    put_each(queue, "ABC")
    group = attached(connection)
    for number in range(3):
        group.lease(number, max_messages=1)
    delete(connection, "amq.lease.g.2.")
    assert group.release() == 2
    assert listing(queue) == ["A", "C"]
    assert own(connection) == []


# ---- no room, no memory ----


def test_a_release_of_which_one_message_finds_no_room(connection: shmbroker.Connection) -> None:
    """The error names both queues, and how many came back."""
    queue = connection.queue("q", max_length=2)
    put_each(queue, "AB")
    group = attached(connection)
    group.lease(0)
    [name] = own(connection, "amq.lease.g.1.")
    put_each(queue, "X")
    with pytest.raises(standard.Full) as refused:
        group.release()
    assert str(refused.value) == f"queue 'q' is full: 1 messages were returned to it, the others are still in '{name}'"
    assert own(connection, "amq.group.") == ["amq.group.g"]
    queue.purge()
    group.attach()
    assert (group.begun, group.release(), listing(queue)) == (1, 1, ["B"])


def test_without_a_queue_to_fill_nothing_is_written(
    connection: shmbroker.Connection, none_to_fill: shmbroker.Group
) -> None:
    """It is made when there is something to lease: under the number of that lease, and its messages are kept."""
    register = connection.queue("amq.group.g", passive=True)
    before = len(register)
    assert none_to_fill.lease(1) == 1
    assert len(register) == before
    put_each(connection.queue("q"), "B")
    assert none_to_fill.lease(1) == 2
    made = connection.queue(own(connection, "amq.lease.g.2.")[0], passive=True)
    assert listing(made) == ["B"]
    assert core_of(made).settings()[1] & KEEPS


def test_without_a_queue_to_fill_a_group_is_released(
    connection: shmbroker.Connection, queue: shmbroker.Queue, none_to_fill: shmbroker.Group
) -> None:
    """As any other."""
    assert none_to_fill.release() == 1
    assert (listing(queue), own(connection)) == (["A"], [])


def test_without_a_queue_to_fill_a_group_is_taken_over(
    connection: shmbroker.Connection, queue: shmbroker.Queue, none_to_fill: shmbroker.Group
) -> None:
    """By a user who makes one; there is none of the earlier user."""
    put_each(queue, "B")
    none_to_fill.attach()
    state = look(session_of(connection), "g")
    assert state is not None
    assert state.strays == ()
    assert none_to_fill.lease(1) == 2
    assert content(none_to_fill, 2) == "B"


@pytest.mark.parametrize("begun", [0, 1, 2])
def test_a_lease_has_what_was_moved_before_memory_ended(
    connection: shmbroker.Connection, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch, begun: int
) -> None:
    """If nothing was, that is an error, and nothing changes."""
    put_each(queue, "ABC")
    attached(connection)
    move = shmbroker.Queue.move
    assert queue.move(connection.queue(filling(connection), passive=True), limit=begun) == begun
    group = attached(connection)

    def of_strays(source: shmbroker.Queue, to: shmbroker.Queue, **options: Any) -> int:  # noqa: ANN401
        return int(full()) if source is queue else move(source, to, **options)

    with monkeypatch.context() as patch:
        patch.setattr(shmbroker.Queue, "move", of_strays)
        if begun:
            assert group.lease(0) == 1
        else:
            with pytest.raises(exceptions.OutOfMemory):
                group.lease(0)
    assert group.leased == min(begun, 1)
    assert len(queue) == 3 - begun
    assert group.lease(group.leased) == group.leased
    assert "".join(content(group, number) for number in range(1, group.leased + 1)) == "ABC"


@pytest.mark.parametrize("limits", [{"max_messages": 1}, {"max_bytes": 1}, {"max_messages": 2}])
def test_what_was_moved_for_a_lease_that_failed_counts_for_the_next(
    connection: shmbroker.Connection,
    queue: shmbroker.Queue,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, Any],
) -> None:
    """It is in it, although that is more than is wanted now; nothing is added."""
    put_each(queue, "AB")
    group = attached(connection)
    with monkeypatch.context() as patch:
        patch.setattr(Register, "replace", full)
        with pytest.raises(exceptions.OutOfMemory):
            group.lease(0)
    put_each(queue, "C")
    assert group.lease(0, **limits) == 1
    assert content(group, 1) == "AB"
    assert listing(queue) == ["C"]


def test_what_an_earlier_user_began_is_leased_beside_a_paused_queue(
    connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """Of the queue nothing is."""
    put_each(queue, "AB")
    attached(connection)
    queue.move(connection.queue(filling(connection), passive=True), limit=1)
    group = attached(connection)
    queue.pause()
    assert (group.lease(0), group.lease(1)) == (1, 1)
    assert (content(group, 1), listing(queue)) == ("A", ["B"])
