# SPDX-License-Identifier: Apache-2.0
"""Sends all files through a broker, and kills a worker and the housekeeper half-way."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import shmbroker
from shmbroker_cli.demo.analysis import Counts
from shmbroker_cli.demo.files import is_urgent, urgent_last
from shmbroker_cli.demo.left import Left, left_in
from shmbroker_cli.demo.workers import Analyst

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    from shmbroker.channel import Channel

MEMORY = "256M"
EXCHANGE, KEY = "work", "file"
FILES, RESULTS, LOG, UNPARSABLE = "files", "results", "log", "unparsable"
NORMAL, URGENT = 0, 1  # the priorities of files
LAST_LINES = 5  # of the log, which its ring keeps
BACKLOG = 16 << 20  # bytes: the limit of the queue of files; while the queue is full, the publisher waits
LOOK = 0.5  # seconds: the longest wait for a result, or for room for a file, before the loop checks whether to end
PATIENCE = 60.0  # seconds without any result after which the rest counts as lost


@dataclass
class Outcome:
    """The outcome of a run through the broker.

    Attributes:
        results: The counts of each file, by path.
        duplicated: Number of results whose file had a result already.
        redelivered: How many times a file was given to a worker again.
        killed: Which processes were killed: "worker", "housekeeper".
        seconds: From the first file sent to the last result.
        left: What the log and the dead-letter queue contain in the end.
    """

    results: dict[str, Counts] = field(default_factory=dict)
    duplicated: int = 0
    redelivered: int = 0
    killed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    left: Left = field(default_factory=Left)


@dataclass(frozen=True)
class Bench:
    """The broker of a run, and what belongs to it.

    Attributes:
        broker: A broker that only this run uses.
        files: The queue of the files to analyse.
        results: The queue of the results that are not in the outcome yet.
        log: The ring of the last lines that the workers wrote.
        deliveries: Yields the messages of `results`; (None, None, None) after `LOOK` seconds without a message.
    """

    broker: shmbroker.Broker
    files: shmbroker.Queue
    results: shmbroker.Queue
    log: shmbroker.Queue
    deliveries: Generator[Any, None, None]


@contextmanager
def _bench() -> Iterator[Bench]:
    """Run a broker for this run only, and purge it at the end of the block."""
    broker = shmbroker.Broker(f"demo-{uuid.uuid4().hex[:12]}", memory=MEMORY)
    try:
        broker.start()  # inside `try`: an interrupt during the start may leave the broker's memory
        with broker.connect() as connection, connection.channel() as channel:
            connection.queue(UNPARSABLE)
            files = connection.queue(
                FILES, max_bytes=BACKLOG, max_priority=URGENT,
                dead_letter_exchange="", dead_letter_routing_key=UNPARSABLE,
            )  # fmt: skip
            results = connection.queue(RESULTS)
            log = connection.queue(LOG, ring_size=LAST_LINES)
            channel.exchange_declare(EXCHANGE, "direct")
            channel.queue_bind(FILES, EXCHANGE, KEY)
            with closing(channel.consume(RESULTS, inactivity_timeout=LOOK)) as deliveries:
                yield Bench(broker, files, results, log, deliveries)
    finally:
        broker.stop(purge=True)


def run(
    root: Path,
    paths: Sequence[str],
    *,
    workers: int,
    kill: bool,
    progress: Callable[[int], None],
) -> Outcome:
    """Send files through a broker to worker processes, and gather their results.

    Args:
        root: Folder of the files.
        paths: Their paths, relative to it.
        workers: Number of processes.
        kill: Whether to kill a worker and the housekeeper half-way.
        progress: Called with the number of results so far.
    """
    outcome, ended = Outcome(), threading.Event()
    with (
        _bench() as bench,
        shmbroker.WorkerPool(
            Analyst(bench.results, bench.log),
            bench.files.name,
            broker=bench.broker.name,
            processes=workers,
        ) as pool,
        ThreadPoolExecutor(max_workers=1) as executor,
    ):
        pool.start()
        started = time.monotonic()
        sending = executor.submit(_send, bench.broker, root, paths, ended)
        try:
            while len(outcome.results) < len(paths):
                if not _gather(bench, outcome, sending.done):
                    break
                progress(len(outcome.results))
                if kill and 2 * len(outcome.results) >= len(paths):
                    kill = False
                    outcome.killed = _kill(bench.broker, pool)
            outcome.seconds = time.monotonic() - started
        finally:
            ended.set()
        sending.result()
        _settle(bench, outcome)
        outcome.redelivered = bench.files.statistics().redelivered
        outcome.left = left_in(bench.broker, LOG, UNPARSABLE)
    return outcome


def _send(broker: shmbroker.Broker, root: Path, paths: Sequence[str], ended: threading.Event) -> None:
    """Publish one message for each file, until all files are sent, or `ended` is set. Waits while the queue is full.

    The urgent files are sent behind all others. Their priority brings them to the workers before those.
    """
    with broker.connect() as connection, connection.channel() as channel:
        for path in urgent_last(paths):
            body = (root / path).read_bytes()
            if not _publish(channel, path, body, ended):
                return


def _publish(channel: Channel, path: str, body: bytes, ended: threading.Event) -> bool:
    """Publish a file as soon as there is room; return False if `ended` is set before.

    Raises:
        UnroutableError: If no queue would get it: a file must not be lost silently.
    """
    properties = shmbroker.BasicProperties(message_id=path, priority=URGENT if is_urgent(path) else NORMAL)
    while not ended.is_set():
        try:
            published = channel.publish_confirmed(EXCHANGE, KEY, body, properties, mandatory=True, timeout=LOOK)
        except queue.Full:
            continue
        published.result()
        return True
    return False


def _gather(bench: Bench, outcome: Outcome, all_sent: Callable[[], bool]) -> bool:
    """Wait for one result, and note it in the outcome.

    Returns:
        Whether a result came. If not, all results are noted, or none came for `PATIENCE` seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        # The queue of files is checked first: a worker publishes the result of a file before it acks the file. So when
        # no file is left in the queue, each result is in the queue of results, or was noted in the outcome.
        over = all_sent() and bench.files.statistics().message_count == 0
        over = over and bench.results.statistics().message_count == 0
        if over:
            return False
        method, properties, body = next(bench.deliveries)
        if method is not None:
            _note(properties.message_id or "", body, outcome)
            method.ack()
            return True
    return False


def _note(path: str, body: bytes, outcome: Outcome) -> None:
    """Add a result to the outcome; if its file has a result there already, only count it as a duplicate."""
    if path in outcome.results:
        outcome.duplicated += 1
    else:
        outcome.results[path] = Counts.from_bytes(body)


def _settle(bench: Bench, outcome: Outcome) -> None:
    """Wait until the workers have finished the redelivered files, and count the results that came again."""
    while _gather(bench, outcome, lambda: True):
        pass


def _kill(broker: shmbroker.Broker, pool: shmbroker.WorkerPool) -> list[str]:
    """Kill a worker and the housekeeper with SIGKILL.

    Returns:
        Which of them were killed: "worker", "housekeeper".
    """
    victims = {
        "worker": next(iter(pool.pids), 0),
        "housekeeper": broker.statistics().housekeeper_pid,
    }
    killed = []
    for name, pid in victims.items():
        if pid not in (0, os.getpid()):
            os.kill(pid, signal.SIGKILL)
            killed.append(name)
    return killed
