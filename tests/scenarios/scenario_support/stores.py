# SPDX-License-Identifier: Apache-2.0
"""Brokers with a store on disk."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def names_in(folder: Path) -> set[str]:
    """Return the names in a folder."""
    return {one.name for one in folder.iterdir()}


@contextlib.contextmanager
def serving(name: str, folder: Path, memory: str = "64M") -> Iterator[shmbroker.Broker]:
    """Start a broker with a store, and purge its memory at the end."""
    broker = shmbroker.Broker(name, memory=memory, data_dir=folder)
    try:
        yield broker.start()
    finally:
        broker.stop(purge=True)


def numbers_of(name: str, folder: Path) -> list[int]:
    """Begin a broker from a store; return the bodies in its queue `jobs`, as numbers."""
    with serving(name, folder) as broker, broker.connect() as connection:
        return [int(bytes(message)) for message in connection.queue("jobs", passive=True).browse()]
