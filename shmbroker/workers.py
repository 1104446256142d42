# SPDX-License-Identifier: Apache-2.0
"""Worker processes that call a function for each message of a queue."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import logging
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import pickle
import queue as standard_queue
import signal
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Self

from shmbroker import exceptions
from shmbroker._amqp.utf8 import check_queue_name
from shmbroker._broker.connecting import connect
from shmbroker._checks import integer
from shmbroker._core import native, record
from shmbroker._core.queue import PutOptions
from shmbroker._core.transaction import Publication, Settlement, commit_waiting
from shmbroker._process import locks
from shmbroker._put_options import PutKeywords, fields_of
from shmbroker._session.queues import core_of
from shmbroker.queue import open_queue, session_of_queue

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from shmbroker.message import Message
    from shmbroker.queue import Queue

_log = logging.getLogger(__name__)
_WAIT_SECONDS = 0.5
_PATIENCE_SECONDS = 30.0
_QUICK_SECONDS = 1.0
_MAX_ATTEMPTS = 1_000_000
_MAX_PROCESSES = 1024


class WorkerPool:
    """Runs ``function(message)`` in worker processes, each of which has its own connection.

    The worker acknowledges a message when the function returns. When the function raises an ``Exception``, the worker
    returns the message to its place, writes one line to its logger ``shmbroker.workers`` (and the traceback at level
    DEBUG), and ends. The pool replaces a worker that ends or dies. On SIGTERM a worker finishes the message in hand and
    returns the prefetched messages. :meth:`stop` sends SIGTERM; the end of the program calls :meth:`stop` if the
    program did not. A worker ignores SIGINT, so Ctrl-C ends the pool through the process that runs the pool.

    After ``attempts`` deliveries that ended with an error, a nack or a worker's death, the function does not get the
    message again: a worker puts the message into the queue ``set_aside``, with the headers ``x-shmbroker-queue`` and
    ``x-shmbroker-attempts`` unless the message's own headers leave no room for them, logs that, and continues with the
    next message. If that queue has no room for it within half a second, the worker returns the message to its place,
    logs that, and ends. From the second delivery of a message on, a worker holds no prefetched messages while it
    handles the message: the worker's death counts as a delivery of that message only.

    Args:
        function: called with each :class:`Message`; must be picklable. A plain function is pickled as its name, by
            which a worker imports it.
        queue: the queue's name.
        broker: the broker's name.
        processes: the number of workers; ``None`` = one for each core.
        prefetch: the number of messages that a worker may hold.
        attempts: the number of deliveries after which a message is set aside, 1 to 1,000,000; ``None`` = no limit.
        set_aside: the name of the queue for messages that reached ``attempts``; ``None`` = the queue's name and
            ``.set-aside``.

    Attributes:
        set_aside: the name of the queue for messages that reached ``attempts``.
        restarts: the number of workers that were replaced.
    """

    def __init__(
        self,
        function: Callable[[Message], object],
        queue: str,
        *,
        broker: str = "default",
        processes: int | None = None,
        prefetch: int = 1,
        attempts: int | None = 5,
        set_aside: str | None = None,
    ) -> None:
        if not callable(function):
            msg = f"function={function!r}: a callable is needed"
            raise TypeError(msg)
        count = (os.cpu_count() or 1) if processes is None else processes
        integer("processes", count, 1, _MAX_PROCESSES, none="for one per core")
        if attempts is not None:
            integer("attempts", attempts, 1, _MAX_ATTEMPTS, none="for no limit")
        self.set_aside = check_queue_name(f"{queue}.set-aside" if set_aside is None else set_aside)
        self._function, self._queue, self._broker = function, queue, broker
        self._count = count
        self._options = _Options(queue, broker, prefetch, attempts, self.set_aside)
        self._process = os.getpid()
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[Any] = []
        self._ended = threading.Event()
        self._supervisor: threading.Thread | None = None
        self._lock = locks.lock()
        self.restarts = 0

    def start(self) -> Self:
        """Starts the workers, and returns the pool.

        Raises:
            WorkerError: the workers cannot import the function.
        """
        if self._ended.is_set():
            self.stop()  # finishes an earlier stop, or the cleanup of a failed start, that an interrupt cut short
        with self._lock:
            if self._supervisor is None:
                self._ended.clear()
                # First: if an interrupt ends what follows, the end of the program still ends the workers. `stop` then
                # runs before the handler of multiprocessing, which waits for workers.
                atexit.register(self.stop)
                try:
                    function = _pickled(self._function)
                    self._await_first([self._start_worker(index, function) for index in range(self._count)])
                    self._supervisor = threading.Thread(target=self._supervise, name="shmbroker-workers", daemon=True)
                    self._supervisor.start()
                except BaseException:
                    self._supervisor = None
                    self._ended.set()
                    self._end_workers()
                    atexit.unregister(self.stop)
                    raise
        return self

    def _start_worker(self, index: int, function: bytes) -> Any:  # noqa: ANN401 - multiprocessing's
        answer, tell = self._context.Pipe(duplex=False)
        try:
            with tell:
                worker = self._context.Process(target=_work, args=(function, self._options, tell))
                self._workers[index : index + 1] = [worker]  # listed first: after an error `start` ends those listed
                # Else `worker.start` would start the tracker, which unblocks SIGINT: the mask set below would be lost.
                multiprocessing.resource_tracker.ensure_running()
                before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the worker inherits this mask
                try:
                    worker.start()
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:
            answer.close()
            raise
        return answer

    def _await_first(self, answers: list[Any]) -> None:
        """Waits until one worker has imported the function; raises if it cannot, since then no worker can."""
        first: Any = multiprocessing.connection.wait(answers)[0]
        try:
            problem = first.recv()
        except EOFError:  # the worker died before it sent a report
            worker = self._workers[answers.index(first)]
            worker.join()
            problem = f"the process ended with status {worker.exitcode} before it had imported the function"
        for answer in answers:
            answer.close()
        if problem:
            name = str(getattr(self._function, "__qualname__", repr(self._function)))
            text = (
                f"a worker process cannot import {name} of module {self._function.__module__!r}: {problem}. A new "
                "process imports the function by its name. A main program must start a pool under "
                "if __name__ == '__main__':"
            )
            raise exceptions.WorkerError(text=text)

    def _supervise(self) -> None:
        function = _pickled(self._function)
        started = dict.fromkeys(range(self._count), time.monotonic())
        failing = False
        while not self._ended.is_set():
            multiprocessing.connection.wait([worker.sentinel for worker in self._workers], timeout=0.2)
            with self._lock:
                for index, worker in enumerate(self._workers):
                    if self._ended.is_set() or worker.is_alive():
                        continue
                    worker.join()
                    if time.monotonic() - started[index] < _QUICK_SECONDS:  # dies right after its start: do not spin
                        self._ended.wait(0.2)
                    started[index] = time.monotonic()
                    failing = not self._replace(index, function, tell=not failing)

    def _replace(self, index: int, function: bytes, *, tell: bool) -> bool:
        """Starts another worker in the place of a dead one. False: there is no process, descriptor or memory for it.

        Then the dead worker stays listed: the supervisor finds it at its next look, and tries again. ``tell``: log it.
        """
        dead = self._workers[index]
        try:
            self._start_worker(index, function).close()
        except (OSError, MemoryError) as error:
            self._workers[index] = dead
            if tell:
                _log.error("a worker of queue %r ended, and no other can be started yet: %s", self._queue, error)
            return False
        self.restarts += 1
        return True

    @property
    def pids(self) -> list[int]:
        """The process ids of the live workers."""
        with self._lock:
            return [worker.pid for worker in self._workers if worker.is_alive()]

    def stop(self) -> None:
        """Ends the workers; each finishes the message in hand.

        A worker that has not ended 30 seconds later is killed. It is safe to call this again. If an interrupt ends this
        call, another call finishes it; the end of the program makes that call if the program did not.
        """
        if os.getpid() != self._process:
            return  # a forked child: the workers belong to its parent
        self._ended.set()
        with self._lock:  # the supervisor, which takes this lock to start a worker, starts none from now on
            self._end_workers()
        supervisor = self._supervisor
        if supervisor is not None:
            supervisor.join()
        self._supervisor = None
        atexit.unregister(self.stop)  # last: an interrupt before this line leaves the handler registered

    def _end_workers(self) -> None:
        started = [worker for worker in self._workers if worker.pid is not None]
        for worker in started:
            worker.terminate()
        until = time.monotonic() + _PATIENCE_SECONDS
        for worker in started:
            worker.join(max(0.0, until - time.monotonic()))
            if worker.is_alive():  # after the kill, the broker requeues the message in hand
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


@dataclasses.dataclass(frozen=True)
class _Options:
    """The arguments of a worker besides the function."""

    queue: str
    broker: str
    prefetch: int
    attempts: int | None
    set_aside: str


def _pickled(function: Callable[[Message], object]) -> bytes:
    try:
        return pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        text = f"function={function!r}: worker processes import it by its name, which fails: {error}"
        raise exceptions.WorkerError(text=text) from None


def _work(pickled: bytes, options: _Options, answer: Any) -> None:  # noqa: ANN401 - multiprocessing's
    ended: list[int] = []  # not a threading.Event: the code that a signal interrupts could hold the event's lock
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # processes that the function starts inherit the mask
    parent = multiprocessing.parent_process()  # not os.getppid(): the parent may have ended already
    assert parent is not None  # noqa: S101
    function, problem = _loaded(pickled)
    with contextlib.suppress(OSError), answer:  # the pool reads only the first report
        answer.send(problem)
    if problem:
        raise SystemExit(1)
    try:
        _serve(function, options, lambda: bool(ended) or os.getppid() != parent.pid)
    except exceptions.BrokerError as error:
        if isinstance(error, exceptions.ConnectionClosedByBroker) and not isinstance(error, exceptions.NotAllowed):
            return  # another process purges the broker
        _log.error("worker of queue %r of broker %r: %s", options.queue, options.broker, error)
        raise SystemExit(1) from None


def _loaded(pickled: bytes) -> tuple[Any, str]:
    try:
        return pickle.loads(pickled), ""  # noqa: S301 - from the pool
    except Exception as error:  # noqa: BLE001 - importing a module may raise anything
        return None, _in_a_line(error)


def _serve(function: Callable[[Message], object], options: _Options, ended: Callable[[], bool]) -> None:
    with connect(options.broker, create=False) as connection:
        queue = connection.queue(options.queue, passive=True)
        consumer = queue.consume(prefetch=options.prefetch)
        while not ended():
            try:
                message = consumer.get(timeout=_WAIT_SECONDS)
            except standard_queue.Empty:
                continue
            if options.attempts is not None and message.delivery_count > options.attempts:
                consumer.cancel()
                message.give_back()  # taken again by `queue.get`: a commit cannot settle what a consumer took
                _set_aside_first(queue, options)
            elif message.delivery_count > 1 and options.prefetch > 1:
                consumer.cancel()  # returns the prefetched messages: the death of this worker must not count for them
                _handle(function, message)
            else:
                _handle(function, message)
            if consumer._ended:  # noqa: SLF001
                consumer = queue.consume(prefetch=options.prefetch)


def _handle(function: Callable[[Message], object], message: Message) -> None:
    try:
        function(message)
    except BaseException as error:
        with contextlib.suppress(exceptions.MessageSettled):
            message.nack()  # requeues it for another attempt
        if not isinstance(error, Exception):
            raise
        _tell(function, message, error)  # then the pool starts another worker
        raise SystemExit(1) from None
    with contextlib.suppress(exceptions.MessageSettled):
        message.ack()


def _set_aside_first(queue: Queue, options: _Options) -> None:
    """Sets the first ready message of the queue aside if it has no attempts left; else returns it to its place."""
    with contextlib.suppress(standard_queue.Empty):
        message = queue.get(timeout=0)
        if options.attempts is not None and message.delivery_count > options.attempts:
            _set_aside(queue, message, options)
        else:
            message.give_back()


def _set_aside(queue: Queue, message: Message, options: _Options) -> None:
    """Moves a message to ``set_aside`` in one commit.

    In a full broker the commit may use the reserve (sb_reserve.h), since it ends as much as it adds.
    """
    attempts = message.delivery_count - 1
    session = session_of_queue(queue)
    aside = core_of(open_queue(session, options.set_aside))
    put = _put_aside(message, options)
    mine = Settlement(core_of(queue), record.header(message._record).tag)  # noqa: SLF001 - the tag that the core wrote
    try:
        commit_waiting(
            session.core,
            [Publication(message.body, (aside,), put)],
            [mine],
            native.deadline(_WAIT_SECONDS),
        )
    except standard_queue.Full as error:
        message.give_back()
        _log.error(
            "%r was tried %d times, and queue %r has no room for it: %s", message, attempts, options.set_aside, error
        )
        raise SystemExit(1) from None
    message._was_settled()  # noqa: SLF001 - the commit settled it
    _log.error("%r was tried %d times: it is in queue %r now", message, attempts, options.set_aside)


def _put_aside(message: Message, options: _Options) -> PutOptions:
    """Makes the options of the put that sets a message aside."""
    added = {"x-shmbroker-queue": options.queue, "x-shmbroker-attempts": message.delivery_count - 1}
    own = dataclasses.replace(message.properties, expiration=None)
    given: PutKeywords = {"key": message.key, "priority": message.priority or None}
    try:
        fields = fields_of({**given, "properties": own, "headers": {**message.headers, **added}})
    except ValueError:  # the two headers do not fit
        fields = fields_of({**given, "properties": own})
    _, delay, priority, key, encoded = fields
    put = PutOptions(0, delay, priority, key, encoded)
    return put.without_id()  # the queue may know the message from an earlier failure, and is its only place


def _in_a_line(error: BaseException) -> str:
    return " ".join("".join(traceback.format_exception_only(error)).split())


def _tell(function: Callable[[Message], object], message: Message, error: Exception) -> None:
    name = getattr(function, "__qualname__", None) or repr(function)
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = _in_a_line(error)
    _log.error("%s raised %s (%s:%d) for %r", name, what, where.filename, where.lineno, message)
    _log.debug("traceback of %s", what, exc_info=error)
