# SPDX-License-Identifier: Apache-2.0
"""Callbacks: the connection's executor runs the callbacks of each channel one at a time, in order.

A channel is *dormant*, *ready* (one runnable of it is in the executor) or *in progress*. A thread that brings work
(such as the IO thread, or a publish whose message is returned) makes a dormant channel ready. The runnable processes a
batch. If the batch was full, it resubmits itself, so that no channel starves another. Source: RabbitMQ's Java client.
"""

from __future__ import annotations

import concurrent.futures
import functools
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Protocol

from shmbroker._process import locks

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 256
_SHUT_DOWN = "cannot schedule new futures"  # part of the error text of a pool that Python has shut down at exit
_log = logging.getLogger("shmbroker")


class Work(Protocol):
    """The methods of a channel that its dispatcher calls. Applications do not call them."""

    def _work(self, most: int = 1) -> int:
        """Does up to ``most`` units of work and returns their number. 0: there was no work."""
        ...

    @property
    def _done(self) -> int:
        """The number of units that the last `_work` did, including the one that raised."""
        ...

    def _rest(self) -> bool:
        """Whether the dispatcher may rest; ``False``: there is work already.

        If it may, the channel wakes it when work comes, or after a pause if an error keeps the channel from its work.
        A channel that has ended never wakes it.
        """
        ...


class Executor:
    """Runs callbacks in a given executor, or in a pool of this object, which ends with this object.

    Args:
        given: an executor, which this object never shuts down; ``None``: the pool.
        on_error: called with an exception that a callback raised, or that kept callbacks from running: the executor
            refused one, or there was no memory to take a message. ``None``: the exception is logged.
    """

    def __init__(
        self, given: concurrent.futures.Executor | None, on_error: Callable[[BaseException], None] | None
    ) -> None:
        self._given, self._on_error = given, on_error
        self._own: concurrent.futures.ThreadPoolExecutor | None = None
        self._lock = locks.lock()
        self._closed = False
        self.used = False
        self._threads: set[int] = set()

    def submit(self, runnable: Callable[[], None]) -> None:
        """Submits a callable to the executor. After :meth:`close`, only a given executor still gets callables."""
        self.used = True
        executor, handled = self._given or self._pool(), sys.exception()
        if executor is not None:
            try:
                executor.submit(self._run, runnable)
            except Exception as error:  # noqa: BLE001 - shut down, or any other error: the caller may be the IO thread
                interrupt = _interrupt_behind(error, handled)
                if interrupt is not None:
                    raise interrupt from None
                process_ends = executor is self._own and _SHUT_DOWN in str(error)
                if not self._closed and not process_ends:
                    self.failed(error)  # nobody gets the messages that the channel holds: the application must know

    def _pool(self) -> concurrent.futures.Executor | None:
        with self._lock:
            if self._own is None and not self._closed:
                size = max(1, os.cpu_count() or 1)
                self._own = concurrent.futures.ThreadPoolExecutor(size, thread_name_prefix="shmbroker-callbacks")
            return self._own

    def _run(self, runnable: Callable[[], None]) -> None:
        me = threading.get_ident()
        self._threads.add(me)
        try:
            runnable()
        except BaseException as error:  # noqa: BLE001 - no code reads the future
            self.failed(error)
        finally:
            self._threads.discard(me)

    def failed(self, error: BaseException) -> None:
        """Reports an exception that a callback raised, or that kept callbacks from running."""
        try:
            if self._on_error is None:
                _log.error("a callback raised %r", error, exc_info=error)
            else:
                self._on_error(error)
        except Exception:  # noqa: BLE001 - any exception of the hook is logged
            _log.exception("the hook for errors of callbacks raised")

    def finish(self) -> None:
        """Shuts down this object's pool at the end of the program, so that no thread of the pool waits for more work.

        The standard library does the same, but misses a thread whose start a signal handler interrupted.
        """
        if self._own is not None:
            self._own.shutdown(wait=False)

    def close(self) -> None:
        """Ends this object's pool. Waits for the running callbacks, unless the caller is inside a callback."""
        with self._lock:
            self._closed, own = True, self._own
        if own is not None:
            own.shutdown(wait=threading.get_ident() not in self._threads, cancel_futures=True)


def _interrupt_behind(error: BaseException, handled: BaseException | None) -> BaseException | None:
    """Returns the interrupt that ``error`` replaced; ``None``: there was none.

    The caller was handling the exception ``handled``. That one, and what it replaced, does not count.

    An interrupt is an exception that is no `Exception`, such as KeyboardInterrupt. A pool that starts a thread waits
    for a `threading.Condition`. An interrupt in there surfaces as ``RuntimeError: release unlocked lock``.
    """
    behind = error.__context__
    while isinstance(behind, Exception) and behind is not handled:
        behind = behind.__context__
    return behind if behind is not handled else None


class Dispatcher:
    """The state machine of one channel: dormant, ready, in progress."""

    __slots__ = ("_executor", "_lock", "_ready", "_thread", "_turn", "_work")

    def __init__(self, executor: Executor, work: Work) -> None:
        self._executor, self._work = executor, work
        self._lock = locks.unnoted()  # no forked child takes it: the parent's threads are gone, and methods raise first
        self._ready = False
        self._turn = 0  # the number of runnables that have begun; the next one to begin has this number
        self._thread: int | None = None  # the thread that runs the channel's callbacks now

    def wake(self) -> None:
        """Makes the channel ready if it is dormant."""
        turn = None
        try:
            with self._lock:
                if self._ready:
                    return
                # No call in this line: no signal handler runs in the middle of it.
                self._ready, turn = True, self._turn
            self._submit(turn)
        except BaseException:
            # A signal handler raised, perhaps before the executor had the runnable. If the executor has it twice, the
            # one that begins later does nothing.
            if turn is not None:
                self._submit(turn)
            raise

    def _submit(self, turn: int) -> None:
        self._executor.submit(functools.partial(self._run, turn))

    def wake_later(self, seconds: float) -> bool:
        """Calls :meth:`wake` after ``seconds``, in a new thread: the executor's threads serve other channels meanwhile.

        Returns:
            ``False``: no thread can be started; the time has passed during this call, and nothing calls :meth:`wake`.
        """
        timer = threading.Timer(seconds, self.wake)
        timer.daemon = True  # the end of the program does not wait for it
        try:
            timer.start()
        except RuntimeError:
            time.sleep(seconds)
            return False
        return True

    def is_inside(self) -> bool:
        """Whether the calling thread runs a callback of the channel."""
        return self._thread == threading.get_ident()

    def _run(self, turn: int) -> None:
        with self._lock:
            if turn != self._turn:
                return
            self._turn += 1
            self._thread = threading.get_ident()
        left = BATCH
        while left > 0:
            try:
                done = self._work._work(left)  # noqa: SLF001
                if not done and self._rest():
                    return
            except BaseException as error:  # noqa: BLE001 - raised by the application's callback
                done = self._work._done  # noqa: SLF001
                self._executor.failed(error)
            left -= max(done, 1)
        with self._lock:
            self._thread, turn = None, self._turn
        self._submit(turn)

    def _rest(self) -> bool:
        with self._lock:  # `wake` must not run between the request for a wake-up and the change to dormant
            if not self._work._rest():  # noqa: SLF001
                return False
            self._thread, self._ready = None, False
            return True
