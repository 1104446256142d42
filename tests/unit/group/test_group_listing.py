# SPDX-License-Identifier: Apache-2.0
"""The list of a broker's groups, and whether their users are there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from scenario_support.groups import attached
from scenario_support.inside import core_of, session_of
from scenario_support.observing import put_each

import shmbroker
from shmbroker._system_queues import queues
from shmbroker.leasing import group_state

if TYPE_CHECKING:
    from shmbroker._system_queues.register import Register


def kept(connection: shmbroker.Connection) -> list[tuple[str, int, int, int]]:
    """Of each group: its name, its leases, its messages and their bytes."""
    return [(one.name, one.leases, one.messages, one.bytes) for one in shmbroker.groups(connection)]


def test_what_a_group_keeps_is_counted(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """What it leased, and what its users began to lease; not what was acknowledged."""
    put_each(queue, ["A", "BB", "CCC", "DDDD", "EEEEE"])
    earlier = attached(other)
    earlier.lease(0, max_messages=1)
    earlier.lease(1, max_messages=1)
    earlier.ack(1)
    first = group_state.look(session_of(connection), "g")
    assert first is not None
    stray = connection.queue(first.filling, passive=True)
    queue.move(stray, limit=1)
    assert kept(connection) == [("g", 1, 2, 5)]
    attached(connection)
    second = group_state.look(session_of(connection), "g")
    assert second is not None
    queue.move(connection.queue(second.filling, passive=True), limit=1)
    assert kept(connection) == [("g", 1, 3, 9)]
    stray.delete()
    assert kept(connection) == [("g", 1, 2, 6)]
    [one] = shmbroker.groups(connection)
    assert (one.queue, one.acked, one.pid) == ("q", 1, os.getpid())


def test_messages_of_a_queue_that_takes_the_place_of_a_group_are_not_counted(
    connection: shmbroker.Connection, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue that a user began to fill may be deleted while the groups are listed, and its place be another's."""
    put_each(queue, "AB")
    attached(connection)
    core = core_of(connection)
    monkeypatch.setattr(core, "queue_slot", lambda _: core_of(queue).slot)
    assert kept(connection) == [("g", 0, 0, 0)]


def test_groups_are_listed_once_and_by_name(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Also where a queue has the name of a group."""
    connection.queue("h")
    put_each(queue, "A")
    for name in ("q", "h", "g"):
        attached(connection, name)
    assert kept(connection) == [("g", 0, 0, 0), ("h", 0, 0, 0), ("q", 0, 0, 0)]


def test_a_released_group_is_listed_for_what_did_not_come_back(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """A user who was stopped in the middle of a move may have a message yet; else it is not listed."""
    put_each(queue, "AB")
    attached(other)
    first = group_state.look(session_of(connection), "g")
    assert first is not None
    group = attached(connection)
    assert kept(connection) == [("g", 0, 0, 0)]
    group.release()
    assert kept(connection) == []
    queue.move(connection.queue(first.filling, passive=True), limit=1)
    assert kept(connection) == [("g", 0, 1, 1)]
    [one] = shmbroker.groups(connection)
    assert (one.pid, one.acked) == (0, 0)


def test_a_group_that_is_made_just_now_is_not_listed(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Its register is there, and says nothing yet."""
    queues.ensure(session_of(connection), "amq.group.h")
    assert kept(connection) == []
    assert shmbroker.Group(connection, queue, "h").leased == 0


@pytest.mark.parametrize("moment", ["before it is opened", "before it is read"])
def test_a_group_that_ends_while_groups_are_listed_is_left_out(
    connection: shmbroker.Connection, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The others are listed."""
    put_each(queue, "A")
    going = attached(connection)
    attached(connection, "h")
    opened = group_state.opened

    def meanwhile(connection: shmbroker.Connection, name: str) -> Register | None:
        register = None if moment == "before it is opened" else opened(connection, name)
        monkeypatch.setattr(group_state, "opened", opened)
        going.release()
        return opened(connection, name) if register is None else register

    monkeypatch.setattr(group_state, "opened", meanwhile)
    assert kept(connection) == [("h", 0, 0, 0)]


def test_a_user_is_known_by_its_connection(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Another one of the same process may go."""
    with broker.connect() as stays:
        with broker.connect() as goes:
            tokens = [group_state.new_token(session_of(user)) for user in (stays, goes)]
            assert [group_state.process_of(session_of(connection), token) for token in tokens] == [os.getpid()] * 2
        assert [group_state.process_of(session_of(connection), token) for token in tokens] == [os.getpid(), 0]
        memory, number, pid, rest = tokens[0].split("-")
        assert group_state.process_of(session_of(connection), f"{memory}-{number}-{int(pid) + 1}-{rest}") == 0
        assert group_state.process_of(session_of(connection), f"{int(memory, 16) + 1:x}-{number}-{pid}-{rest}") == 0
