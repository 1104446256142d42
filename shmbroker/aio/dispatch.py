# SPDX-License-Identifier: Apache-2.0
"""Callbacks in an event loop: a channel runs one callback at a time, in order, and awaits what it returns."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shmbroker._session.dispatch import Work

_TURNS = 64  # after this number of callbacks and awaited results, the task sleeps once, so that other tasks run
_calling: contextvars.ContextVar[LoopDispatcher | None] = contextvars.ContextVar("calling", default=None)


class LoopDispatcher:
    """The event loop's counterpart of :class:`~shmbroker._session.dispatch.Dispatcher`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work, failed: Callable[[BaseException], None]) -> None:
        self._loop, self._work, self._failed = loop, work, failed
        self._task: asyncio.Task[None] | None = None
        self.awaited: collections.deque[Awaitable[object]] = collections.deque()
        """Awaitables that callbacks have returned."""

    def wake(self) -> None:
        """Starts the task that runs the callbacks of the channel, unless it runs. Safe from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: no callback will run
            self._loop.call_soon_threadsafe(self._start)

    def wake_later(self, seconds: float) -> bool:
        """Starts the task after ``seconds``, unless it runs then. Only the loop's thread may call this; ``True``."""
        self._loop.call_later(seconds, self._start)
        return True

    def is_inside(self) -> bool:
        """Whether the caller is a callback of the channel, or, while callbacks run, a task that a callback made."""
        return self._task is not None and _calling.get() is self

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.Task(self._run(), loop=self._loop)  # create_task could run it at once (eager factory)

    async def _run(self) -> None:
        turns = 0
        _calling.set(self)
        try:
            while True:
                found = await self._do_one()
                turns += 1
                if turns % _TURNS == 0:
                    await asyncio.sleep(0)
                if not found and self._work._rest():  # noqa: SLF001 - of the channel
                    return
        finally:
            self._task = None

    async def _do_one(self) -> bool:
        """Awaits what a callback returned, or else calls the next callback; False: there was nothing to do."""
        found = True
        try:
            if self.awaited:
                await self.awaited.popleft()
            else:
                found = bool(self._work._work())  # noqa: SLF001
        except asyncio.CancelledError as error:
            if self._task is None or self._task.cancelling():
                raise
            self._failed(error)  # something that the callback awaited was cancelled, not this task
        except Exception as error:  # noqa: BLE001 - raised by the application's callback
            self._failed(error)
        return found
