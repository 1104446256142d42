# SPDX-License-Identifier: Apache-2.0
"""What the objects of an asyncio connection share."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from shmbroker import exceptions
from shmbroker._process.living import Named
from shmbroker.aio.dispatch import LoopDispatcher
from shmbroker.aio.waiters import Waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._session.session import Session

R = TypeVar("R")
_LOOK_SECONDS = 0.02


class Closing(Protocol):
    """What the session needs to know of a queue or a consumer: how to close it."""

    def close(self) -> None:
        """Closes it."""
        ...


class LoopSession:
    """A session in one event loop: callbacks run in the loop, and no call blocks it.

    Args:
        shared: the session of the sync API, which does the work. It does not wait for the topology lock: its
            ``operation_timeout`` is 0.
        operation_timeout: seconds that a topology change may wait for the topology lock; ``None`` = for ever.

    Attributes:
        shared: the session of the sync API.
        loop: the running event loop.
        queues: the handles of queues that the application has, by name: objects of :mod:`shmbroker.aio.queue`.
        consumers: the consumers that have not ended.
        waits: the waits at queues, of handles and of channels.
    """

    def __init__(self, shared: Session, operation_timeout: float | None) -> None:
        self.shared = shared
        self.loop = loop = asyncio.get_running_loop()
        self._operation_timeout = operation_timeout
        self.queues: Named[Closing] = Named()
        self.consumers: set[Closing] = set()
        self.waits = Waits(shared.start_io)
        shared.make_dispatcher = lambda work: LoopDispatcher(loop, work, shared.callbacks.failed)

    async def change(self, operation: Callable[[], R]) -> R:
        """Repeats a change of the topology while another thread or process holds the topology lock.

        Raises:
            Timeout: the lock was not free in ``operation_timeout``.
        """
        until = time.monotonic() + (math.inf if self._operation_timeout is None else self._operation_timeout)
        pause = 0.001
        while True:
            try:
                result = operation()
            except exceptions.Timeout:
                if time.monotonic() >= until:
                    raise
            else:
                self.waits.forget_deleted()
                return result
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LOOK_SECONDS)

    async def synced(self, timeout: float | None) -> None:  # noqa: ASYNC109
        """Waits until what this process has published is in the store of the broker, if it has one.

        Raises:
            Timeout: it is not in time. The messages are in their queues.
        """
        if self.shared.store_waits is None:
            return
        try:
            await asyncio.wait_for(asyncio.wrap_future(self.shared.store_waits.synced()), timeout)
        except TimeoutError:
            text = "the storekeeper has not synced the changes in time"
            raise exceptions.Timeout(text) from None

    def close(self) -> None:
        """Closes the consumers and the handles of queues, and ends every wait of a task at a queue."""
        for one in (*self.consumers, *self.queues):
            one.close()
        self.waits.close(exceptions.ConnectionClosed(text="the connection is closed"))
