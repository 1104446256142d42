# SPDX-License-Identifier: Apache-2.0
"""Signals: a call that waits can be interrupted, and loses nothing by it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import (
    assert_balanced,
    await_counts,
    numbered,
    put_each,
)
from scenario_support.waiting import WATCHDOG_SECONDS, eventually, until_clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker

INTERRUPTED = """
    import json, sys
    import shmbroker

    name, way = sys.argv[1:]
    with shmbroker.connect(name, create=False) as connection:
        queue = connection.queue("q")
        consumer = queue.consume() if way == "consumer" else None
        full = connection.queue("full", max_length=1)
        waits = {
            "get": queue.get,
            "get_many": lambda: queue.get_many(5)[0],
            "consumer": lambda: consumer.get(timeout=None),
            "put": lambda: full.put(b"B"),
        }
        if way == "put":
            full.put(b"A")
        try:
            print("ready", flush=True)
            waits[way]()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        sys.stdin.readline()
        if way == "put":
            print(len(full), flush=True)
        else:
            print(bytes(waits[way]()).decode(), flush=True)
"""


def started(source: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program that talks over pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def in_a_system_call(pid: int) -> bool:
    """Tell whether the main thread of the process, or this thread, sleeps."""
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 (read over and over)
        return stat.read().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("way", ["get", "get_many", "consumer", "put"])
def test_a_waiting_call_is_interrupted(broker: shmbroker.Broker, queue: shmbroker.Queue, way: str) -> None:
    """Control-C ends the wait with KeyboardInterrupt; what comes later is received."""
    with started(INTERRUPTED, broker.name, way) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "ready\n"
            if way.startswith("get"):
                await_counts(queue, interested=1)
            eventually(lambda: in_a_system_call(process.pid))
            os.kill(process.pid, signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            if way != "consumer":
                await_counts(queue, interested=0, notified=0)
            put_each(queue, "A")
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == ("1\n" if way == "put" else "A\n")
            process.wait(WATCHDOG_SECONDS)
        finally:
            process.kill()


STORM = """
    import json, signal, sys
    import shmbroker

    open_for_interrupts = False

    def interrupt(number, frame):
        global open_for_interrupts
        if open_for_interrupts:
            open_for_interrupts = False
            raise KeyboardInterrupt

    name, way = sys.argv[1:]
    signal.signal(signal.SIGINT, interrupt)
    received, interrupts = [], 0
    with shmbroker.connect(name, create=False) as connection:
        queue = connection.queue("q")
        consumer = queue.consume(prefetch=4) if way == "consumer" else None
        take = {
            "get": lambda: queue.get(),
            "get_many": lambda: queue.get_many(3),
            "consumer": lambda: consumer.get(),
        }[way]
        print("ready", flush=True)
        while not received or received[-1] != "end":
            taken = None
            try:
                open_for_interrupts = True
                taken = take()
                open_for_interrupts = False
            except KeyboardInterrupt:
                interrupts += 1
            open_for_interrupts = False
            if taken is not None:
                received += [bytes(one).decode() for one in (taken if way == "get_many" else [taken])]
                taken.ack()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(json.dumps({"received": received, "interrupts": interrupts}), flush=True)
"""


def interrupted_by(process: subprocess.Popen[str], bodies: list[str]) -> Iterator[str]:
    """Give the bodies one by one, with a signal before each."""
    for body in bodies:
        os.kill(process.pid, signal.SIGINT)
        yield body


@pytest.mark.parametrize("size", [4, 5000])
@pytest.mark.parametrize("way", ["get", "get_many", "consumer"])
def test_a_storm_of_interrupts_loses_nothing(
    broker: shmbroker.Broker, queue: shmbroker.Queue, way: str, size: int
) -> None:
    """Interrupted at every moment of get, messages are received once, in order: none is lost.

    What an interrupted call had taken goes to the next one.
    """
    bodies = [body.rjust(size, "0") for body in numbered(3000)]
    with started(STORM, broker.name, way) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            put_each(queue, interrupted_by(process, bodies))
            await_counts(queue, message_count=0)
            if way.startswith("get"):
                await_counts(queue, interested=1)
            eventually(lambda: in_a_system_call(process.pid))
            os.kill(process.pid, signal.SIGINT)  # where it had no processor, all the others came before its first call
            put_each(queue, ["end"])
            report = json.loads(process.stdout.readline())
            process.wait(WATCHDOG_SECONDS)
        finally:
            process.kill()
    assert report["interrupts"] > 0
    assert report["received"] == [*bodies, "end"]
    await_counts(queue, delivering=0, acked=len(bodies) + 1, message_count=0)
    assert_balanced(queue)


class Noticed(Exception):  # noqa: N818 (no error)
    """The signal was handled."""


@pytest.mark.parametrize("way", ["get", "get_many", "consumer", "put"])
def test_a_signal_that_comes_before_the_wait_is_noticed(connection: shmbroker.Connection, way: str) -> None:
    """One that does not end the wait, because another thread took it, is handled all the same.

    As one is that comes between Python's last look for signals and the wait.
    """
    queue, full = connection.queue("q"), connection.queue("full", max_length=1)
    full.put(b"A")
    with queue.consume() if way == "consumer" else contextlib.nullcontext() as consumer:
        waits = {
            "get": queue.get,
            "get_many": lambda: queue.get_many(5),
            "consumer": consumer and consumer.get,
            "put": lambda: full.put(b"B"),
        }
        main = threading.get_native_id()

        def take_the_signal() -> None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
            until_clock(time.monotonic() + 0.2)
            eventually(lambda: in_a_system_call(main))
            signal.raise_signal(signal.SIGUSR1)

        def notice(*_: object) -> None:
            raise Noticed

        before = signal.signal(signal.SIGUSR1, notice)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        receiver = threading.Thread(target=take_the_signal)
        try:
            receiver.start()
            with pytest.raises(Noticed):
                waits[way]()
        finally:
            receiver.join()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
            signal.signal(signal.SIGUSR1, before)
        await_counts(queue, interested=int(way == "consumer"), notified=0)
        queue.put(b"C")
        assert bytes(queue.get(timeout=None) if way != "consumer" else consumer.get()) == b"C"


def test_a_signal_handler_may_use_the_queue(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """A handler that puts while the main thread waits in get of the same queue."""
    source = """
        import os, signal, sys
        import shmbroker

        with shmbroker.connect(sys.argv[1], create=False) as connection:
            queue = connection.queue("q")
            signal.signal(signal.SIGUSR1, lambda *_: queue.put(b"from the handler"))
            print("ready", flush=True)
            print(bytes(queue.get(auto_ack=True)).decode(), flush=True)
    """
    with started(source, broker.name) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            await_counts(queue, interested=1)
            os.kill(process.pid, signal.SIGUSR1)
            assert process.stdout.readline() == "from the handler\n"
            process.wait(WATCHDOG_SECONDS)
        finally:
            process.kill()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_while_the_thread_of_the_connection_starts(
    broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Whether the thread had begun or not: the next call that waits is told of its message, and closing ends all."""
    start, before = threading.Thread.start, set(threading.enumerate())

    def interrupted(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        if moment == "after":
            thread.start()
        raise KeyboardInterrupt

    with broker.connect() as connection:
        queue = connection.queue("q")
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.consume()
        with queue.consume() as consumer:
            queue.put(b"A")
            consumer.get(timeout=None).ack()
    fresh = set(threading.enumerate()) - before
    assert [thread for thread in fresh if thread.name.startswith("shmbroker-io")] == []
