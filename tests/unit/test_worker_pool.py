# SPDX-License-Identifier: Apache-2.0
"""A pool with played processes: whom it starts, replaces, waits for and kills, and what it leaves."""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.waiting import becomes

import shmbroker
from shmbroker import workers
from shmbroker.workers import _PATIENCE_SECONDS, WorkerPool, _Options, _work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection


class Played:
    """A worker process that does what a test wants."""

    def __init__(self, stage: Stage, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Be asked for, with these arguments, of which the last is an end of a pipe."""
        self.stage, self.target, self.given, self.tell = stage, target, args[:-1], args[-1]
        self.pid: int | None = None
        self.exitcode: int | None = None
        self.alive = self.stubborn = False
        self.did: list[Any] = []
        self.ended, self.lives = os.pipe()

    @property
    def sentinel(self) -> int:
        """Readable when it has ended."""
        return self.ended

    def start(self) -> None:
        """Begin, and say what a test wants it to say; None: die before that."""
        self.stage.masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        if self.stage.refused:
            raise self.stage.refused.pop()
        self.pid, self.alive = 1000 + self.stage.played.index(self), True
        if self.stage.says is None:
            self.die()
        else:
            self.tell.send(self.stage.says)

    def die(self) -> None:
        """End."""
        self.alive = False
        if self.lives >= 0:
            os.close(self.lives)
            self.lives = -1

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.alive

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        self.did.append(("join", timeout))
        if not self.alive:
            self.exitcode = -9

    def terminate(self) -> None:
        """Ask it to end, which a stubborn one does not."""
        assert self.pid is not None
        self.did.append("terminate")
        if not self.stubborn:
            self.die()

    def kill(self) -> None:
        """End it."""
        self.did.append("kill")
        self.die()


class Stage:
    """The context of multiprocessing, played."""

    def __init__(self) -> None:
        self.says: str | None = ""
        self.refused: list[Exception] = []
        self.played: list[Played] = []
        self.ends: list[Connection] = []
        self.masks: list[set[signal.Signals]] = []

    def pipe(self, *, duplex: bool = True) -> tuple[Connection, Connection]:
        """Make a true one."""
        ends = multiprocessing.connection.Pipe(duplex)
        self.ends += ends
        return ends

    def process(self, target: Callable[..., None], args: tuple[Any, ...]) -> Played:
        """Make a played one."""
        self.played.append(Played(self, target, args))
        return self.played[-1]

    def close(self) -> None:
        """Give back all descriptors."""
        for one in self.played:
            one.die()
            os.close(one.ended)
        for end in self.ends:
            end.close()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Let pools start played processes."""
    made = Stage()
    context = SimpleNamespace(Pipe=made.pipe, Process=made.process)
    monkeypatch.setattr(multiprocessing, "get_context", {"spawn": context}.__getitem__)
    monkeypatch.setattr(multiprocessing.resource_tracker, "ensure_running", lambda: None)
    yield made
    made.close()


@pytest.fixture
def at_exit(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what the program's end would call."""
    calls: list[Any] = []
    monkeypatch.setattr(atexit, "register", calls.append)
    monkeypatch.setattr(atexit, "unregister", lambda call: call in calls and calls.remove(call))
    return calls


def supervisors() -> list[threading.Thread]:
    """The threads that look after pools."""
    return [thread for thread in threading.enumerate() if thread.name == "shmbroker-workers"]


# ---- beginning and end ----


@pytest.mark.parametrize("attempts", [None, 1, 1_000_000])
def test_how_often_a_message_may_be_tried(attempts: int | None) -> None:
    """At least once, at most a million times, or without limit."""
    assert WorkerPool(print, "q", attempts=attempts).set_aside == "q.set-aside"


def test_what_is_too_much_for_a_pool() -> None:
    """The value and the limit are named."""
    with pytest.raises(ValueError, match="attempts=1000001: an integer from 1 to 1000000, or None for no limit"):
        WorkerPool(print, "q", attempts=1_000_001)


def test_a_pool_from_its_start_to_its_end(stage: Stage, at_exit: list[Any]) -> None:
    """Each worker is told all it needs; a second start and a second stop change nothing; then it can start again."""
    pool = WorkerPool(os.getpid, "q", broker="b", processes=2, prefetch=3, attempts=4, set_aside="aside")
    with pool as entered:
        assert entered is pool.start()
        assert (pool.pids, len(stage.played), at_exit) == ([1000, 1001], 2, [pool.stop])
        for worker in stage.played:
            assert (worker.target, pickle.loads(worker.given[0])) == (_work, os.getpid)  # noqa: S301 (made above)
            assert worker.given[1:] == (_Options("q", "b", 3, 4, "aside"),)
        assert all(end.closed for end in stage.ends)
        (thread,) = supervisors()
        assert (thread.daemon, repr(pool)) == (True, "<WorkerPool of 2 at 'q', running>")
    assert (supervisors(), pool.pids, at_exit) == ([], [], [])
    assert repr(pool) == "<WorkerPool of 2 at 'q', stopped>"
    pool.stop()
    assert [worker.did[0] for worker in stage.played] == ["terminate"] * 2
    assert [worker.did.count("terminate") for worker in stage.played] == [1, 1]
    with pool:
        assert (pool.pids, len(supervisors())) == ([1002, 1003], 1)


def test_ctrl_c_does_not_reach_a_worker_before_it_ignores_it(stage: Stage) -> None:
    """It is blocked while a worker starts, and only then."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with WorkerPool(print, "q", processes=1):
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert stage.masks == [before | {signal.SIGINT}]


def test_a_function_that_has_no_name(stage: Stage) -> None:
    """The error shows it; no worker is started."""
    pool = WorkerPool(lambda _: None, "q", processes=1)
    with pytest.raises(shmbroker.WorkerError, match=r"function=.*<lambda>.*by its name, which fails"):
        pool.start()
    assert stage.played == []


@pytest.mark.parametrize("says", ["ImportError: no such module", None])
def test_a_function_that_is_not_found(stage: Stage, at_exit: list[Any], says: str | None) -> None:
    """The error has what the first worker said, or how it ended; all of them are ended, and nothing runs."""
    stage.says = says
    pool = WorkerPool(os.getpid, "q", processes=2)
    problem = says or "the process ended with status -9 before it had imported the function"
    with pytest.raises(shmbroker.WorkerError, match=f"cannot import getpid of module 'posix': {problem}[.]"):
        pool.start()
    assert [worker.did[-2:][0] for worker in stage.played] == ["terminate"] * 2
    assert (pool.pids, at_exit, supervisors()) == ([], [], [])
    assert all(end.closed for end in stage.ends)
    stage.says = ""
    with pool:
        assert pool.pids == [1002, 1003]


def test_a_worker_that_cannot_be_started(stage: Stage) -> None:
    """The error is raised; those that were started are ended, and Ctrl-C comes through again."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    stage.refused = [OSError("no more processes")]
    pool = WorkerPool(print, "q", processes=2)
    with pytest.raises(OSError, match="no more processes"):
        pool.start()
    assert ([worker.did for worker in stage.played], pool.pids) == ([[]], [])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_a_pool_whose_thread_cannot_be_started(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers are ended; it can be started later."""

    def fail(_: threading.Thread) -> None:
        text = "can't start new thread"
        raise RuntimeError(text)

    pool = WorkerPool(print, "q", processes=1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.start()
    assert (stage.played[0].did[0], repr(pool)) == ("terminate", "<WorkerPool of 1 at 'q', stopped>")
    with pool:
        assert pool.pids == [1001]


def test_a_pool_of_another_process(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that was forked does not stop its parent's workers."""
    pool = WorkerPool(print, "q", processes=1).start()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        pool.stop()
    assert (pool.pids, stage.played[0].did) == ([1000], [])
    pool.stop()


def test_stopping_waits_for_the_supervisor(stage: Stage) -> None:
    """After the workers were ended: an interrupt of this wait leaves no worker at work. It starts none any more."""
    pool, seen = WorkerPool(print, "q", processes=1), []
    thread: Any = SimpleNamespace(join=lambda: seen.append((stage.played[0].alive, pool._ended.is_set())))  # noqa: SLF001
    pool.start()
    supervisor, pool._supervisor = pool._supervisor, thread  # noqa: SLF001
    pool.stop()
    assert seen == [(False, True)]
    assert supervisor is not None
    supervisor.join()
    pool.stop()


# The calls in which a second Ctrl-C can come: of a worker, or of the thread of the pool.
INTERRUPTIBLE = ["terminate", "join", "supervisor"]


def interrupted_once(monkeypatch: pytest.MonkeyPatch, pool: WorkerPool, where: str) -> None:
    """Have one call raise KeyboardInterrupt before it does anything."""
    name = "join" if where == "supervisor" else where
    target: Any = pool._supervisor if where == "supervisor" else Played  # noqa: SLF001
    call = getattr(target, name)

    def interrupted(*_: object) -> None:
        monkeypatch.setattr(target, name, call)
        raise KeyboardInterrupt

    monkeypatch.setattr(target, name, interrupted)


@pytest.mark.parametrize("where", INTERRUPTIBLE)
def test_the_end_of_the_program_finishes_an_interrupted_stop(
    stage: Stage, at_exit: list[Any], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It ends every worker, also one that must be killed, and then has nothing to call any more."""
    monkeypatch.setattr(workers, "_PATIENCE_SECONDS", 0.0)
    pool = WorkerPool(print, "q", processes=2).start()
    stage.played[0].stubborn = True
    interrupted_once(monkeypatch, pool, where)
    with pytest.raises(KeyboardInterrupt):
        pool.stop()
    assert at_exit == [pool.stop]
    at_exit[0]()
    assert [worker.alive for worker in stage.played] == [False, False]
    assert (pool.pids, at_exit, supervisors()) == ([], [], [])


@pytest.mark.parametrize("where", INTERRUPTIBLE)
def test_a_start_after_an_interrupted_stop(stage: Stage, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """It ends the workers that are left before it starts others."""
    monkeypatch.setattr(workers, "_PATIENCE_SECONDS", 0.0)
    pool = WorkerPool(print, "q", processes=2).start()
    stage.played[0].stubborn = True
    interrupted_once(monkeypatch, pool, where)
    with pytest.raises(KeyboardInterrupt):
        pool.stop()
    with pool:
        assert [worker.alive for worker in stage.played] == [False, False, True, True]
        assert (pool.pids, len(supervisors())) == ([1002, 1003], 1)


@pytest.mark.parametrize("where", ["terminate", "join"])
def test_the_end_of_the_program_finishes_an_interrupted_start(
    stage: Stage, at_exit: list[Any], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A start that fails ends the workers that it has started; so does the program's end, if that was interrupted."""
    pool = WorkerPool(os.getpid, "q", processes=2)

    def fail(_: object) -> None:
        interrupted_once(monkeypatch, pool, where)
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "_await_first", fail)
    with pytest.raises(KeyboardInterrupt):
        pool.start()
    assert at_exit == [pool.stop]
    at_exit[0]()
    assert [worker.alive for worker in stage.played] == [False, False]
    assert (pool.pids, at_exit, supervisors()) == ([], [], [])


def test_a_worker_that_does_not_come_to_an_end_is_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After half a minute for all of them together, in which all were asked to end."""
    pool = WorkerPool(print, "q", processes=4).start()
    stage.played[1].stubborn = stage.played[2].stubborn = True
    times = iter([100.0, 100.0, 110.0, 140.0, 150.0])
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: next(times)))
    pool._ended.set()  # noqa: SLF001 (so that its thread does not look at the time)
    assert pool._supervisor is not None  # noqa: SLF001
    pool._supervisor.join()  # noqa: SLF001
    pool.stop()
    assert _PATIENCE_SECONDS == 30.0
    assert [worker.did for worker in stage.played] == [
        ["terminate", ("join", 30.0)],
        ["terminate", ("join", 20.0), "kill", ("join", None)],
        ["terminate", ("join", 0.0), "kill", ("join", None)],
        ["terminate", ("join", 0.0)],
    ]


# ---- supervising ----


class Script:
    """What happens at each look of the supervisor: the time, and which workers have died. At the last look it ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pool: WorkerPool) -> None:
        """Begin at second 100."""
        self.pool, self.now, self.over = pool, 100.0, False
        self.steps: list[tuple[float, Sequence[int]]] = []
        self.die_at_the_end: Sequence[int] = ()
        self.waits: list[float] = []
        self.looks: list[tuple[list[int], float | None]] = []
        monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(multiprocessing.connection, "wait", self.look)
        ended: Any = SimpleNamespace(is_set=lambda: self.over, wait=self.waits.append)
        pool._ended = ended  # noqa: SLF001

    def look(self, sentinels: list[int], timeout: float | None = None) -> None:
        """Go on by one step."""
        self.looks.append((sentinels, timeout))
        self.over = not self.steps
        self.now, dead = self.steps.pop(0) if self.steps else (self.now, self.die_at_the_end)
        for index in dead:
            self.pool._workers[index].die()  # noqa: SLF001

    def play(self, *steps: tuple[float, Sequence[int]]) -> None:
        """Supervise in this thread."""
        self.steps += steps
        self.pool._supervise()  # noqa: SLF001


@pytest.fixture
def pool(stage: Stage) -> Iterator[WorkerPool]:
    """Return a pool of three workers, whose supervisor the test plays."""
    made = WorkerPool(os.getpid, "q", processes=3)
    function = pickle.dumps(os.getpid)
    for index in range(3):
        made._start_worker(index, function).close()  # noqa: SLF001
    yield made
    assert len(stage.played) >= 3
    made._end_workers()  # noqa: SLF001


def test_workers_that_live_are_left_alone(pool: WorkerPool, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor sleeps until one ends, or is told to end, which it notices five times a second."""
    script = Script(monkeypatch, pool)
    script.play((200.0, []))
    assert script.looks == [([worker.sentinel for worker in stage.played], 0.2)] * 2
    assert (pool.pids, pool.restarts, script.waits) == ([1000, 1001, 1002], 0, [])
    assert [worker.did for worker in stage.played] == [[]] * 3


def test_workers_that_died_are_replaced(pool: WorkerPool, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in its place, with the same function; the dead are waited for, so that they do not stay as zombies."""
    script = Script(monkeypatch, pool)
    script.play((200.0, [1]))
    assert (pool.pids, pool.restarts) == ([1000, 1003, 1002], 1)
    script.over = False
    script.play((300.0, [0, 2]))
    assert (pool.pids, pool.restarts, script.waits) == ([1004, 1003, 1005], 3, [])
    assert [worker.did for worker in stage.played] == [[("join", None)]] * 3 + [[]] * 3
    assert {worker.given for worker in stage.played} == {stage.played[0].given}
    assert all(end.closed for end in stage.ends)


def test_a_worker_that_dies_at_once_is_replaced_after_a_while(
    pool: WorkerPool, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a second of its own start: then the supervisor waits for the pool's end first."""
    script = Script(monkeypatch, pool)
    script.play((100.5, [0]), (101.0, [0, 1]), (102.0, [0]), (103.5, [0]))
    assert (script.waits, pool.restarts) == ([0.2, 0.2], 5)
    assert len(stage.played) == 8


@pytest.mark.parametrize("where", ["pipe", "start"])
def test_a_worker_that_cannot_be_replaced_is_replaced_later(
    pool: WorkerPool,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    """Processes or descriptors ran out: the supervisor says so once, waits before each further try, and lives on."""
    script, errors = Script(monkeypatch, pool), [OSError("no more of them"), OSError("no more of them")]
    if where == "pipe":
        pipe = stage.pipe

        def refused(*, duplex: bool = True) -> tuple[Connection, Connection]:
            if errors:
                raise errors.pop()
            return pipe(duplex=duplex)

        monkeypatch.setattr(pool._context, "Pipe", refused)  # noqa: SLF001
    else:
        stage.refused = errors  # type: ignore[assignment]
    script.play((200.0, [1]), (200.3, []), (200.6, []), (300.0, [0]))
    lives = [worker.alive for worker in pool._workers]  # noqa: SLF001
    assert (lives, pool.restarts, script.waits) == ([True] * 3, 2, [0.2, 0.2])
    assert script.looks[1][0] == script.looks[2][0] == [worker.sentinel for worker in stage.played[:3]]
    assert all(end.closed for end in stage.ends)
    assert [record.getMessage() for record in caplog.records] == [
        "a worker of queue 'q' ended, and no other can be started yet: no more of them"
    ]


def test_no_worker_is_replaced_at_the_end(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it died: the pool was stopped meanwhile."""
    script = Script(monkeypatch, pool)
    script.die_at_the_end = [0]
    script.play()
    assert (pool.pids, pool.restarts) == ([1001, 1002], 0)


def test_a_pool_replaces_workers(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it runs, again after it was stopped and started."""
    monkeypatch.setattr(workers, "_QUICK_SECONDS", 0.0)
    pool = WorkerPool(print, "q", processes=1)
    for number in range(2):
        with pool:
            stage.played[-1].die()
            becomes(lambda: len(pool.pids), 1)
        assert (pool.restarts, len(stage.played)) == (number + 1, 2 * number + 2)
