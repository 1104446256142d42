# SPDX-License-Identifier: Apache-2.0
"""Processes that are stopped (SIGSTOP): they are not dead, keep what they hold, and hold nobody up."""

from __future__ import annotations

import contextlib
import os
import queue as standard_queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scenario_support.memory import Memory
from scenario_support.observing import await_counts, numbered, texts
from scenario_support.processes import actors
from scenario_support.waiting import becomes, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import shmbroker

MESSAGES = 100
RESCUES = 5
"""Of one stop: the first message waits for the housekeeper's look, the others do not."""

CHANNEL = """
import sys, shmbroker
channel = shmbroker.connect(sys.argv[1], create=False).channel()
def show(channel, method, properties, body):
    channel.basic_ack(method.delivery_tag)
    print(body.decode(), flush=True)
channel.basic_consume("q", show, arguments={"x-priority": 10})
print("ready", flush=True)
sys.stdin.read()
"""
WAITING = """
import sys, shmbroker
queue = shmbroker.connect(sys.argv[1], create=False).queue("q")
print("ready", flush=True)
for message in iter(lambda: queue.get(auto_ack=True), None):
    print(bytes(message.body).decode(), flush=True)
"""
IDLE = """
import sys, shmbroker
ended, stays = (shmbroker.connect(sys.argv[1], create=False) for _ in range(2))
print("ready", flush=True)
with ended.queue("q").consume() as consumer, next(consumer) as message:
    print(bytes(message).decode(), flush=True)
ended.close()
print("closed", flush=True)
sys.stdin.read()
"""
"""It stays attached, and had an IO thread."""
HOUSEKEEPER = """
import sys
from shmbroker._housekeeper import housekeeper
housekeeper.TICK_SECONDS = housekeeper.REST_SECONDS = 3600.0
sys.exit(housekeeper.main([sys.argv[1]], lambda: print("ready", flush=True)))
"""
"""It has one tick: what it does later it does because another process woke it."""


def stop(pid: int) -> None:
    """Stops a process, and waits until it is."""
    os.kill(pid, signal.SIGSTOP)
    eventually(
        lambda: Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] == "T",
        "the process stopped",
    )


@contextlib.contextmanager
def running(code: str, broker: str) -> Iterator[subprocess.Popen[str]]:
    """A program that says that it is ready, then which messages it gets."""
    program = subprocess.Popen(
        [sys.executable, "-c", code, broker], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert line_of(program) == "ready"
        yield program
    finally:
        program.kill()
        program.communicate()


def line_of(program: subprocess.Popen[str]) -> str:
    """The next line that it prints."""
    assert program.stdout is not None
    return program.stdout.readline().strip()


@pytest.mark.parametrize("priority", [0, 10], ids=["the same priority", "a higher priority"])
def test_a_stopped_consumer_starves_nobody(broker: shmbroker.Broker, queue: shmbroker.Queue, priority: int) -> None:
    """After one look of the housekeeper all messages go to the others; when it goes on, it gets its share again."""
    bodies = numbered(MESSAGES)
    with actors(broker.name, 2) as (running_one, stopped):
        running_one.do("consume", queue="q", priority=0, prefetch=1)
        stopped.do("consume", queue="q", priority=priority, prefetch=1)
        await_counts(queue, interested=2)
        stopped.stop()
        for body in bodies:
            queue.put(body.encode())
            received = running_one.do("receive", count=1, timeout=None, settle="ack")
            assert [one["body"] for one in received] == [body]
        counted = broker.statistics()
        assert counted.rescues == 0
        assert counted.stopped_rescues <= RESCUES
        stopped.resume()
        await_counts(queue, interested=2, notified=0, message_count=0)
        sharers = (stopped,) if priority else (running_one, stopped)
        queue.put_many([b"last"] * len(sharers))
        await_counts(queue, delivering=len(sharers))
        for actor in sharers:
            actor.do("receive", count=1, timeout=None, settle="ack")
        await_counts(queue, message_count=0, acked=MESSAGES + len(sharers))


@pytest.mark.parametrize("code", [CHANNEL, WAITING], ids=["a channel", "a call of get"])
def test_whoever_it_is_goes_on(broker: shmbroker.Broker, queue: shmbroker.Queue, code: str) -> None:
    """A consumer of a channel, or a call that waits, is passed over while it is stopped, and then gets messages."""
    with running(code, broker.name) as program:
        eventually(lambda: queue.statistics().interested == 1)
        for number in range(3):
            stop(program.pid)
            with queue.consume(prefetch=10) as other:
                queue.put_many([b"A", b"B", b"C"])
                received = [other.get(timeout=60) for _ in range(3)]
                assert texts(received) == ["A", "B", "C"]
                for message in received:
                    message.ack()
            os.kill(program.pid, signal.SIGCONT)
            queue.put(b"%d" % number)
            assert line_of(program) == str(number)


def test_a_stopped_housekeeper(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Another process does its work beside it: the dead are reaped, timers run. When it goes on it is alone."""
    queue = connection.queue("q")
    keeper = eventually(lambda: broker.statistics().housekeeper_pid)
    assert not broker.statistics().housekeeper_stopped
    before = broker.statistics().process_count
    with actors(broker.name, 1) as (victim,):
        queue.put(b"A")
        victim.do("consume", queue="q")
        await_counts(queue, delivering=1)
        stop(keeper)
        try:
            assert broker.statistics().housekeeper_stopped
            assert broker.statistics().housekeeper_pid == keeper
            victim.kill()
            message = queue.get(timeout=60)
            assert message.redelivered
            message.ack()
            for _ in range(3):
                queue.put(b"late", delay=0.05)
                queue.get(timeout=60).ack()
            assert broker.statistics().housekeeper_pid == keeper
        finally:
            os.kill(keeper, signal.SIGCONT)
    eventually(lambda: broker.statistics().process_count == before, "the one who stood in has ended")
    assert not broker.statistics().housekeeper_stopped
    queue.put(b"late", delay=0.05)
    queue.get(timeout=60).ack()


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize("pause", [0.2, 0.7])
def test_deliveries_hold_no_look_up(
    broker: shmbroker.Broker, connection: shmbroker.Connection, how: signal.Signals, pause: float
) -> None:
    """A process whose channel gets a message now and then still notices that the housekeeper is stopped, or gone."""
    channel, ended = connection.channel(), threading.Event()
    channel.queue_declare("q")
    channel.queue_declare("late")
    channel.basic_consume("q", lambda *_: None, auto_ack=True)

    def put() -> None:
        queue = connection.queue("q")
        while not ended.wait(pause):
            queue.put(b"now")

    keeper = eventually(lambda: broker.statistics().housekeeper_pid)
    puts = threading.Thread(target=put)
    puts.start()
    try:
        os.kill(keeper, how)
        for _ in range(2):
            connection.queue("late").put(b"late", delay=0.05)
            connection.queue("late").get(timeout=60).ack()
    finally:
        ended.set()
        puts.join()
        with contextlib.suppress(ProcessLookupError):
            os.kill(keeper, signal.SIGCONT)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_process_that_looks_after_the_housekeeper_is_gone(
    broker: shmbroker.Broker, connection: shmbroker.Connection, how: str
) -> None:
    """The lowest process with an IO thread looks often; the others notice that it does not any more, and one does."""
    memory = Memory(broker.name)
    with actors(broker.name, 2) as both, stopped_housekeeper(broker):
        queues = {actor.pid: connection.queue(f"of {actor.pid}") for actor in both}
        for actor in both:
            actor.do("consume", queue=queues[actor.pid].name)
        slots = {memory.processes[slot].pid: slot for slot in range(8)}
        lowest, other = sorted(both, key=lambda actor: slots[actor.pid])
        lowest.stop() if how == "stop" else lowest.kill()
        queues[other.pid].put(b"late", delay=0.05)
        assert other.do("receive", count=1, timeout=None, settle="ack")


def test_a_process_whose_io_thread_ended_holds_no_look_up(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """It may be the lowest process that is attached, and leaves it to others to look after the housekeeper."""
    with running(IDLE, broker.name) as idle:
        queue.put(b"A")
        assert (line_of(idle), line_of(idle)) == ("A", "closed")
        with running(WAITING, broker.name) as waits, stopped_housekeeper(broker):
            queue.put(b"late", delay=0.05)
            assert line_of(waits) == "late"


def polls_of(connection: shmbroker.Connection) -> dict[str, Callable[[], object]]:
    """Calls that look for a message in the queue "q", and do not wait."""
    queue, channel = connection.queue("q"), connection.channel()

    def quietly(get: Callable[[], object]) -> object:
        try:
            return get()
        except standard_queue.Empty:
            return None

    return {
        "get": lambda: quietly(lambda: queue.get(timeout=0, auto_ack=True)),
        "get_nowait": lambda: quietly(lambda: queue.get_nowait(auto_ack=True)),
        "get_many": lambda: quietly(lambda: queue.get_many(1, timeout=0, auto_ack=True)),
        "basic_get": lambda: channel.basic_get("q", auto_ack=True),
    }


@pytest.mark.parametrize("how", ["get", "get_nowait", "get_many", "basic_get"])
@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_client_that_only_polls_misses_a_housekeeper(
    broker: shmbroker.Broker, connection: shmbroker.Connection, how: str, end: signal.Signals
) -> None:
    """One that is stopped or killed is replaced, and what the dead held comes, though no client waits."""
    poll = polls_of(connection)[how]
    keeper = eventually(lambda: broker.statistics().housekeeper_pid)
    with actors(broker.name, 1) as (victim,):
        connection.queue("q").put(b"A")
        victim.do("consume", queue="q")
        await_counts(connection.queue("q"), delivering=1)
        if end == signal.SIGSTOP:
            stop(keeper)
        else:
            os.kill(keeper, end)
        try:
            victim.kill()
            assert eventually(poll, "the message of the dead")
        finally:
            if end == signal.SIGSTOP:
                os.kill(keeper, signal.SIGCONT)


def test_a_stopped_housekeeper_that_dies(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """The one who stands in takes its place."""
    queue = connection.queue("q")
    keeper = eventually(lambda: broker.statistics().housekeeper_pid)
    stop(keeper)
    queue.put(b"late", delay=0.05)
    queue.get(timeout=60).ack()
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: broker.statistics().housekeeper_pid not in {0, keeper}, "another housekeeper")
    queue.put(b"late", delay=0.05)
    queue.get(timeout=60).ack()


@contextlib.contextmanager
def stopped_housekeeper(broker: shmbroker.Broker) -> Iterator[int]:
    """Stops the housekeeper; gives its process, which goes on afterwards, if it is still there."""
    keeper = eventually(lambda: broker.statistics().housekeeper_pid)
    stop(keeper)
    try:
        yield keeper
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(keeper, signal.SIGCONT)


def end(program: subprocess.Popen[str], how: signal.Signals) -> None:
    """Ends a program; one that is about to sleep does not see the first signal until it has slept."""
    eventually(lambda: program.send_signal(how) or program.poll() is not None, "the program ended")


def test_who_stands_in_is_woken(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """A timer wakes the one who stands in for a stopped housekeeper, which else would see it at its next tick."""
    memory = Memory(broker.name)
    with stopped_housekeeper(broker):
        turns = memory.header.housekeeper_ticks
        with running(HOUSEKEEPER, broker.name) as program:
            eventually(lambda: memory.header.housekeeper_ticks > turns, "a turn of the one who stands in")
            for _ in range(3):
                queue.put(b"late", delay=0.05)
                queue.get(timeout=60).ack()
            end(program, signal.SIGTERM)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"])
def test_a_housekeeper_is_woken_again(broker: shmbroker.Broker, how: signal.Signals) -> None:
    """When it goes on it is told of timers again, also if the one who stood in was killed."""
    memory = Memory(broker.name)
    node = eventually(lambda: memory.header.housekeeper_waiter)
    with stopped_housekeeper(broker), running(HOUSEKEEPER, broker.name) as program:
        assert memory.header.housekeeper_waiter != node
        end(program, how)
        assert (memory.header.housekeeper_waiter == node) == (how == signal.SIGTERM)
    becomes(lambda: memory.header.housekeeper_waiter, node)
