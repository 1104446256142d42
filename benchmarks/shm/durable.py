# SPDX-License-Identifier: Apache-2.0
"""Publishing to durable queues, with the calls that an application makes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from benchmarks.durable import BATCH, BODY
from benchmarks.harness import Kind
from benchmarks.shm import broker as brokers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import shmbroker
    from benchmarks.durable import Send

QUEUE = "durable"
WAIT_SECONDS = 60.0


class Broker:
    """A broker with a store, and one durable queue."""

    kind = Kind.OURS

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._broker: shmbroker.Broker | None = None
        self.address = ""

    available = staticmethod(brokers.unavailable)

    def version(self) -> str:
        """Return nothing: the version is that of the checkout."""
        return ""

    def open(self, folder: Path) -> None:
        """Start a broker, and make the queue."""
        self._broker, self.address = brokers.start_broker("2G", data_dir=folder)
        with brokers.connected(self.address) as connection:
            connection.queue(QUEUE, durable=True).put(BODY)
            connection.queue(QUEUE, passive=True).purge()

    def count(self) -> int:
        """Return how many messages the queue has."""
        with brokers.connected(self.address) as connection:
            return len(connection.queue(QUEUE, passive=True))

    def close(self) -> None:
        """End the broker, and remove its memory."""
        if self._broker is not None:
            self._broker.stop(purge=True)


@contextlib.contextmanager
def one_by_one(address: str) -> Iterator[Send]:
    """Put one message after the other: each call returns when its message is on the disk."""
    with brokers.connected(address) as connection:
        queue = connection.queue(QUEUE, passive=True)

        def send(count: int) -> None:
            for _ in range(count):
                queue.put(BODY)

        yield send


@contextlib.contextmanager
def batches(address: str) -> Iterator[Send]:
    """Put batches: each call returns when its batch is on the disk."""
    with brokers.connected(address) as connection:
        queue = connection.queue(QUEUE, passive=True)

        def send(count: int) -> None:
            for _ in range(count // BATCH):
                queue.put_many([BODY] * BATCH)

        yield send


@contextlib.contextmanager
def confirms(address: str) -> Iterator[Send]:
    """Publish through a channel with confirms, of which so many are outstanding."""
    with brokers.connected(address) as connection:
        channel = connection.channel()
        channel.confirm_delivery()

        def send(count: int) -> None:
            for _ in range(count // BATCH):
                for _ in range(BATCH):
                    channel.basic_publish("", QUEUE, BODY)
                channel.wait_for_confirms(WAIT_SECONDS)

        yield send
