# SPDX-License-Identifier: Apache-2.0
"""The marker of a publication: it is made once, held by one, and forgotten with the queue that it holds for."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import uuid
from queue import Empty, Full
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of, session_of
from scenario_support.interrupting import INTERRUPTED_AT, SIGNALLED_AT
from scenario_support.processes import run_python
from scenario_support.waiting import WATCHDOG_SECONDS

import shmbroker
import shmbroker.testing
from shmbroker import exceptions
from shmbroker._core import journal, native
from shmbroker._system_queues import queues
from shmbroker.queue import open_queue
from shmbroker.staging import fresh, names
from shmbroker.staging import marker as module
from shmbroker.staging.deferred_options import tag_of
from shmbroker.staging.marker import Held, Marker, forget_gone
from shmbroker.staging.publication import PublicationState, decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._session.session import Session

NAME, FOUNDING = "amq.stage.marker.query", "amq.stage.founding.query"
NOW = 5 * 10**12


@pytest.fixture
def marker(connection: shmbroker.Connection) -> Marker:
    """The marker of publication "query"."""
    return Marker(connection, "query")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stop the time at NOW; each sleep is noted, and takes a second."""
    clock = SimpleNamespace(now=NOW, slept=[])

    def sleep(seconds: float) -> None:
        clock.slept.append(seconds)
        clock.now += 10**9

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=lambda: clock.now, sleep=sleep))
    return clock


def internal_queues(connection: shmbroker.Connection) -> dict[str, int]:
    """The queues of stages, and how many messages each has."""
    return {name: len(connection.queue(name, passive=True)) for name in connection.queue_names(all=True)}


def test_a_marker_is_made_once(connection: shmbroker.Connection, marker: Marker) -> None:
    """It says that nothing was published; what it was made with is gone."""
    for _ in range(2):
        marker.found(native.deadline(None))
        assert internal_queues(connection) == {NAME: 1}
        assert connection.queue(NAME, passive=True).statistics().added == 1
    assert [decode(bytes(message)) for message in connection.queue(NAME, passive=True).browse()] == [PublicationState()]


def test_a_marker_that_is_there_is_not_founded(
    connection: shmbroker.Connection, marker: Marker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds it needs no lock of the broker for that. The first put has the time that is left."""
    times: list[float | None] = []
    put = shmbroker.Queue.put

    def noted(queue: shmbroker.Queue, body: bytes, *, timeout: float | None) -> None:
        times.append(timeout)
        put(queue, body, timeout=timeout)

    monkeypatch.setattr(shmbroker.Queue, "put", noted)
    marker.found(native.deadline(0))
    assert times == [0.0]
    monkeypatch.setattr(names, "declare", None)
    marker.found(native.deadline(0))
    with marker.held(native.deadline(0)):
        assert internal_queues(connection) == {NAME: 0}


def test_a_queue_without_a_marker_gets_one(connection: shmbroker.Connection, marker: Marker) -> None:
    """Somebody was killed between the two. One whose message was taken had one."""
    queue = queues.ensure(session_of(connection), NAME)
    marker.found(native.deadline(None))
    assert len(queue) == 1
    with marker.held(native.deadline(0)):
        marker.found(native.deadline(0))
        assert queue.statistics().added == 1


def test_one_makes_a_marker_at_a_time(
    connection: shmbroker.Connection, other: shmbroker.Connection, marker: Marker, clock: SimpleNamespace
) -> None:
    """Who has the queue for that keeps others out, until it is over for them."""
    assert names.declare(other, FOUNDING, exclusive=True)
    for late, slept in ((0, 0), (1, 1), (2 * 10**9, 2)):
        clock.slept.clear()
        with pytest.raises(exceptions.Timeout, match="'query': another client is making its marker"):
            marker.found(clock.now + late)
        assert clock.slept == [0.002] * slept
    assert connection.queue_names(all=True) == [FOUNDING]


def test_who_makes_a_marker_has_a_queue_of_its_own(
    connection: shmbroker.Connection, marker: Marker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes with the connection that only makes the marker, also when the marker could not be made."""
    seen: list[Any] = []

    def make(session: Session, _: str, **_given: object) -> shmbroker.Queue:
        seen.append(open_queue(session, FOUNDING, passive=True).settings.exclusive)
        with pytest.raises(exceptions.ResourceLocked):
            connection.queue(FOUNDING, passive=True)
        raise exceptions.OutOfMemory

    monkeypatch.setattr(queues, "ensure", make)
    with pytest.raises(exceptions.OutOfMemory):
        marker.found(native.deadline(0))
    assert seen == [True]
    assert connection.queue_names(all=True) == []
    assert len(connection.connections()) == 2  # the housekeeper's, and this one


def test_a_marker_is_made_after_one_could_not_open_its_lock(
    other: shmbroker.Connection, marker: Marker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was no memory to open the queue that keeps others out; the process lives on, and keeps nobody out."""
    opened = shmbroker.Connection.queue

    def full(connection: shmbroker.Connection, name: str, **given: Any) -> shmbroker.Queue:  # noqa: ANN401
        if name == FOUNDING:
            raise exceptions.OutOfMemory
        return opened(connection, name, **given)

    with monkeypatch.context() as patch:
        patch.setattr(shmbroker.Connection, "queue", full)
        with pytest.raises(exceptions.OutOfMemory):
            marker.found(native.deadline(0))
    Marker(other, "query").found(native.deadline(WATCHDOG_SECONDS))
    assert internal_queues(other)[NAME] == 1


def test_a_marker_is_made_while_the_topology_is_locked(broker: shmbroker.Broker, other: shmbroker.Connection) -> None:
    """Its maker needs that lock to make queues, and not to let others in."""
    locked, over = threading.Event(), threading.Event()
    put = shmbroker.Queue.put

    def lock() -> None:
        with journal.topology_lock(session_of(other).core, native.deadline(None), "a test"):
            locked.set()
            over.wait(WATCHDOG_SECONDS)

    holder = threading.Thread(target=lock)

    def put_and_lock(queue: shmbroker.Queue, body: bytes, **given: Any) -> None:  # noqa: ANN401
        put(queue, body, **given)
        holder.start()
        locked.wait(WATCHDOG_SECONDS)

    try:
        # Not 0: a housekeeper may have the lock for a moment.
        with pytest.MonkeyPatch.context() as patch, broker.connect(operation_timeout=5) as connection:
            patch.setattr(shmbroker.Queue, "put", put_and_lock)
            Marker(connection, "query").found(native.deadline(None))
            over.set()
            holder.join()
            assert names.declare(other, FOUNDING, exclusive=True)
    finally:
        over.set()
        holder.join()


# Makes markers, interrupted at the n-th place where a signal's handler may run, for each n there is.
FOUND_AT_EVERY_PLACE = f"""{SIGNALLED_AT}
    from shmbroker import exceptions
    from shmbroker._core import native
    from shmbroker.staging import marker as module

    name, seconds = sys.argv[1:]
    number, more, wrong = 0, True, []
    other, connection = shmbroker.connect(name, create=False), shmbroker.connect(name, create=False)
    while more and not wrong:
        marker = module.Marker(connection, "query")
        more = signalled_at(number, lambda: marker.found(native.deadline(0)))
        try:
            module.Marker(other, "query").found(native.deadline(float(seconds)))
            queue = other.queue("amq.stage.marker.query", passive=True)
            if (len(queue), queue.statistics().added) != (1, 1):
                wrong.append([number, len(queue), queue.statistics().added])
            queue.delete()
        except exceptions.Timeout:
            wrong.append([number, "locked"])
        number += 1
    gc.collect()  # a connection that a handler interrupted refers to itself
    print(json.dumps([number, wrong, len(other.connections()), [str(one) for one in other.doctor()]]))
"""


@pytest.mark.exhaustive
def test_an_interrupted_maker_of_a_marker_keeps_nobody_out(broker_name: str) -> None:
    """Wherever a signal's handler raises: others make the marker, or find it, while the interrupted process lives."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(FOUND_AT_EVERY_PLACE, broker.name, str(WATCHDOG_SECONDS))
    assert done.returncode == 0, done.stderr
    number, wrong, connections, findings = json.loads(done.stdout)
    assert number > 100
    assert (wrong, connections, findings) == ([], 3, [])


@pytest.mark.parametrize(
    ("until", "seconds"),
    [
        (native.FOR_EVER, None),
        (native.FOR_EVER - 1, (native.FOR_EVER - 1 - NOW) / 10**9),
        (NOW + 2 * 10**9, 2.0),
        (NOW, 0.0),
        (NOW - 1, 0.0),
    ],
)
@pytest.mark.usefixtures("clock")
def test_the_seconds_to_a_time(until: int, seconds: float | None) -> None:
    """None are left when it is over; to one that never comes there is no number."""
    assert module._seconds_to(until) == seconds  # noqa: SLF001 - it waits with that


def test_a_marker_is_held_by_one(connection: shmbroker.Connection, marker: Marker) -> None:
    """It goes back when it was not replaced; when it was, the next one is there."""
    with marker.held(native.deadline(0)) as held:
        assert internal_queues(connection) == {NAME: 0}
        with pytest.raises(exceptions.Timeout, match="another client is publishing"), marker.held(native.deadline(0)):
            pytest.fail("two have it")
    assert internal_queues(connection) == {NAME: 1}
    with marker.held(native.deadline(0)) as held:
        assert held.replace(PublicationState(last=4), native.deadline(0)) == PublicationState(last=4)
    assert internal_queues(connection) == {NAME: 1}
    with marker.held(native.deadline(0)) as held:
        assert held.state == PublicationState(last=4)


@pytest.mark.parametrize(
    ("error", "replaces"),
    [
        (None, False),
        (exceptions.Timeout(), False),
        (KeyboardInterrupt(), False),
        (KeyboardInterrupt(), True),
        (Full(), True),
        (exceptions.OutOfMemory(), True),
        (exceptions.MessageSettled(), True),
    ],
)
def test_a_count_that_rises_while_a_marker_is_held(
    connection: shmbroker.Connection,
    marker: Marker,
    monkeypatch: pytest.MonkeyPatch,
    *,
    error: BaseException | None,
    replaces: bool,
) -> None:
    """The commit that put the marker is counted only now: its process was stopped. The marker still goes back."""
    marker.found(native.deadline(0))
    statistics, late = shmbroker.Queue.statistics, iter(range(9))

    def counted_late(queue: shmbroker.Queue) -> shmbroker.QueueStatistics:
        found = statistics(queue)
        return dataclasses.replace(found, added=found.added + next(late))

    def fail(*_: object) -> None:
        assert error is not None
        raise error

    monkeypatch.setattr(shmbroker.Queue, "statistics", counted_late)
    monkeypatch.setattr(fresh, "commit_waiting", fail)
    with pytest.raises(type(error)) if error else contextlib.nullcontext(), marker.held(native.deadline(0)) as held:
        if replaces:
            held.replace(PublicationState(last=4), native.deadline(0))
        if error:
            raise error
    assert internal_queues(connection) == {NAME: 1}


def test_a_marker_that_was_replaced_does_not_go_back(connection: shmbroker.Connection, marker: Marker) -> None:
    """Its successor, which this connection may take meanwhile, may have its tag, and is not requeued in its place."""
    marker.found(native.deadline(0))
    queue, others, kept = connection.queue(NAME, passive=True), connection.queue("others"), list[shmbroker.Message]()
    others.put_many([b"x"] * 9)
    with marker.held(native.deadline(0)) as held:
        tag = tag_of(held._message)  # noqa: SLF001 - a test of this state
        held.replace(PublicationState(last=4), native.deadline(0))
        while tag_of(one := others.get(timeout=0)) != tag:
            kept.append(one)
        one.ack()
        successor = queue.get(timeout=0)
        assert tag_of(successor) == tag
    assert (len(queue), queue.statistics().delivering) == (0, 1)
    successor.nack()
    with marker.held(native.deadline(0)) as held:
        assert held.state == PublicationState(last=4)


def test_whether_a_job_was_dropped(marker: Marker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with a number may come again. While somebody publishes for long a job passes for one that was not."""
    job = uuid.UUID(int=1)
    monkeypatch.setattr(module, "_PATIENCE", 0)
    with marker.held(native.deadline(0)) as held:
        held.replace(PublicationState().without(job), native.deadline(0))
    assert [marker.is_dropped(batch) for batch in (job, uuid.UUID(int=2))] == [True, False]
    with marker.held(native.deadline(0)):
        assert not marker.is_dropped(job)
        monkeypatch.setattr(marker, "held", None)
        assert not marker.is_dropped(1)


@pytest.fixture
def marked(connection: shmbroker.Connection) -> Callable[[str, int], shmbroker.Queue]:
    """Make the marker of a publication that holds for a queue."""

    def make(publication: str, target: int) -> shmbroker.Queue:
        queue = queues.ensure(session_of(connection), names.marker_name(publication))
        queue.put(PublicationState(last=1, target=target).encode())
        return queue

    return make


def test_markers_of_queues_that_are_gone(
    connection: shmbroker.Connection, marked: Callable[[str, int], shmbroker.Queue]
) -> None:
    """They are deleted, and counted; those of queues that are there stay, and those that hold for any queue."""
    there, gone = connection.queue("there"), connection.queue("gone")
    kept = [
        marked("any", 0),
        marked("there", core_of(there).birth),
        queues.ensure(session_of(connection), "amq.stage.marker.none"),
    ]
    for number in range(3):
        marked(f"gone{number}", core_of(gone).birth)
    gone.delete()
    connection.queue("plain").put(b"{}")
    assert forget_gone(connection) == 3
    assert forget_gone(connection) == 0
    assert sorted(connection.queue_names(all=True)) == sorted(["there", "plain", *(queue.name for queue in kept)])
    assert [len(queue) for queue in kept] == [1, 1, 0]


def test_markers_that_hold_are_not_taken(
    connection: shmbroker.Connection,
    marked: Callable[[str, int], shmbroker.Queue],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not for a moment: a look at them is enough. One that goes between two looks is passed over."""
    marked("any", 0)
    marked("there", core_of(connection.queue("there")).birth)
    names_of_all = [*connection.queue_names(all=True), "amq.stage.marker.went"]
    monkeypatch.setattr(type(connection), "queue_names", lambda _connection, **_: names_of_all)
    monkeypatch.setattr(module, "taken", None)
    assert forget_gone(connection) == 0


@pytest.mark.parametrize(("second", "gone"), [(0, 0), (77, 1), (1, 1)])
def test_a_marker_is_looked_at_again_when_it_is_held(
    connection: shmbroker.Connection,
    marked: Callable[[str, int], shmbroker.Queue],
    monkeypatch: pytest.MonkeyPatch,
    second: int,
    gone: int,
) -> None:
    """Another publisher may have put the next one. It is taken without a wait."""
    marked("query", 77)
    states = iter([PublicationState(target=77), PublicationState(target=second)])
    monkeypatch.setattr(module, "decode", lambda _body: next(states))
    times: list[float | None] = []
    take = module.taken
    monkeypatch.setattr(module, "taken", lambda queue, timeout: times.append(timeout) or take(queue, timeout))
    assert forget_gone(connection) == gone
    assert times == [0]


def test_a_marker_that_somebody_holds_is_left_alone(
    connection: shmbroker.Connection,
    marked: Callable[[str, int], shmbroker.Queue],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one whose queue was made in between; that one goes back."""
    gone = connection.queue("gone")
    queue = marked("query", core_of(gone).birth)
    gone.delete()
    with queue.get(timeout=0):
        monkeypatch.setattr(module, "decode", lambda _body: PublicationState(target=1))
        assert forget_gone(connection) == 0
    queue.put(b"it")
    targets = iter([set[int](), {1}])
    monkeypatch.setattr(module, "_targets", lambda _connection: next(targets))
    assert forget_gone(connection) == 0
    assert (len(queue), queue.statistics().delivering) == (1, 0)


def test_a_marker_that_goes_while_it_is_looked_at(
    connection: shmbroker.Connection,
    marked: Callable[[str, int], shmbroker.Queue],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not made anew."""
    marked("query", 77)

    def delete(body: bytes) -> PublicationState:
        connection.queue(NAME, passive=True).delete()
        return decode(body)

    monkeypatch.setattr(module, "decode", delete)
    assert forget_gone(connection) == 0
    assert connection.queue_names(all=True) == []


def test_a_marker_that_was_forgotten_is_not_given_back(connection: shmbroker.Connection, marker: Marker) -> None:
    """There is nothing to give back."""
    marker.found(native.deadline(0))
    queue = connection.queue(NAME, passive=True)
    held = Held(queue, queue.get(timeout=0))
    queue.delete()
    held.give_back()
    with pytest.raises((exceptions.NotFound, Empty)):
        queue.get(timeout=0)


# Holds a marker, interrupted before the n-th instruction of the package, for each n there is. The program lives on.
HOLD_AT_EVERY_INSTRUCTION = f"""{INTERRUPTED_AT}
    from shmbroker import exceptions
    from shmbroker._core import native
    from shmbroker._session.session import session_of
    from shmbroker._system_queues import queues
    from shmbroker.staging import marker as module
    from shmbroker.staging.publication import PublicationState

    def look():
        with marker.held(native.deadline(0)):
            pass

    def replace():
        with marker.held(native.deadline(0)) as held:
            held.replace(PublicationState(last=number, target=77), native.deadline(0))

    def forget():
        module.forget_gone(connection)

    def keep():
        targets = [set(), {{77}}]
        module._targets = lambda _: targets.pop(0)
        module.forget_gone(connection)

    name, way = sys.argv[1:]
    deed, number, more, wrong = globals()[way], 0, True, []
    other, connection = shmbroker.connect(name, create=False), shmbroker.connect(name, create=False)
    while more:
        queue = queues.ensure(session_of(other), "amq.stage.marker.query")
        if not queue.statistics().added:
            queue.put(PublicationState(target=77).encode())
        marker = module.Marker(connection, "query")
        more = interrupted_at(number, deed)
        try:
            ready = len(queue)
        except exceptions.NotFound:
            ready = int(way == "forget")
        if ready != 1:
            wrong.append([number, ready])
            connection.close()
            connection = shmbroker.connect(name, create=False)
        number += 1
    print(json.dumps([number, wrong, [str(one) for one in other.doctor()]]))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["look", "replace", "forget", "keep"])
def test_an_interrupted_holder_keeps_no_marker(broker_name: str, way: str) -> None:
    """Wherever a signal's handler raises: other clients can take the marker, or its successor, also if it lives on."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(HOLD_AT_EVERY_INSTRUCTION, broker.name, way)
    assert done.returncode == 0, done.stderr
    number, wrong, findings = json.loads(done.stdout)
    assert number > 100
    assert (wrong, findings) == ([], [])
