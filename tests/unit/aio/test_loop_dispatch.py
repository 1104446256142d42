# SPDX-License-Identifier: Apache-2.0
"""The dispatcher of a channel of an event loop: one callback at a time, and a task only while there is work."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.turns import noted_pauses

from shmbroker.aio.dispatch import LoopDispatcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine


class Things:
    """So many things to do; what each returns is awaited if it can be. Notes when it was asked for rest."""

    def __init__(self) -> None:
        self.left: list[Callable[[], Awaitable[object] | None]] = []
        self.log: list[object] = []
        self.errors: list[BaseException] = []
        self._done = 0
        self.dispatcher = LoopDispatcher(asyncio.get_running_loop(), self, self.errors.append)
        self.rested = asyncio.Event()

    def add(self, *things: Callable[[], Awaitable[object] | None]) -> None:
        """Give it things to do, and wake it."""
        self.left += things
        self.rested.clear()
        self.dispatcher.wake()

    async def rest_comes(self) -> None:
        """Wait until it is at rest."""
        await asyncio.wait_for(self.rested.wait(), 30)
        await asyncio.sleep(0)

    def _work(self, most: int = 1) -> int:
        """Do one."""
        assert most == 1
        if not self.left:
            return 0
        result = self.left.pop(0)()
        if result is not None:
            self.dispatcher.awaited.append(result)
        return 1

    def _rest(self) -> bool:
        """Tell whether there is nothing to do."""
        self.log.append("rest")
        self.rested.set()
        return not self.left


def run(main: Callable[[Things], Coroutine[Any, Any, object]]) -> None:
    """Run a coroutine function with something to do."""

    async def with_things() -> None:
        await main(Things())

    asyncio.run(with_things())


def test_a_coroutine_ends_before_the_next_thing_begins() -> None:
    """All is done in order, then it rests; woken again it goes on."""

    async def main(things: Things) -> None:
        async def slowly(name: str) -> None:
            things.log.append(f"{name} begun")
            await asyncio.sleep(0)
            things.log.append(f"{name} ended")

        things.add(lambda: slowly("A"), lambda: things.log.append("B"), lambda: slowly("C"))
        await things.rest_comes()
        assert things.log == ["A begun", "A ended", "B", "C begun", "C ended", "rest"]
        things.add(lambda: things.log.append("D"))
        await things.rest_comes()
        assert things.log[6:] == ["D", "rest"]
        assert things.errors == []

    run(main)


def test_it_is_woken_often_and_from_other_threads() -> None:
    """However often it is woken, one task works, and it rests once."""

    async def main(things: Things) -> None:
        things.left.append(lambda: things.log.append("A"))
        waking = [threading.Thread(target=things.dispatcher.wake) for _ in range(3)]
        for thread in waking:
            thread.start()
        for thread in waking:
            thread.join()
        await things.rest_comes()
        assert things.log == ["A", "rest"]

    run(main)


def test_a_factory_of_eager_tasks_does_no_harm() -> None:
    """A loop may begin tasks while they are made: what comes later is done all the same."""

    def eager(loop: asyncio.AbstractEventLoop, coroutine: Any, **_options: object) -> asyncio.Future[Any]:  # noqa: ANN401
        made: asyncio.Future[Any] = loop.create_future()
        try:
            coroutine.send(None)
        except StopIteration as done:
            made.set_result(done.value)
        return made

    async def main(things: Things) -> None:
        asyncio.get_running_loop().set_task_factory(eager)
        for name in ("A", "B"):
            things.add(functools.partial(things.log.append, name))
            for _ in range(3):
                await asyncio.sleep(0)
        assert things.log == ["A", "rest", "B", "rest"]

    run(main)


def test_what_comes_while_it_would_rest_is_done() -> None:
    """It goes on if there is something when it asks for rest, without being woken."""

    async def main(things: Things) -> None:
        def late() -> bool:
            things.log.append("asked")
            if things.log.count("asked") == 1:
                things.left.append(lambda: things.log.append("late"))
                return False
            things.rested.set()
            return True

        things._rest = late  # type: ignore[method-assign]  # noqa: SLF001
        things.add(lambda: things.log.append("A"))
        await things.rest_comes()
        assert things.log == ["A", "asked", "late", "asked"]

    run(main)


def test_other_tasks_run_after_64_callbacks() -> None:
    """Callbacks without a wait let the others run once after each 64."""

    async def main(things: Things) -> None:
        count = 0
        seen = []

        def work() -> None:
            nonlocal count
            count += 1

        async def other() -> None:
            while count < 200:
                seen.append(count)
                await asyncio.sleep(0)

        things.add(*[work] * 200)
        task = asyncio.create_task(other())
        await things.rest_comes()
        await task
        assert [n for n in seen if n] == [64, 128, 192]

    run(main)


def test_errors_are_told_and_the_next_thing_is_done() -> None:
    """Whether a callback raises, its coroutine does, or that waits for what is cancelled."""

    async def main(things: Things) -> None:
        def fail() -> None:
            raise ZeroDivisionError

        async def fail_later() -> None:
            await asyncio.sleep(0)
            raise ValueError

        async def wait_for_what_is_cancelled() -> None:
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await cancelled

        things.add(fail, fail_later, wait_for_what_is_cancelled, lambda: things.log.append("done"))
        await things.rest_comes()
        assert [type(error) for error in things.errors] == [ZeroDivisionError, ValueError, asyncio.CancelledError]
        assert things.log == ["done", "rest"]

    run(main)


def test_a_task_that_is_cancelled_ends() -> None:
    """As the loop does at its end: no error is told, nothing more is done until it is woken again."""

    async def main(things: Things) -> None:
        begun = asyncio.Event()
        tasks: list[asyncio.Task[Any]] = []

        async def wait() -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.append(task)
            begun.set()
            await asyncio.get_running_loop().create_future()

        things.add(wait, lambda: things.log.append("next"))
        await asyncio.wait_for(begun.wait(), 30)
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert (things.errors, things.log) == ([], [])
        things.dispatcher.wake()
        await things.rest_comes()
        assert things.log == ["next", "rest"]

    run(main)


def test_who_is_inside() -> None:
    """A callback is inside, and a task that it made; others are not, nor is that task when the callbacks are over."""

    async def main(things: Things) -> None:
        inside = things.dispatcher.is_inside
        begun, go_on, later = asyncio.Event(), asyncio.Event(), asyncio.Event()
        told: list[bool] = []

        async def ask() -> None:
            told.append(inside())
            await later.wait()
            told.append(inside())

        tasks: list[asyncio.Task[None]] = []

        async def work() -> None:
            told.append(inside())
            tasks.append(asyncio.create_task(ask()))
            begun.set()
            await go_on.wait()

        assert not inside()
        things.add(lambda: told.append(inside()), work)
        await asyncio.wait_for(begun.wait(), 30)
        assert not inside()
        go_on.set()
        await things.rest_comes()
        assert not inside()
        later.set()
        await tasks[0]
        assert told == [True, True, True, False]

    run(main)


def test_it_is_woken_after_a_pause() -> None:
    """Other tasks run meanwhile."""

    async def main(things: Things) -> None:
        pauses = noted_pauses()
        things.left.append(lambda: things.log.append("A"))
        assert things.dispatcher.wake_later(0.5)
        assert (pauses, things.log) == ([0.5], [])
        await things.rest_comes()
        assert things.log == ["A", "rest"]

    run(main)


def test_a_loop_that_is_closed_is_not_woken() -> None:
    """The thread that has something for it hears of nothing."""

    async def main() -> Things:
        return Things()

    things = asyncio.run(main())
    things.dispatcher.wake()
    assert things.log == []
