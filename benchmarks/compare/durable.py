# SPDX-License-Identifier: Apache-2.0
"""Publishing to the disk by others: Redis streams, RabbitMQ's durable queues, LMDB alone, and the disk itself."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compare.protocol import module
from benchmarks.compare.rabbitmq_features import RabbitMQ, RabbitServer
from benchmarks.compare.redis_list import RedisEnd, RedisLink, RedisList
from benchmarks.durable import BATCH, BODY
from benchmarks.harness import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.durable import Send

NAME = "durable"
MAP_BYTES = 1 << 36


class Redis:
    """A server of our own that syncs its log before each answer."""

    kind = Kind.PEER
    available = staticmethod(RedisList().available)
    version = staticmethod(RedisList().version)

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._server: RedisLink | None = None

    @property
    def address(self) -> str:
        """The server's socket."""
        assert self._server is not None  # noqa: S101 - `open` has started it
        return self._server.socket

    def open(self, folder: Path) -> None:
        """Start a server."""
        self._server = RedisLink(["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--dir", str(folder)])

    def count(self) -> int:
        """Return how many messages the stream has."""
        with RedisEnd(self.address).client() as client:
            return int(client.xlen(NAME))

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.close()


@contextlib.contextmanager
def xadd(address: str) -> Iterator[Send]:
    """Add to a stream, one command and one answer per message."""
    with RedisEnd(address).client() as client:

        def send(count: int) -> None:
            for _ in range(count):
                client.xadd(NAME, {"body": BODY})

        yield send


@contextlib.contextmanager
def pipelined(address: str) -> Iterator[Send]:
    """Add to a stream, the commands of a batch at once."""
    with RedisEnd(address).client() as client:

        def send(count: int) -> None:
            pipeline = client.pipeline(transaction=False)
            for _ in range(count // BATCH):
                for _ in range(BATCH):
                    pipeline.xadd(NAME, {"body": BODY})
                pipeline.execute()

        yield send


class Rabbit:
    """A server of our own, with a durable classic queue."""

    kind = Kind.PEER
    available = staticmethod(RabbitMQ().available)
    version = staticmethod(RabbitMQ().version)

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._server: RabbitServer | None = None

    @property
    def address(self) -> str:
        """The server's port."""
        assert self._server is not None  # noqa: S101 - `open` has started it
        return str(self._server.port)

    def open(self, folder: Path) -> None:
        """Start a server, and make the queue."""
        self._server = RabbitServer(folder)
        with self._server.client() as channel:
            channel.queue_declare(NAME, durable=True)

    def count(self) -> int:
        """Return how many messages the queue has."""
        assert self._server is not None  # noqa: S101 - `open` has started it
        with self._server.client() as channel:
            found: int = channel.queue_declare(NAME, passive=True).method.message_count
            return found

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.close()


@contextlib.contextmanager
def confirmed(address: str) -> Iterator[Send]:
    """Publish persistent messages by pika, whose call returns with the confirm."""
    pika = module("pika")
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(address)))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)

        def send(count: int) -> None:
            for _ in range(count):
                channel.basic_publish("", NAME, BODY, persistent)

        yield send
    finally:
        connection.close()


class Folder:
    """A folder, which a publisher writes into by itself."""

    kind = Kind.BOUND

    def __init__(self) -> None:
        """There is none yet."""
        self.address = ""

    def available(self) -> str | None:
        """Return None: it can always run."""
        return None

    def version(self) -> str:
        """Return nothing."""
        return ""

    def open(self, folder: Path) -> None:
        """Remember the folder."""
        self.address = str(folder)

    def count(self) -> int:
        """Return how many messages the files have."""
        return sum(path.stat().st_size for path in Path(self.address).glob("file-*")) // len(BODY)

    def close(self) -> None:
        """Leave everything as it is."""


@contextlib.contextmanager
def synced(address: str) -> Iterator[Send]:
    """Append to a file, and sync it, for each message."""
    file = os.open(Path(address) / f"file-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:

        def send(count: int) -> None:
            for _ in range(count):
                os.write(file, BODY)
                os.fdatasync(file)

        yield send
    finally:
        os.close(file)


class Lmdb(Folder):
    """LMDB alone, one key for each message."""

    def count(self) -> int:
        """Return how many keys there are."""
        with _environment(self.address) as environment:
            return int(environment.stat()["entries"])


@contextlib.contextmanager
def _environment(address: str) -> Iterator[Any]:
    environment = module("lmdb").open(address, map_size=MAP_BYTES)
    try:
        yield environment
    finally:
        environment.close()


@contextlib.contextmanager
def bulk(address: str) -> Iterator[Send]:
    """Put batches, each in one transaction that is synced."""
    with _environment(address) as environment:

        def send(count: int) -> None:
            first = environment.stat()["entries"]
            for batch in range(first, first + count, BATCH):
                with environment.begin(write=True) as transaction:
                    for number in range(batch, batch + BATCH):
                        transaction.put(b"%016d" % number, BODY, append=True)

        yield send
