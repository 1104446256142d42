# SPDX-License-Identifier: Apache-2.0
"""Sends all files through Spark and, if asked to, kills the driver when half of the results are there."""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import shmbroker
from shmbroker.staging import stages
from shmbroker_cli.demo_spark.checkpoint import noted
from shmbroker_cli.demo_spark.measures import Measures
from shmbroker_cli.demo_spark.processes import LOOK, Process
from shmbroker_cli.demo_spark.query import FILES, REQUESTS, RESULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SCORER, DRIVER = (f"{__package__}.{module}" for module in ("scorer", "driver"))
MEMORY = "256M"
BATCHES = 12
PATIENCE = 180.0  # seconds without any result after which the query counts as stuck
REST = 30.0  # seconds for processes to find out that they are not needed, and for the broker to clear up after them
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory lies on Linux)


@dataclass(frozen=True)
class Drive:
    """What one driver did.

    Attributes:
        killed: Whether it was killed; if not, it ended by itself.
        batches: Number of micro-batches that it finished.
        again: How many of these an earlier driver had planned, and not finished.
        results: Number of results published while it ran.
        seconds: From its start to its end.
        batch_seconds: The median time of the micro-batches that this driver both planned and finished; None: there are
            none.
    """

    killed: bool
    batches: int
    again: int
    results: int
    seconds: float
    batch_seconds: float | None


@dataclass
class Outcome:
    """The outcome of a run through Spark.

    Attributes:
        results: Every message of the queue of results: the path of a file, and its measures.
        drives: What each driver did, in the order of their starts.
        left: How many things of each kind the run left behind; each number should be 0.
        seconds: From the start of the first driver to the end of the last one.
    """

    results: list[tuple[str, Measures]] = field(default_factory=list)
    drives: list[Drive] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Bench:
    """The broker, the queues, the folder and the processes of a run.

    Attributes:
        connection: A connection to a broker that only this run uses.
        folder: The folder of the checkpoint, and of all temporary files.
        files: The queue of the files to measure.
        results: The queue of the results.
        processes: The processes that were started: the scorer, then the drivers.
    """

    connection: shmbroker.Connection
    folder: Path
    files: shmbroker.Queue
    results: shmbroker.Queue
    processes: list[Process]


@contextmanager
def _bench(name: str) -> Iterator[Bench]:
    """Run a broker for this run only, and purge it at the end of the block."""
    broker = shmbroker.Broker(name, memory=MEMORY)
    try:
        broker.start()  # inside `try`: an interrupt during the start may leave the broker's memory
        with broker.connect() as connection, tempfile.TemporaryDirectory(prefix="shmbroker-") as folder:
            processes: list[Process] = []
            try:
                yield Bench(connection, Path(folder), connection.queue(FILES), connection.queue(RESULTS), processes)
            finally:
                for process in processes:
                    process.close()
    finally:
        broker.stop(purge=True)


def run(root: Path, paths: Sequence[str], *, kill: bool, progress: Callable[[int], None]) -> Outcome:
    """Send files through Spark to a queue of results.

    Args:
        root: Folder of the files.
        paths: Their paths, relative to it.
        kill: Whether to kill the driver half-way, and to start another one.
        progress: Called with the number of results so far.

    Raises:
        Refused: If a driver fails, or the scorer.
    """
    outcome, name = Outcome(), f"demo-{uuid.uuid4().hex[:12]}"
    with _bench(name) as bench:
        for path in paths:
            bench.files.put((root / path).read_bytes(), key=path)
        _start_scorer(bench)
        rows = -(-len(paths) // BATCHES)
        started = time.monotonic()
        for kill_at in ([-(-len(paths) // 2)] if kill else []) + [None]:
            outcome.drives.append(_drive(bench, rows, kill_at, progress))
        outcome.seconds = time.monotonic() - started
        outcome.results = [
            (message.key or "", Measures.from_json(bytes(message))) for message in bench.results.browse()
        ]
        outcome.left = _left_at_rest(bench)
    outcome.left["segments"] = len(list(SHARED_MEMORY.glob(f"*{name}*")))
    return outcome


def _start_scorer(bench: Bench) -> None:
    """Start the scorer, and wait until it consumes requests."""
    scorer = Process(SCORER, bench.connection.broker_name, folder=bench.folder)
    bench.processes.append(scorer)
    while scorer.runs() and scorer.pid not in {one.pid for one in bench.connection.consumers()}:
        time.sleep(LOOK)


def _drive(bench: Bench, rows: int, kill_at: int | None, progress: Callable[[int], None]) -> Drive:
    """Run a driver to its end, or kill it when there are `kill_at` results; None: do not kill it."""
    before, had = noted(bench.folder), len(bench.results)
    began, started = time.time(), time.monotonic()
    driver = Process(DRIVER, bench.connection.broker_name, str(bench.folder), str(rows), folder=bench.folder)
    bench.processes.append(driver)
    killed = _follow(driver, bench.results, kill_at, progress)
    after = noted(bench.folder)
    finished = after.done.keys() - before.done.keys()
    own = [after.done[batch] - after.planned[batch] for batch in finished if after.planned[batch] >= began]
    return Drive(
        killed,
        len(finished),
        len(finished & before.unfinished),
        len(bench.results) - had,
        round(time.monotonic() - started, 3),
        round(statistics.median(own), 3) if own else None,
    )


def _follow(driver: Process, results: shmbroker.Queue, kill_at: int | None, progress: Callable[[int], None]) -> bool:
    """Wait for the end of a driver, or kill it when there are `kill_at` results; None: do not kill it.

    Return whether the driver was killed.
    """
    count, deadline = len(results), time.monotonic() + PATIENCE
    while driver.runs():
        if len(results) > count:
            count, deadline = len(results), time.monotonic() + PATIENCE
            progress(count)
        if kill_at is not None and count >= kill_at:
            driver.kill()
            return True
        if time.monotonic() > deadline:
            how = f"gave no result for {PATIENCE:.0f} s"
            raise driver.failed(how)
        time.sleep(LOOK)
    return False


def _left_at_rest(bench: Bench) -> dict[str, int]:
    """Return what `_left` counts. Waits up to `REST` seconds until all its numbers are 0."""
    deadline = time.monotonic() + REST
    while any((left := _left(bench)).values()) and time.monotonic() < deadline:
        time.sleep(LOOK)
    return left


def _left(bench: Bench) -> dict[str, int]:
    """Count, for each kind, the things that the run has left behind and should not have.

    The scorer should still run, so it is not counted. Requests that wait in its queue are counted.
    """
    connection, (_scorer, *drivers) = bench.connection, bench.processes
    return {
        "messages": len(bench.files) + len(connection.queue(REQUESTS, passive=True)),
        "leases": sum(group.leases for group in shmbroker.groups(connection)),
        "attempts": len(stages(connection)),
        "processes": sum(len(driver.left()) for driver in drivers),
        "findings": len(connection.doctor()),
    }
