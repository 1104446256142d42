# SPDX-License-Identifier: Apache-2.0
"""Where callbacks run: the executor that was given, or a pool that ends with its connection, and what they raise."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.waiting import WATCHDOG_SECONDS

from shmbroker._session.dispatch import Executor

if TYPE_CHECKING:
    from collections.abc import Callable

ENDED = "cannot schedule new futures after shutdown"


class Pool(concurrent.futures.Executor):
    """In the place of a pool of threads: runs what is submitted in the thread that submits, and notes its calls."""

    def __init__(self, *arguments: object, **options: object) -> None:
        """Note the arguments."""
        self.options = (arguments, options)
        self.ends: list[dict[str, Any]] = []
        self.raises: Exception | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as its base has it)
        """Run it, or raise."""
        if self.raises is not None:
            raise self.raises
        fn(*args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 (as its base has it)
        """Note how it was ended."""
        self.ends.append({"wait": wait, "cancel_futures": cancel_futures})


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Pool]:
    """Have executors make pools that run everything immediately; return those that were made."""
    made: list[Pool] = []

    def make(*arguments: object, **options: object) -> Pool:
        made.append(Pool(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", make)
    return made


def test_an_executor_that_was_given_runs_callbacks_and_is_not_ended(pools: list[Pool]) -> None:
    """No pool is made beside it; neither the end of the connection nor that of the program shuts it down."""
    given, ran = Pool(), list[str]()
    executor = Executor(given, None)
    assert not executor.used
    executor.submit(lambda: ran.append("callback"))
    assert (executor.used, ran) == (True, ["callback"])
    executor.finish()
    executor.close()
    assert (given.ends, pools) == ([], [])


@pytest.mark.parametrize(("processors", "threads"), [(3, 3), (1, 1), (None, 1)])
def test_one_pool_is_made_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, pools: list[Pool], processors: int | None, threads: int
) -> None:
    """It has a thread for each processor, or one if their number is unknown; their names say whose they are."""
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    executor, ran = Executor(None, None), list[int]()
    assert pools == []
    for number in range(2):
        executor.submit(lambda number=number: ran.append(number))  # type: ignore[misc]
    assert (ran, len(pools)) == ([0, 1], 1)
    assert pools[0].options == ((threads,), {"thread_name_prefix": "shmbroker-callbacks"})


def test_a_closed_executor_makes_no_pool(pools: list[Pool]) -> None:
    """What is submitted to it is ignored, and nothing is told."""
    told: list[BaseException] = []
    executor = Executor(None, told.append)
    executor.close()
    executor.submit(lambda: told.append(ValueError()))
    assert (pools, told) == ([], [])


def test_closing_waits_for_callbacks_of_other_threads(pools: list[Pool]) -> None:
    """Also in a thread that has called back before. A callback that closes does not wait for itself."""
    executor = Executor(None, None)
    executor.submit(executor.close)
    assert pools[0].ends == [{"wait": False, "cancel_futures": True}]
    executor.close()
    assert pools[0].ends[1:] == [{"wait": True, "cancel_futures": True}]


def test_the_end_of_the_program_ends_the_pool_without_waiting(pools: list[Pool]) -> None:
    """What was submitted before still runs; where no pool was made there is nothing to do."""
    executor = Executor(None, None)
    executor.finish()
    executor.submit(lambda: None)
    executor.finish()
    assert pools[0].ends == [{"wait": False, "cancel_futures": False}]


def test_closing_ends_the_threads() -> None:
    """What runs at that moment is waited for, and no thread is left."""
    before = set(threading.enumerate())
    executor, ran = Executor(None, None), list[str]()
    entered, go_on = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        go_on.wait(WATCHDOG_SECONDS)
        ran.append("callback")

    executor.submit(work)
    assert entered.wait(WATCHDOG_SECONDS)
    closing = threading.Thread(target=executor.close)
    closing.start()
    go_on.set()
    closing.join(WATCHDOG_SECONDS)
    assert ran == ["callback"]
    assert set(threading.enumerate()) <= before


def raising(pools: list[Pool], error: Exception, *, given: bool) -> tuple[Executor, list[BaseException]]:
    """Return an executor whose pool raises, and what it tells."""
    told: list[BaseException] = []
    pool = Pool()
    executor = Executor(pool if given else None, told.append)
    executor.submit(lambda: None)
    (pool if given else pools[0]).raises = error
    return executor, told


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_inside_the_pool_is_raised(pools: list[Pool]) -> None:
    """The error that the pool made of it is neither raised nor told; an interrupt that the caller handles is none."""
    told: list[BaseException] = []
    executor = Executor(None, told.append)
    executor.submit(lambda: None)
    made_of_it, between = RuntimeError("release unlocked lock"), LookupError()
    made_of_it.__context__, between.__context__ = between, KeyboardInterrupt()
    pools[0].raises = made_of_it
    with pytest.raises(KeyboardInterrupt):
        executor.submit(lambda: None)
    assert told == []
    pools[0].raises = RuntimeError("no thread can be started")
    try:
        _interrupt()
    except KeyboardInterrupt:
        executor.submit(lambda: None)
    assert told == [pools[0].raises]


@pytest.mark.parametrize(
    ("given", "text", "is_told"),
    [(True, ENDED, True), (True, "full", True), (False, "can't start new thread", True), (False, ENDED, False)],
)
def test_an_executor_that_raises_is_told_of(pools: list[Pool], text: str, *, given: bool, is_told: bool) -> None:
    """Not if the standard library has shut down a pool of ours: then the program ends."""
    error = RuntimeError(text)
    executor, told = raising(pools, error, given=given)
    executor.submit(lambda: None)
    assert told == ([error] if is_told else [])


@pytest.mark.parametrize("given", [True, False])
def test_after_closing_an_executor_may_raise(pools: list[Pool], *, given: bool) -> None:
    """Whatever it says is no news then."""
    executor, told = raising(pools, ValueError("closed"), given=given)
    executor.close()
    executor.submit(lambda: None)
    assert told == []


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_what_a_runnable_raises_is_told(pools: list[Pool], kind: type[BaseException]) -> None:
    """To the hook, whatever it is; the thread goes on, and is not inside a callback any more."""
    told: list[BaseException] = []
    executor, error = Executor(None, told.append), kind("raised")

    def fail() -> None:
        raise error

    executor.submit(fail)
    assert told == [error]
    executor.close()
    assert pools[0].ends == [{"wait": True, "cancel_futures": True}]


def test_without_a_hook_errors_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With their traceback, by the logger of the package."""
    error = ValueError("raised")
    Executor(None, None).failed(error)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("shmbroker", logging.ERROR)
    assert record.getMessage() == "a callback raised ValueError('raised')"
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_a_hook_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It is told of the error, and what it raises itself goes no further than the log."""
    told: list[BaseException] = []

    def hook(error: BaseException) -> None:
        told.append(error)
        message = "the hook's own"
        raise LookupError(message)

    error = ValueError("raised")
    Executor(None, hook).failed(error)
    (record,) = caplog.records
    assert told == [error]
    assert (record.name, record.levelno) == ("shmbroker", logging.ERROR)
    assert record.exc_info is not None
    assert repr(record.exc_info[1]) == 'LookupError("the hook\'s own")'
