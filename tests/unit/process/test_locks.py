# SPDX-License-Identifier: Apache-2.0
"""Locks: a forked child finds them free, and a signal handler may take what the code it interrupts holds."""

from __future__ import annotations

import ast
import json
import os
import re
import threading
import warnings
from pathlib import Path

import pytest
from scenario_support.processes import OUTCOME_OF_A_USE, run_python

from shmbroker._process import locks

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "shmbroker").rglob("*.py"))


@pytest.mark.parametrize("make", [locks.lock, locks.condition])
def test_a_child_finds_it_free(make: object) -> None:
    """Also while another thread of the parent holds it."""
    assert callable(make)
    held, taken, done = make(), threading.Event(), threading.Event()

    def hold() -> None:
        with held:
            taken.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of a fork beside threads
        pid = os.fork()
    if pid == 0:
        os._exit(0 if held.acquire(blocking=False) else 1)
    _, status = os.waitpid(pid, 0)
    assert not held.acquire(blocking=False)
    done.set()
    holder.join()
    assert status == 0


def test_the_thread_that_has_it_may_take_it_again() -> None:
    """As a signal handler does that runs in the middle."""
    lock = locks.lock()
    with lock:
        assert lock.acquire(blocking=False)
        lock.release()


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_lock_of_the_package_is_of_that_kind(source: Path) -> None:
    """No module makes a plain lock, which a fork, or a signal handler, could find taken for ever."""
    if source.name == "locks.py":
        return
    calls = [node for node in ast.walk(ast.parse(source.read_text("utf-8"))) if isinstance(node, ast.Call)]
    plain = re.compile(r"(threading\.)?(Lock|RLock|Condition)")
    assert [ast.unparse(call) for call in calls if plain.fullmatch(ast.unparse(call.func))] == []


FORKS_BESIDE = """
    import os, sys, threading
    import shmbroker
    from shmbroker._topology import shared

    name = sys.argv[1]
    inside, go_on = threading.Event(), threading.Event()

    class Stops(shared.Exchanges):
        def __init__(self, path):
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                go_on.wait()
            super().__init__(path)

    shared.Exchanges = Stops
    thread = threading.Thread(target=lambda: shmbroker.connect(name, create=False).close())
    thread.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        with shmbroker.connect(name, create=False) as connection:
            connection.queue("q").put(b"from the child")
            with connection.channel() as channel:
                channel.queue_bind("q", "amq.fanout")
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    go_on.set()
    thread.join()
    sys.exit(status)
"""


def test_a_child_connects_that_was_forked_in_the_middle_of_a_connect(broker_name: str) -> None:
    """Another thread of its parent was inside `connect`, and held what that needs."""
    import shmbroker.testing  # noqa: PLC0415

    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(FORKS_BESIDE, broker.name)
        assert (done.returncode, done.stderr) == (0, "")
        with broker.connect() as connection:
            assert len(connection.queue("q")) == 1


USES_IN_CHILD = """
    import json, os, sys, threading
    import shmbroker

    connection = shmbroker.connect(sys.argv[1], create=False)
    queue, channel = connection.queue("q"), connection.channel()
    channel.queue_bind("q", "amq.fanout")
    channel.confirm_delivery()
    _ = channel._core_channel
    used = connection.channel()
    used.basic_consume("q", print)
    session = connection._session
    held, taken, done = [session.lock], threading.Semaphore(0), threading.Event()
    held += [lock for one in (channel, used) for lock in (one._turn, one._registry, one._consumers_changed)]
    exchanges = __import__("shmbroker._topology.shared")._topology.shared.exchanges_of(session.core)
    held += [exchanges._lock, session.publishing._lock, session.core._calls_lock, session.callbacks._lock]

    def hold():
        for lock in held:
            lock.acquire()
        taken.release()
        done.wait()
        for lock in held:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.acquire()

    uses = {
        "queue": lambda: connection.queue("new"),
        "channel": connection.channel,
        "bindings": connection.bindings,
        "close": connection.close,
        "publish": lambda: channel.basic_publish("amq.fanout", "", b"x"),
        "declare": lambda: channel.queue_declare("new"),
        "unbind": lambda: channel.queue_unbind("q", "amq.fanout"),
        "get": lambda: channel.basic_get("q"),
        "start": channel.start_consuming,
        "stop one in use": used.stop_consuming,
        "iterate": lambda: next(channel.consume("q")),
        "stop": channel.stop_consuming,
        "close channel": channel.close,
    }
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writable, json.dumps({name: outcome(use) for name, use in uses.items()}).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    done.set()
    thread.join()
    print(os.read(readable, 65536).decode())
"""


def test_what_a_child_inherits_does_not_hang(broker_name: str) -> None:
    """Each use of the parent's connection and channels says so, whichever thread holds their locks in the parent."""
    import shmbroker.testing  # noqa: PLC0415

    with shmbroker.testing.broker(broker_name, memory="32M") as broker, broker.connect() as connection:
        connection.queue("q")
        done = run_python(OUTCOME_OF_A_USE + USES_IN_CHILD, broker.name)
        assert done.returncode == 0, done.stderr
        seen = json.loads(done.stdout)
    quiet = {"close", "close channel", "stop"}
    assert {use: what for use, what in seen.items() if use not in quiet} == dict.fromkeys(seen.keys() - quiet, "forked")
    assert {seen[use] for use in quiet} <= {"no error", "forked"}


def test_a_condition_of_a_lock_that_is_given() -> None:
    """Whoever has that lock may notify; without one the condition has its own."""
    given = locks.unnoted()
    condition, own = locks.condition(given), locks.condition()
    with given:
        condition.notify_all()
        with pytest.raises(RuntimeError):
            own.notify_all()
    with own:
        own.notify_all()
