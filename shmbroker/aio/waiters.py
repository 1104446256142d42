# SPDX-License-Identifier: Apache-2.0
"""Tasks that wait for a queue, in the order in which they came."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import queue as standard_queue
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Watch(Protocol):
    """Writes a descriptor when something comes."""

    def arm(self) -> bool:
        """Asks to be told; ``True``: there is something already."""
        ...

    def disarm(self) -> None:
        """Nobody wants to be told: others are."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class Waiters:
    """Serves tasks one after the other: an attempt of the first one, until it brings nothing.

    Args:
        watch: makes what tells of the next chance; given the descriptor that it is to write.
    """

    def __init__(self, watch: Callable[[int], Watch]) -> None:
        self._waiting: collections.deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = collections.deque()
        self._loop = asyncio.get_running_loop()
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._watch = watch(self._descriptor)
        self._loop.add_reader(self._descriptor, self._told)

    async def wait(self, attempt: Callable[[], Any], timeout: float | None, undo: Callable[[Any], None]) -> Any:  # noqa: ANN401, ASYNC109
        """The result of an attempt that succeeds.

        Args:
            attempt: tries; raises ``queue.Empty`` or ``queue.Full`` when it is to wait.
            timeout: seconds; ``None`` = for ever.
            undo: takes a result back that the caller, cancelled in that moment, does not get.

        Raises:
            TimeoutError: none did in time.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((attempt, future))
        self._serve()
        try:
            async with asyncio.timeout(timeout):
                return await future
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                undo(future.result())
            future.cancel()
            self._serve()  # what it would have got is for the next one
            raise

    def _told(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            attempt, future = self._waiting[0]
            if not future.done():
                try:
                    result = attempt()
                except (standard_queue.Empty, standard_queue.Full):
                    if self._watch.arm():
                        continue
                    return
                except Exception as error:  # noqa: BLE001 - it is the task's
                    future.set_exception(error)
                else:
                    future.set_result(result)
            self._waiting.popleft()
        self._watch.disarm()

    def close(self, error: BaseException) -> None:
        """Ends every wait with an error."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._watch.close()
            os.close(self._descriptor)
            self._descriptor = -1
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
