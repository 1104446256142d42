# SPDX-License-Identifier: Apache-2.0
"""Users of a group who are interrupted, who lose the group, and who meet others in the middle of a change."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.groups import attached, content, own
from scenario_support.inside import session_of
from scenario_support.interrupting import INTERRUPTED_AT, SIGNALLED_AT
from scenario_support.observing import listing, put_each
from scenario_support.processes import run_python

import shmbroker
import shmbroker.testing
from shmbroker import exceptions
from shmbroker._system_queues import queues
from shmbroker._system_queues.register import Register
from shmbroker.leasing.group_state import GroupState, look

if TYPE_CHECKING:
    from collections.abc import Callable


def said(connection: shmbroker.Connection) -> GroupState:
    """What the register of group g says."""
    state = look(session_of(connection), "g")
    assert state is not None
    return state


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after which the next one who writes a version is interrupted before it knows that it counts."""
    replace = Register.replace

    def fail(one: Register, value: dict[str, Any], *, timeout: float | None) -> bool:
        monkeypatch.setattr(Register, "replace", replace)
        assert Register.replace(attentive(one), value, timeout=timeout)
        raise KeyboardInterrupt

    return lambda: monkeypatch.setattr(Register, "replace", fail)


def attentive(one: Register) -> Register:
    """Another user of a register, who saw what it says now."""
    other = Register(one.queue)
    other.latest()
    return other


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after which there is none for the next version."""
    replace = Register.replace

    def fail(*_: object, **__: object) -> bool:
        monkeypatch.setattr(Register, "replace", replace)
        text = "none is left"
        raise exceptions.OutOfMemory(text)

    return lambda: monkeypatch.setattr(Register, "replace", fail)


def meanwhile(monkeypatch: pytest.MonkeyPatch, call: str, deed: Callable[[], object]) -> None:
    """Something happens once, after the next call of `queues` for the queue of a lease."""
    wanted = getattr(queues, call)

    def called(connection: shmbroker.Connection, name: str, **options: Any) -> Any:  # noqa: ANN401
        result = wanted(connection, name, **options)
        if name.startswith("amq.lease."):
            monkeypatch.setattr(queues, call, wanted)
            deed()
        return result

    monkeypatch.setattr(queues, call, called)


# ---- interrupted ----


def test_a_lease_whose_user_was_interrupted_is_there(
    connection: shmbroker.Connection, queue: shmbroker.Queue, interrupted: Callable[[], None]
) -> None:
    """The next call finds it, as it was made; later leases follow it."""
    put_each(queue, "A")
    group = attached(connection)
    interrupted()
    with pytest.raises(KeyboardInterrupt):
        group.lease(0)
    put_each(queue, "B")
    assert group.lease(0) == 1
    assert (group.lease(1), group.leased) == (2, 2)
    assert (content(group, 1), content(group, 2)) == ("A", "B")
    assert len(own(connection, "amq.lease.")) == 3


def test_an_ack_whose_user_was_interrupted_happened(
    connection: shmbroker.Connection, queue: shmbroker.Queue, interrupted: Callable[[], None]
) -> None:
    """The queue of the lease goes with the next acknowledgement; until then versions name it."""
    put_each(queue, "ABC")
    group = attached(connection)
    group.lease(0, max_messages=1)
    group.lease(1, max_messages=1)
    interrupted()
    with pytest.raises(KeyboardInterrupt):
        group.ack(1)
    assert (group.ack(1), group.acked) == (0, 1)
    group.lease(2)
    first = own(connection, "amq.lease.g.1.")
    assert list(said(connection).done) == first
    assert len(first) == 1
    assert group.ack(2) == 1
    assert len(own(connection, "amq.lease.")) == 2
    assert content(group, 3) == "C"


@pytest.mark.parametrize("end", ["attach", "release", "ack"])
def test_who_was_interrupted_deletes_what_was_acknowledged_later(
    connection: shmbroker.Connection, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Or whoever attaches the group does, or releases it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    put_each(queue, "AB")
    group = attached(connection)
    group.lease(0, max_messages=1)
    group.lease(1, max_messages=1)
    with monkeypatch.context() as patch:
        patch.setattr(queues, "delete", interrupt)
        with pytest.raises(KeyboardInterrupt):
            group.ack(1)
    assert len(own(connection, "amq.lease.g.1.")) == 1
    if end == "attach":
        attached(connection)
    elif end == "release":
        group.release()
        assert own(connection) == []
    else:
        group.ack(2)
    assert own(connection, "amq.lease.g.1.") == []


def test_who_was_interrupted_and_lost_the_group_is_told(
    connection: shmbroker.Connection,
    other: shmbroker.Connection,
    queue: shmbroker.Queue,
    interrupted: Callable[[], None],
) -> None:
    """Also where the lease that it asks for is there."""
    put_each(queue, "A")
    group = attached(connection)
    interrupted()
    with pytest.raises(KeyboardInterrupt):
        group.lease(0)
    attached(other)
    with pytest.raises(exceptions.GroupInUse, match="taken over by process"):
        group.lease(0)
    assert repr(group) == "<Group 'g' of queue 'q', not attached>"


@pytest.mark.parametrize("before", ["attached", "leased", "interrupted"])
def test_who_knows_its_leases_does_not_look(
    connection: shmbroker.Connection,
    other: shmbroker.Connection,
    queue: shmbroker.Queue,
    interrupted: Callable[[], None],
    before: str,
) -> None:
    """A user who lost the group names its leases as it knew them, until a change of its own is refused."""
    put_each(queue, "A")
    group = attached(connection)
    if before == "interrupted":
        interrupted()
        with pytest.raises(KeyboardInterrupt):
            group.lease(0)
    assert group.lease(0) == 1
    if before == "attached":
        group.attach()
    new = attached(other)
    assert new.ack(1) == 1
    assert (group.lease(0), group.acked, group.leased) == (1, 0, 1)
    with pytest.raises(exceptions.GroupInUse):
        group.ack(1)
    assert (group.acked, repr(group)) == (1, "<Group 'g' of queue 'q', not attached>")
    with pytest.raises(exceptions.GroupInUse):
        group.lease(0)


def test_what_a_user_moves_is_named_before(
    connection: shmbroker.Connection,
    other: shmbroker.Connection,
    queue: shmbroker.Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the next user finds it, also where the queue to be filled was made late, for want of memory."""
    move = shmbroker.Queue.move

    def full(*_: object, **__: object) -> None:
        text = "none is left"
        raise exceptions.OutOfMemory(text)

    def interrupt(*arguments: Any, **options: Any) -> None:  # noqa: ANN401
        move(*arguments, **options)
        raise KeyboardInterrupt

    put_each(queue, "AB")
    group = attached(connection)
    with monkeypatch.context() as patch:
        patch.setattr(queues, "ensure", full)
        group.lease(0, max_messages=1)
    assert said(connection).filling == ""
    with monkeypatch.context() as patch:
        patch.setattr(shmbroker.Queue, "move", interrupt)
        with pytest.raises(KeyboardInterrupt):
            group.lease(1)
    assert said(connection).filling == f"amq.lease.g.2.{said(connection).owner}"
    new = attached(other)
    assert new.begun == 1
    assert new.lease(1) == 2
    assert content(new, 2) == "B"


# Uses a group, interrupted at the n-th place, for each n there is. The program lives on. An ack, which is short, is
# interrupted before each instruction; an attachment where `signalled_at` raises.
AT_EVERY_PLACE = f"""{INTERRUPTED_AT}{SIGNALLED_AT}
    from shmbroker import exceptions
    from shmbroker._session.session import session_of
    from shmbroker._system_queues import queues
    from shmbroker.leasing.group_state import look

    def users():
        group = shmbroker.Group(connection, "q", f"g{{number}}")
        group.attach()
        if way == "ack":
            group.lease(0, max_messages=1)
            return group, lambda: group.ack(1)
        with shmbroker.connect(name, create=False) as other:  # moves a message, and does not come to its lease
            shmbroker.Group(other, "q", group.name).attach()
            filling = look(session_of(other), group.name).filling
            other.queue("q").move(other.queue(filling, passive=True), limit=1)
        return group, group.attach

    def text(group, number):
        return "".join(bytes(message).decode() for message in group.messages(number))

    name, way = sys.argv[1:]
    number, more, wrong = 0, True, []
    connection = shmbroker.connect(name, create=False)
    queue = connection.queue("q")
    while more:
        queue.put(b"A")
        queue.put(b"B")
        group, deed = users()
        more = (interrupted_at if way == "ack" else signalled_at)(number, deed)
        try:
            last = group.lease(group.leased)
        except exceptions.GroupInUse:
            group.attach()
            last = group.lease(0)
        found = "".join(text(group, one) for one in range(group.acked + 1, last + 1))
        group.ack(last)
        group.lease(last)
        left = [one for one in connection.queue_names(all=True) if one.startswith(f"amq.lease.{{group.name}}.")]
        known = look(session_of(connection), group.name)
        kept = set(left) - {{known.filling, *known.strays}}
        if found not in ({{"AB", "B"}} if way == "ack" else {{"AB", "BA"}}) or len(queue) or kept:
            wrong.append([number, found, len(queue), sorted(kept)])
            queue.purge()
        for one in (*left, f"amq.group.{{group.name}}"):
            queues.delete(session_of(connection), one)
        number += 1
    print(json.dumps([number, wrong, [str(one) for one in connection.doctor()]]))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["ack", "attach"])
def test_an_interrupted_user_goes_on(broker_name: str, way: str) -> None:
    """Wherever a signal's handler raises: it leases what earlier users left, and its next acks leave no queue."""
    with shmbroker.testing.broker(broker_name, memory="64M") as broker:
        done = run_python(AT_EVERY_PLACE, broker.name, way)
    assert done.returncode == 0, done.stderr
    number, wrong, findings = json.loads(done.stdout)
    assert number > 100
    assert (wrong, findings) == ([], [])


# ---- attaching and releasing beside others ----


def test_an_attachment_that_fails_leaves_the_group_to_nobody_here(
    connection: shmbroker.Connection, queue: shmbroker.Queue, no_memory: Callable[[], None]
) -> None:
    """It leaves no queue behind, and the earlier attachment of this user has ended, also if a change was under way."""
    put_each(queue, "A")
    group = attached(connection)
    no_memory()
    with pytest.raises(exceptions.OutOfMemory):
        group.lease(0)
    before = own(connection)
    no_memory()
    with pytest.raises(exceptions.OutOfMemory):
        group.attach()
    assert own(connection) == before
    assert repr(group) == "<Group 'g' of queue 'q', not attached>"
    with pytest.raises(exceptions.GroupInUse):
        group.lease(0)
    group.attach()
    assert group.lease(0) == 1
    assert content(group, 1) == "A"


def test_an_attachment_that_another_one_beats_is_tried_again(
    connection: shmbroker.Connection,
    other: shmbroker.Connection,
    queue: shmbroker.Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last who attaches has the group; what it made for its first try is gone."""
    put_each(queue, "A")
    rivals = []
    meanwhile(monkeypatch, "ensure", lambda: rivals.append((attached(other), said(other))))
    group = attached(connection)
    [(rival, written)] = rivals
    now = said(connection)
    assert (now.past, now.strays) == ((written.owner,), (written.filling,))
    assert own(connection, "amq.lease.") == sorted([written.filling, now.filling])
    assert group.lease(0) == 1
    with pytest.raises(exceptions.GroupInUse):
        rival.lease(0)


def test_an_attachment_beside_a_release_makes_the_group_anew(
    connection: shmbroker.Connection,
    other: shmbroker.Connection,
    queue: shmbroker.Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It begins at 0, with what came back to the queue."""
    put_each(queue, "A")
    rival = attached(other)
    rival.lease(0)
    meanwhile(monkeypatch, "ensure", rival.release)
    group = attached(connection)
    now = said(connection)
    assert now == GroupState("q", owner=now.owner, filling=f"amq.lease.g.1.{now.owner}")
    assert own(connection) == ["amq.group.g", now.filling]
    assert (group.lease(0), content(group, 1)) == (1, "A")


def test_a_group_that_is_attached_while_it_is_released_stays(
    connection: shmbroker.Connection,
    other: shmbroker.Connection,
    queue: shmbroker.Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For the new user, who leases what came back."""
    put_each(queue, "A")
    group = attached(connection)
    group.lease(0)
    users = []
    meanwhile(monkeypatch, "delete", lambda: users.append(attached(other)))
    assert group.release() == 1
    assert listing(queue) == ["A"]
    [new] = users
    assert new.lease(0) == 1
    assert content(new, 1) == "A"
    with pytest.raises(exceptions.GroupInUse, match="taken over by process"):
        group.lease(0)


# A message that a user is just moving is not ready, and comes back if its move fails. A held one stands in for it.


def begun(broker: shmbroker.Broker, queue: shmbroker.Queue) -> str:
    """A user who is gone had moved one message; returns the name of the queue where that is."""
    with broker.connect() as gone:
        attached(gone)
        name = said(gone).filling
        assert queue.move(gone.queue(name, passive=True), limit=1) == 1
    return name


def test_who_lost_the_group_deletes_nothing_that_another_moves_from(
    broker: shmbroker.Broker, connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """A message that the other user was moving then comes back, and is leased; the queue goes later."""
    put_each(queue, "AB")
    stray = begun(broker, queue)
    with broker.connect() as lost:
        old, new = attached(lost), attached(other)
        moved = other.queue(stray, passive=True).get(timeout=0)
        with pytest.raises(exceptions.GroupInUse):
            old.lease(0)
        moved.give_back()
        assert (new.lease(0), content(new, 1)) == (1, "AB")
    put_each(queue, "C")
    assert (new.lease(1), content(new, 2)) == (2, "C")
    assert said(connection).strays == ()
    assert stray not in own(connection)


def test_without_memory_nobody_attaches_while_leases_are_deleted(
    broker: shmbroker.Broker,
    connection: shmbroker.Connection,
    queue: shmbroker.Queue,
    monkeypatch: pytest.MonkeyPatch,
    no_memory: Callable[[], None],
) -> None:
    """The register still names them then: another user would miss their messages. It waits for the acknowledgement."""
    put_each(queue, "AB")
    group = attached(connection)
    group.lease(0)
    with broker.connect(operation_timeout=0) as rival:
        errors = list[BaseException]()

        def attach() -> None:
            try:
                attached(rival)
            except exceptions.Timeout as error:
                errors.append(error)

        def attach_meanwhile() -> None:
            thread = threading.Thread(target=attach)
            thread.start()
            thread.join()

        meanwhile(monkeypatch, "delete", attach_meanwhile)
        no_memory()
        assert (group.ack(1), group.acked) == (2, 1)
    assert len(errors) == 1
    assert "the topology lock is held by process" in str(errors[0])


def at_the_move(monkeypatch: pytest.MonkeyPatch, name: str, deed: Callable[[], object]) -> None:
    """Something happens once, before the next move out of this queue."""
    move = shmbroker.Queue.move

    def moved(source: shmbroker.Queue, to: shmbroker.Queue, **options: Any) -> int:  # noqa: ANN401
        if source.name == name:
            monkeypatch.setattr(shmbroker.Queue, "move", move)
            deed()
        return move(source, to, **options)

    monkeypatch.setattr(shmbroker.Queue, "move", moved)


def test_a_release_deletes_nothing_that_the_next_user_moves_from(
    connection: shmbroker.Connection,
    other: shmbroker.Connection,
    queue: shmbroker.Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That one has attached the group meanwhile: the message that it was moving comes back, and is leased."""
    put_each(queue, "A")
    group, found = attached(connection), list[Any]()
    group.lease(0)
    [stray] = own(connection, "amq.lease.g.1.")

    def attach_and_move() -> None:
        found.extend([attached(other), other.queue(stray, passive=True).get(timeout=0)])

    at_the_move(monkeypatch, stray, attach_and_move)
    assert group.release() == 0
    new, moved = found
    moved.give_back()
    assert (new.lease(0), content(new, 1)) == (1, "A")


def test_a_release_beside_a_user_who_ends_meanwhile(
    broker: shmbroker.Broker,
    connection: shmbroker.Connection,
    queue: shmbroker.Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What that one moved behind the release stays with the group, and is leased by the next user."""
    put_each(queue, "A")
    earlier = broker.connect()
    attached(earlier)
    group, stray = attached(connection), said(connection).strays[0]
    mine = said(connection).filling

    def move_and_end() -> None:
        assert queue.move(earlier.queue(stray, passive=True)) == 1
        earlier.close()

    put_each(connection.queue(mine, passive=True), "B")
    at_the_move(monkeypatch, mine, move_and_end)
    assert group.release() == 1
    new = attached(connection)
    assert (new.begun, new.lease(0), content(new, 1)) == (1, 1, "AB")


def test_a_queue_of_an_earlier_user_that_is_filled_again_stays(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator puts a message there just when it is found empty: it is not deleted, and the message is leased."""
    put_each(queue, "A")
    stray = connection.queue(begun(broker, queue), passive=True)
    group, wanted = attached(connection), queues.delete

    def put_and_delete(*given: Any, **options: Any) -> Any:  # noqa: ANN401
        monkeypatch.setattr(queues, "delete", wanted)
        put_each(stray, "B")
        return wanted(*given, **options)

    monkeypatch.setattr(queues, "delete", put_and_delete)
    assert (group.lease(0), group.lease(1)) == (1, 2)
    assert (content(group, 1), content(group, 2)) == ("A", "B")


def test_who_lost_the_group_is_told_to_whom(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """A process, or one that has ended."""
    put_each(queue, "AB")
    first, second = attached(connection), attached(connection)
    with pytest.raises(exceptions.GroupInUse) as refused:
        first.lease(0)
    text = f"RESOURCE_LOCKED - group 'g' was taken over by process {os.getpid()}"
    assert (refused.value.code, refused.value.text) == (405, text)
    with broker.connect() as gone:
        attached(gone)
    with pytest.raises(exceptions.GroupInUse, match="taken over by a process that has ended"):
        second.lease(0)


def test_who_could_not_attach_again_is_told_that(
    connection: shmbroker.Connection, queue: shmbroker.Queue, no_memory: Callable[[], None]
) -> None:
    """Nobody took the group over; the next attempt to attach it has its leases."""
    put_each(queue, "A")
    group = attached(connection)
    group.lease(0)
    no_memory()
    with pytest.raises(exceptions.OutOfMemory):
        group.attach()
    with pytest.raises(
        exceptions.GroupInUse, match="not attached here: it was before, and the last attempt to attach it again fail"
    ):
        group.ack(1)
    group.attach()
    assert group.ack(1) == 1
