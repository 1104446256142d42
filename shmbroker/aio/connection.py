# SPDX-License-Identifier: Apache-2.0
"""Connections for asyncio."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from shmbroker import broker, exceptions
from shmbroker.aio.channel import Channel
from shmbroker.aio.consumer import Consumer
from shmbroker.aio.dispatch import LoopDispatcher
from shmbroker.aio.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import TracebackType

    from shmbroker.connection import Connection as SyncConnection

R = TypeVar("R")
_LOOK_SECONDS = 0.02


class Connection:
    """A connection to a broker of this machine, for one event loop. Made by :func:`connect`."""

    def __init__(self, sync: SyncConnection, operation_timeout: float) -> None:
        loop = asyncio.get_running_loop()
        self.sync = sync
        self._operation_timeout = operation_timeout
        self._queues: dict[str, Queue] = {}
        self._consumers: set[Consumer] = set()
        sync.make_dispatcher = lambda work: LoopDispatcher(loop, work, sync.callbacks.failed)

    async def change(self, operation: Callable[[], R]) -> R:
        """Repeats a change of the topology while another process holds the topology lock.

        Raises:
            Timeout: another process does not finish its change in ``operation_timeout``.
        """
        until = time.monotonic() + self._operation_timeout
        pause = 0.001
        while True:
            try:
                return operation()
            except exceptions.Timeout:
                if time.monotonic() >= until:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LOOK_SECONDS)

    async def queue(self, name: str, *, passive: bool = False, **settings: Any) -> Queue:  # noqa: ANN401
        """Declares a queue and opens it; see :meth:`shmbroker.Connection.queue`."""
        opened = await self.change(lambda: self.sync.queue(name, passive=passive, **settings))
        known = self._queues.get(name)
        if known is None or known.sync is not opened:
            known = self._queues[name] = Queue(self, opened)
        return known

    def queue_closed(self, queue: Queue) -> None:
        """Forgets a closed handle."""
        if self._queues.get(queue.name) is queue:
            del self._queues[queue.name]

    def consumer(self, queues: Sequence[Queue], **options: Any) -> Consumer:  # noqa: ANN401
        """Starts one consumer of several queues; see :meth:`shmbroker.Connection.consumer`."""
        consumer = Consumer(self, self.sync.consumer([queue.sync for queue in queues], **options))
        self._consumers.add(consumer)
        return consumer

    def consumer_ended(self, consumer: Consumer) -> None:
        """Forgets a cancelled consumer."""
        self._consumers.discard(consumer)

    async def channel(self, number: int | None = None) -> Channel:
        """Opens a channel; see :meth:`shmbroker.Connection.channel`. Callbacks run in the event loop."""
        return Channel(self, self.sync.channel(number))

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used."""
        return self.sync.is_open

    @property
    def name(self) -> str:
        """The name that ``shmbroker connections`` shows."""
        return self.sync.name

    def close(self) -> None:
        """Closes the connection: waits end, unacked messages are requeued at their positions. Safe to call again."""
        for consumer in list(self._consumers):
            consumer.close()
        for queue in list(self._queues.values()):
            queue.close()
        self.sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<aio {self.sync!r}>"


class _Connecting:
    """A connection that is being opened: the caller awaits it, or uses it in ``async with``."""

    _opened: Connection

    def __init__(self, name: str, timeout: float | None, operation_timeout: float, options: dict[str, Any]) -> None:
        self._name, self._timeout, self._options = name, timeout, options
        self._operation_timeout = operation_timeout

    async def _connect(self) -> Connection:
        until = time.monotonic() + (self._timeout or 0)
        while True:
            try:
                sync = broker.connect(self._name, timeout=0, operation_timeout=0, **self._options)
                return Connection(sync, self._operation_timeout)
            except exceptions.BrokerNotFound:
                if time.monotonic() >= until:
                    raise
            await asyncio.sleep(_LOOK_SECONDS)

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._connect().__await__()

    async def __aenter__(self) -> Connection:
        self._opened = await self._connect()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()


def connect(
    name: str = "default",
    *,
    timeout: float | None = None,
    operation_timeout: float = 10.0,
    **options: Any,  # noqa: ANN401
) -> _Connecting:
    """Opens a connection; the caller awaits it, or uses it in ``async with``.

    Options as for :func:`shmbroker.connect`, without ``executor``: callbacks run in the event loop.
    """
    if "executor" in options:
        msg = "executor: callbacks of an asyncio connection run in its event loop"
        raise TypeError(msg)
    return _Connecting(name, timeout, operation_timeout, options)
