# SPDX-License-Identifier: Apache-2.0
"""Housekeepers: what one of them knew, the next one finds again."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
import types
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.brokers import serve_while
from scenario_support.inside import core_of
from scenario_support.memory import Memory
from scenario_support.observing import take
from scenario_support.processes import run_python
from scenario_support.waiting import becomes, eventually

from shmbroker._core import attachment, native, segments
from shmbroker._core import housekeeper as core_housekeeper
from shmbroker._core.connection import CoreConnection
from shmbroker._housekeeper import housekeeper
from shmbroker._housekeeper.housekeeper import EndFlag

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker


def test_a_timer_without_an_entry_outlives_the_housekeeper_that_found_it(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A message whose producer died before it entered the schedule is due in time, even if a housekeeper dies too.

    The first housekeeper finds it by looking at all cells; so must the next one.
    """
    queue = connection.queue("q")
    queue.put(b"A", delay=3)
    broker.stop()
    memory = Memory(broker.name)
    shared, lib = memory.queue("q"), memory.lib
    schedule = shared.schedule.root
    memory.leaf(schedule).cells[0].word = lib.sb_cell_bare(lib.SB_CELL_TOMBSTONE, memory.leaf_gen(schedule))
    shared.timers_lost += 1  # as the reaper of the producer does
    broker.start()
    ticks = memory.header.housekeeper_ticks
    eventually(lambda: memory.header.housekeeper_ticks > ticks + 2, "the first one to have looked")
    broker.stop()
    broker.start()
    assert take(queue, 1, timeout=30) == ["A"]


def test_a_queue_that_comes_while_it_looks_for_queues_is_watched(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """At its next turn: else a message that is due soon there would wait until all queues are looked for again."""
    broker.stop()
    keeper = housekeeper.Housekeeper(broker.name, "housekeeper")
    assert keeper.begin()
    look = keeper._connection.queue_slots  # noqa: SLF001

    def look_then_declare() -> list[int]:
        found = look()
        connection.queue("late")
        return found

    keeper._connection.queue_slots = look_then_declare  # type: ignore[method-assign] # noqa: SLF001
    keeper._turn()  # noqa: SLF001
    assert keeper._core.queues == []  # noqa: SLF001
    assert keeper._has_changed()  # noqa: SLF001
    keeper._turn()  # noqa: SLF001
    assert [queue.slot for queue in keeper._core.queues] == look()  # noqa: SLF001
    assert not keeper._has_changed()  # noqa: SLF001
    keeper.close()


def test_who_stands_in_takes_the_place_of_one_that_died_while_it_was_stopped(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """It goes on, as the housekeeper, which another process can stand in for; no other one has to be started."""
    keeper = eventually(lambda: broker.statistics().housekeeper_pid)
    os.kill(keeper, signal.SIGSTOP)
    eventually(lambda: broker.statistics().housekeeper_stopped, "it is stopped")
    substitute = housekeeper.Housekeeper(broker.name)
    try:
        assert not substitute.begin()
        assert substitute.stand_in()
        assert not substitute._is_relieved()  # noqa: SLF001
        assert broker.statistics().housekeeper_pid == keeper
        os.kill(keeper, signal.SIGKILL)
        eventually(core_of(connection).attachment.housekeeper_missing, "it is dead")
        assert not substitute._is_relieved()  # noqa: SLF001
        assert broker.statistics().housekeeper_pid == os.getpid()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(keeper, signal.SIGKILL)
        substitute.close()
    broker.start()


def test_who_stands_in_takes_the_place_of_one_that_is_dying(
    broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed is no longer stopped, and holds its lock for a moment: it is asked for again."""
    keeper = eventually(lambda: broker.statistics().housekeeper_pid)
    os.kill(keeper, signal.SIGSTOP)
    eventually(lambda: broker.statistics().housekeeper_stopped, "it is stopped")
    substitute = housekeeper.Housekeeper(broker.name)
    try:
        assert substitute.stand_in()
        begin, refusals = substitute.begin, iter([False] * 3)
        monkeypatch.setattr(substitute, "begin", lambda: next(refusals, True) and begin())
        os.kill(keeper, signal.SIGKILL)
        eventually(lambda: not broker.statistics().housekeeper_stopped, "it is dead, or dying")
        assert not substitute._is_relieved()  # noqa: SLF001
        assert broker.statistics().housekeeper_pid == os.getpid()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(keeper, signal.SIGKILL)
        substitute.close()
    broker.start()


def test_who_stands_in_ends_when_the_housekeeper_goes_on(broker: shmbroker.Broker) -> None:
    """One that holds its lock for longer than a process takes to die does its work itself."""
    keeper = eventually(lambda: broker.statistics().housekeeper_pid)
    os.kill(keeper, signal.SIGSTOP)
    eventually(lambda: broker.statistics().housekeeper_stopped, "it is stopped")
    substitute = housekeeper.Housekeeper(broker.name)
    try:
        assert substitute.stand_in()
        os.kill(keeper, signal.SIGCONT)
        eventually(lambda: not broker.statistics().housekeeper_stopped, "it goes on")
        assert substitute._is_relieved()  # noqa: SLF001
        assert broker.statistics().housekeeper_pid == keeper
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(keeper, signal.SIGCONT)
        substitute.close()


def tick_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tick is the last: what is done after it is done because somebody said so."""
    for interval in ("TICK_SECONDS", "REST_SECONDS"):
        monkeypatch.setattr(housekeeper, interval, 3600.0)


class Recorded:
    """The calls of the core, with a note of when the housekeeper ticks and when it wakes up."""

    def __init__(self, calls: Any) -> None:  # noqa: ANN401
        self._calls = calls
        self.ticks: list[float] = []
        self.wakes = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._calls, name)

    def sb_housekeeper_ticks(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Looks at the queues."""
        self.ticks.append(time.monotonic())
        return self._calls.sb_housekeeper_ticks(*arguments)

    def sb_housekeeper_wait(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Sleeps."""
        self.wakes += 1
        return self._calls.sb_housekeeper_wait(*arguments)


def test_however_often_timers_wake_it_a_tick_takes_its_time(
    broker: shmbroker.Broker, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That nothing was taken since the last tick says something only if that is a while ago."""
    queue = connection.queue("q")
    broker.stop()
    calls = Recorded(core_housekeeper.slow)
    monkeypatch.setattr(core_housekeeper, "slow", calls)

    def put_many() -> None:
        for milliseconds in range(5, 1000, 5):
            queue.put(b"A", ttl=milliseconds / 1000)
        eventually(lambda: len(queue) == 0 and len(calls.ticks) > 4, "all to expire")

    serve_while(broker, put_many)
    assert calls.wakes > 4 * len(calls.ticks)
    assert all(after - before >= housekeeper.TICK_SECONDS for before, after in itertools.pairwise(calls.ticks))


class AlwaysMoreTimers(Recorded):
    """The same; a producer gives a timer whenever the housekeeper looks."""

    def sb_housekeeper_new_timers(self, *arguments: Any) -> int:  # noqa: ANN401
        """There are some."""
        self._calls.sb_housekeeper_new_timers(*arguments)
        return 1


def test_timers_without_a_pause_do_not_keep_it_from_its_end(
    broker: shmbroker.Broker, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends when the broker is stopped, also while it never comes to sleep."""
    connection.queue("q")
    broker.stop()
    monkeypatch.setattr(core_housekeeper, "slow", AlwaysMoreTimers(core_housekeeper.slow))
    serve_while(broker, lambda: None)


class StartedAtItsEnd(Recorded):
    """The same; a process starts the broker when the housekeeper has read that it is to end, and has not ended yet."""

    def __init__(self, calls: Any, broker: str) -> None:  # noqa: ANN401
        super().__init__(calls)
        self._broker = broker
        self.wakes_before = 0  # the wakes until then, 0: it was not told to end yet

    def sb_housekeeper_wait(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Sleeps until it is told to end, or otherwise woken."""
        status = super().sb_housekeeper_wait(*arguments)
        if status == native.STOPPING and not self.wakes_before:
            self.wakes_before = self.wakes
            assert (
                run_python("import sys, shmbroker; shmbroker.Broker(sys.argv[1]).start()", self._broker).returncode == 0
            )
        return status


def test_a_start_beside_its_end(broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays: the process that starts the broker then sees it in its place, and has started no other one."""
    broker.stop()
    calls = StartedAtItsEnd(core_housekeeper.slow, broker.name)
    monkeypatch.setattr(core_housekeeper, "slow", calls)
    attached = attachment.acquire(segments.path_of(broker.name))

    def stop() -> None:
        attached.set_stopped(stopped=True)
        eventually(lambda: 0 < calls.wakes_before < calls.wakes - 1, "it goes on")  # its place is free for a moment
        assert attached.facts().housekeeper_pid == os.getpid()

    serve_while(broker, stop)
    attachment.release(attached)
    broker.start()


def end_by_itself(connection: shmbroker.Connection, *, bound_to: str = "") -> None:
    """Has a queue that goes with its last consumer, and then does."""
    with connection.channel() as channel:
        channel.queue_declare("brief", auto_delete=True)
        if bound_to:
            channel.queue_bind("brief", bound_to)
        channel.basic_consume("brief", lambda *_: None)


def test_a_queue_that_ended_by_itself_is_no_fault(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Its name lies in the directory until a housekeeper sweeps it out; the doctor knows that."""
    broker.stop()
    end_by_itself(connection)
    memory = Memory(broker.name)
    assert memory.names() == ["brief"]
    assert connection.doctor() == []
    broker.start()
    becomes(memory.names, [])


def test_it_is_told_of_a_queue_that_ends_by_itself(
    broker: shmbroker.Broker, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name and the memory go then, not with the next tick."""
    broker.stop()
    tick_never(monkeypatch)

    def end_one() -> None:
        end_by_itself(connection)
        becomes(Memory(broker.name).names, [])

    serve_while(broker, end_one)
    broker.start()


TAKES_AND_DIES = """
    import os, signal, sys, shmbroker
    taken = shmbroker.connect(sys.argv[1], create=False).queue("jobs").get()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_reaps_who_is_killed_while_it_serves(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """No other process is attached that could: what the killed process held is ready again."""
    broker.stop()

    def lose_one() -> None:
        jobs = connection.queue("jobs")
        jobs.put(b"job")
        assert run_python(TAKES_AND_DIES, broker.name).returncode == -signal.SIGKILL
        becomes(lambda: jobs.statistics().ready, 1)

    serve_while(broker, lose_one)
    broker.start()


@pytest.mark.damaged
def test_a_purge_in_the_middle_of_a_turn_is_its_end(broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It returns as when it is told to end, also while it looks for the bindings of queues that are gone."""
    broker.stop()
    with broker.connect() as connection:
        end_by_itself(connection, bound_to="amq.fanout")
    queue_incarnation, asked = CoreConnection.queue_incarnation, []

    def purged_before(core: CoreConnection, name: str) -> int:
        core.attachment.set_closing()
        asked.append(name)
        return queue_incarnation(core, name)

    monkeypatch.setattr(CoreConnection, "queue_incarnation", purged_before)
    broker.serve_forever()
    assert asked == ["brief"]


class GivesATimerLast(Recorded):
    """The same; a producer gives a timer just before the housekeeper sleeps, after all its looks but those it owes."""

    def __init__(self, calls: Any, give: Callable[[], object]) -> None:  # noqa: ANN401
        super().__init__(calls)
        self._give = [give]

    def sb_housekeeper_arm(self, handle: Any) -> Any:  # noqa: ANN401
        """A timer comes before it can be woken, which is not seen by a look before that."""
        if self.ticks and self._give:
            self._give.pop()()
        return self._calls.sb_housekeeper_arm(handle)


def test_a_timer_that_comes_just_before_it_sleeps_is_seen(
    broker: shmbroker.Broker, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for timers when it can be woken, so that none falls in between; and for queues."""
    broker.stop()
    tick_never(monkeypatch)
    calls = GivesATimerLast(core_housekeeper.slow, lambda: connection.queue("new").put(b"A", delay=0.01))
    monkeypatch.setattr(core_housekeeper, "slow", calls)

    def take_it() -> None:
        eventually(lambda: "new" in connection.queue_names(), "the queue to be there")
        assert take(connection.queue("new"), 1, timeout=30) == ["A"]

    serve_while(broker, take_it)
    assert len(connection.queue("new")) == 0


class Counting(housekeeper.Housekeeper):
    """Does nothing in its turns but count them, and is told to end after so many."""

    def __init__(self, broker: str, ended: EndFlag) -> None:
        super().__init__(broker, "counting")
        self.turns, self._ended = 0, ended

    def _turn(self) -> None:
        self.turns += 1
        self._turns = self.turns
        if self.turns == TURNS:
            self._ended.set()

    def _wait(self) -> int:
        return native.OK


TURNS = 100


@pytest.mark.parametrize(
    ("processes", "linger", "turns"),
    [
        (3, 0.0, TURNS),
        (2, 0.0, TURNS),
        (1, 0.0, housekeeper._WATCH_TURNS),  # noqa: SLF001
        (1, 3600.0, TURNS),
        (1, None, TURNS),
    ],
)
def test_it_stays_as_long_as_there_are_clients(
    broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch, processes: int, linger: float | None, turns: int
) -> None:
    """And, where nobody is left but itself, for the time that it was told to linger."""
    ended = EndFlag()
    keeper = Counting(broker.name, ended)
    facts = types.SimpleNamespace(processes=processes)
    monkeypatch.setattr(keeper._connection.attachment, "facts", lambda: facts)  # noqa: SLF001
    keeper.run(ended, linger=linger)
    assert keeper.turns == turns
