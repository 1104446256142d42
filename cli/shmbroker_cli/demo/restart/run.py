# SPDX-License-Identifier: Apache-2.0
"""Runs a broker with a store, kills all of its processes, and begins again from the folder alone."""

from __future__ import annotations

import queue as standard_queue
import tempfile
import time
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import shmbroker
from shmbroker_cli.demo.restart.clients import ROLES
from shmbroker_cli.demo.restart.killing import kill_all, remove_memory
from shmbroker_cli.demo.restart.notes import Promises, promises
from shmbroker_cli.demo.restart.plan import (
    ARCHIVE,
    COMPARED,
    DEBITS,
    DEEP,
    MEMORY,
    ORDERS,
    RANKED,
    declare,
    number_in,
    topology,
)
from shmbroker_cli.demo.restart.report import Found, Restart, compare
from shmbroker_cli.demo_spark.processes import Process
from shmbroker_cli.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CLIENTS = "shmbroker_cli.demo.restart.clients"
NOTES = "notes"
BUSY = {ORDERS: 200, RANKED: 200, ARCHIVE: 100}  # acknowledgements on the disk before all processes are killed
TRANSACTIONS = 20  # the same, commits
LOOK = 0.02  # seconds
PATIENCE = 60.0  # seconds until the clients must have done enough
BATCH = 256  # messages


def restart(progress: Callable[[int], None]) -> Restart:
    """Kill a broker half-way, begin again from its folder, and compare.

    Args:
        progress: Called with the number of messages in the deepest queue so far; at `DEEP` the processes are killed.

    Raises:
        Refused: If a client failed, or the clients did not do enough in a minute.
    """
    with tempfile.TemporaryDirectory(prefix="shmbroker-demo-") as name:
        folder = Path(name)
        store = folder / "store"
        store.mkdir()
        with _broker(store) as broker:
            with broker.connect() as connection:
                declare(connection)
                before = topology(connection)
            killed = _work(broker.name, folder, progress)
        told = promises(_notes(folder))
        started = time.monotonic()
        with _broker(store) as broker:
            seconds = time.monotonic() - started
            return compare(killed, told, before, _found(broker, seconds))


@contextmanager
def _broker(store: Path) -> Iterator[shmbroker.Broker]:
    """Make a broker from a folder. At the end of the block its processes are killed, and its memory is removed."""
    broker = shmbroker.Broker(f"demo-{uuid.uuid4().hex[:12]}", memory=MEMORY, data_dir=store)
    try:
        yield broker.start()
    finally:
        kill_all(broker.name)
        remove_memory(broker.name)
        broker.stop(purge=True)  # there is no memory: it only waits for the end of the housekeeper


def _work(broker: str, folder: Path, progress: Callable[[int], None]) -> Mapping[str, int]:
    """Let clients work until they have done enough, and kill all processes of the broker while they go on.

    Returns:
        How many processes of each kind were killed.
    """
    with ExitStack() as stack:
        clients = []
        for role in ROLES:
            place = folder / role
            place.mkdir()
            clients.append(stack.enter_context(Process(CLIENTS, role, broker, str(place / NOTES), folder=place)))
        _await_enough(clients, folder, progress)
        return kill_all(broker)


def _await_enough(clients: list[Process], folder: Path, progress: Callable[[int], None]) -> None:
    until = time.monotonic() + PATIENCE
    while not _is_enough(told := promises(_notes(folder))):
        if time.monotonic() > until:
            message = f"the clients of the restart did not do enough in {PATIENCE:.0f} seconds: {_summary(told)}"
            raise Refused(message)
        for client in clients:
            client.runs()
        progress(_depth(told))
        time.sleep(LOOK)
    progress(_depth(told))


def _notes(folder: Path) -> list[Path]:
    return [folder / role / NOTES for role in ROLES]


def _depth(told: Mapping[str, Promises]) -> int:
    return len(told.get(ARCHIVE, Promises()).due)


def _is_enough(told: Mapping[str, Promises]) -> bool:
    """Return whether one queue is deeper than the memory, and something was done with each of the others."""
    none = Promises()
    return (
        all(len(told.get(name, none).synced) >= least for name, least in BUSY.items())
        and told.get(DEBITS, none).confirmed >= TRANSACTIONS
        and _depth(told) >= DEEP
    )


def _summary(told: Mapping[str, Promises]) -> str:
    done = (f"{name} {one.confirmed} confirmed, {len(one.synced)} acknowledged" for name, one in sorted(told.items()))
    return "; ".join(done)


def _found(broker: shmbroker.Broker, seconds: float) -> Found:
    """Take all messages that a broker has, which began in so many seconds."""
    with broker.connect() as connection:
        there = topology(connection)
        queues = [connection.queue(name, passive=True) for name in COMPARED if name in there.settings]
        return Found(
            topology=there,
            seconds=seconds,
            memory=broker.statistics().memory_limit,
            deepest=max((queue.statistics().bytes for queue in queues), default=0),
            messages={queue.name: _take(queue) for queue in queues},
        )


def _take(queue: shmbroker.Queue) -> list[int]:
    numbers: list[int] = []
    while True:
        try:
            numbers += [number_in(bytes(message)) for message in queue.get_many(BATCH, timeout=0, auto_ack=True)]
        except standard_queue.Empty:
            return numbers
