# SPDX-License-Identifier: Apache-2.0
"""Brokers with settings of their own, and the files they leave."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory lies on Linux)


@contextlib.contextmanager
def running(name: str, memory: str) -> Iterator[shmbroker.Broker]:
    """Run a broker with that much memory, and purge it at the end."""
    broker = shmbroker.Broker(name, memory=memory)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop(purge=True)
    assert files(name) == []


def serve_while(broker: shmbroker.Broker, deed: Callable[[], object]) -> None:
    """Keep house here until a deed is done in another thread; raise what it raises."""

    def do_then_stop() -> None:
        try:
            deed()
        finally:
            broker.stop()

    doing: list[Future[None]] = []
    with ThreadPoolExecutor(1) as client:
        broker.serve_forever(on_ready=lambda: doing.append(client.submit(do_then_stop)))
    doing[0].result()


def segment(name: str, number: int) -> Path:
    """Return where a segment of the broker's memory lies."""
    return SHARED_MEMORY / f"shmbroker-{os.getuid()}.{name}.{number}"


def files(name: str) -> list[str]:
    """Return the names of whatever the broker has left in /dev/shm."""
    return sorted(path.name for path in SHARED_MEMORY.glob(f"*{name}*"))


def remove_files(name: str) -> None:
    """Remove what a broker left that nobody can attach to any more."""
    for left in files(name):
        (SHARED_MEMORY / left).unlink()
