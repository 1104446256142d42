# SPDX-License-Identifier: Apache-2.0
"""Tasks that wait for a queue, in the order of arrival."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import queue as standard_queue
from typing import TYPE_CHECKING, Any

from shmbroker import exceptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.watch import CoreWatch


_MEMORY_SECONDS = 0.02
_Attempt = tuple["Callable[[], Any]", "asyncio.Future[Any]", int]


class Waiters:
    """Serves waiting tasks in the order of arrival.

    Each task brings an attempt. When a task arrives and when the queue changes, the attempts are made in order. The
    first one that must wait stops this, so no task overtakes another.

    Args:
        watch: makes a watch of the queue. Its argument is the descriptor to which the watch writes when an attempt may
            succeed.
    """

    def __init__(self, watch: Callable[[int], CoreWatch]) -> None:
        self._waiting: collections.deque[_Attempt] = collections.deque()
        self._loop = asyncio.get_running_loop()
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._watch = watch(self._descriptor)
        self._armed_for: int | None = None  # the watch will notify us of room for so many bytes, or of a message
        self._wanted = False  # the watch needs a disarm
        self._loop.add_reader(self._descriptor, self._told)

    async def wait(
        self,
        attempt: Callable[[], Any],
        timeout: float | None,  # noqa: ASYNC109
        undo: Callable[[Any], None],
        size: int = 0,
        future: asyncio.Future[Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Returns the result of the first attempt that succeeds.

        Args:
            attempt: tries once; raises ``queue.Empty`` or ``queue.Full`` if the task must wait.
            timeout: seconds; ``None`` = for ever.
            undo: takes back a result that the caller does not get, because it was cancelled at that moment.
            size: the bytes of the body that needs room.
            future: gets the result. The caller can end the wait by setting an error in it. ``None`` = a new future.

        Raises:
            TimeoutError: no attempt succeeded in time.
        """
        future = self._loop.create_future() if future is None else future
        self._waiting.append((attempt, future, size))
        self._serve()
        try:
            async with asyncio.timeout(timeout):
                return await future
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                undo(future.result())
            future.cancel()
            self._serve()  # the next task may succeed now: this one no longer blocks it
            raise

    def _told(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)
        self._armed_for = None
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            if not self._try(*self._waiting[0]):
                return
            self._waiting.popleft()
        if self._wanted:
            self._watch.disarm()
            self._wanted, self._armed_for = False, None

    def _try(self, attempt: Callable[[], Any], future: asyncio.Future[Any], size: int) -> bool:
        """Makes the attempt of a task until the task is finished or must wait; returns whether it is finished.

        If the task must wait for the queue, the last attempt came after the arming of the watch, so no change of the
        queue is missed. If the task must wait for memory, a timer is set.
        """
        while not future.done():
            try:
                future.set_result(attempt())
            except exceptions.NeverFits as error:  # also an OutOfMemory or a Full, but waiting does not help
                future.set_exception(error)
            except exceptions.OutOfMemory:
                self._loop.call_later(_MEMORY_SECONDS, self._serve)  # no watch notifies of memory
                return False
            except (standard_queue.Empty, standard_queue.Full):
                if self._armed_for == size:
                    return False
                try:
                    self._arm(size)
                except Exception as error:  # noqa: BLE001 - the task gets it
                    future.set_exception(error)
            except Exception as error:  # noqa: BLE001 - the task gets it
                future.set_exception(error)
        return True

    def _arm(self, size: int) -> None:
        """Arms the watch for a body, also if it is armed for another one: that of a task that has left."""
        if self._armed_for is not None:
            self._armed_for = None  # first: if arming fails, the next task arms the watch
            self._watch.disarm()  # an armed watch would not publish its new size to other processes
        self._watch.arm(size)
        self._armed_for, self._wanted = size, True

    def close(self, error: BaseException) -> None:
        """Ends every wait with an error."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._watch.close()
            os.close(self._descriptor)
            self._descriptor = -1
            self._wanted, self._armed_for = False, None
        for _, future, _ in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
