# SPDX-License-Identifier: Apache-2.0
"""Callbacks: one at a time for each channel, in order, in the connection's executor.

A channel is *dormant*, *ready* (one runnable of it is in the executor) or *in progress*. Who brings something (the IO
thread, a publish that comes back) makes a dormant one ready; the runnable works off a batch and puts itself back
into the executor if there is more, so that no channel starves others. Source: seed 003, RabbitMQ's Java client.
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
import threading
from typing import TYPE_CHECKING, Protocol

from shmbroker._process import locks

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 256
_SHUT_DOWN = "cannot schedule new futures"  # of our pool, if it was not us: the standard library does so at exit
_log = logging.getLogger("shmbroker")


class Work(Protocol):
    """What is to be done for one channel."""

    def work(self, most: int = 1) -> int:
        """Does up to so many things; how many. 0: there was nothing to do."""
        ...

    @property
    def done(self) -> int:
        """How many things the last `work` did, with the one that raised."""
        ...

    def rest(self) -> bool:
        """Asks to be told of what comes; ``False``: there is something already."""
        ...


class Executor:
    """Where callbacks run: an executor that was given, or a pool of our own, which ends with us.

    Args:
        given: is never shut down.
        on_error: told of what a callback raised; ``None``: it is logged.
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
        """Submits a callable to the executor; ignored after :meth:`close`."""
        self.used = True
        executor = self._given or self._pool()
        if executor is not None:
            try:
                executor.submit(self._run, runnable)
            except Exception as error:  # noqa: BLE001 - it was shut down, or what else it may raise: this may be the IO thread
                process_ends = executor is self._own and _SHUT_DOWN in str(error)
                if not self._closed and not process_ends:
                    self.failed(error)  # what was delivered stays unacknowledged

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
        except BaseException as error:  # noqa: BLE001 - nobody looks at the future
            self.failed(error)
        finally:
            self._threads.discard(me)

    def failed(self, error: BaseException) -> None:
        """Tells of what a callback raised."""
        try:
            if self._on_error is None:
                _log.error("a callback raised %r", error, exc_info=error)
            else:
                self._on_error(error)
        except Exception:  # noqa: BLE001 - whatever it is, it is logged
            _log.exception("the hook for errors of callbacks raised")

    def finish(self) -> None:
        """The program ends: no thread of a pool of our own waits for more.

        The standard library sees to that, too, but not for a thread whose start a signal handler interrupted.
        """
        if self._own is not None:
            self._own.shutdown(wait=False)

    def close(self) -> None:
        """Ends a pool of our own, after the callbacks that are running; from inside one, without waiting for it."""
        with self._lock:
            self._closed, own = True, self._own
        if own is not None:
            own.shutdown(wait=threading.get_ident() not in self._threads, cancel_futures=True)


class Dispatcher:
    """The state machine of one channel."""

    __slots__ = ("_executor", "_lock", "_ready", "_thread", "_work")

    def __init__(self, executor: Executor, work: Work) -> None:
        self._executor, self._work = executor, work
        self._lock = locks.unnoted()  # in a child nobody wakes it: there is no thread of the executor
        self._ready = False
        self._thread: int | None = None  # which is in progress

    def wake(self) -> None:
        """Something is there."""
        with self._lock:
            if self._ready:
                return
            self._ready = True
        self._executor.submit(self._run)

    def is_inside(self) -> bool:
        """Is the caller a callback of the channel?"""
        return self._thread == threading.get_ident()

    def _run(self) -> None:
        with self._lock:
            self._thread = threading.get_ident()
        left = BATCH
        while left > 0:
            try:
                done = self._work.work(left)
                if not done and self._rest():
                    return
            except BaseException as error:  # noqa: BLE001 - of the application's callback
                done = self._work.done
                self._executor.failed(error)
            left -= max(done, 1)
        with self._lock:
            self._thread = None
        self._executor.submit(self._run)

    def _rest(self) -> bool:
        with self._lock:  # whoever wakes us now waits until we are dormant
            if not self._work.rest():
                return False
            self._thread, self._ready = None, False
            return True
