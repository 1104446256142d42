# SPDX-License-Identifier: Apache-2.0
"""Consumers for ``async for``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue as standard_queue
from typing import TYPE_CHECKING, Self

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._session.queues import core_of

if TYPE_CHECKING:
    from types import TracebackType

    from shmbroker.aio.session import LoopSession
    from shmbroker.consumer import Consumer as SyncConsumer
    from shmbroker.message import Message
    from shmbroker.statistics import ConsumerStatistics

_TURNS = 64  # at each call of this number, the task sleeps once before it takes a message, so that other tasks run


class Consumer:
    """Takes messages from one or more queues as they arrive. Behaves as :class:`shmbroker.Consumer`."""

    def __init__(self, session: LoopSession, sync: SyncConsumer) -> None:
        self._session, self._sync, self._core = session, sync, core_of(sync)
        self._loop, self._timeout = session.loop, sync._timeout  # noqa: SLF001
        self._told = asyncio.Event()
        self._descriptor = sync.fileno()
        self._loop.add_reader(self._descriptor, self._ready)
        self._turns = 0
        self._closed = False
        session.consumers.add(self)

    def _ready(self) -> None:
        self._told.set()
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)
        self._core.arm()  # the result is not needed: `_next` looks for a message in any case

    async def get(self, timeout: float | None = None) -> Message:  # noqa: ASYNC109
        """Returns the next message.

        Raises:
            queue.Empty: no message came in time.
            ConnectionClosed: the consumer or its connection is closed.
        """
        native.check_timeout(timeout)
        if self._must_let_others_run():  # before the time begins: a timeout of 0 would cancel this sleep
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(timeout):
                return await self._next()
        except TimeoutError:
            raise standard_queue.Empty from None

    def _must_let_others_run(self) -> bool:
        """Whether the caller must sleep before :meth:`_next`: at each 64th call. A cancelled sleep loses no message."""
        self._turns += 1
        return self._turns % _TURNS == 0

    async def _next(self) -> Message:
        """Returns the next message. Looks for it before the first wait, also if the timeout is 0."""
        while True:
            self._told.clear()
            try:
                return self._sync.get(timeout=0)
            except standard_queue.Empty:
                await self._told.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            if self._timeout is not None:
                return await self.get(self._timeout)
            if self._must_let_others_run():
                await asyncio.sleep(0)
            try:
                return self._sync.get(timeout=0)  # mostly there is a message: a coroutine for it would cost time
            except standard_queue.Empty:
                return await self._next()  # not `get`: its `asyncio.timeout` would cost time for each message
        except (standard_queue.Empty, exceptions.ConnectionClosed):
            raise StopAsyncIteration from None

    def flush(self) -> None:
        """Sends the acknowledgements that wait for their batch to fill."""
        self._sync.flush()

    def cancel(self) -> None:
        """Ends the consumer; the application can still settle the messages it holds."""
        self._end()
        self._sync.cancel()

    def close(self) -> None:
        """Ends the consumer; every unacked message that it holds is requeued at its position."""
        self._end()
        self._sync.close()

    def _end(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._descriptor)
            self._session.consumers.discard(self)
            self._told.set()  # wakes a waiting task, which then finds the consumer closed

    def statistics(self) -> ConsumerStatistics:
        """A snapshot of the consumer."""
        return self._sync.statistics()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"
