# SPDX-License-Identifier: Apache-2.0
"""Consumer groups: leases that stay what they are until they are acknowledged, whoever comes and goes."""

from __future__ import annotations

import contextlib
import queue as standard
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.groups import attached, content, own
from scenario_support.inside import connection_of
from scenario_support.observing import listing, put_each
from scenario_support.waiting import eventually

import shmbroker
import shmbroker.testing
from shmbroker import exceptions
from shmbroker._amqp.names import GROUP
from shmbroker._system_queues import queues, register

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_last_who_attaches_has_it(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """With its leases; the earlier user's next change is refused, and happens not at all."""
    put_each(queue, "ABC")
    old = attached(connection)
    old.lease(0, max_messages=1)
    new = attached(other)
    assert (new.acked, new.leased) == (0, 1)
    for change in (lambda: old.ack(1), lambda: old.lease(1), old.release, lambda: old.ack(1)):
        with pytest.raises(exceptions.GroupInUse, match="taken over by process"):
            change()
    assert new.lease(0) == 1
    assert content(new, 1) == content(old, 1) == "A"
    old.attach()
    assert old.ack(1) == 1
    with pytest.raises(exceptions.GroupInUse):
        new.lease(1)
    assert old.lease(1) == 2
    assert content(old, 2) == "BC"


def test_who_has_nothing_to_lease_is_told_as_well(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """That another one took the group, or released it: it need not wait until there is something to move."""
    old, latest = attached(connection), attached(connection)
    with pytest.raises(exceptions.GroupInUse, match="taken over by process"):
        old.lease(0)
    assert latest.lease(0) == 0
    put_each(queue, "A")
    assert latest.lease(0) == 1
    latest.ack(1)
    assert [latest.lease(1) for _ in range(3)] == [1, 1, 1]
    new = attached(other)
    assert new.lease(1) == 1
    with pytest.raises(exceptions.GroupInUse, match="taken over by process"):
        latest.lease(1)
    latest.attach()
    new.attach()
    new.release()
    with pytest.raises(exceptions.GroupInUse, match="released"):
        latest.lease(1)


def test_who_polls_a_paused_queue_is_told_as_well(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """That another one took the group: before it moves anything, although there are messages."""
    put_each(queue, "A")
    old, new = attached(connection), attached(other)
    queue.pause()
    assert new.lease(0) == 0
    with pytest.raises(exceptions.GroupInUse, match="taken over by process"):
        old.lease(0)
    queue.resume()
    with pytest.raises(exceptions.GroupInUse, match="taken over by process"):
        old.lease(0)
    assert len(queue) == 1
    assert new.lease(0) == 1


def test_what_a_fenced_user_moved_is_leased_by_the_next(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """First, and also if it moves on after it lost the group: its queue is in nobody's lease."""
    put_each(queue, "ABC")
    old, new = attached(connection), shmbroker.Group(other, "q", "g")
    assert old._filling is not None  # noqa: SLF001 - the state of a user that was stopped in the middle of a move
    queue.move(old._filling, limit=1)  # noqa: SLF001
    new.attach()
    assert new.lease(0, max_messages=1) == 1
    with pytest.raises(exceptions.GroupInUse):
        old.lease(0, max_messages=1)  # moves B, and no longer has the group
    assert content(new, 1) == "A"
    assert new.lease(1) == 2
    assert content(new, 2) == "BC"


def test_queues_of_earlier_users_go_when_these_are_gone(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """Not before: they might be in the middle of a move."""
    with broker.connect() as gone:
        attached(gone)
        group = attached(connection)
        put_each(queue, "A")
        group.lease(0)
        assert len(own(connection, "amq.lease.")) == 3
    put_each(queue, "B")
    group.lease(1)
    assert len(own(connection, "amq.lease.")) == 3  # two leases, and the one to be filled


def test_of_many_who_attach_one_has_it(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """At the same time, each over a connection of its own; every message is leased once."""
    put_each(queue, "ABCDEFGH")
    had: list[str] = []

    def use() -> None:
        with broker.connect() as connection:
            group = attached(connection)
            try:
                number = group.lease(group.leased, max_messages=1)
                bodies = [content(group, one) for one in range(group.acked + 1, number + 1)]
                group.ack(number)
                had.extend(bodies)
            except (exceptions.GroupInUse, exceptions.LeaseNotFound, exceptions.GroupRewound):
                pass  # another client attached it in between

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = attached(connection_of(queue))
    while (number := last.lease(last.leased)) != last.acked:
        had += [content(last, one) for one in range(last.acked + 1, number + 1)]
        last.ack(number)
    assert sorted("".join(had)) == list("ABCDEFGH")


def test_who_did_not_attach_can_read_only(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """Workers do so, with the number that they were given."""
    put_each(queue, "AB")
    reader = shmbroker.Group(other, "q", "g")
    assert (reader.acked, reader.leased) == (0, 0)
    with pytest.raises(exceptions.LeaseNotFound):
        reader.size(1)
    group = attached(connection)
    group.lease(0)
    assert (reader.leased, reader.size(1), content(reader, 1)) == (1, 2, "AB")
    for change in (lambda: reader.lease(0), lambda: reader.ack(1), reader.release):
        with pytest.raises(exceptions.GroupInUse, match="not attached"):
            change()
    group.ack(1)
    assert reader.acked == 1
    with pytest.raises(exceptions.LeaseNotFound):
        reader.size(1)


def test_a_group_outlives_its_connection(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """What was leased is there for the next one."""
    put_each(queue, "ABC")
    with broker.connect() as first:
        attached(first).lease(0, max_messages=2)
    again = attached(connection_of(queue))
    assert again.lease(0) == 1
    assert content(again, 1) == "AB"


def test_a_group_has_one_queue(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """It cannot be attached to another one; there must be one."""
    attached(connection)
    connection.queue("other")
    with pytest.raises(exceptions.PreconditionFailed, match="leases from queue 'q', not 'other'"):
        shmbroker.Group(connection, "other", "g").attach()
    with pytest.raises(exceptions.NotFound, match="missing"):
        shmbroker.Group(connection, "missing", "h").attach()
    assert own(connection, "amq.group.") == ["amq.group.g"]
    assert len(queue) == 0


def test_release_gives_everything_back(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """In the order of the leases, behind what is in the queue; nothing of the group is left."""
    put_each(queue, "ABCD")
    group = attached(connection)
    group.lease(0, max_messages=1)
    group.lease(1, max_messages=1)
    group.lease(2, max_messages=1)
    group.ack(1)
    assert group.release() == 2
    assert listing(queue) == ["D", "B", "C"]
    assert own(connection) == []
    with pytest.raises(exceptions.GroupInUse, match="released"):
        group.lease(3)
    group.attach()
    assert (group.acked, group.leased, group.lease(0)) == (0, 0, 1)
    assert content(group, 1) == "DBC"


def test_release_beside_a_user_who_still_runs(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """What that one may yet move is not lost: the register stays until it has ended, and is shown to nobody."""
    put_each(queue, "AB")
    old = attached(connection)
    old.lease(0, max_messages=1)
    new = attached(other)
    assert new.release() == 1
    assert own(connection, "amq.group.") == ["amq.group.g"]
    assert shmbroker.groups(connection) == []
    with pytest.raises(exceptions.GroupInUse, match="released"):
        old.lease(1)  # moves B and A
    assert [(one.name, one.messages) for one in shmbroker.groups(connection)] == [("g", 2)]
    again = attached(connection)
    assert again.lease(0) == 1
    assert content(again, 1) == "BA"


def test_a_full_queue_takes_back_what_it_has_room_for(connection: shmbroker.Connection) -> None:
    """The others stay with the group; releasing again goes on."""
    queue = connection.queue("q", max_length=3)
    put_each(queue, "ABC")
    group = attached(connection)
    group.lease(0)
    put_each(queue, "XY")
    with pytest.raises(standard.Full, match="1 messages were returned to it"):
        group.release()
    assert listing(queue) == ["X", "Y", "A"]
    queue.purge()
    group.attach()
    assert group.release() == 2
    assert listing(queue) == ["B", "C"]
    eventually(lambda: own(connection) == [], "nothing of the group to be left")


def test_groups_are_listed(broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """With what they keep, and whether somebody has them."""
    put_each(queue, ["AA", "BB", "CC"])
    with broker.connect() as gone:
        orphan = attached(gone, "a")
        orphan.lease(0, max_messages=2)
        [info] = shmbroker.groups(connection)
        assert info.pid > 0
    assert own(connection, GROUP) == ["amq.group.a"]
    attached(connection, "b")
    first, second = shmbroker.groups(connection)
    assert (first.name, first.queue, first.acked, first.leases, first.messages, first.bytes) == ("a", "q", 0, 1, 2, 4)
    assert (first.pid, second.messages) == (0, 0)
    assert 0 < first.used_at <= second.used_at


@pytest.mark.parametrize("used", [0, register.KEPT])
def test_a_full_broker_can_be_drained_by_a_group(broker_name: str, used: int) -> None:
    """It leases and acknowledges what fills the memory, although both take some; nothing is lost."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker, broker.connect() as connection:
        queue = connection.queue("q")
        group = attached(connection)
        for number in range(used):
            put_each(queue, "x")
            group.lease(number)
            group.ack(number + 1)
        put = fill(queue)
        found = []
        while len(queue) > 0:
            number = group.lease(group.leased, max_messages=1000)
            found += [int(bytes(message)[:6]) for message in group.messages(number)]
            group.ack(number)
        assert found == list(range(put))


def fill(queue: shmbroker.Queue) -> int:
    """Puts numbered messages until there is no memory for the smallest one; returns how many."""
    put = 0
    for size in (60_000, 3_000, 900, 506, 480, 440, 400, 200, 60, 0):  # versions are among those of about 500
        with contextlib.suppress(shmbroker.OutOfMemory):
            while True:
                queue.put(b"%6d" % put + bytes(size), timeout=0)
                put += 1
    return put


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after which there is none for the next version."""
    replace = register.Register.replace

    def fail(one: register.Register, value: dict[str, Any], *, timeout: float | None) -> bool:  # noqa: ARG001
        monkeypatch.setattr(register.Register, "replace", replace)
        text = "none is left"
        raise exceptions.OutOfMemory(text)

    return lambda: monkeypatch.setattr(register.Register, "replace", fail)


def test_without_memory_for_a_version_leases_go_before_it(
    connection: shmbroker.Connection, queue: shmbroker.Queue, no_memory: Callable[[], None]
) -> None:
    """They are what takes the memory."""
    put_each(queue, "AB")
    group = attached(connection)
    group.lease(0)
    no_memory()
    assert group.ack(1) == 2
    assert attached(connection).acked == 1


def test_without_memory_the_fenced_delete_nothing(
    connection: shmbroker.Connection,
    other: shmbroker.Connection,
    queue: shmbroker.Queue,
    no_memory: Callable[[], None],
) -> None:
    """It is looked at before."""
    put_each(queue, "AB")
    old = attached(connection)
    old.lease(0)
    new = attached(other)
    no_memory()
    with pytest.raises(exceptions.GroupInUse):
        old.ack(1)
    assert content(new, 1) == "AB"


def test_a_lease_that_found_no_memory_is_tried_again(
    connection: shmbroker.Connection, queue: shmbroker.Queue, no_memory: Callable[[], None]
) -> None:
    """What was moved is in it."""
    put_each(queue, "AB")
    group = attached(connection)
    no_memory()
    with pytest.raises(exceptions.OutOfMemory):
        group.lease(0)
    assert len(queue) == 0
    assert group.lease(0) == 1
    assert content(group, 1) == "AB"


def test_without_memory_for_the_next_queue_who_lost_the_group_is_told(
    connection: shmbroker.Connection,
    other: shmbroker.Connection,
    queue: shmbroker.Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is no queue to delete then; the other user has the group, and what was moved."""

    def fail(*_: object, **__: object) -> None:
        text = "none is left"
        raise exceptions.OutOfMemory(text)

    put_each(queue, "A")
    old, new = attached(connection), attached(other)
    with monkeypatch.context() as full:
        full.setattr(queues, "ensure", fail)
        with pytest.raises(exceptions.GroupInUse, match="taken over by process"):
            old.lease(0)
    assert new.lease(0) == 1
    assert content(new, 1) == "A"


def test_without_memory_for_the_next_queue_a_lease_is_made(
    connection: shmbroker.Connection, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue of the lease after it is made when that is needed."""

    def fail(*_: object, **__: object) -> None:
        text = "none is left"
        raise exceptions.OutOfMemory(text)

    put_each(queue, "ABC")
    group = attached(connection)
    with monkeypatch.context() as full:
        full.setattr(queues, "ensure", fail)
        assert group.lease(0, max_messages=2) == 1
    assert content(group, 1) == "AB"
    assert group.lease(1) == 2
    assert content(group, 2) == "C"
