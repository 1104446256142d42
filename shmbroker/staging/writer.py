# SPDX-License-Identifier: Apache-2.0
"""Writing of a partition of a batch, out of sight until it is published."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Self, Unpack

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._core.columns import BODY
from shmbroker._core.queue import NO_OPTIONS
from shmbroker._core.reservation import Reservation
from shmbroker._put_options import body_of, check_size, options_of
from shmbroker._session.queues import core_of
from shmbroker._session.session import session_of
from shmbroker.staging.deferred_options import defer_times, is_timed
from shmbroker.staging.names import declare
from shmbroker.staging.publication import Receipt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from shmbroker._core.columns import Columns
    from shmbroker._core.queue import PutOptions
    from shmbroker._put_options import PutKeywords
    from shmbroker.connection import Connection
    from shmbroker.queue import Queue
    from shmbroker.staging.marker import Marker
    from shmbroker.staging.names import Attempt

_TOUCHES = 4  # a writer restarts the expiry of its queue up to this many times within `expires` seconds


class Writer:
    """Stages the messages of one attempt. Made by :meth:`Stage.attempt`, for one thread.

    The ``with`` block makes the attempt's queue. If the block ends normally, the attempt is complete, and has a
    ``receipt``. If it raises, all staged messages are dropped.

    Attributes:
        count: the number of messages staged so far.
        bytes: the total bytes of their bodies.
    """

    def __init__(
        self, connection: Connection, attempt: Attempt, marker: Marker, *, expires: float | None, durable: bool
    ) -> None:
        self._connection, self._attempt, self._marker = connection, attempt, marker
        self._expires, self._durable = expires, durable
        self._queue: Queue | None = None
        self._receipt: Receipt | None = None
        self._timed = False
        self._touch_at = 0.0
        self.count = 0
        self.bytes = 0

    # ---- the block ----

    def __enter__(self) -> Self:
        if self._queue is not None or self._receipt is not None:
            msg = f"{self._attempt} has already begun: a writer has one `with` block"
            raise RuntimeError(msg)
        self._queue = self._begun()
        return self

    def _begun(self) -> Queue:
        self._marker.found(session_of(self._connection).operation_deadline())
        name = self._attempt.queue
        declare(self._connection, name, expires=self._expires, durable=self._durable)
        with self._there():
            return self._connection.queue(name, passive=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        queue = self._open()
        try:
            if kind is None:
                self._complete(queue)
            else:
                with contextlib.suppress(exceptions.NotFound):
                    queue.delete()
        finally:
            self._queue = None
            queue.close()

    def _complete(self, queue: Queue) -> None:
        with self._there():
            found = len(queue)
        if found != self.count:
            text = f"{self._attempt}: {self.count} messages were staged, but {found} exist"
            raise exceptions.NotStaged(text=text)
        ours = self._attempt
        if self._marker.is_dropped(ours.batch):  # a drop after this check finds the queue
            queue.delete()
            raise self._unwanted()
        core_of(queue).await_store(session_of(self._connection).operation_deadline())
        self._receipt = Receipt(
            ours.batch, ours.partition, ours.number, self.count, self.bytes, ours.token, self._timed
        )

    @property
    def receipt(self) -> Receipt:
        """The receipt, for :meth:`Stage.publish`.

        Raises:
            RuntimeError: the block has not ended, or it raised.
        """
        if self._receipt is None:
            msg = f"{self._attempt} is not complete: only the normal end of its `with` block makes a receipt"
            raise RuntimeError(msg)
        return self._receipt

    def _open(self) -> Queue:
        if self._queue is None:
            msg = f"{self._attempt} is not open: messages are staged in its `with` block"
            raise RuntimeError(msg)
        return self._queue

    @contextlib.contextmanager
    def _there(self) -> Iterator[None]:
        try:
            yield
        except exceptions.NotFound:
            raise self._unwanted() from None

    def _unwanted(self) -> exceptions.NotStaged:
        return exceptions.NotStaged(text=f"{self._attempt}: the batch was published or dropped meanwhile")

    def _kept(self, options: PutOptions) -> PutOptions:
        self._timed = self._timed or is_timed(options)
        return defer_times(options)

    # ---- staging ----

    def put(
        self,
        body: Any,  # noqa: ANN401 - anything bytes-like
        *,
        timeout: float | None = None,
        **given: Unpack[PutKeywords],
    ) -> None:
        """Stages a message, with the options of :meth:`Queue.put`; ``ttl`` and ``delay`` count from its publishing.

        Raises:
            OutOfMemory: there is no memory in time, or the body can never fit.
            NotStaged: the attempt is no longer needed, or it has expired.
        """
        options = self._kept(options_of(**given))
        data, size = body_of(body)
        queue = self._open()
        with self._there():
            if options is NO_OPTIONS and not core_of(queue).waits_for_store:
                queue.put(data, timeout=timeout)
            else:  # which does not wait for the store: the end of the block does, once for all messages
                core_of(queue).put_with(data, size, options, native.deadline(timeout))
        self._staged(1, size)

    def put_many(
        self,
        bodies: Iterable[Any],
        *,
        timeout: float | None = None,
        **given: Unpack[PutKeywords],
    ) -> int:
        """Stages all messages in order, with the same options; returns their number.

        Raises:
            OutOfMemory: there is no memory for all of them in time, or a body can never fit.
            NotStaged: the attempt is no longer needed, or has expired.
        """
        wanted = tuple(bodies)
        sizes = [body_of(body)[1] for body in wanted]
        options = options_of(**given)
        done, until, queue = 0, native.deadline(timeout), self._open()
        with self._there():
            if not is_timed(options):
                done = queue.put_many(wanted, timeout=timeout, **given)
            self._staged(done, sum(sizes[:done]))
            options = self._kept(options)
            for body, size in zip(wanted[done:], sizes[done:], strict=True):
                core_of(queue).put_with(body_of(body)[0], size, options, until)
                self._staged(1, size)
        return len(wanted)

    def put_columns(self, columns: Columns, count: int, *, timeout: float | None = None) -> None:
        """Stages all messages of the first ``count`` rows, as :func:`shmbroker.columns.put` puts them.

        Raises:
            OutOfMemory: there is no memory for all of them in time, or a body can never fit.
            NotStaged: the attempt is no longer needed, or has expired.
        """
        done, until, queue = 0, native.deadline(timeout), self._open()
        with self._there():
            while done < count:
                went = columns._put(core_of(queue), done, count - done, until)  # noqa: SLF001
                self._staged(went, columns.start(BODY, done + went) - columns.start(BODY, done))
                done += went

    def _staged(self, count: int, size: int) -> None:
        self.count += count
        self.bytes += size
        if self._expires is not None and time.monotonic() > self._touch_at:
            self._touch_at = time.monotonic() + self._expires / _TOUCHES
            session_of(self._connection).core.touch(
                core_of(self._open()).slot
            )  # a put does not restart the expiry of a queue, so we do

    @contextlib.contextmanager
    def reserve(
        self,
        size: int,
        *,
        timeout: float | None = None,
        **given: Unpack[PutKeywords],
    ) -> Iterator[memoryview]:
        """Yields a writable memoryview of ``size`` bytes, as :meth:`Queue.reserve`; the block's end stages the message.

        Raises:
            OutOfMemory: there is no memory in time, or the body can never fit.
            NotStaged: the attempt is no longer needed, or has expired.
        """
        options = self._kept(options_of(**given))
        queue = self._open()
        reservation = Reservation(core_of(queue), check_size(size), native.deadline(timeout))
        try:
            with self._there():
                memory = reservation.begin(options)
            yield memory
            with self._there():
                reservation.commit()
        finally:
            reservation.end()
        self._staged(1, size)

    def __repr__(self) -> str:
        state = "complete" if self._receipt is not None else "open" if self._queue is not None else "not begun"
        return f"<Writer of {self._attempt}, {state}, {self.count} messages>"
