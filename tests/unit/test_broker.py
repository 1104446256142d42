# SPDX-License-Identifier: Apache-2.0
"""Brokers: names, settings, their start and their end."""

from __future__ import annotations

import gc
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import psutil
import pytest
from scenario_support.brokers import files, running, segment
from scenario_support.inside import core_of
from scenario_support.observing import take, text
from scenario_support.processes import ActorError, actors, run_python
from scenario_support.waiting import eventually

import shmbroker
import shmbroker.testing
from shmbroker import broker as module
from shmbroker._broker import ending
from shmbroker._core import attachment, io_thread, native, segments
from shmbroker.exceptions import (
    BrokerNotFound,
    ConnectionClosedByBroker,
    PreconditionFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HOUSEKEEPER_PID_OFFSET = 76  # docs/reference/shm-format.md

BAD_NAMES = ["", "a" * 65, "a b", "a/b", "../a", "a.b", "ä", "a\0b", "a\n", "a:b", "/a", "1/", "1/a/b", "-1/a", "1.0/a"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_outside_the_rules_is_refused(name: str) -> None:
    """A broker's name is 1 to 64 of A-Z a-z 0-9 _ and -."""
    with pytest.raises(ValueError, match="name"):
        shmbroker.Broker(name).start()
    with pytest.raises(ValueError, match="name"):
        shmbroker.connect(name)


@pytest.mark.parametrize("name", [None, 7, b"bytes"])
def test_a_name_is_text(name: object) -> None:
    """A broker's name is a str."""
    with pytest.raises((TypeError, ValueError)):
        shmbroker.connect(name)


def test_a_name_of_full_length_is_accepted(broker_name: str) -> None:
    """Sixty-four characters of every allowed kind do."""
    name = f"{broker_name}-_aZ9".ljust(64, "x")[:64]
    with shmbroker.testing.broker(name) as broker, broker.connect() as connection:
        connection.queue("q").put(b"A")
    assert files(name) == []


@pytest.mark.parametrize("memory", [0, -1, "", "x", "12X", "-1M", 1.5, None])
def test_a_bad_amount_of_memory_is_refused(broker_name: str, memory: object) -> None:
    """Memory is a positive number of bytes or a string such as "256M"."""
    with pytest.raises(ValueError, match="memory"):
        shmbroker.Broker(broker_name, memory=memory).start()
    assert files(broker_name) == []


def test_a_broker_with_other_settings_is_refused(broker_name: str) -> None:
    """A second start must agree with what runs; with the same settings it may."""
    with running(broker_name, "64M") as broker:
        with pytest.raises(PreconditionFailed, match="memory"):
            shmbroker.Broker(broker_name, memory="128M").start()
        with pytest.raises(PreconditionFailed, match=f"exists with memory={64 << 20}, not {256 << 20}"):
            shmbroker.Broker(broker_name, memory="256M").create()  # the default, but given
        shmbroker.Broker(broker_name).create()
        with shmbroker.Broker(broker_name, memory="64M") as again:
            assert again.statistics().memory_limit == 64 * 2**20
        assert broker.statistics().memory_limit == 64 * 2**20


def test_no_broker_is_made_unless_asked(broker_name: str) -> None:
    """connect(create=False) to a broker that is not there fails and leaves nothing."""
    with pytest.raises(BrokerNotFound, match=broker_name):
        shmbroker.connect(broker_name, create=False)
    assert files(broker_name) == []


def test_connect_makes_the_broker(broker_name: str) -> None:
    """connect() makes a broker with defaults where there is none."""
    with shmbroker.connect(broker_name) as connection:
        connection.queue("q").put(b"A")
        with shmbroker.connect(broker_name, create=False) as other:
            assert take(other.queue("q"), 1) == ["A"]
    shmbroker.Broker(broker_name).stop(purge=True)
    assert files(broker_name) == []


def test_an_automatic_housekeeper_keeps_nobody_waiting(broker_name: str) -> None:
    """Who reads what a client writes on its standard error reads its end with the client's, not the housekeeper's."""
    source = "import shmbroker, sys; shmbroker.connect(sys.argv[1])"
    readable, writable = os.pipe2(os.O_NONBLOCK)
    try:
        subprocess.run([sys.executable, "-P", "-c", source, broker_name], check=True, stderr=writable)
        os.close(writable)
        assert os.read(readable, 1) == b""  # while another process has the other end open, this raises
    finally:
        os.close(readable)
        shmbroker.Broker(broker_name).stop(purge=True)


def test_messages_outlive_the_brokers_processes(broker_name: str) -> None:
    """The end of `with Broker` keeps the memory; purge gives it back."""
    with shmbroker.Broker(broker_name) as broker, broker.connect() as connection:
        connection.queue("q").put(b"A")
    assert files(broker_name) != []
    with shmbroker.Broker(broker_name) as broker:
        with broker.connect() as connection:
            queue = connection.queue("q", passive=True)
            assert take(queue, 1) == ["A"]
            assert connection.doctor() == []
        broker.stop(purge=True)
        broker.stop(purge=True)
    assert files(broker_name) == []


def test_stop_leaves_the_clients_alone(broker_name: str) -> None:
    """stop() ends the broker's processes only: clients go on with their messages."""
    with running(broker_name, "64M") as broker, broker.connect() as connection:
        queue = connection.queue("q")
        broker.stop()
        for number in range(100):
            queue.put(f"{number}".encode())
        assert take(queue, 100) == [f"{number}" for number in range(100)]
        queue.put(b"late", delay=0.2)
        broker.start()
        assert take(queue, 1) == ["late"]
        assert connection.doctor() == []


def test_a_killed_housekeeper_is_replaced(broker: shmbroker.Broker) -> None:
    """Without the housekeeper messages flow; another takes over and does its work."""
    with broker.connect() as connection:
        queue = connection.queue("q")
        pid = eventually(lambda: broker.statistics().housekeeper_pid)
        assert pid != os.getpid()
        os.kill(pid, signal.SIGKILL)
        queue.put(b"A")
        assert take(queue, 1) == ["A"]
        queue.put(b"late", delay=0.3)
        assert take(queue, 1) == ["late"]
        eventually(lambda: broker.statistics().housekeeper_pid not in (0, pid))
        assert connection.doctor() == []


def waiting_get(queue: shmbroker.Queue) -> object:
    """Get without end."""
    return queue.get()


def waiting_consumer(queue: shmbroker.Queue) -> object:
    """Consume without end."""
    return queue.consume().get(timeout=None)


def waiting_put(queue: shmbroker.Queue) -> object:
    """Put into a full queue without end."""
    queue.put(b"A")
    return queue.put(b"B")


@pytest.mark.parametrize("wait", [waiting_get, waiting_consumer, waiting_put])
def test_purge_ends_the_waiting_of_clients(broker_name: str, wait: Callable[[shmbroker.Queue], object]) -> None:
    """stop(purge=True): who waits gets ConnectionClosedByBroker 320, at once."""
    errors: list[BaseException] = []
    with shmbroker.testing.broker(broker_name) as broker:
        connection = broker.connect()
        queue = connection.queue("q", max_length=1)

        def client() -> None:
            try:
                wait(queue)
            except BaseException as error:  # noqa: BLE001 (it is what we look at)
                errors.append(error)

        thread = threading.Thread(target=client)
        thread.start()
        with broker.connect() as observer:
            if wait is waiting_put:
                eventually(lambda: observer.queue("q").statistics().ready == 1)
            else:
                eventually(lambda: observer.consumers("q"))
        broker.stop(purge=True)
        thread.join()
        assert [type(error) for error in errors] == [ConnectionClosedByBroker]
        assert errors[0].code == 320
        connection.close()
    assert files(broker_name) == []


def test_purge_closes_the_connections(broker_name: str) -> None:
    """After a purge every use of a connection says so, in this process and others."""
    with shmbroker.testing.broker(broker_name) as broker:
        connection = broker.connect()
        queue = connection.queue("q")
        with actors(broker_name, 1) as (client,):
            client.do("put", queue="q", bodies=["A"])
            client.begin("get", queue="q", count=2)
            eventually(lambda: queue.statistics().delivering == 1)
            broker.stop(purge=True)
            with pytest.raises(ActorError, match="ConnectionClosedByBroker"):
                client.result()
            with pytest.raises(ActorError, match="ConnectionClosedByBroker"):
                client.do("put", queue="q", bodies=["B"])
        for use in (lambda: queue.put(b"B"), queue.get_nowait, queue.statistics):
            with pytest.raises(ConnectionClosedByBroker) as end:
                use()
            assert end.value.code == 320
        eventually(lambda: not connection.is_open)
        connection.close()
    assert files(broker_name) == []


def test_a_body_stays_readable_after_the_purge(broker_name: str) -> None:
    """A view of a body keeps its memory although the broker is gone."""
    body = bytes(range(256)) * 4096
    with shmbroker.testing.broker(broker_name) as broker:
        connection = broker.connect()
        queue = connection.queue("q")
        queue.put(body)
        view = queue.get().body
        broker.stop(purge=True)
        assert files(broker_name) == []
        assert bytes(view) == body
        connection.close()
        assert bytes(view) == body


def test_a_name_can_be_used_again_after_a_purge(broker_name: str) -> None:
    """A new broker of the same name has nothing of the old one."""
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        connection.queue("q").put(b"A")
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        queue = connection.queue("q")
        assert len(queue) == 0
        queue.put(b"B")
        assert text(queue.get()) == "B"


def test_a_stop_signals_nobody(broker_name: str) -> None:
    """The number of the housekeeper's process may mean another one in our pid namespace: it is not believed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        with running(broker_name, "64M") as broker:
            keeper = psutil.Process(broker.statistics().housekeeper_pid)
            with segment(broker_name, 0).open("r+b") as memory:
                memory.seek(HOUSEKEEPER_PID_OFFSET)
                memory.write(struct.pack("<I", stranger.pid))
            assert broker.statistics().housekeeper_pid == stranger.pid
            broker.stop()
            assert broker.statistics().housekeeper_pid == 0
            eventually(lambda: not keeper.is_running())
            assert stranger.poll() is None
        stranger.communicate(b"\n")
        assert stranger.returncode == 0


def test_a_stop_through_another_handle(broker_name: str, recwarn: pytest.WarningsRecorder) -> None:
    """A child that another handle made to end is waited for, and no warning comes when its own handle goes."""
    started = shmbroker.Broker(broker_name).start()
    pid = started.statistics().housekeeper_pid
    shmbroker.Broker(broker_name).stop(purge=True)
    eventually(lambda: not psutil.pid_exists(pid), "the zombie to be reaped")
    del started
    gc.collect()
    assert [warning for warning in recwarn if issubclass(warning.category, ResourceWarning)] == []


def test_a_housekeeper_that_does_not_end(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process cannot end: that is an error, not silence. A purge has removed the memory all the same."""
    broker = shmbroker.Broker(broker_name).start()
    monkeypatch.setattr("shmbroker._broker.ending.PATIENCE_SECONDS", 0.2)
    pid = broker.statistics().housekeeper_pid
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: broker.statistics().housekeeper_stopped, "it is stopped")
    try:
        for purge in (False, True):
            with pytest.raises(shmbroker.Timeout, match=f"{broker_name}.*{pid}"):
                broker.stop(purge=purge)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert files(broker_name) == []
    broker.stop()


STARTS = "import sys, shmbroker; shmbroker.Broker(sys.argv[1]).start()"


def test_a_stop_beside_a_start(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another process starts the broker before its housekeeper has ended, that one stays, whoever's child it is."""
    broker = shmbroker.Broker(broker_name, memory="32M").start()
    keeper, await_end = psutil.Process(broker.statistics().housekeeper_pid), ending.await_end
    keeper.suspend()
    eventually(lambda: keeper.status() == psutil.STATUS_STOPPED, "it cannot end")

    def started_meanwhile(attached: attachment.Attachment, keepers: list[shmbroker.ConnectionInfo]) -> None:
        assert run_python(STARTS, broker_name).returncode == 0
        keeper.resume()
        await_end(attached, keepers)

    with monkeypatch.context() as patched:
        patched.setattr(ending, "PATIENCE_SECONDS", 0.2)
        patched.setattr(ending, "await_end", started_meanwhile)
        broker.stop()
    assert broker.statistics().housekeeper_pid == keeper.pid
    broker.stop(purge=True)
    assert not keeper.is_running()


def test_a_start_after_one_that_was_interrupted(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for the end of the child that is starting still, and may become the housekeeper."""
    broker, children = shmbroker.Broker(broker_name, memory="32M"), []
    with monkeypatch.context() as patched:
        patched.setattr(module, "_await_housekeeper", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            broker.start()
    children.append(broker._child)  # noqa: SLF001
    broker.start()
    children.append(broker._child)  # noqa: SLF001
    assert broker.statistics().housekeeper_pid in [child.pid for child in children]
    eventually(lambda: [child.poll() for child in children].count(None) == 1, "the other one to end")
    broker.stop(purge=True)


def test_serve_forever_says_when_it_serves(broker_name: str) -> None:
    """on_ready is called once, when this process is the housekeeper; stop() ends it from any process or thread."""
    seen, stoppers = [], [threading.Thread(target=shmbroker.Broker(broker_name).stop)]

    def ready() -> None:
        seen.append(shmbroker.Broker(broker_name).statistics().housekeeper_pid)
        stoppers[0].start()

    shmbroker.Broker(broker_name).serve_forever(on_ready=ready)
    stoppers[0].join()
    assert seen == [os.getpid()]
    assert shmbroker.Broker(broker_name).statistics().housekeeper_pid == 0


def test_serve_forever_whose_on_ready_fails(broker_name: str) -> None:
    """The error comes out, and somebody else can serve."""

    def ready() -> None:
        raise ZeroDivisionError

    broker = shmbroker.Broker(broker_name).create()
    with broker.connect():
        with pytest.raises(ZeroDivisionError):
            broker.serve_forever(on_ready=ready)
        with broker:
            assert broker.statistics().housekeeper_pid not in {0, os.getpid()}


# Sends a signal at the n-th place where `serve_forever`, or a function of `signal`, lets Python run a handler, for each
# n there is. The handlers of the application raise; those of `serve_forever` end it.
SERVE_WHERE_SIGNALS_COME = """
    import json, signal, sys
    import shmbroker

    class Handled(BaseException):
        pass

    def handler(*_):
        raise Handled

    def served(number):
        left = number

        def look(frame, event, _):
            nonlocal left
            inside = frame.f_code.co_filename == signal.__file__ or frame.f_code in serving
            if inside and event in ("call", "c_return"):
                left -= 1
                if left < 0:
                    sys.setprofile(None)
                    signal.raise_signal(sent)

        sys.setprofile(look)
        try:
            broker.serve_forever(on_ready=lambda: signal.raise_signal(signal.SIGTERM))
        except Handled:
            handled.append(number)
        finally:
            sys.setprofile(None)
        return left < 0

    broker, sent, serving = shmbroker.Broker(sys.argv[1]), int(sys.argv[2]), [shmbroker.Broker.serve_forever.__code__]
    number, more, handled, kept = 0, True, [], []
    while more:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, handler)
        more = served(number)
        kept += [[number, one.name] for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) is not handler]
        number += 1
    print(json.dumps([number, len(handled), kept]))
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_serve_forever_gives_back_the_handlers_whenever_a_signal_comes(broker_name: str, sent: signal.Signals) -> None:
    """Both are the application's again, also if its own handler raises between the change of one and of the other."""
    shmbroker.Broker(broker_name, memory="32M").create()
    done = run_python(SERVE_WHERE_SIGNALS_COME, broker_name, str(int(sent)))
    assert done.returncode == 0, done.stderr
    number, handled, kept = json.loads(done.stdout)
    assert number > handled > 2
    assert kept == []


def time_with(sleep: Callable[[float], object]) -> SimpleNamespace:
    """The module `time` with another `sleep`, for one module: other threads of this process sleep as ever."""
    return SimpleNamespace(**{**vars(time), "sleep": sleep})


def test_connect_waits_for_a_broker(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With create=False and a timeout, until somebody makes it; a broker that is not made in time is not found."""
    before = time.monotonic()
    with pytest.raises(BrokerNotFound):
        shmbroker.connect(broker_name, create=False, timeout=0.1)
    assert time.monotonic() - before >= 0.1
    with pytest.raises(ValueError, match="timeout"):
        shmbroker.connect(broker_name, timeout=-1)
    monkeypatch.setattr(
        "shmbroker._broker.connecting.time", time_with(lambda _: shmbroker.Broker(broker_name).create())
    )
    with shmbroker.connect(broker_name, create=False, timeout=60) as connection:
        assert connection.is_open


def closing(name: str) -> None:
    """Leave what a purge leaves that is killed in its middle."""
    shmbroker.Broker(name).create()
    found = attachment.acquire(segments.path_of(name))
    found.set_closing()
    attachment.release(found)


def test_connect_while_a_broker_is_purged(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits until that one is gone, and makes another."""
    closing(broker_name)
    monkeypatch.setattr("shmbroker._broker.connecting.time", time_with(lambda _: segments.remove(path, what)))
    path = segments.path_of(broker_name)
    what = segments.identity(path)
    with shmbroker.connect(broker_name) as connection:
        assert connection.is_open
        assert segments.identity(path) != what


def test_connect_while_a_purge_does_not_end(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was killed is told of, and how to finish it."""
    monkeypatch.setattr("shmbroker._broker.connecting._PURGE_SECONDS", 0.05)
    closing(broker_name)
    with pytest.raises(shmbroker.Timeout, match="stop --purge"):
        shmbroker.connect(broker_name)
    shmbroker.Broker(broker_name).stop(purge=True)
    assert files(broker_name) == []


def test_a_late_purge_leaves_the_next_broker_alone(broker_name: str) -> None:
    """Who purges a broker that another one purged meanwhile removes nothing of the one that came after it."""
    path = segments.path_of(broker_name)
    shmbroker.Broker(broker_name).create()
    what = segments.identity(path)
    shmbroker.Broker(broker_name).stop(purge=True)
    shmbroker.Broker(broker_name).create()
    before = files(broker_name)
    segments.remove(path, what)
    assert files(broker_name) == before


@pytest.mark.parametrize("when", ["before", "at its beginning", "while it is made"])
def test_a_segment_of_a_broker_that_was_purged_is_not_left(
    broker_name: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Who wants more memory and is late, or was stopped at it, makes no file that would be the next broker's."""
    steps = {
        "at its beginning": (segments, "random_number"),
        "while it is made": (segments, "_allocate"),
    }
    monkeypatch.setattr(segments, "_PATIENCE_SECONDS", 0.01)
    shmbroker.Broker(broker_name).create()
    attached = attachment.acquire(segments.path_of(broker_name))
    if when == "before":
        shmbroker.Broker(broker_name).stop(purge=True)
    else:
        module, name = steps[when]
        step = getattr(module, name)

        def purged_meanwhile(*arguments: object) -> object:
            monkeypatch.setattr(module, name, step)
            shmbroker.Broker(broker_name).stop(purge=True)
            assert files(broker_name) == []
            return step(*arguments)

        monkeypatch.setattr(module, name, purged_meanwhile)
    with pytest.raises(ConnectionClosedByBroker, match="320"):
        attached.grow()
    attachment.release(attached)
    assert files(broker_name) == []


class Scarce:
    """The core, whose IO thread wants memory first of all."""

    def __init__(self, core: Any) -> None:  # noqa: ANN401
        self._core, self._asked = core, False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name == "sb_connection_run_io" and not self._asked:
            self._asked = True
            return lambda _handle: native.GROW
        return getattr(self._core, name)


def test_an_io_thread_that_wants_memory_of_a_purged_broker_ends(
    broker_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it had been told of the purge, and without a traceback."""
    with shmbroker.Broker(broker_name).create().connect() as connection:
        core, told = core_of(connection), threading.Event()
        shmbroker.Broker(broker_name).stop(purge=True)
        monkeypatch.setattr(core, "on_stopping", told.set)
        monkeypatch.setattr(io_thread, "slow", Scarce(io_thread.slow))
        core._run_io()  # noqa: SLF001 - in this thread, where it can raise
        assert told.is_set()


def test_a_purge_waits_for_who_makes_a_segment(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If he is killed just after it is there, he cannot remove it: the purge does."""
    shmbroker.Broker(broker_name).create()
    path, allocate = segments.path_of(broker_name), segments._allocate  # noqa: SLF001
    waiting, grown = threading.Event(), threading.Event()
    purge = threading.Thread(target=segments.remove, args=(path, segments.identity(path)))
    sleep = time.sleep

    def allocated_beside_it(*arguments: object) -> None:
        purge.start()
        while not waiting.wait(0.01):
            assert purge.is_alive()
        allocate(*arguments)  # type: ignore[arg-type] # what it was called with

    monkeypatch.setattr(segments, "_PATIENCE_SECONDS", 100.0)  # however slow the machine is
    monkeypatch.setattr(segments, "_allocate", allocated_beside_it)

    def sleep_of_the_purge(seconds: float) -> None:
        if threading.current_thread() is purge:  # other threads of the process sleep, too
            waiting.set()
            grown.wait()  # who makes the segment also maps it, and the purge may come in between
        sleep(seconds)

    monkeypatch.setattr("shmbroker._core.segments.time", time_with(sleep_of_the_purge))
    attached = attachment.acquire(path)
    before = attached.facts().segments
    attached.grow()
    grown.set()
    purge.join()
    assert attached.facts().segments == before + 1
    attachment.release(attached)
    assert files(broker_name) == []


def test_a_purge_removes_the_first_segment_last(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it is there, nobody makes another broker that would find files of this one."""
    removed, unlink = [], os.unlink
    monkeypatch.setattr(os, "unlink", lambda file: (removed.append(Path(file).name), unlink(file)))
    shmbroker.Broker(broker_name, memory="32M", mode=0o660).create().stop(purge=True)
    assert len(removed) >= 4
    assert removed[-1] == segment(broker_name, 0).name
