# SPDX-License-Identifier: Apache-2.0
"""A program that ends while callbacks run: the one in hand is the last one, and what others would get goes back."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.inside import session_of
from scenario_support.observing import await_counts, put_each
from scenario_support.processes import run_python

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker

# A callback takes as long as its message's author wants: until a byte comes.
CONSUMES = """
    import concurrent.futures, os, signal, sys, threading
    import shmbroker

    def callback(channel, method, properties, body):
        os.write(1, b"begun\\n")
        os.read(0, 1)
        channel.basic_ack(method.delivery_tag)
        os.write(1, b"done\\n")

    def consume(**options):
        global connection, channel
        connection = shmbroker.connect(sys.argv[1], create=False, **options)
        channel = connection.channel()
        channel.basic_consume("q", callback)
        os.write(1, b"consuming\\n")
"""
FORMS = {
    "tutorial": """
        try:
            consume()
            channel.start_consuming()
        except KeyboardInterrupt:
            os.write(1, b"Interrupted\\n")
            sys.exit(0)
    """,
    "no handling": """
        consume()
        channel.start_consuming()
    """,
    "executor": """
        consume(executor=concurrent.futures.ThreadPoolExecutor(1))
        channel.start_consuming()
    """,
    "exception": """
        signal.signal(signal.SIGINT, lambda *_: 1 / 0)
        consume()
        channel.start_consuming()
    """,
    "end of the main program": """
        ended = threading.Event()
        signal.signal(signal.SIGINT, lambda *_: ended.set())
        consume()
        ended.wait()
    """,
    "SIGTERM": """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        consume()
        channel.start_consuming()
    """,
}
STATUS = {"tutorial": 0, "end of the main program": 0, "SIGTERM": 0, "exception": 1}


@contextlib.contextmanager
def running(program: str, broker: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a program to its end, or kills it."""
    command = [sys.executable, "-c", program, broker]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("form", FORMS)
def test_the_callback_in_hand_is_the_last_one(broker: shmbroker.Broker, queue: shmbroker.Queue, form: str) -> None:
    """What was prefetched goes back as if nobody had taken it; the program ends when the callback in hand returns."""
    put_each(queue, "ABCD")
    program = textwrap.dedent(CONSUMES) + textwrap.dedent(FORMS[form])
    with running(program, broker.name) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert {process.stdout.readline(), process.stdout.readline()} == {"begun\n", "consuming\n"}
        await_counts(queue, delivering=4)
        process.send_signal(signal.SIGTERM if form == "SIGTERM" else signal.SIGINT)
        await_counts(queue, delivering=1, ready=3, acked=0)
        process.stdin.write("x")
        process.stdin.flush()
        written, _ = process.communicate()
        assert written.splitlines()[-1] == "done"
        assert process.returncode == STATUS.get(form, -signal.SIGINT)
    await_counts(queue, delivering=0, ready=3, acked=1)
    message = queue.get(auto_ack=True)
    assert (bytes(message), message.redelivered, message.delivery_count) == (b"B", True, 1)


# A daemon thread waits on the channel of a consumer. The program ends when the wait has begun.
WAITS = """
    import sys, threading
    import shmbroker

    connection = shmbroker.connect(sys.argv[1], create=False)
    channel = connection.channel()
    channel.basic_consume("q", lambda *_: None)
    other = connection.queue("other", max_length=1)

    {}
    threading.Thread(target=wait, daemon=True).start()
    while not waits():
        pass
    print("ends")
"""
WAITING = {
    "get": """
    def wait():
        channel.basic_get("other", timeout=None)

    def waits():
        return other.statistics().interested
    """,
    "commit": """
    def wait():
        channel = connection.channel()
        channel.tx_select()
        channel.basic_consume("q", lambda *_: None)
        channel.basic_publish("", "other", b"A")
        channel.tx_commit(timeout=None)

    def waits():
        return connection._session.core.queue_facts(other._core.slot).room_waiting

    other.put(b"A")
    """,
}


@pytest.mark.parametrize("way", WAITING)
def test_a_program_ends_while_a_daemon_thread_waits(broker: shmbroker.Broker, queue: shmbroker.Queue, way: str) -> None:
    """The wait ends with the program, also one that never would and is on the channel of a consumer."""
    ended = run_python(WAITS.format(WAITING[way]), broker.name)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ends\n", "")
    assert queue.statistics().consumers == 0


def test_the_threads_of_callbacks_are_told_to_end(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """The standard library does so only for those that it knows: not if a signal's handler interrupted their start."""
    called = threading.Event()
    connection.channel().basic_consume(queue.name, lambda *_: called.set())
    queue.put(b"A")
    called.wait()
    pool = session_of(connection).callbacks._own  # noqa: SLF001
    assert pool is not None
    session_of(connection).stop_callbacks()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)
