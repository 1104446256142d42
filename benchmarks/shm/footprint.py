# SPDX-License-Identifier: Apache-2.0
"""What shmbroker costs when nothing happens, and to get started.

The generators are steps of standing workers, like those of `scaling`; the other
functions run in the parent.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.samples import Sample
from benchmarks.shm.broker import OPERATION_SECONDS, opened, package

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory lies on Linux)
PROCESSES = Path("/proc")
BLOCK_BYTES = 512
BODY = b"benchmark"


def _echo(queue_name: str, broker: str) -> bool:
    with opened(broker, queue_name) as (_, queue):
        queue.put(BODY)
        return bytes(queue.get(auto_ack=True)) == BODY


def connects(broker: str, times: int) -> Generator[Sample | None, None, None]:
    """Time of `connect()` to a running broker, in milliseconds.

    Args:
        broker: Its name.
        times: Connections to make, one after the other, in each step; the step's
            value is their mean.
    """
    connect = package().connect
    yield None
    while True:
        elapsed_ns = 0
        works = True
        for _ in range(times):
            start_ns = time.perf_counter_ns()
            connection = connect(broker, create=False, operation_timeout=OPERATION_SECONDS)
            elapsed_ns += time.perf_counter_ns() - start_ns
            works = works and connection.is_open
            connection.close()
        works = works and _echo("connects", broker)
        yield Sample(elapsed_ns / times / 1e6, times, 0, works, "" if works else "no echo")


def shared_bytes(broker: str) -> int:
    """Return how much shared memory the files named after a broker occupy.

    Args:
        broker: Its name.
    """
    return BLOCK_BYTES * sum(path.stat().st_blocks for path in SHARED_MEMORY.glob(f"*{broker}*"))


def empty_queues(broker: str, number: int) -> Generator[Sample | None, None, None]:
    """Shared memory per empty queue, in bytes; a single step.

    Args:
        broker: Name of a running broker that has no queue yet.
        number: Of queues.
    """
    yield None
    with opened(broker, "empty-0") as (connection, _):
        before = shared_bytes(broker)
        private = _private_bytes()
        for index in range(1, number):
            connection.queue(f"empty-{index}")
        grown = shared_bytes(broker) - before
        private = _private_bytes() - private
        last = connection.queue(f"empty-{number - 1}", passive=True)
        works = len(last) == 0 and before > 0
        yield Sample(
            grown / number,
            number,
            0,
            works,
            "" if works else "a queue is missing, or the broker's files are",
            details={"private_bytes_per_queue": private / number},
        )


def resident_bytes() -> int:
    """Return the memory of this process that is resident."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _private_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    shared = int(Path("/proc/self/statm").read_text("ascii").split()[2])
    return (pages - shared) * os.sysconf("SC_PAGE_SIZE")


def idle_consumers(broker: str, number: int) -> Generator[int | None, None, None]:
    """Hold consumers that get nothing; each step yields how many still run.

    Args:
        broker: Name of the running broker.
        number: Of consumers, all in one connection, each on a queue of its own.
    """
    name = f"idle-{os.getpid()}"
    with opened(broker, name) as (connection, _), ExitStack() as stack:
        queues = [connection.queue(f"{name}-{index}") for index in range(number)]
        for queue in queues:
            stack.enter_context(queue.consume())
        yield None
        while True:
            yield sum(queue.statistics().consumers for queue in queues)


def processor_ns(pids: Sequence[int]) -> int:
    """Return the processor time that some processes have used, all threads together.

    Args:
        pids: Processes of this machine.
    """
    total = 0
    for pid in pids:
        for path in (PROCESSES / str(pid) / "task").glob("*/schedstat"):
            total += int(path.read_text("ascii").split()[0])
    return total


def broker_pids(broker: str) -> list[int]:
    """Return the processes that carry a broker's name in their command line.

    Args:
        broker: Its name.
    """
    found = []
    for path in PROCESSES.glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if broker.encode() in command and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found
