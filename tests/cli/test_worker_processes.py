# SPDX-License-Identifier: Apache-2.0
"""What a worker of `consume --workers` says to its parent, what it is answered, and when all end."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from scenario_support.inside import connection_of

import shmbroker
from shmbroker_cli import worker_processes
from shmbroker_cli.claim_counter import ClaimCounter
from shmbroker_cli.errors import Refused
from shmbroker_cli.worker_processes import ReportedCall, run_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

called: list[bytes] = []


def handle(message: shmbroker.Message) -> None:
    """Note a message; one says that it is bad."""
    called.append(bytes(message))
    if bytes(message) == b"bad":
        text = "bad\nluck\udcff!"
        raise ValueError(text)
    if bytes(message) == b"leave":
        raise SystemExit(7)
    if bytes(message) == b"settled":
        message.ack()
        raise KeyError


HANDLE = f"{__name__}:handle"


@pytest.fixture(autouse=True)
def _nothing_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without calls, and without lines to a parent; let this module be found by its name."""
    monkeypatch.setitem(__import__("sys").modules, __name__, __import__("sys").modules.get(__name__) or _this())
    called.clear()
    monkeypatch.setattr(worker_processes, "_lines", {})


def _this() -> Any:  # noqa: ANN401 (a module, or what does for one)
    return type("This", (), {"handle": staticmethod(handle)})


class Noted(ClaimCounter):
    """A tally that notes what it is told."""

    def __init__(self, *answers: bool) -> None:
        """Answer claims so."""
        super().__init__(None)
        self.answers = list(answers)
        self.told: list[str] = []

    def claim(self) -> bool:
        """Answer."""
        self.told.append("claim")
        return self.answers.pop(0)

    def finish(self) -> None:
        """Note it."""
        self.told.append("finish")

    def fail(self, text: str) -> None:
        """Note it."""
        self.told.append(f"fail: {text}")

    def give_back(self) -> None:
        """Note it."""
        self.told.append("give back")


def worker(said: bytes, claims: ClaimCounter, answered: Any) -> worker_processes._Worker:  # noqa: ANN401 (a file)
    """Return the parent's side of a worker that says this and ends."""
    made = worker_processes._Worker.__new__(worker_processes._Worker)  # noqa: SLF001 - its own parts
    made.server = type("Desk", (), {"claims": claims})()
    made.rfile, made.wfile = io.BytesIO(said), answered
    return made


@pytest.mark.parametrize(
    ("said", "claims", "told", "answered"),
    [
        (b"", (), [], b""),
        (b"?\n", (True,), ["claim", "give back"], b"y\n"),
        (b"?\n", (False,), ["claim"], b"n\n"),
        (b"?\n.\n", (True,), ["claim", "finish"], b"y\n"),
        (b"?\n.\n?\n", (True, True), ["claim", "finish", "claim", "give back"], b"y\ny\n"),
        (b"?\n.\n?\n", (True, False), ["claim", "finish", "claim"], b"y\nn\n"),
        (b"?\n!f raised it!\n", (True,), ["claim", "fail: f raised it!"], b"y\n"),
        (b"?\n!\xff\n", (True,), ["claim", "fail: \ufffd"], b"y\n"),
    ],
)
def test_the_parent_counts_what_a_worker_says(
    said: bytes, claims: tuple[bool, ...], told: list[str], answered: bytes
) -> None:
    """A message that a worker claimed and did not report before it ended is free for others."""
    claims, answers = Noted(*claims), io.BytesIO()
    worker(said, claims, answers).handle()
    assert (claims.told, answers.getvalue()) == (told, answered)


def test_a_worker_that_goes_before_it_is_answered_has_nothing() -> None:
    """What it claimed is given back, though its line broke."""

    class Broken(io.BytesIO):
        def write(self, _data: object) -> int:
            raise BrokenPipeError

    claims = Noted(True)  # noqa: FBT003 (an answer)
    with pytest.raises(BrokenPipeError):
        worker(b"?\n", claims, Broken()).handle()
    assert claims.told == ["claim", "give back"]


@pytest.fixture
def taken(jobs: shmbroker.Queue) -> Callable[..., Iterator[shmbroker.Message]]:
    """Return a function that puts messages, and takes them one by one."""

    def take(*bodies: bytes) -> Iterator[shmbroker.Message]:
        jobs.put_many(bodies)
        return (jobs.get(timeout=0) for _ in bodies)

    return take


def test_a_worker_calls_the_function_and_says_when_it_is_done(
    taken: Callable[..., Iterator[shmbroker.Message]], jobs: shmbroker.Queue
) -> None:
    """For each message it asks first; there is one line for all of them."""
    claims = ClaimCounter(2)
    with worker_processes._claim_server(claims) as address:  # noqa: SLF001 - its own parts
        lines = []
        for message in taken(b"1", b"2"):
            with message:
                ReportedCall(HANDLE, address)(message)
            lines.append(dict(worker_processes._lines))  # noqa: SLF001 - its own parts
        claims.wait(None, lambda: True)
    assert (called, claims.done, claims.failure) == ([b"1", b"2"], 2, None)
    assert lines[0] == lines[1]
    assert list(lines[0]) == [(os.getpid(), address)]
    assert len(jobs) == 0


def test_a_worker_that_is_not_wanted_ends(
    taken: Callable[..., Iterator[shmbroker.Message]], jobs: shmbroker.Queue
) -> None:
    """With exit code 0, without a call, and its message is in the queue again."""
    claims = ClaimCounter(None)
    claims.close()
    (message,) = taken(b"1")
    with worker_processes._claim_server(claims) as address, pytest.raises(SystemExit) as ended:  # noqa: SLF001 - its own parts
        ReportedCall(HANDLE, address)(message)
    assert (ended.value.code, called) == (0, [])
    assert [bytes(rest) for rest in jobs.browse()] == [b"1"]


@pytest.mark.parametrize(
    ("body", "text"), [(b"bad", "ValueError: bad luck?!"), (b"leave", "SystemExit: 7")], ids=["error", "exit"]
)
def test_a_worker_whose_function_raises_ends(
    taken: Callable[..., Iterator[shmbroker.Message]], jobs: shmbroker.Queue, body: bytes, text: str
) -> None:
    """With exit code 1, after it told the parent in one line; its message is in the queue again."""
    claims = ClaimCounter(None)
    (message,) = taken(body)
    with worker_processes._claim_server(claims) as address:  # noqa: SLF001 - its own parts
        with pytest.raises(SystemExit) as ended:
            ReportedCall(HANDLE, address)(message)
        claims.wait(None, lambda: True)
    assert ended.value.code == 1
    assert claims.failure == f"{HANDLE} raised {text}"
    (rest,) = jobs.browse()
    assert (bytes(rest), rest.redelivered) == (body, True)


def test_a_worker_tells_of_a_function_that_settles_and_raises(
    taken: Callable[..., Iterator[shmbroker.Message]], jobs: shmbroker.Queue
) -> None:
    """As of any that raises: it ends, and the command stops; the message stays settled."""
    claims = ClaimCounter(None)
    (message,) = taken(b"settled")
    with worker_processes._claim_server(claims) as address:  # noqa: SLF001 - its own parts
        with pytest.raises(SystemExit) as ended:
            ReportedCall(HANDLE, address)(message)
        claims.wait(None, lambda: True)
    assert (ended.value.code, claims.failure) == (1, f"{HANDLE} raised KeyError")
    assert (len(jobs), jobs.statistics().acked) == (0, 1)


def test_nothing_stays_of_the_parent_s_desk() -> None:
    """Its socket lies in a folder of its own, its thread keeps no process alive, and both go."""
    before = {*threading.enumerate()}
    with worker_processes._claim_server(ClaimCounter(None)) as address:  # noqa: SLF001 - its own parts
        folder = Path(address).parent
        assert folder.name.startswith("shmbroker-")
        assert [path.name for path in folder.iterdir()] == [Path(address).name]
        (thread,) = {*threading.enumerate()} - before
        assert thread.daemon
    thread.join()
    assert not folder.exists()


class Pool:
    """Stands in for a pool of processes: all messages are dealt with at the start, in this process."""

    made: tuple[object, ...] = ()
    pids = (os.getpid(),)
    left: tuple[bytes, ...] = ()

    def __init__(self, call: Callable[[shmbroker.Message], None], name: str, *, broker: str, processes: int) -> None:
        """Note what is asked for."""
        type(self).made = (name, broker, processes)
        self.call, self.name, self.broker = call, name, broker

    def __enter__(self) -> Self:
        return self

    def start(self) -> None:
        """Deal with all messages that there are."""
        self.work()

    def __exit__(self, *_: object) -> None:
        """Try to deal with more."""
        self.work(*self.left)

    def work(self, *bodies: bytes) -> None:
        """Call the function with these messages, and all others, until it wants no more."""
        with shmbroker.connect(self.broker, create=False) as connection:
            queue = connection.queue(self.name)
            queue.put_many(bodies)
            try:
                while len(queue):
                    with queue.get(timeout=0) as message:
                        self.call(message)
            except SystemExit:
                pass


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> type[Pool]:
    """Have no processes."""
    monkeypatch.setattr(shmbroker, "WorkerPool", Pool)
    monkeypatch.setattr(Pool, "left", ())
    return Pool


def test_a_crew_works_on_the_queue_until_it_has_done_enough(jobs: shmbroker.Queue, pool: type[Pool]) -> None:
    """In as many processes as were asked for."""
    jobs.put_many([b"1", b"2"])
    run_workers(HANDLE, connection_of(jobs), "jobs", 3, count=2, idle=None)
    assert pool.made == ("jobs", connection_of(jobs).broker_name, 3)
    assert called == [b"1", b"2"]


def test_a_crew_that_has_ended_takes_no_more(
    jobs: shmbroker.Queue, pool: type[Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that asks while the pool ends is not wanted; what it holds goes back."""
    monkeypatch.setattr(pool, "left", (b"2", b"3"))
    jobs.put(b"1")
    run_workers(HANDLE, connection_of(jobs), "jobs", 1, count=None, idle=0.0)
    assert called == [b"1"]
    assert [bytes(message) for message in jobs.browse()] == [b"2", b"3"]


@pytest.mark.usefixtures("pool")
def test_a_crew_whose_function_raises_is_refused(jobs: shmbroker.Queue) -> None:
    """With what it raised."""
    jobs.put(b"bad")
    with pytest.raises(Refused, match=r"handle raised ValueError: bad luck"):
        run_workers(HANDLE, connection_of(jobs), "jobs", 1, count=None, idle=None)


@pytest.mark.usefixtures("pool")
def test_a_crew_is_not_idle_while_messages_can_be_taken(jobs: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A paused queue has none, whatever lies there."""
    seen: list[bool] = []

    def wait(_tally: ClaimCounter, idle: float | None, more: Callable[[], bool]) -> None:
        assert idle == 5.0
        seen.append(more())
        jobs.put(b"1")
        seen.append(more())
        jobs.pause()
        seen.append(more())
        jobs.resume()

    monkeypatch.setattr(ClaimCounter, "wait", wait)
    run_workers(HANDLE, connection_of(jobs), "jobs", 1, count=None, idle=5.0)
    assert seen == [False, True, False]


@pytest.mark.usefixtures("pool")
def test_a_crew_is_not_idle_while_a_worker_holds_a_message(
    jobs: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not have asked yet whether it may handle the message. What other processes hold does not count."""
    seen: list[bool] = []

    def wait(_tally: ClaimCounter, _idle: float | None, more: Callable[[], bool]) -> None:
        jobs.put(b"1")
        with jobs.consume(prefetch=1) as consumer:
            message = consumer.get(timeout=0)
            seen.append(more())
            monkeypatch.setattr(Pool, "pids", ())
            seen.append(more())
            message.ack()

    monkeypatch.setattr(ClaimCounter, "wait", wait)
    run_workers(HANDLE, connection_of(jobs), "jobs", 1, count=None, idle=5.0)
    assert seen == [True, False]
