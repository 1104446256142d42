# SPDX-License-Identifier: Apache-2.0
"""The ways to put into a queue and to take from it, as links.

Every way acknowledges, and hands out `bytes` like the peers do, unless bodies are
only touched. The loops are written out, without a function call of ours for each
message, because the peers' receive functions have none either.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty
from typing import TYPE_CHECKING, Literal, TypeAlias

from benchmarks.links import DRY_SECONDS, Inlet, Outlet, inlet, outlet
from benchmarks.payload import total, touch
from benchmarks.shm.broker import opened
from benchmarks.shm.callbacks import awaited, called_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import shmbroker
    from benchmarks.payload import Mark
    from shmbroker.channel import Channel

Way: TypeAlias = Literal[
    "get",
    "auto-ack",
    "consume",
    "batch",
    "in-place",
    "reserve",
    "spin",
    "share",
    "channel",
    "channel-auto-ack",
    "asyncio",
]

ACK_BATCH = 64
BATCH = 256
DEPTH = 256  # that of iceoryx2's queue
FEW = 8  # bodies that stay in the cache together; the bare mapping beside `reserve` has as many slots


@dataclass(frozen=True)
class QueueLink:
    """A queue of a running broker, and how it is used.

    Attributes:
        broker: Name of the broker.
        way: `get`: one at a time, acknowledged one at a time; `auto-ack`: one at a
            time, acknowledged by the get; `consume`: an iterated consumer that
            acknowledges in batches; `batch`: `put_many` and `get_many`; `in-place`:
            like `get`, of a queue as long as the peers' at most, so that bodies stay
            in the cache; `reserve`: bodies are written where they will lie, and each
            byte is read there, in a queue as long as the mapping beside it; `spin`: like
            `get`, but never sleeping; `share`: like `get`, for competing consumers;
            `channel`: `basic_publish`, and a callback that acknowledges;
            `channel-auto-ack`: one that need not; `asyncio`: `async for`.
        queue: Name of the queue.
    """

    broker: str
    way: Way = "get"
    queue: str = "stream"

    @property
    def _settings(self) -> dict[str, int]:
        depths: dict[Way, int] = {"in-place": DEPTH, "reserve": FEW}
        return {"max_length": depths[self.way]} if self.way in depths else {}

    @contextmanager
    def sending(self) -> Iterator[Outlet]:
        """Put one at a time, or a window at a time."""
        with opened(self.broker, self.queue, **self._settings) as (connection, queue):
            if self.way in {"channel", "channel-auto-ack"}:
                yield _publishing(connection.channel(), self.queue)
            elif self.way == "reserve":
                yield outlet(_writer(queue))
            else:
                yield (Outlet(queue.put, _putter(queue)) if self.way == "batch" else outlet(queue.put))

    @contextmanager
    def receiving(self) -> Iterator[Inlet]:
        """Take in this link's way."""
        if self.way == "asyncio":
            with awaited(self.broker, self.queue) as one:
                yield one
            return
        if self.way in {"channel", "channel-auto-ack"}:
            with called_back(self.broker, self.queue, auto_ack=self.way == "channel-auto-ack") as one:
                yield one
            return
        with opened(self.broker, self.queue, **self._settings) as (_, queue):
            if self.way == "consume":
                with queue.consume(ack_batch=ACK_BATCH) as consumer:
                    yield _consuming(consumer)
            else:
                make = {
                    "get": _getting,
                    "in-place": _getting,
                    "reserve": _reading,
                    "auto-ack": _auto_acking,
                    "batch": _batching,
                    "spin": _spinning,
                    "share": _sharing,
                }[self.way]
                yield make(queue)

    def close(self) -> None:
        """Leave the queue: it goes with its broker."""


def _publishing(channel: Channel, queue: str) -> Outlet:
    basic_publish = channel.basic_publish

    def send_many(bodies: Sequence[bytes]) -> None:
        for body in bodies:
            basic_publish("", queue, body)

    return Outlet(lambda body: basic_publish("", queue, body), send_many)


def _putter(queue: shmbroker.Queue) -> Callable[[Sequence[bytes]], object]:
    put_many = queue.put_many

    def send_many(bodies: Sequence[bytes]) -> None:
        sent = put_many(bodies) if bodies else 0
        while sent < len(bodies):
            sent += put_many(bodies[sent:])

    return send_many


def _writer(queue: shmbroker.Queue) -> Callable[[bytes], object]:
    reserve = queue.reserve

    def send(body: bytes) -> None:
        with reserve(len(body)) as view:
            view[:] = body

    return send


def _reading(queue: shmbroker.Queue) -> Inlet:
    return _getting(queue, total)


def _getting(queue: shmbroker.Queue, mark: Mark = touch) -> Inlet:
    get = queue.get

    def receive() -> bytes:
        message = get()
        body = bytes(message)
        message.ack()
        return body

    def receive_many(limit: int) -> list[bytes]:
        window = []
        for _ in range(limit):
            message = get()
            window.append(bytes(message))
            message.ack()
        return window

    def mark_many(limit: int) -> list[int]:
        window = []
        for _ in range(limit):
            message = get()
            window.append(mark(message.body))
            message.ack()
        return window

    return Inlet(receive, receive_many, mark_many)


def _auto_acking(queue: shmbroker.Queue) -> Inlet:
    get = queue.get

    def receive() -> bytes:
        return bytes(get(auto_ack=True))

    def receive_many(limit: int) -> list[bytes]:
        return [bytes(get(auto_ack=True)) for _ in range(limit)]

    def mark_many(limit: int) -> list[int]:
        return [touch(get(auto_ack=True).body) for _ in range(limit)]

    return Inlet(receive, receive_many, mark_many)


def _consuming(consumer: shmbroker.Consumer) -> Inlet:
    messages = iter(consumer)

    def receive_many(limit: int) -> list[bytes]:
        window = []
        for message in itertools.islice(messages, limit):
            window.append(bytes(message))
            message.ack()
        return window

    def mark_many(limit: int) -> list[int]:
        window = []
        for message in itertools.islice(messages, limit):
            window.append(touch(message.body))
            message.ack()
        return window

    return Inlet(lambda: receive_many(1)[0], receive_many, mark_many)


def _batching(queue: shmbroker.Queue) -> Inlet:
    get_many = queue.get_many

    def receive_many(limit: int) -> list[bytes]:
        batch = get_many(min(limit, BATCH))
        bodies = batch.bodies()
        batch.ack()
        return bodies

    def mark_many(limit: int) -> list[int]:
        batch = get_many(min(limit, BATCH))
        touches = [touch(message.body) for message in batch]
        batch.ack()
        return touches

    return Inlet(lambda: receive_many(1)[0], receive_many, mark_many)


def _spinning(queue: shmbroker.Queue) -> Inlet:
    get_nowait = queue.get_nowait

    def receive() -> bytes:
        while True:
            try:
                message = get_nowait()
            except Empty:
                continue
            body = bytes(message)
            message.ack()
            return body

    return inlet(receive)


def _sharing(queue: shmbroker.Queue) -> Inlet:
    """As `sharing_inlet`, without a function call of ours for each message."""
    get = queue.get

    def receive_many(limit: int) -> list[bytes]:
        window: list[bytes] = []
        try:
            for _ in range(limit):
                message = get(timeout=0 if window else DRY_SECONDS)
                window.append(bytes(message))
                message.ack()
        except Empty:
            pass
        return window

    one = _getting(queue)
    return Inlet(one.receive, receive_many, one.mark_many)
