# SPDX-License-Identifier: Apache-2.0
"""What a group writes into its register, how long it waits for that, and what it deletes then."""

from __future__ import annotations

from typing import Any

import pytest
from scenario_support.groups import attached, content, own
from scenario_support.inside import core_of, session_of
from scenario_support.observing import listing, put_each

import shmbroker
from shmbroker import exceptions
from shmbroker._core.queue import KEEPS
from shmbroker._system_queues.register import Register
from shmbroker.leasing.group_state import GroupState, Lease, look


def said(connection: shmbroker.Connection) -> GroupState:
    """What the register of group g says."""
    state = look(session_of(connection), "g")
    assert state is not None
    return state


def versions(connection: shmbroker.Connection) -> int:
    """How many were written."""
    return len(connection.queue("amq.group.g", passive=True))


def begin(connection: shmbroker.Connection, queue: shmbroker.Queue, count: int) -> None:
    """Moves some messages, as the user does who has the group and does not come to its lease."""
    assert queue.move(connection.queue(said(connection).filling, passive=True), limit=count) == count


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """How long each version may wait for memory."""
    replace, noted = Register.replace, list[float | None]()

    def note(one: Register, value: dict[str, Any], *, timeout: float | None) -> bool:
        noted.append(timeout)
        return replace(one, value, timeout=timeout)

    monkeypatch.setattr(Register, "replace", note)
    return noted


def test_what_attaching_and_leasing_write(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """Whose the group is, its leases, the queue of the next one, and what earlier users may still go on with."""
    group = attached(connection)
    first = said(connection).owner
    assert said(connection) == GroupState("q", owner=first, filling=f"amq.lease.g.1.{first}")
    put_each(queue, ["AA", "B"])
    group.lease(0)
    leases = (Lease(f"amq.lease.g.1.{first}", 2, 3, dense=True),)
    assert said(connection) == GroupState("q", leases=leases, owner=first, filling=f"amq.lease.g.2.{first}")
    attached(other)
    second = said(connection).owner
    strays = (f"amq.lease.g.2.{first}",)
    assert said(connection) == GroupState(
        "q", leases=leases, owner=second, filling=f"amq.lease.g.2.{second}", strays=strays, past=(first,)
    )
    group.attach()
    third = said(connection).owner
    strays += (f"amq.lease.g.2.{second}",)
    assert said(connection) == GroupState(
        "q", leases=leases, owner=third, filling=f"amq.lease.g.2.{third}", strays=strays, past=(second,)
    )
    group.attach()
    fourth = said(connection).owner
    assert said(connection) == GroupState(
        "q",
        leases=leases,
        owner=fourth,
        filling=f"amq.lease.g.2.{fourth}",
        strays=(*strays, f"amq.lease.g.2.{third}"),
        past=(second,),
    )
    assert len({first, second, third, fourth}) == 4
    group.ack(1)
    assert (said(connection).acked, said(connection).leases, said(connection).done) == (1, (), (leases[0].queue,))
    put_each(queue, "C")
    group.lease(1)
    assert said(connection).done == ()
    assert said(connection).leases == (Lease(f"amq.lease.g.2.{fourth}", 1, 1, dense=True),)


def test_what_users_who_are_gone_began_is_kept_until_it_is_leased(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """Their queue goes when it is empty."""
    put_each(queue, "ABCD")
    with broker.connect() as gone:
        attached(gone)
        stray = said(connection).filling
        begin(gone, queue, 3)
    group = attached(connection)
    assert (said(connection).strays, said(connection).past) == ((stray,), ())
    group.lease(0, max_messages=1)
    assert (said(connection).strays, said(connection).past) == ((stray,), ())
    group.lease(1, max_messages=1)
    assert stray in own(connection)
    group.lease(2)
    assert (said(connection).strays, said(connection).past) == ((), ())
    assert stray not in own(connection)
    assert [content(group, number) for number in (1, 2, 3)] == ["A", "B", "CD"]


def test_the_queue_of_an_earlier_user_who_is_there_stays(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """Although it is empty: that one might still move into it. So long the register names both."""
    put_each(queue, "ABC")
    with broker.connect() as earlier:
        attached(earlier)
        user, stray = said(connection).owner, said(connection).filling
        group = attached(connection)
        group.lease(0, max_messages=1)
        assert (said(connection).strays, said(connection).past) == ((stray,), (user,))
        begin(connection, queue, 1)
        assert stray in own(connection)
    group.lease(1)
    assert (said(connection).strays, said(connection).past) == ((), ())
    assert stray not in own(connection)


def test_all_that_an_earlier_user_took_is_leased(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """Also where nothing is left in the queue."""
    put_each(queue, "AB")
    attached(other)
    begin(other, queue, 2)
    group = attached(connection)
    assert (len(queue), group.begun) == (0, 2)
    assert group.lease(0) == 1
    assert content(group, 1) == "AB"


def test_queues_of_leases_keep_their_messages(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Nothing expires in any of them."""
    put_each(queue, "A")
    attached(connection).lease(0)
    leases = own(connection, "amq.lease.")
    assert len(leases) == 2
    assert all(core_of(connection.queue(name, passive=True)).settings()[1] & KEEPS for name in leases)


def test_how_long_a_version_waits_for_memory(
    connection: shmbroker.Connection, queue: shmbroker.Queue, waits: list[float | None]
) -> None:
    """As long as any operation, but where it can do without, and where it has the topology lock."""
    put_each(queue, "AB")
    group = attached(connection)
    assert waits == [0]
    group.lease(0, max_messages=1)
    assert waits == [0, session_of(connection).operation_timeout]
    group.ack(1)
    assert waits == [0, session_of(connection).operation_timeout, 0]
    group.release()
    assert waits == [0, session_of(connection).operation_timeout, 0, session_of(connection).operation_timeout]


def test_without_memory_what_is_acknowledged_goes_first(
    connection: shmbroker.Connection, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the version is tried under the lock, without a wait; then it waits for memory, as long as any operation."""
    put_each(queue, "AB")
    group, replace, seen = attached(connection), Register.replace, []
    group.lease(0, max_messages=1)
    group.lease(1)

    def full(one: Register, value: dict[str, Any], *, timeout: float | None) -> bool:
        seen.append((timeout, own(connection, "amq.lease.")))
        if len(seen) < 3:
            text = "none is left"
            raise exceptions.OutOfMemory(text)
        return replace(one, value, timeout=timeout)

    before = own(connection, "amq.lease.")
    monkeypatch.setattr(Register, "replace", full)
    assert group.ack(2) == 2
    timeout = session_of(connection).operation_timeout
    assert seen == [(0, before), (0, before[2:]), (timeout, before[2:])]
    assert (group.acked, said(connection).acked) == (2, 2)


def test_what_changes_nothing_writes_nothing(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """To acknowledge again, and to lease what is leased."""
    put_each(queue, "A")
    group = attached(connection)
    group.lease(0)
    before = versions(connection)
    assert (group.ack(0), group.lease(0)) == (0, 1)
    assert versions(connection) == before
    group.ack(1)
    assert group.ack(1) == 0
    assert versions(connection) == before + 1


def test_a_new_group_sets_memory_aside(connection: shmbroker.Connection) -> None:
    """For versions that are written when there is none: before its first one."""
    connection.queue("q")
    attached(connection)
    made = versions(connection)
    assert made > 1
    attached(connection)
    assert versions(connection) == made + 1


def test_a_fenced_lease_leaves_no_queue(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """None but those that the register names."""
    put_each(queue, "A")
    old = attached(connection)
    attached(other)
    before = own(connection)
    with pytest.raises(exceptions.GroupInUse):
        old.lease(0)
    assert own(connection) == before
    assert listing(queue) == []


def test_a_release_keeps_earlier_users_in_mind(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """As long as one of them is there, and the one who released it as well: whoever attaches reckons with them."""
    put_each(queue, "A")
    attached(connection)
    first = said(connection)
    group = attached(other)
    group.lease(0)
    second = said(connection)
    assert group.release() == 1
    strays = (second.leases[0].queue, first.filling, second.filling)
    assert said(connection) == GroupState("q", strays=strays, past=(first.owner, second.owner))
    again = attached(connection)
    assert said(connection).past == (first.owner, second.owner)
    assert again.lease(0) == 1
    assert said(connection).strays == strays
