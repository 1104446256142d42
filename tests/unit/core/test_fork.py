# SPDX-License-Identifier: Apache-2.0
"""A forked child cannot use its parent's connection, nor harm it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import await_counts, put_each, take, text
from scenario_support.processes import run_python

if TYPE_CHECKING:
    import shmbroker

FORKS = """
    import json, os, sys
    import shmbroker
    from shmbroker.exceptions import ForkedConnectionError

    name, end = sys.argv[1:]
    connection = shmbroker.connect(name, create=False)
    queue = connection.queue("q")
    for body in (b"A", b"B", b"C" * 100_000):
        queue.put(body)
    held = queue.get()
    many = connection.queue("many")
    many.put_many([bytes(100_000)] * 3)
    long, batch = many.get(), many.get_many(2)
    consumer = connection.queue("other").consume()
    view = None
    readable, writable = os.pipe()
    uses = {
        "ack": held.ack,
        "nack": held.nack,
        "body": lambda: long.body,
        "batch": batch.ack,
        "consumer.get": lambda: consumer.get(timeout=0),
        "queue": lambda: connection.queue("new"),
        "consumers": connection.consumers,
        "doctor": connection.doctor,
    }

    def outcome(use):
        try:
            use()
        except ForkedConnectionError:
            return "forked"
        except BaseException as error:
            return repr(error)
        return "no error"

    pid = os.fork()
    if pid == 0:
        seen = {use: outcome(uses[use]) for use in uses}
        seen["close consumer"] = outcome(consumer.close)
        seen["close"] = outcome(connection.close)
        with shmbroker.connect(name, create=False) as fresh:
            fresh.queue("q").put(b"from the child")
        os.write(writable, json.dumps(seen).encode())
        if end == "exit":
            sys.exit(0)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    seen = json.loads(os.read(readable, 65536))
    alive = queue.statistics()
    held.ack()
    long.ack()
    batch.ack()
    rest = [bytes(queue.get(auto_ack=True)) for _ in range(3)]
    print(json.dumps({
        "status": status,
        "seen": seen,
        "delivering": alive.delivering,
        "ready": alive.ready,
        "consumers": connection.queue("other").statistics().consumers,
        "rest": [body[:14].decode() for body in rest],
        "acked": queue.statistics().acked,
        "doctor": connection.doctor(),
    }))
    connection.close()
"""


@pytest.mark.parametrize("end", ["exit", "_exit"])
def test_a_child_gets_forked_connection_error(broker: shmbroker.Broker, end: str) -> None:
    """In a forked child every use raises; the child's end leaves the parent unharmed.

    The child can close what it inherited without effect, and can connect anew.
    """
    done = run_python(FORKS, broker.name, end)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    quiet = ("close", "close consumer")
    uses = {use: seen for use, seen in report["seen"].items() if use not in quiet}
    assert uses == dict.fromkeys(uses, "forked")
    assert len(uses) == 8
    for use in quiet:
        assert report["seen"][use] in ("no error", "forked")
    assert report["status"] == 0
    assert (report["delivering"], report["ready"]) == (1, 3)
    assert report["consumers"] == 1
    assert report["rest"] == ["B", "C" * 14, "from the child"]
    assert report["acked"] == 4
    assert report["doctor"] == []


LEAVES_A_CHILD = """
    import os, signal, sys
    import shmbroker

    connection = shmbroker.connect(sys.argv[1], create=False)
    held = connection.queue("q").get()
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    print(pid, flush=True)
    signal.pause()
"""


def test_a_living_child_does_not_keep_the_dead_parent_alive(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """The parent is killed, its forked child lives: what the parent held returns."""
    put_each(queue, "A")
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(LEAVES_A_CHILD), broker.name],
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            await_counts(queue, delivering=1)
            parent.kill()
            await_counts(queue, delivering=0, ready=1)
            os.kill(child, 0)
        finally:
            parent.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    message = queue.get()
    assert text(message) == "A"
    assert message.redelivered
    message.ack()


BECOMES_ANOTHER = """
    import os, sys
    import shmbroker

    connection = shmbroker.connect(sys.argv[1], create=False)
    held = connection.queue("q").get()
    print("held", flush=True)
    sys.stdin.readline()
    os.execv("/bin/sh", ["/bin/sh", "-c", "read end"])
"""


def test_a_process_that_becomes_another_program_is_dead(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """After an exec the process lives, with the same id, and what the program before it held returns."""
    put_each(queue, "A")
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(BECOMES_ANOTHER), broker.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"held\n"
            await_counts(queue, delivering=1)
            process.stdin.write(b"\n")
            process.stdin.flush()
            await_counts(queue, delivering=0, ready=1)
            assert process.poll() is None
        finally:
            process.kill()


POOL = """
    import multiprocessing, sys
    import shmbroker

    def work(number):
        with shmbroker.connect(sys.argv[1], create=False) as connection:
            connection.queue("q").put(str(number).encode())
        return number

    if __name__ == "__main__":
        with shmbroker.connect(sys.argv[1], create=False) as connection:
            queue = connection.queue("q")
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(work, range(20)) == list(range(20))
                pool.close()
                pool.join()
            queue.put(b"end")
            assert connection.doctor() == []
"""


def test_a_pool_of_forked_workers(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """Forked workers that connect on their own work beside the parent."""
    done = run_python(POOL, broker.name)
    assert done.returncode == 0, done.stderr
    assert sorted(take(queue, 21)) == sorted([*map(str, range(20)), "end"])


INHERITS = """
    import json, os, sys
    import shmbroker

    connection = shmbroker.connect(sys.argv[1], create=False)
    queue, other = connection.queue("q"), connection.queue("other")
    gone = connection.queue("gone")
    queue.put_many([b"A", b"B", b"C", b"D" * 100_000])
    held = queue.get()

    def in_child(deed):
        readable, writable = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                result = deed()
            except BaseException as error:
                result = type(error).__name__
            os.write(writable, json.dumps(result).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(writable)
        with os.fdopen(readable) as file:
            return json.load(file)

    def use():
        found = [bytes(queue.get(auto_ack=True)), bytes(queue.get_nowait(auto_ack=True))]
        with queue.get() as long:
            found.append(bytes(long.body)[:3])
        queue.put(b"put", headers={"a": 1})
        queue.put_many([b"many"] * 2)
        with queue.reserve(3) as memory:
            memory[:] = b"own"
        found += [bytes(message) for message in queue.browse()]
        with queue.consume(timeout=0) as consumer:
            for message in consumer:
                message.ack()
        queue.put(b"moved")
        queue.move(other)
        with queue:
            facts = [len(other), queue.statistics().acked, repr(queue).split()[1]]
        return [body.decode() for body in found] + facts

    def settle():
        queue.put(b"x")
        held.nack()

    def in_grandchild():
        other.put(b"from the child")
        return in_child(lambda: bytes(other.get(auto_ack=True)).decode())

    def take_from_deleted():
        with shmbroker.connect(sys.argv[1], create=False) as fresh:
            fresh.queue("gone").delete()
        return len(gone)

    print(json.dumps([in_child(use), in_child(settle), in_child(in_grandchild), in_child(take_from_deleted)]))
    held.ack()
    print(json.dumps([bytes(queue.get(auto_ack=True)).decode(), connection.doctor()]))
"""


def test_a_queue_reopens_in_the_child(broker: shmbroker.Broker) -> None:
    """What a child does with a handle that it inherited, it does over a connection of its own; the parent's goes on.

    What was taken before the fork is the parent's to settle. A child of the child finds it open, too.
    """
    done = run_python(INHERITS, broker.name)
    assert done.returncode == 0, done.stderr
    (used, settled, passed_on, deleted), after = map(json.loads, done.stdout.splitlines())
    assert used == ["B", "C", "DDD", "put", "many", "many", "own", 1, 7, "'q'"]
    assert (settled, passed_on, deleted) == ("ForkedConnectionError", "moved", "NotFound")
    assert after == ["x", []]


CLOSED_BEFORE = """
    import os, sys
    import shmbroker

    connection = shmbroker.connect(sys.argv[1], create=False)
    queue = connection.queue("q")
    queue.put_many([b"A" * 100_000, b"B" * 100_000])
    bodies = [memoryview(queue.get().body) for _ in range(2)]
    connection.close()
    pid = os.fork()
    if pid == 0:
        core = connection._session.core
        core.end(lambda _: None, None)  # as an object of the connection that is finalized
        del bodies[0]
        core.close()
        assert bytes(bodies[0]) == b"B" * 100_000
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert [bytes(body[:1]) for body in bodies] == [b"A", b"B"]
    sys.exit(status != 0)
"""


def test_a_body_outlives_a_closed_connection_in_the_child(broker: shmbroker.Broker) -> None:
    """Whatever the child drops or closes, the memory stays mapped as long as a view of it."""
    done = run_python(CLOSED_BEFORE, broker.name)
    assert done.returncode == 0, done.stderr
