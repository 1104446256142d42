# SPDX-License-Identifier: Apache-2.0
"""Callbacks in an event loop: one at a time for each channel, in order; coroutines are awaited before the next one."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shmbroker.channel.dispatch import Work

_TURNS = 64  # callbacks without a wait, before other tasks get their turn
_calling: contextvars.ContextVar[LoopDispatcher | None] = contextvars.ContextVar("calling", default=None)


class LoopDispatcher:
    """What :class:`~shmbroker.channel.dispatch.Dispatcher` is for threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work, failed: Callable[[BaseException], None]) -> None:
        self._loop, self._work, self._failed = loop, work, failed
        self._task: asyncio.Task[None] | None = None
        self.awaited: collections.deque[Awaitable[object]] = collections.deque()
        """What the callbacks of now have returned, if that is to be awaited."""

    def wake(self) -> None:
        """Something is there. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody will be called back
            self._loop.call_soon_threadsafe(self._start)

    def is_inside(self) -> bool:
        """Is the caller a callback of the channel, or a task that one has made?"""
        return self._task is not None and _calling.get() is self

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.Task(self._run(), loop=self._loop)  # a task factory may run it before it is known

    async def _run(self) -> None:
        turns = 0
        _calling.set(self)
        try:
            while True:
                found = await self._do_one()
                turns += 1
                if turns % _TURNS == 0:
                    await asyncio.sleep(0)
                if not found and self._work.rest():
                    return
        finally:
            self._task = None

    async def _do_one(self) -> bool:
        """Waits for what was called back, or else calls back; was there anything?"""
        found = True
        try:
            if self.awaited:
                await self.awaited.popleft()
            else:
                found = bool(self._work.work())
        except asyncio.CancelledError as error:
            if self._task is None or self._task.cancelling():
                raise
            self._failed(error)  # of something else that the callback waited for
        except Exception as error:  # noqa: BLE001 - of the application's callback
            self._failed(error)
        return found
