# SPDX-License-Identifier: Apache-2.0
"""How tasks wait: one after the other, told by a watch that is armed only while somebody needs it."""

from __future__ import annotations

import asyncio
import errno
import os
import queue as standard_queue
import select
from typing import TYPE_CHECKING, Any

import pytest

from shmbroker import exceptions
from shmbroker.aio.waiters import Turn, Waiters

if TYPE_CHECKING:
    from collections.abc import Callable


class Watch:
    """In the place of what tells of the next chance.

    Attributes:
        descriptor: What it is to write.
        calls: What was asked of it.
        broken: Whether it cannot be armed.
        coming: Where a thing comes as it is armed.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.calls: list[object] = []
        self.broken = False
        self.coming: list[int] | None = None

    def arm(self, size: int) -> None:
        """It tells once."""
        self.calls.append(size)
        if self.broken:
            raise ZeroDivisionError
        if self.coming is not None:
            self.coming.append(2)

    def disarm(self) -> None:
        """It tells no more."""
        self.calls.append("disarm")

    def close(self) -> None:
        """It goes."""
        self.calls.append("close")

    def tell(self) -> None:
        """There may be a chance."""
        os.eventfd_write(self.descriptor, 1)

    def is_readable(self) -> bool:
        """Was it written, and not read?"""
        return select.select([self.descriptor], [], [], 0)[0] != []


class Stand:
    """Waiters, their watch, and attempts that succeed when there is something."""

    def __init__(self) -> None:
        made: list[Watch] = []
        self.waiters = Waiters(lambda descriptor: made.append(Watch(descriptor)) or made[0])  # type: ignore[arg-type, func-returns-value]
        [self.watch] = made
        self.there: list[int] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def attempt(self) -> int:
        """Takes the first thing."""
        if not self.there:
            raise standard_queue.Empty
        return self.there.pop(0)

    def start(
        self, size: int = 0, turn: Turn | None = None, attempt: Callable[[], object] | None = None
    ) -> asyncio.Task[Any]:
        """A task that waits for a thing."""
        self.tasks.append(asyncio.create_task(self.waiters.wait(attempt or self.attempt, None, size, turn)))
        return self.tasks[-1]

    async def close(self) -> None:
        """Ends what a failed test has left, and retrieves the errors of all tasks.

        Else asyncio writes an error when a task is finalized, perhaps while pytest parses the source for its report. In
        CPython 3.11.7 the traceback of that error is a second parse inside the first one, which ends pytest.
        """
        self.waiters.close(ConnectionError())
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def turns() -> None:
    """Lets every task, and the reader of the descriptor, come to its turn."""
    for _ in range(5):
        await asyncio.sleep(0)


def run(what: Callable[[Stand], Any]) -> None:
    """Runs it in a loop of its own, with waiters that are closed at its end."""

    async def main() -> None:
        stand = Stand()
        try:
            await what(stand)
        finally:
            await stand.close()

    asyncio.run(main())


def test_what_is_there_needs_no_watch() -> None:
    """It is neither armed nor disarmed; its descriptor is nobody else's, never blocks, and was not written."""

    async def use(stand: Stand) -> None:
        stand.there = [1]
        assert await stand.start() == 1
        assert stand.watch.calls == []
        assert not stand.watch.is_readable()
        assert not os.get_inheritable(stand.watch.descriptor)
        assert not os.get_blocking(stand.watch.descriptor)

    run(use)


def test_tasks_are_served_in_their_order() -> None:
    """The first arms the watch for its size, again after it was told in vain; the last disarms it, once."""

    async def use(stand: Stand) -> None:
        first, second = stand.start(7), stand.start(8)
        await turns()
        assert stand.watch.calls == [7]
        stand.watch.tell()
        await turns()
        assert stand.watch.calls == [7, 7]
        assert not stand.watch.is_readable()
        stand.there = [1]
        stand.watch.tell()
        assert await first == 1
        await turns()
        assert stand.watch.calls == [7, 7, 8]
        stand.there = [2]
        stand.watch.tell()
        assert await second == 2
        assert stand.watch.calls == [7, 7, 8, "disarm"]
        stand.there = [3]
        assert await stand.start() == 3
        assert stand.watch.calls == [7, 7, 8, "disarm"]
        third = stand.start(9)
        await turns()
        assert stand.watch.calls[4:] == [9]
        third.cancel()
        await turns()
        assert stand.watch.calls[4:] == [9, "disarm"]

    run(use)


def test_a_watch_that_cannot_be_armed() -> None:
    """The task has the error, and the next one its turn."""

    async def use(stand: Stand) -> None:
        stand.watch.broken = True
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await stand.start()
        stand.there = [1]
        assert await stand.start() == 1

    run(use)


@pytest.mark.parametrize("leaves", ["cancelled", "served"])
def test_the_watch_is_armed_for_the_task_whose_turn_it_is(leaves: str) -> None:
    """When the first task leaves before the watch tells, the watch is armed for the size of the next one, if another.

    What comes while it is armed again is not missed.
    """

    async def use(stand: Stand) -> None:
        turn = Turn()
        first, (second, third, fourth) = stand.start(7, turn), (stand.start(size) for size in (8, 8, 9))
        await turns()
        assert stand.watch.calls == [7]
        if leaves == "cancelled":
            first.cancel()
        else:
            stand.there = [1]
            turn.wake()  # as the timer of a task that waits for memory
            assert await first == 1
        await turns()
        assert stand.watch.calls == [7, "disarm", 8]
        second.cancel()
        await turns()
        assert stand.watch.calls == [7, "disarm", 8]
        stand.watch.coming = stand.there
        third.cancel()
        assert await fourth == 2
        assert stand.watch.calls == [7, "disarm", 8, "disarm", 9, "disarm"]

    run(use)


def test_a_watch_that_cannot_be_armed_for_the_next_task() -> None:
    """That task has the error; the one behind it arms the watch, though its size is that of the task that left."""

    async def use(stand: Stand) -> None:
        first, second, third = (stand.start(size) for size in (7, 8, 7))
        await turns()
        stand.watch.broken = True
        first.cancel()
        await turns()
        assert stand.watch.calls == [7, "disarm", 8, 7, "disarm"]
        for task in (second, third):
            with pytest.raises(ZeroDivisionError):
                await task

    run(use)


@pytest.mark.parametrize("error", [exceptions.NeverFits, exceptions.NeverFitsMemory])
def test_what_can_never_fit_leaves_its_turn_to_the_next_one(error: type[Exception]) -> None:
    """The task has the error, also if its body could fit when it began to wait; the watch is not armed for it."""

    async def use(stand: Stand) -> None:
        reasons: list[Exception] = [error("can never fit"), standard_queue.Full()]

        def attempt() -> None:
            raise reasons[-1]

        first = stand.start(7, attempt=attempt)
        second = stand.start(8)
        await turns()
        reasons.pop()
        stand.watch.tell()
        await turns()
        assert first.done()
        with pytest.raises(error, match="can never fit"):
            await first
        assert stand.watch.calls == [7, 8]
        stand.there = [1]
        stand.watch.tell()
        assert await second == 1

    run(use)


@pytest.mark.parametrize("there", [True, False])
def test_a_task_that_is_cancelled_as_it_is_told(there: bool) -> None:  # noqa: FBT001
    """It takes nothing; the next task has its turn, and the watch is disarmed if there is none."""

    async def use(stand: Stand) -> None:
        first, second = stand.start(), stand.start()
        await turns()
        stand.there = [1] * there
        stand.waiters._told()  # noqa: SLF001 - as the loop does, before the task has its turn
        first.cancel()
        await turns()
        assert first.cancelled()
        assert stand.there == []
        if there:
            assert await second == 1
            assert stand.watch.calls == [0, "disarm"]
        else:
            assert stand.watch.calls == [0, 0]
            stand.waiters._told()  # noqa: SLF001
            second.cancel()
            await turns()
            assert stand.watch.calls == [0, 0, "disarm"]

    run(use)


def test_an_interrupted_attempt_leaves_its_turn_to_the_next_task() -> None:
    """A task that a signal handler's exception has ended takes nothing any more."""

    async def use(stand: Stand) -> None:
        attempts: list[int] = []

        def attempt() -> None:
            attempts.append(1)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await stand.waiters.wait(attempt, None)  # in no task of its own: the error would end the loop
        later = stand.start()
        await turns()
        stand.there = [1]
        stand.watch.tell()
        assert await later == 1
        assert attempts == [1]

    run(use)


def test_a_wait_is_ended_from_outside() -> None:
    """The task has that error, first in the order or not; the next one has its turn."""

    async def use(stand: Stand) -> None:
        turns_of = [Turn() for _ in range(3)]
        first, second, third = (stand.start(size, turn) for size, turn in zip((7, 8, 9), turns_of, strict=True))
        await turns()
        for task, turn in ((second, turns_of[1]), (first, turns_of[0])):
            turn.end(ValueError("ended"))
            with pytest.raises(ValueError, match="ended"):
                await task
        await turns()
        assert stand.watch.calls == [7, "disarm", 9]
        stand.there = [1]
        stand.watch.tell()
        assert await third == 1

    run(use)


def test_a_cancelled_task_leaves_its_turn_to_the_next_one() -> None:
    """At once: it need not be told for that."""

    async def use(stand: Stand) -> None:
        first, second = stand.start(), stand.start()
        await turns()
        stand.there = [1]
        first.cancel()
        assert await second == 1

    run(use)


def test_closing_ends_each_wait() -> None:
    """With its error; the descriptor is closed, once."""

    async def use(stand: Stand) -> None:
        tasks = [stand.start() for _ in range(2)]
        await turns()
        for _ in range(2):
            stand.waiters.close(ValueError("closed"))
        for task in tasks:
            with pytest.raises(ValueError, match="closed"):
                await task
        assert [call for call in stand.watch.calls if call == "close"] == ["close"]
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(stand.watch.descriptor)

    run(use)


@pytest.mark.parametrize("fails", ["watch", "reader"])
def test_waiters_that_cannot_be_made_keep_no_descriptor(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is that of the watch, or of the loop. A watch that was made ends before its descriptor does."""
    opened: list[int] = []
    watches: list[Watch] = []

    def watch(descriptor: int) -> Watch:
        opened.append(descriptor)
        if fails == "watch":
            raise exceptions.OutOfMemory
        watches.append(Watch(descriptor))
        monkeypatch.setattr(watches[0], "close", lambda: watches[0].calls.append(os.fstat(descriptor).st_size))
        return watches[0]

    def fail(*_: object) -> None:
        raise OSError(errno.ENOMEM, "no memory")

    async def main() -> None:
        if fails == "reader":
            monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", fail)
        with pytest.raises(exceptions.OutOfMemory if fails == "watch" else OSError):
            Waiters(watch)  # type: ignore[arg-type]

    asyncio.run(main())
    assert [one.calls for one in watches] == ([] if fails == "watch" else [[0]])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])
