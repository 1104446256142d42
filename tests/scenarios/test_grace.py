# SPDX-License-Identifier: Apache-2.0
"""Memory that served structures serves bodies again, in a running broker, when no call can know the structures."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue as standard
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scenario_support.brokers import running
from scenario_support.memory import Memory
from scenario_support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

CHUNK = 2 << 20
BODY = bytes(900_000)
ROUNDS = 1000

INSIDE = """
import sys, shmbroker
connection = shmbroker.connect(sys.argv[1], create=False)
print("ready", flush=True)
while True:
    connection.doctor()
"""


def fits(connection: shmbroker.Connection) -> int:
    """How many bodies of 900 KB fit; they are gone afterwards."""
    queue = connection.queue("fits")
    count = 0
    with contextlib.suppress(standard.Full):
        while True:
            queue.put(BODY, timeout=0)
            count += 1
    queue.purge()
    return count


def fill(connection: shmbroker.Connection, ttl: float | None) -> None:
    """Fills the memory with empty messages, and deletes them with their queue."""
    queue = connection.queue("deep")
    with contextlib.suppress(standard.Full):
        while True:
            queue.put_many([b""] * 1000, timeout=0, ttl=ttl)
    queue.delete()


def pages(connection: shmbroker.Connection, _: shmbroker.Broker) -> None:
    """Pages of queues, and pages above them."""
    fill(connection, None)


def schedule(connection: shmbroker.Connection, _: shmbroker.Broker) -> None:
    """Entries of messages that expire."""
    fill(connection, 3600)


def acknowledged(connection: shmbroker.Connection, _: shmbroker.Broker) -> None:
    """Entries of messages that are acknowledged at once, long before they expire; their queue stays until the end."""
    queue = connection.queue("brief")
    for _ in range(ROUNDS):
        queue.put_many([b""] * 1000, timeout=0, ttl=3600)
        queue.get_many(1000).ack()
    queue.delete()


def queues(connection: shmbroker.Connection, _: shmbroker.Broker) -> None:
    """Queues of differing names, each with an account and with consumers of two priorities."""
    many = [connection.queue(f"name {number}") for number in range(3000)]
    for queue in many[:50]:
        for priority in (0, 1):
            connection.consumer([queue], priority=priority).close()
    for queue in many:
        queue.delete()


def connections(_: shmbroker.Connection, broker: shmbroker.Broker) -> None:
    """Records and tables of connections."""
    many = [broker.connect() for _ in range(600)]
    for connection in many:
        connection.close()


@pytest.mark.parametrize(
    "spike", [pages, schedule, acknowledged, queues, connections], ids=lambda spike: spike.__name__
)
def test_memory_of_structures_serves_bodies_again(
    broker_name: str, spike: Callable[[shmbroker.Connection, shmbroker.Broker], None]
) -> None:
    """After a spike of structures as many bodies fit as before it."""
    with running(broker_name, "64M") as broker, broker.connect() as connection:
        fits(connection)  # the queue has more than a page from here on
        before = fits(connection)
        kept = broker.statistics().memory_structures
        spike(connection, broker)
        eventually(lambda: broker.statistics().memory_structures <= kept, "the memory of structures came back")
        eventually(lambda: fits(connection) >= before, "as many bodies fit as before")
        assert connection.doctor() == []


def test_connections_that_consumed_leave_all_memory(broker_name: str) -> None:
    """After 2,500 of them, each with a consumer that waited, as many bodies fit as before."""
    with running(broker_name, "256M") as broker, broker.connect() as connection:
        connection.queue("q").consume().close()
        fits(connection)
        before = fits(connection)
        many = [broker.connect() for _ in range(2500)]
        consumers = [one.queue("q").consume(prefetch=10) for one in many]
        assert connection.queue("q").statistics().consumers == len(consumers)
        for one in many:
            one.close()
        eventually(lambda: fits(connection) >= before, "as many bodies fit as before")
        assert connection.doctor() == []


def longest_row(memory: Memory) -> int:
    """How many chunks side by side hold no structures: those of bodies are free as soon as the bodies are gone."""
    words = [memory.chunks[chunk] for chunk in range(memory.header.chunk_limit)]
    kept = [memory.classes[memory.lib.sb_chunk_class(word)].kind != 0 for word in words]
    return max(len(list(row)) for is_kept, row in itertools.groupby(kept) if not is_kept)


def test_structures_that_stay_do_not_split_the_memory(broker_name: str) -> None:
    """However often pages came and went beside bodies, and a queue with a timer stayed: two thirds are in one piece."""
    with running(broker_name, "64M") as broker, broker.connect() as connection:
        flow = connection.queue("flow")
        for number in range(6):
            flow.put_many([BODY] * (1 + number % 4))  # they end elsewhere each time
            pages(connection, broker)
            connection.queue(f"stays {number}").put(b"", ttl=3600)
            flow.purge()
            memory = Memory(broker.name)
            eventually(lambda memory=memory: longest_row(memory) >= 21, "the pages went, all but those at one end")
            if number > 0:
                connection.queue(f"stays {number - 1}").delete()


def is_stopped(pid: int) -> bool:
    """Whether /proc says that the process is stopped."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] == "T"


def test_who_is_stopped_inside_a_call_keeps_the_memory_and_nothing_else(broker_name: str) -> None:
    """While a process is stopped inside a call the memory stays what it is; others go on; then it comes back."""
    with running(broker_name, "64M") as broker, broker.connect() as connection:
        fits(connection)
        before, kept = fits(connection), broker.statistics().memory_structures
        memory = Memory(broker.name)
        program = subprocess.Popen([sys.executable, "-c", INSIDE, broker_name], stdout=subprocess.PIPE, text=True)
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "ready\n"
            inside = False
            while not inside:  # a signal may come between two of its calls: then the memory comes back
                os.kill(program.pid, signal.SIGSTOP)
                eventually(lambda: is_stopped(program.pid), "the process stopped")
                pages(connection, broker)
                seen = memory.header.housekeeper_ticks
                eventually(lambda seen=seen: memory.header.housekeeper_ticks > seen + 12, "the housekeeper looked")
                inside = broker.statistics().memory_structures > kept
                connection.queue("q").put(b"x", timeout=0)
                assert bytes(connection.queue("q").get(timeout=0, auto_ack=True).body) == b"x"
                os.kill(program.pid, signal.SIGCONT)
                eventually(lambda: broker.statistics().memory_structures <= kept, "the memory came back")
        finally:
            program.kill()
            program.wait()
            program.stdout.close()
        eventually(lambda: fits(connection) >= before, "as many bodies fit as before")


def test_the_memory_comes_back_when_who_drained_it_is_killed(broker_name: str) -> None:
    """A housekeeper that is killed while memory is on its way leaves it to the next one."""
    with running(broker_name, "64M") as broker, broker.connect() as connection:
        fits(connection)
        before, kept = fits(connection), broker.statistics().memory_structures
        for _ in range(3):
            pages(connection, broker)
            keeper = broker.statistics().housekeeper_pid
            if keeper:
                os.kill(keeper, signal.SIGKILL)
        eventually(lambda: broker.statistics().memory_structures <= kept, "the memory came back")
        eventually(lambda: fits(connection) >= before, "as many bodies fit as before")
        assert connection.doctor() == []
