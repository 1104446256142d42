# SPDX-License-Identifier: Apache-2.0
"""A housekeeper's turns, one by one: what is done in which, when the next one comes, and how it ends."""

# ruff: noqa: SLF001 (its parts are what is tested)

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
import types
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of
from scenario_support.processes import Actor
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import exceptions
from shmbroker._core import housekeeper as core_housekeeper
from shmbroker._core import native, segments
from shmbroker._core.housekeeper import awaiting_place
from shmbroker._housekeeper import housekeeper
from shmbroker._housekeeper.housekeeper import EndFlag, Housekeeper
from shmbroker._topology.shared import exchanges_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Keeper = Any  # a Housekeeper, into which these tests look
BYTES = native.ffi.sizeof("sb_queue_memory")
DEEDS = {"sb_housekeeper_sweep": "sweep", "sb_housekeeper_ticks": "tick", "sb_housekeeper_reclaim": "reclaim",
         "sb_housekeeper_trim": "trim"}  # fmt: skip


class Noted:
    """The calls of the core, noted, with other answers where they are given."""

    def __init__(self) -> None:
        self._core = native.slow
        self.called: list[tuple[str, tuple[Any, ...]]] = []
        self.answers: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        call = getattr(self._core, name)
        if not callable(call):
            return call

        def noted(*arguments: Any) -> Any:  # noqa: ANN401
            self.called.append((name, arguments))
            return self.answers[name] if name in self.answers else call(*arguments)

        return noted

    def deeds(self) -> list[str]:
        """What was done since the last time, in short."""
        done = [DEEDS[name] for name, _ in self.called if name in DEEDS]
        self.called.clear()
        return done

    def given(self, name: str) -> list[tuple[Any, ...]]:
        """What a call was given, each time."""
        return [arguments for called, arguments in self.called if called == name]


class Clock:
    """A time that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def monotonic_ns(self) -> int:
        """Nanoseconds."""
        return round(self.now * native.NANOSECONDS)

    def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Noted:
    """Note the calls that a housekeeper makes."""
    noted = Noted()
    monkeypatch.setattr(core_housekeeper, "slow", noted)
    return noted


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Have a housekeeper see a clock that stands still."""
    still = Clock()
    monkeypatch.setattr(housekeeper, "time", still)
    return still


@pytest.fixture
def keeper(broker: shmbroker.Broker, connection: shmbroker.Connection) -> Iterator[Keeper]:
    """Be the housekeeper, whose turns the test makes."""
    connection.queue("q")
    broker.stop()
    one: Keeper = Housekeeper(broker.name)
    assert one.begin()
    yield one
    if one._wake_reaper >= 0:
        one.close()
    broker.start()


@pytest.mark.parametrize(("busy", "seconds"), [(1, 0.25), (0, 1.0)])
def test_a_tick_comes_sooner_where_something_happens(
    keeper: Keeper, calls: Noted, clock: Clock, busy: int, seconds: float
) -> None:
    """A quarter of a second after one that saw something, a second after another, however often it is asked."""
    calls.answers = {"sb_housekeeper_ticks": busy}
    for elapsed, done in ((0.0, ["tick"]), (0.0, []), (seconds - 0.001, []), (seconds, ["tick"]), (seconds, [])):
        clock.now = 1000.0 + elapsed
        keeper._tick()
        assert calls.deeds() == done
        assert keeper._busy == bool(busy)
    assert keeper._tick_due == round((1000.0 + 2 * seconds) * native.NANOSECONDS)


@pytest.mark.parametrize(("more", "seconds"), [(1, 0.25), (0, 1.0)])
def test_a_step_of_reclaiming_comes_sooner_where_there_is_more(
    keeper: Keeper, calls: Noted, clock: Clock, more: int, seconds: float
) -> None:
    """The same of memory that becomes free for bodies step by step."""
    calls.answers = {"sb_housekeeper_reclaim": more}
    for elapsed, done in ((0.0, ["reclaim"]), (0.0, []), (seconds - 0.001, []), (seconds, ["reclaim"]), (seconds, [])):
        clock.now = 1000.0 + elapsed
        keeper._reclaim()
        assert calls.deeds() == done


def test_what_is_done_in_which_turn(keeper: Keeper, calls: Noted, clock: Clock) -> None:
    """Queues are looked for in every eighth turn though nothing says so, and trimmed in every fortieth.

    They are not trimmed again within a second.
    """
    assert clock.now == 1000.0
    calls.answers = {"sb_housekeeper_changes": 7, "sb_housekeeper_sweep": 0}
    done = []
    for turn in range(120):
        if turn == 100:
            clock.now += 0.24  # before the next tick
            keeper._trim_due = clock.now
        keeper._turn()
        done.append(calls.deeds())
    assert done[0] == ["sweep", "tick", "reclaim"]
    assert {turn + 1: deeds for turn, deeds in enumerate(done) if deeds and turn} == {
        **{turn: ["sweep"] for turn in range(8, 121, 8)},
        40: ["sweep", "trim"],
        101: ["trim"],
    }


def test_a_change_or_memory_that_is_not_free_yet_has_it_look_again(keeper: Keeper, calls: Noted) -> None:
    """In the next turn; what a sweep left is swept until nothing is left."""
    calls.answers = {"sb_housekeeper_changes": 7, "sb_housekeeper_sweep": 0}
    keeper._turns = 1
    keeper._watch()
    assert calls.deeds() == ["sweep"]
    keeper._watch()
    assert calls.deeds() == []
    calls.answers["sb_housekeeper_changes"] = 8
    assert keeper._has_changed()
    calls.answers["sb_housekeeper_sweep"] = 3
    keeper._watch()
    assert calls.given("sb_housekeeper_sweep") == [(keeper._core._handle, 0)]
    assert calls.deeds() == ["sweep"]
    assert not keeper._has_changed()
    calls.answers["sb_housekeeper_sweep"] = 0
    keeper._watch()
    keeper._watch()
    assert calls.deeds() == ["sweep"]


def test_bindings_of_deleted_queues_go(keeper: Keeper, connection: shmbroker.Connection) -> None:
    """What it cannot do now, for want of the lock, of memory, or of a journal that can be read, is no error."""
    pruned: list[tuple[object, ...]] = []
    error: list[Exception] = [exceptions.Timeout(), exceptions.OutOfMemory(), exceptions.CorruptSegment()]

    def prune(*given: object) -> None:
        pruned.append(given)
        if error:
            raise error.pop()

    exchanges = exchanges_of(keeper._connection)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchanges, "prune", prune)
        for number in range(4):
            connection.queue(f"q{number}")
            keeper._watch()
    assert pruned == [(keeper._connection, 0)] * 4
    assert len(keeper._core.queues) == 5


def test_the_reaper_is_woken_for_each_process_that_comes(
    keeper: Keeper, calls: Noted, broker: shmbroker.Broker
) -> None:
    """Once: in the first turn, and in the first one after another process attached."""
    assert calls.called == []

    def woken() -> int:
        try:
            return os.eventfd_read(keeper._wake_reaper)
        except BlockingIOError:
            return 0

    os.set_blocking(keeper._wake_reaper, False)
    keeper._turn()
    assert woken() == 1
    keeper._turn()
    assert woken() == 0
    with Actor(broker.name):
        keeper._turn()
        assert woken() == 1


# ---- queues ----


def notes(keeper: Keeper) -> list[bytes]:
    """What the core remembers of each queue that is watched, as the housekeeper keeps it."""
    memory = bytes(native.ffi.buffer(keeper._core._memories))
    return [memory[at * BYTES : (at + 1) * BYTES] for at in range(len(keeper._core.queues))]


def test_what_is_remembered_of_a_queue_goes_where_the_queue_goes(
    keeper: Keeper, connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """When others come, which have nothing yet, and when some are deleted."""
    keeper._watch()
    for name in "abc":
        connection.queue(name)
        keeper._watch()
    assert [queue.name for queue in keeper._core.queues] == ["q", "a", "b", "c"]
    native.ffi.buffer(keeper._core._memories)[:] = bytes(1 + at % 255 for at in range(4 * BYTES))
    for memory in keeper._core._memories:
        memory.agenda = native.ffi.NULL  # the end of a queue frees it
    before = notes(keeper)
    connection.queue("d")
    keeper._turns = 0
    keeper._watch()
    assert [queue.name for queue in keeper._core.queues] == ["q", "a", "b", "c", "d"]
    assert notes(keeper) == [*before, bytes(BYTES)]
    other.queue("q").delete()
    other.queue("b").delete()
    keeper._leave_deleted()
    assert [queue.name for queue in keeper._core.queues] == ["a", "c", "d"]
    assert notes(keeper) == [before[1], before[3], bytes(BYTES)]
    assert keeper._by_slot == {queue.slot: queue for queue in keeper._core.queues}
    assert list(keeper._core._handles) == [queue.handle for queue in keeper._core.queues]
    memories = keeper._core._memories
    keeper._leave_deleted()
    assert keeper._core._memories is memories
    for name in "acd":
        other.queue(name).delete()
    keeper._leave_deleted()
    assert keeper._core.queues == []


def test_a_queue_that_cannot_be_left_yet_is_watched_on(
    keeper: Keeper, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handle is in use; one that is there is not left, however few messages it has."""
    keeper._watch()
    (queue,) = keeper._core.queues
    left: list[bool] = []

    def leave() -> bool:
        left.append(False)
        return False

    monkeypatch.setattr(queue, "leave", leave)
    keeper._leave_deleted()
    assert left == []
    connection.queue("q").delete()
    keeper._leave_deleted()
    assert (left, keeper._core.queues) == ([False], [queue])


def test_a_queue_that_goes_before_it_is_opened_is_left_out(keeper: Keeper, connection: shmbroker.Connection) -> None:
    """As one for whose handle there is no memory; the others are watched."""
    gone = core_of(connection.queue("gone")).slot
    connection.queue("gone").delete()
    there = core_of(connection.queue("q")).slot
    keeper._connection.queue_slots = lambda: [gone, there]
    keeper._watch()
    assert [(queue.name, queue.slot) for queue in keeper._core.queues] == [("q", there)]


# ---- timers, and the sleep ----


def test_each_queue_has_its_turn_first(keeper: Keeper, calls: Noted, connection: shmbroker.Connection) -> None:
    """Turn by turn, another queue's timers come first."""
    for name in ("q", "a", "b"):
        connection.queue(name)
        keeper._watch()
    assert [queue.name for queue in keeper._core.queues] == ["q", "a", "b"]
    for _ in range(4):
        keeper._run_timers(5)
    given = calls.given("sb_housekeeper_run_timers")
    assert [(count, until) for _, _, count, _, until, _ in given] == [(3, 5)] * 4
    assert sorted(first for _, _, _, first, _, _ in given[:3]) == [0, 1, 2]
    assert given[3][3] == given[0][3]


def test_queues_with_dead_messages_are_handed_on(
    keeper: Keeper, calls: Noted, connection: shmbroker.Connection
) -> None:
    """Only if there are some."""
    keeper._watch()
    keeper._run_timers(0)
    assert calls.given("sb_housekeeper_with_dead") == []
    queue = connection.queue("dying", dead_letter_exchange="")
    queue.put(b"A")
    queue.get().nack(requeue=False)
    keeper._watch()
    keeper._run_timers(0)
    assert keeper._dead_letters._waiting == {keeper._core.queues[1].slot: 0}


def test_what_the_core_remembers_of_a_queue_goes_with_it(
    keeper: Keeper, calls: Noted, connection: shmbroker.Connection
) -> None:
    """And what it remembers of the others stays."""
    for name in ("q", "a"):
        connection.queue(name)
        keeper._watch()
    connection.queue("q").put(b"A", delay=3600)
    connection.queue("a").put(b"A", delay=3600)
    keeper._run_timers(0)
    assert keeper._core.looks() == 2
    assert keeper._core.timers_due < native.FOR_EVER
    connection.queue("q").delete()
    keeper._watch()
    assert len(calls.given("sb_housekeeper_forget")) == 1
    assert keeper._core.looks() == 1


@pytest.mark.parametrize(
    ("came", "due"),
    [((0, 0), 500), ((1, 0), 400), ((0, 1), 0)],
)
def test_it_sleeps_until_something_is_due(
    keeper: Keeper,
    calls: Noted,
    monkeypatch: pytest.MonkeyPatch,
    came: tuple[int, int],
    due: int,
) -> None:
    """A timer or a tick, or a timer that came meanwhile; not at all if there are new queues."""
    new, changed = came
    keeper._tick_due, keeper._changes = 700, 0
    monkeypatch.setattr(keeper, "_due", lambda: 400 if calls.given("sb_housekeeper_run_timers") else 500)
    calls.answers = {"sb_housekeeper_new_timers": new,
                     "sb_housekeeper_changes": changed, "sb_housekeeper_wait": native.STOPPING,
                     "sb_housekeeper_arm": 9}  # fmt: skip
    assert keeper._wait() == native.STOPPING
    assert calls.given("sb_housekeeper_next_due") == [(keeper._core._handle, 500)]
    assert calls.given("sb_housekeeper_wait") == [(keeper._core._handle, 9, due)]
    keeper._tick_due = 300
    keeper._wait()
    assert calls.given("sb_housekeeper_wait")[1:] == [(keeper._core._handle, 9, min(due, 300))]


# ---- clients, and the dead ----


@pytest.mark.parametrize(("processes", "stands_in", "clients"), [(1, 0, 0), (2, 0, 1), (2, 1, 0), (3, 1, 1)])
def test_clients_are_processes_that_keep_no_house(
    keeper: Keeper,
    monkeypatch: pytest.MonkeyPatch,
    processes: int,
    stands_in: int,
    clients: int,
) -> None:
    """Neither itself, nor the one that it stands in for."""
    facts = types.SimpleNamespace(processes=processes)
    with monkeypatch.context() as patch:
        patch.setattr(keeper._connection.attachment, "facts", lambda: facts)
        patch.setattr(keeper, "_stands_in", bool(stands_in))
        assert keeper._clients() is bool(clients)


def test_each_process_is_watched_once(keeper: Keeper, broker: shmbroker.Broker) -> None:
    """All but itself, by a descriptor that tells of its end."""
    poll, watched = select.poll(), dict[int, int]()
    with Actor(broker.name) as actor:
        keeper._watch_processes(watched, set(), poll)
        keeper._watch_processes(watched, set(), poll)
        ((descriptor, pid),) = watched.items()
        assert pid != os.getpid()
        assert poll.poll(0) == []
        actor.kill()
        assert [one for one, _ in poll.poll()] == [descriptor]
    os.close(descriptor)


def test_the_reaper_clears_up_after_each_process_that_ends(
    keeper: Keeper, calls: Noted, broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks when it is woken and when a process ends, and closes every descriptor that it opened."""
    monkeypatch.setattr(housekeeper, "REAP_SECONDS", 3600.0)
    opened: list[int] = []
    pidfd_open = os.pidfd_open

    def noted(pid: int) -> int:
        opened.append(pidfd_open(pid))
        return opened[-1]

    monkeypatch.setattr(os, "pidfd_open", noted)

    def recovered() -> int:
        return len(calls.given("sb_housekeeper_reap"))

    ended = EndFlag()
    reaper = threading.Thread(target=keeper._reap, args=(ended,))
    with Actor(broker.name) as first, Actor(broker.name):
        reaper.start()
        eventually(lambda: len(opened) >= 2 and recovered() >= 1, "two processes are watched")
        before = recovered()
        first.kill()
        eventually(lambda: recovered() > before, "the dead one is cleared up after")
        before = recovered()
        os.eventfd_write(keeper._wake_reaper, 1)
        eventually(lambda: recovered() > before, "it looks again")
        ended.set()
        os.eventfd_write(keeper._wake_reaper, 1)
        reaper.join()
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


# ---- its end ----


def test_who_is_not_the_housekeeper_ends_nobodys_service(broker: shmbroker.Broker, calls: Noted) -> None:
    """It gives back what it has: a connection, and a descriptor."""
    keeper = eventually(lambda: broker.statistics().housekeeper_pid)
    one = Housekeeper(broker.name)
    assert not one.begin()
    descriptor = one._wake_reaper
    assert one._leaves()
    one.close()
    assert calls.given("sb_housekeeper_end") == []
    assert calls.given("sb_housekeeper_step_down") == []
    assert one._connection.closed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert broker.statistics().housekeeper_pid == keeper


def test_the_place_of_one_that_was_stopped_is_asked_for_a_second_long(
    keeper: Keeper, calls: Noted, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps; then the other one has it, and goes on."""
    answers = iter([False, False, True])
    monkeypatch.setattr(keeper, "begin", lambda: next(answers))
    assert keeper._succeeds()
    assert clock.slept == [0.01, 0.01]
    monkeypatch.setattr(keeper, "begin", lambda: False)
    clock.now, clock.slept = 0.0, []
    assert not keeper._succeeds()
    assert 99 <= len(clock.slept) <= 102
    keeper._stands_in = True
    calls.answers = {"sb_housekeeper_is_relieved": 1, "sb_housekeeper_step_down": 0}
    assert keeper._is_relieved()
    assert keeper._stands_in is False
    assert calls.given("sb_housekeeper_step_down") == [(keeper._core._handle,)]
    assert not keeper._is_relieved()
    keeper._step_down()
    assert len(calls.given("sb_housekeeper_step_down")) == 1


def test_one_that_stands_in_steps_down_at_its_end(keeper: Keeper, calls: Noted) -> None:
    """And one that serves makes room for another."""
    calls.answers = {"sb_housekeeper_step_down": 0}
    keeper._stands_in = True
    keeper.close()
    assert calls.given("sb_housekeeper_step_down") == [(keeper._core._handle,)]
    assert calls.given("sb_housekeeper_end") == [(keeper._core._handle,)]
    keeper._wake_reaper = -1


def test_the_place_that_one_gave_up_is_free_for_others(
    keeper: Keeper, broker: shmbroker.Broker, calls: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it need not end any more: where another process has begun meanwhile, that one is the housekeeper."""
    monkeypatch.setattr(keeper._core, "wait", lambda *_: broker.start() and native.OK)
    assert keeper._leaves()
    pid = broker.statistics().housekeeper_pid
    assert pid not in {0, os.getpid()}
    keeper.close()
    keeper._wake_reaper = -1
    assert len(calls.given("sb_housekeeper_end")) == 1
    assert broker.statistics().housekeeper_pid == pid


# ---- another process waits for its place ----


@pytest.mark.parametrize(("name", "makes_way"), [(segments.AUTOMATIC, True), ("housekeeper", False)])
def test_who_makes_way(
    broker: shmbroker.Broker, connection: shmbroker.Connection, name: str, *, makes_way: bool
) -> None:
    """One that a client started ends when another process waits for its place; one that was asked for stays."""
    connection.queue("q")
    broker.stop()
    one: Keeper = Housekeeper(broker.name, name)
    assert one.begin()
    one._connection.attachment.set_stopped(stopped=False)
    try:
        for _ in range(2):
            assert one._core.wait(one._core.arm(), 0) != native.STOPPING
            path = one._connection.attachment.path
            with awaiting_place(path), awaiting_place(path):
                assert (one._core.wait(one._core.arm(), 0) == native.STOPPING) is makes_way
    finally:
        one.close()
        broker.start()


def test_one_that_could_not_begin_does_not_look_for_others(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """It may stand in for a stopped one, which nobody replaces meanwhile."""
    assert connection.is_open
    one: Keeper = Housekeeper(broker.name, segments.AUTOMATIC)
    assert not one.begin()
    with awaiting_place(one._connection.attachment.path):
        assert one._core.wait(one._core.arm(), 0) != native.STOPPING
    one.close()


def test_who_waits_for_the_place_in_a_broker_that_is_gone(broker_name: str) -> None:
    """Nobody can begin to."""
    path = segments.path_of(broker_name)
    with pytest.raises(exceptions.BrokerNotFound, match=f"no broker '{broker_name}'"), awaiting_place(path):
        pytest.fail("it waits")


def test_a_process_that_forked_waits_no_longer_than_it_says(connection: shmbroker.Connection) -> None:
    """A child has the descriptor as well; the end of the wait does not depend on the end of the child."""
    attachment = core_of(connection).attachment
    with awaiting_place(attachment.path):
        assert native.slow.sb_housekeeper_is_awaited(attachment.handle)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
    os.close(reader)
    try:
        assert not native.slow.sb_housekeeper_is_awaited(attachment.handle)
    finally:
        os.close(writer)
        os.waitpid(child, 0)


@pytest.fixture
def zombie(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Have the only client bear the id of a zombie: it is in another pid namespace, or cannot be cleared up after."""
    with subprocess.Popen(["true"]) as process:  # noqa: S607 - any will do
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        monkeypatch.setattr(keeper._core, "pids", lambda: {process.pid})
        yield process.pid


@contextlib.contextmanager
def reaping(keeper: Keeper) -> Iterator[None]:
    """Runs the reaper in a thread of its own."""
    ended = EndFlag()
    reaper = threading.Thread(target=keeper._reap, args=(ended,))
    reaper.start()
    try:
        yield
    finally:
        ended.set()
        os.eventfd_write(keeper._wake_reaper, 1)
        reaper.join()


@pytest.mark.parametrize("seconds", [3600.0, 0.0])
def test_a_zombie_is_looked_at_once_in_an_interval(
    keeper: Keeper, calls: Noted, monkeypatch: pytest.MonkeyPatch, zombie: int, seconds: float
) -> None:
    """Its descriptor tells of the end for ever: the reaper would never sleep."""
    opened, pidfd_open = list[int](), os.pidfd_open
    monkeypatch.setattr(housekeeper, "REAP_SECONDS", seconds)
    monkeypatch.setattr(os, "pidfd_open", lambda pid: opened.append(pid) or pidfd_open(pid))

    def recovered() -> int:
        return len(calls.given("sb_housekeeper_reap"))

    with reaping(keeper):
        eventually(lambda: recovered() >= 2, "it looks, and once more for the zombie")
        os.eventfd_write(keeper._wake_reaper, 1)
        eventually(lambda: recovered() >= 3, "it looks for each who comes")
        if seconds:
            assert opened == [zombie]
        else:
            eventually(lambda: len(opened) >= 3, "it looks again when the interval is over")
