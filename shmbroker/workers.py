# SPDX-License-Identifier: Apache-2.0
"""Worker processes that call a function for each message of a queue."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import queue as standard_queue
import signal
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Self

from shmbroker import exceptions
from shmbroker.broker import connect

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from shmbroker.message import Message

_log = logging.getLogger(__name__)
_WAIT_SECONDS = 0.5
_PATIENCE_SECONDS = 30.0
_QUICK_SECONDS = 1.0


class WorkerPool:
    """Runs ``function(message)`` in worker processes, each with a connection of its own.

    A message is acknowledged when the function returns. When it raises, the message is returned to its place, the
    worker's logger ``shmbroker.workers`` gets one line (and the traceback at level DEBUG), and the worker ends. A
    worker that ends or dies is replaced. On SIGTERM (and :meth:`stop`) it finishes the message in hand and returns the
    prefetched ones; it ignores SIGINT, so Ctrl-C ends the pool through the process that runs it.

    Args:
        function: called with each :class:`Message`; must be importable by name.
        queue: the queue's name.
        broker: the broker's name.
        processes: how many; ``None`` = as many as there are cores.
        prefetch: messages a worker may hold.
    """

    def __init__(
        self,
        function: Callable[[Message], object],
        queue: str,
        *,
        broker: str = "default",
        processes: int | None = None,
        prefetch: int = 1,
    ) -> None:
        if not callable(function):
            msg = f"function={function!r}: something callable is needed"
            raise TypeError(msg)
        count = (os.cpu_count() or 1) if processes is None else processes
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 1024:  # noqa: PLR2004
            msg = f"processes={processes!r}: an integer from 1 to 1024, or None for one per core, is allowed"
            raise ValueError(msg)
        self._function, self._queue, self._broker = function, queue, broker
        self._count, self._prefetch = count, prefetch
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[Any] = []
        self._ended = threading.Event()
        self._supervisor: threading.Thread | None = None
        self._lock = threading.Lock()
        self.restarts = 0

    def start(self) -> Self:
        """Starts the workers. Returns itself."""
        with self._lock:
            if self._supervisor is None:
                self._ended.clear()
                try:
                    for index in range(self._count):
                        self._start_worker(index)
                    self._supervisor = threading.Thread(target=self._supervise, name="shmbroker-workers", daemon=True)
                    self._supervisor.start()
                except BaseException:
                    self._supervisor = None
                    self._end_workers()
                    raise
        return self

    def _start_worker(self, index: int) -> None:
        arguments = (self._function, self._queue, self._broker, self._prefetch)
        worker = self._context.Process(target=_work, args=arguments)
        self._workers[index : index + 1] = [worker]  # before it is started, so that it is ended whatever happens
        multiprocessing.resource_tracker.ensure_running()  # it would be started in between, and unblock the signal
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until it ignores it; a child inherits that
        try:
            worker.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _supervise(self) -> None:
        started = dict.fromkeys(range(self._count), time.monotonic())
        while not self._ended.is_set():
            multiprocessing.connection.wait([worker.sentinel for worker in self._workers], timeout=0.2)
            with self._lock:
                for index, worker in enumerate(self._workers):
                    if self._ended.is_set() or worker.is_alive():
                        continue
                    worker.join()
                    if time.monotonic() - started[index] < _QUICK_SECONDS:  # it dies at once: do not spin
                        self._ended.wait(0.2)
                    self.restarts += 1
                    started[index] = time.monotonic()
                    self._start_worker(index)

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that live."""
        with self._lock:
            return [worker.pid for worker in self._workers if worker.is_alive()]

    def stop(self) -> None:
        """Ends the workers: each finishes the message in hand. Safe to call again."""
        self._ended.set()
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.join()
        with self._lock:
            self._end_workers()

    def _end_workers(self) -> None:
        started = [worker for worker in self._workers if worker.pid is not None]
        for worker in started:
            worker.terminate()
        until = time.monotonic() + _PATIENCE_SECONDS
        for worker in started:
            worker.join(max(0.0, until - time.monotonic()))
            if worker.is_alive():  # it does not come to an end: its message goes back when it is gone
                worker.kill()
                worker.join()
        self._workers = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<WorkerPool of {self._count} at {self._queue!r}, {'running' if self._supervisor else 'stopped'}>"


def _work(function: Callable[[Message], object], queue: str, broker: str, prefetch: int) -> None:
    ended: list[int] = []  # no Event: a second signal could find its lock taken
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # for the processes that the function starts
    parent = os.getppid()
    try:
        _serve(function, queue, broker, prefetch, lambda: bool(ended) or os.getppid() != parent)
    except exceptions.ConnectionClosedByBroker:
        pass  # purged
    except exceptions.BrokerError as error:
        _log.error("worker of queue %r of broker %r: %s", queue, broker, error)
        raise SystemExit(1) from None


def _serve(
    function: Callable[[Message], object], queue: str, broker: str, prefetch: int, ended: Callable[[], bool]
) -> None:
    with connect(broker, create=False) as connection:
        consumer = connection.queue(queue, passive=True).consume(prefetch=prefetch)
        while not ended():
            try:
                message = consumer.get(timeout=_WAIT_SECONDS)
            except standard_queue.Empty:
                continue
            try:
                function(message)
            except Exception as error:  # noqa: BLE001 - it is told, and the pool starts another worker
                with contextlib.suppress(exceptions.MessageSettled):
                    message.nack()  # it is tried again
                _tell(function, message, error)
                raise SystemExit(1) from None
            with contextlib.suppress(exceptions.MessageSettled):
                message.ack()
        consumer.close()


def _tell(function: Callable[[Message], object], message: Message, error: Exception) -> None:
    name = getattr(function, "__qualname__", None) or repr(function)
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join("".join(traceback.format_exception_only(error)).split())
    _log.error("%s raised %s (%s:%d) for %r", name, what, where.filename, where.lineno, message)
    _log.debug("traceback of %s", what, exc_info=error)
