# SPDX-License-Identifier: Apache-2.0
"""Serves the tasks that wait for a message of a queue, or for room in it, in the order of their arrival."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import queue as standard_queue
from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._core.watch import CoreWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.queue import CoreQueue

_ROOM_SECONDS = 0.02
_MOST_IDLE = 16


class Turn:
    """What a waiting task sleeps on until it may try again, or another task ends its wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._error: BaseException | None = None

    async def come(self) -> None:
        """Sleeps until :meth:`wake` or :meth:`end`; raises the error of :meth:`end`."""
        await self._event.wait()
        self._event.clear()
        if self._error is not None:
            raise self._error

    def wake(self) -> None:
        """Lets the task try again."""
        self._event.set()

    def end(self, error: BaseException) -> None:
        """Ends the wait with an error; the first error of a wait counts."""
        if self._error is None:
            self._error = error
        self._event.set()

    @property
    def has_ended(self) -> bool:
        """Whether :meth:`end` was called."""
        return self._error is not None


class Waiters:
    """Serves waiting tasks in the order of arrival.

    Each task has an attempt: a function that tries once to get or put. Only the task that arrived first calls its
    attempt: as soon as it is the first, after it armed the watch, when the queue changes, and every 20 ms while the
    broker has no memory, or its disk no room. When its wait ends, the next task becomes the first one, so no task
    overtakes another.

    A task makes its attempt itself, and returns the result without another wait. So a cancellation or a timeout comes
    before the attempt, which then is not made, or after the caller has the result.

    Args:
        watch: makes a watch of the queue. Its argument is the descriptor to which the watch writes when an attempt may
            succeed.
    """

    def __init__(self, watch: Callable[[int], CoreWatch]) -> None:
        self._turns: collections.OrderedDict[Turn, None] = collections.OrderedDict()
        self._loop = asyncio.get_running_loop()
        self._armed_for: int | None = None  # the watch will notify us of room for so many bytes, or of a message
        self._wanted = False  # the watch needs a disarm
        with contextlib.ExitStack() as undone:  # if there is no memory for the watch, or the queue is gone
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            undone.callback(os.close, self._descriptor)
            self._watch = watch(self._descriptor)
            undone.callback(self._watch.close)  # before its descriptor, whose number another file may get
            self._loop.add_reader(self._descriptor, self._told)
            undone.pop_all()

    @property
    def are_over(self) -> bool:
        """Whether no task waits. A task whose wait was ended does not count, even if it has not run since."""
        return all(turn.has_ended for turn in self._turns)

    async def wait(
        self,
        attempt: Callable[[], Any],
        timeout: float | None,  # noqa: ASYNC109
        size: int = 0,
        turn: Turn | None = None,
    ) -> Any:  # noqa: ANN401
        """Returns the result of the first attempt that succeeds.

        Args:
            attempt: tries once; raises ``queue.Empty`` or ``queue.Full`` if the task must wait.
            timeout: seconds; ``None`` = for ever.
            size: the bytes of the body that needs room.
            turn: the caller can end the wait with its :meth:`Turn.end`. ``None`` = a new one.

        Raises:
            TimeoutError: no attempt succeeded in time.
        """
        turn = Turn() if turn is None else turn
        try:
            self._turns[turn] = None
            async with asyncio.timeout(timeout):
                while True:
                    if self._first() is turn:
                        try:
                            return attempt()
                        except exceptions.FINAL:  # also an OutOfMemory or a Full, but waiting does not help
                            raise
                        except (exceptions.OutOfMemory, exceptions.StoreFull):
                            self._loop.call_later(_ROOM_SECONDS, turn.wake)  # no watch notifies of memory or disks
                        except (standard_queue.Empty, standard_queue.Full):
                            if self._armed_for != size:
                                self._arm(size)
                                continue  # the last attempt comes after the arming: no change of the queue is missed
                    await turn.come()
        finally:
            self._leave(turn)

    def _first(self) -> Turn | None:
        return next(iter(self._turns), None)

    def _wake_first(self) -> None:
        first = self._first()
        if first is not None:
            first.wake()

    def _leave(self, turn: Turn) -> None:
        """Makes way for the next task, also if this one was woken and is cancelled."""
        was_first = self._first() is turn
        self._turns.pop(turn, None)
        if was_first:
            self._wake_first()
        if not self._turns and self._wanted:
            self._watch.disarm()
            self._wanted, self._armed_for = False, None

    def _told(self) -> None:
        self._armed_for = None
        self._wake_first()
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)  # last: if a signal handler raises before, the loop calls this again

    def _arm(self, size: int) -> None:
        """Arms the watch for a message or for ``size`` bytes of room, even if it is armed for a task that has left."""
        if self._armed_for is not None:
            self._armed_for = None  # first: if arming fails, the next task arms the watch
            self._watch.disarm()  # an armed watch would not publish its new size to other processes
        self._wanted = True  # first: a disarm of a watch that is not armed does no harm
        self._watch.arm(size)
        self._armed_for = size

    def close(self, error: BaseException) -> None:
        """Ends every wait with an error."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._watch.close()
            os.close(self._descriptor)
            self._descriptor = -1
            self._wanted, self._armed_for = False, None
        for turn in self._turns:
            turn.end(error)


class Waits:
    """The waits of a connection's tasks at its queues.

    All tasks that wait for messages of a queue share one :class:`Waiters` with its watch. All tasks that wait for room
    in that queue share another. Of the watches for which no task waits, only the 16 that were used last stay, since a
    watch needs a descriptor, and keeps the memory of its queue if the queue is deleted. Closing the handle of a queue
    ends its watches, too; but the application may have dropped that handle.

    Args:
        start_io: starts the thread that writes to the descriptors.
    """

    def __init__(self, start_io: Callable[[], None]) -> None:
        self._start_io = start_io
        self._waiters: dict[tuple[CoreQueue, bool], Waiters] = {}
        self._idle: collections.OrderedDict[tuple[CoreQueue, bool], None] = collections.OrderedDict()

    async def wait(
        self,
        queue: CoreQueue,
        attempt: Callable[[], Any],
        timeout: float | None,  # noqa: ASYNC109
        turn: Turn,
        *,
        room: bool = False,
        size: int = 0,
    ) -> Any:  # noqa: ANN401
        """Waits as :meth:`Waiters.wait` does: for a message of a queue, or for ``room`` in it."""
        place = queue, room
        waiters = self._waiters.get(place)
        if waiters is None:
            waiters = self._waiters[place] = Waiters(lambda descriptor: CoreWatch(queue, descriptor, room=room))
        self._idle.pop(place, None)
        try:
            self._start_io()
            return await waiters.wait(attempt, timeout, size, turn)
        finally:
            if waiters.are_over and self._waiters.get(place) is waiters:
                self._rest(place)

    def _rest(self, place: tuple[CoreQueue, bool]) -> None:
        self._idle[place] = None
        if len(self._idle) > _MOST_IDLE:
            self._end(next(iter(self._idle)))

    def _end(self, place: tuple[CoreQueue, bool], error: BaseException | None = None) -> None:
        self._idle.pop(place, None)
        waiters = self._waiters.pop(place, None)
        if waiters is not None:
            waiters.close(error or exceptions.ConnectionClosed())

    def leave(self, queue: CoreQueue) -> None:
        """Ends the watches of a queue whose handle is being closed, unless tasks wait that do not use the handle."""
        for place in ((queue, False), (queue, True)):
            if place in self._waiters and self._waiters[place].are_over:
                self._end(place)

    def forget_deleted(self) -> None:
        """Ends the watches of deleted queues at which no task waits."""
        for place in tuple(self._idle):
            if place[0].is_deleted():
                self._end(place)

    def close(self, error: BaseException) -> None:
        """Ends every wait with an error."""
        for place in tuple(self._waiters):
            self._end(place, error)
