# SPDX-License-Identifier: Apache-2.0
"""The dispatcher of a channel: one runnable at a time, a batch each, and none when there is nothing to do."""

from __future__ import annotations

import threading
import types
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

import pytest
from scenario_support.waiting import WATCHDOG_SECONDS, becomes

from shmbroker._session.dispatch import BATCH, Dispatcher, Executor

if TYPE_CHECKING:
    from collections.abc import Callable


class Submitted:
    """In the place of an executor: what was submitted waits until the test runs it."""

    def __init__(self) -> None:
        self.runnables: list[Callable[[], None]] = []
        self.errors: list[BaseException] = []

    def submit(self, runnable: Callable[[], None]) -> None:
        """Keeps it."""
        self.runnables.append(runnable)

    def failed(self, error: BaseException) -> None:
        """Keeps it."""
        self.errors.append(error)

    def run_one(self) -> None:
        """Runs what was submitted first."""
        self.runnables.pop(0)()


class Things:
    """So many things to do, of which those of some numbers raise; each call does at most ``at_once``."""

    def __init__(self, left: int, *, at_once: int = BATCH, bad: tuple[int, ...] = ()) -> None:
        self.left, self.at_once, self.bad = left, at_once, bad
        self.did = self._done = 0
        self.asked: list[int] = []
        self.meanwhile: list[Callable[[], None]] = []

    def _work(self, most: int = 1) -> int:
        """Does some."""
        self._done = 0
        self.asked.append(most)
        for do in self.meanwhile:
            do()
        for _ in range(min(most, self.at_once, self.left)):
            self.left, self.did, self._done = self.left - 1, self.did + 1, self._done + 1
            if self.did in self.bad:
                raise ZeroDivisionError(self.did)
        return self._done

    def _rest(self) -> bool:
        """Is there nothing to do?"""
        return self.left == 0


def dispatcher(things: Things) -> tuple[Dispatcher, Submitted]:
    """Makes one, with the place where it submits."""
    submitted = Submitted()
    return Dispatcher(cast("Executor", submitted), things), submitted


@pytest.mark.parametrize("at_once", [1, 7, BATCH])
def test_a_runnable_does_a_batch_and_lets_others_come(at_once: int) -> None:
    """After 256 things it submits itself again, behind what was submitted meanwhile; at the end it rests."""
    things = Things(2 * BATCH + 1, at_once=at_once)
    dispatch, submitted = dispatcher(things)
    dispatch.wake()
    submitted.submit(lambda: None)  # of another channel
    submitted.run_one()
    assert things.did == BATCH
    assert len(submitted.runnables) == 2
    submitted.run_one()
    submitted.run_one()
    assert things.did == 2 * BATCH
    submitted.run_one()
    assert (things.did, submitted.runnables) == (2 * BATCH + 1, [])


def test_there_is_one_runnable_however_often_it_is_woken() -> None:
    """Woken while it is ready or in progress it submits nothing; woken when it rests, it does."""
    things = Things(1)
    dispatch, submitted = dispatcher(things)
    for _ in range(3):
        dispatch.wake()
    assert len(submitted.runnables) == 1
    submitted.run_one()
    assert submitted.runnables == []
    dispatch.wake()
    assert len(submitted.runnables) == 1


def test_what_raises_is_told_and_counts() -> None:
    """The next thing is done all the same, and what raised is one of the batch."""
    things = Things(BATCH + 2, bad=(1, 3, BATCH))
    dispatch, submitted = dispatcher(things)
    dispatch.wake()
    submitted.run_one()
    assert [error.args for error in submitted.errors] == [(1,), (3,), (BATCH,)]
    assert (things.did, things.left) == (BATCH, 2)
    submitted.run_one()
    assert (things.did, submitted.runnables) == (BATCH + 2, [])


def test_a_runnable_is_asked_for_what_is_left_of_its_batch() -> None:
    """What raised counts; a look that found nothing counts as one thing, so that it comes to an end."""
    things = Things(BATCH + 1, at_once=100, bad=(150,))
    dispatch, submitted = dispatcher(things)
    dispatch.wake()
    submitted.run_one()
    assert (things.asked, things.left) == ([BATCH, BATCH - 100, BATCH - 150, BATCH - 250], 1)
    submitted.run_one()
    assert things.asked[4:] == [BATCH, BATCH - 1]


class Restless(Things):
    """Nothing to do, and no rest either: something comes again and again that turns out to be nothing."""

    def _rest(self) -> bool:
        """Never."""
        return False


def test_looks_that_find_nothing_end_with_the_batch() -> None:
    """The others get their turn after so many of them."""
    things = Restless(0)
    dispatch, submitted = dispatcher(things)
    dispatch.wake()
    submitted.run_one()
    assert things.asked == list(range(BATCH, 0, -1))
    assert len(submitted.runnables) == 1


def test_what_comes_while_it_would_rest_is_done() -> None:
    """A channel that does not rest because something came is asked again by the same runnable."""

    class Late(Things):
        def _rest(self) -> bool:
            """Something comes just then, the first time."""
            if self.did == 1:
                self.left = 1
            return super()._rest()

    things = Late(1)
    dispatch, submitted = dispatcher(things)
    dispatch.wake()
    submitted.run_one()
    assert (things.did, submitted.runnables) == (2, [])


def test_only_the_thread_in_progress_is_inside() -> None:
    """From its first thing to its last one; not while it waits for the next batch, and not when it rests."""
    seen: list[tuple[bool, bool]] = []

    def look() -> None:
        with ThreadPoolExecutor(1) as other:
            seen.append((dispatch.is_inside(), other.submit(dispatch.is_inside).result(WATCHDOG_SECONDS)))

    things = Things(BATCH + 1)
    things.meanwhile.append(look)
    dispatch, submitted = dispatcher(things)
    assert not dispatch.is_inside()
    dispatch.wake()
    assert not dispatch.is_inside()
    submitted.run_one()
    assert (things.left, dispatch.is_inside()) == (1, False)
    submitted.run_one()
    assert not dispatch.is_inside()
    assert seen == [(True, False)] * 3


def test_an_error_of_what_rests_is_told() -> None:
    """It counts as one thing, and the channel is looked at again."""

    class Failing(Things):
        raises = True

        def _rest(self) -> bool:
            """The first time it cannot be said."""
            if self.raises:
                self.raises = False
                raise LookupError
            return super()._rest()

    things = Failing(0)
    dispatch, submitted = dispatcher(things)
    dispatch.wake()
    submitted.run_one()
    assert [type(error) for error in submitted.errors] == [LookupError]
    assert (things.asked, submitted.runnables) == ([BATCH, BATCH - 1], [])


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_wake_makes_the_channel_ready(when: str) -> None:
    """Whether the executor had the runnable or not; if it gets two, the second one does nothing."""
    things = Things(2, at_once=1)
    one, submitted = dispatcher(things)
    submit = submitted.submit

    def interrupted(runnable: Callable[[], None]) -> None:
        submitted.submit = submit  # type: ignore[method-assign]
        if when == "after":
            submit(runnable)
        raise KeyboardInterrupt

    submitted.submit = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        one.wake()
    assert len(submitted.runnables) == (2 if when == "after" else 1)
    if when == "after":
        things.meanwhile.append(lambda: submitted.runnables and submitted.run_one())  # as in another thread
    submitted.run_one()
    assert (things.did, submitted.runnables) == (2, [])
    one.wake()
    assert len(submitted.runnables) == 1


def test_a_channel_is_woken_after_a_pause() -> None:
    """By a thread of its own, which the end of the program does not wait for."""
    dispatch, submitted = dispatcher(Things(1))
    before = set(threading.enumerate())
    assert dispatch.wake_later(3600)
    (waiting,) = set(threading.enumerate()) - before
    assert (waiting.daemon, submitted.runnables) == (True, [])
    waiting.cancel()  # type: ignore[attr-defined]
    waiting.join()
    assert dispatch.wake_later(0)
    becomes(lambda: len(submitted.runnables), 1)


def test_a_pause_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """If none can be started it is over when the call returns, and the caller is told that nobody wakes the channel."""

    def fail(_: object) -> None:
        text = "can't start new thread"
        raise RuntimeError(text)

    pauses: list[float] = []
    dispatch, submitted = dispatcher(Things(1))
    monkeypatch.setattr(threading.Thread, "start", fail)
    monkeypatch.setattr("shmbroker._session.dispatch.time", types.SimpleNamespace(sleep=pauses.append))
    assert not dispatch.wake_later(0.02)
    assert (pauses, submitted.runnables) == ([0.02], [])
