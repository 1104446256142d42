# SPDX-License-Identifier: Apache-2.0
"""Consumers: messages as they come, prefetched by the connection's IO thread."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import queue as standard_queue
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from shmbroker._core import library, record
from shmbroker._core.consumer import CoreConsumer
from shmbroker.message import Message
from shmbroker.statistics import ConsumerStatistics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from shmbroker._core.connection import CoreConnection
    from shmbroker.connection import Connection
    from shmbroker.queue import Queue

MAX_PREFETCH = 1 << 20
_MAX_PRIORITY = 2**31 - 1


def _check(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    msg = f"{name}={value!r}: an integer from {low} to {high} is allowed"
    raise ValueError(msg)


class Consumer:
    """Takes messages from one or more queues, in fair rotation.

    Iterating hands them out one by one; it stops when the consumer is closed, or when no message came for ``timeout``
    seconds. At most ``prefetch`` messages are unacked at a time. With ``ack_batch`` > 1 acknowledgements are sent when
    so many are waiting, after ``ack_interval`` seconds, on :meth:`flush` and on :meth:`close`; a crash before that
    redelivers.
    """

    def __init__(
        self,
        connection: Connection,
        queues: Sequence[Queue],
        *,
        prefetch: int,
        priority: int,
        auto_ack: bool,
        timeout: float | None,
        ack_batch: int,
        ack_interval: float,
    ) -> None:
        _check("prefetch", prefetch, 1, MAX_PREFETCH)
        _check("priority", priority, -_MAX_PRIORITY, _MAX_PRIORITY)
        _check("ack_batch", ack_batch, 1, MAX_PREFETCH)
        if not isinstance(ack_interval, (int, float)) or not 0 < ack_interval <= 3600:  # noqa: PLR2004
            msg = f"ack_interval={ack_interval!r}: more than 0 and at most 3600 seconds are allowed"
            raise ValueError(msg)
        library.deadline(timeout)
        if not queues:
            msg = "a consumer needs at least one queue"
            raise ValueError(msg)
        self._connection = connection
        self._queues = list(queues)
        self.core_connection: CoreConnection = queues[0].core_connection
        self.prefetch, self.priority, self.auto_ack = prefetch, priority, auto_ack
        self._timeout = timeout
        self._ack_batch = min(ack_batch, prefetch)
        self.ack_interval = ack_interval
        self._acks: collections.deque[int] = collections.deque()
        self._acks_lock = threading.Lock()
        self._oldest_ack = 0.0
        self._delivered = 0
        self._closed = self._cancelled = False
        self._descriptor = -1
        self._core = CoreConsumer(self.core_connection, [queue.core for queue in queues], prefetch, priority)
        self._next = self._core.next
        self.settle = self._core.settle if self._ack_batch == 1 else self._settle_later
        self._buffers: list[tuple[Any, Any]] = []
        self._tags = itertools.count(1)

    # ---- taking ----

    def get(self, timeout: float | None = None) -> Message:
        """The next message.

        Raises:
            queue.Empty: none came in time.
            ConnectionClosed: the consumer or its connection is closed.
        """
        message = self._take()
        if message is not None:
            return message
        until = library.deadline(timeout)
        while True:
            if self._acks:
                self.flush()
            status = self._core.wait(until)
            if status not in {library.OK, library.INTERRUPTED, library.TIMEOUT}:
                library.raise_for(status, "the consumer")
            message = self._take()
            if message is not None:
                return message
            if status == library.TIMEOUT:
                raise standard_queue.Empty

    def _take(self) -> Message | None:
        try:
            buffer = self._buffers.pop()
        except IndexError:
            buffer = self._queues[0].core.new_buffer()
        length = self._next(buffer[0], self.auto_ack)
        data = buffer[1][:length] if length > 0 else b""
        self._buffers.append(buffer)
        if length > 0:
            self._delivered += 1
            message = Message(self, data)
            return message._auto_acknowledged() if self.auto_ack else message  # noqa: SLF001
        if length != -library.EMPTY:
            if self._cancelled:
                library.raise_for(library.CLOSED, "the consumer")
            self._queues[0].core.get_failed(-length)
        return None

    def __iter__(self) -> Consumer:
        return self

    def __next__(self) -> Message:
        if self._cancelled:
            raise StopIteration
        try:
            message = self._take()
            return message if message is not None else self.get(self._timeout)
        except standard_queue.Empty:
            raise StopIteration from None
        except BaseException:
            if self._cancelled:
                raise StopIteration from None
            raise

    # ---- acknowledging ----

    def _settle_later(self, data: bytes, how: int) -> int:
        if how:
            return self._core.settle(data, how)
        acks = self._acks
        if not acks:
            self._oldest_ack = time.monotonic()
            self._connection.acks_wait(self)
        acks.append(record.tag(data))
        if len(acks) >= self._ack_batch:
            self.flush()
        return library.OK

    def flush(self) -> None:
        """Sends the acknowledgements that wait."""
        with self._acks_lock:
            tags = [self._acks.popleft() for _ in range(len(self._acks))]
            if tags:
                status = self._core.settle_tags(tags)
                if status != library.OK:
                    library.raise_for(status, "the consumer")

    def flush_if_old(self) -> bool:
        """Sends them if the oldest waits for ``ack_interval``; True while some wait."""
        if self._acks and time.monotonic() - self._oldest_ack >= self.ack_interval:
            self.flush()
        return bool(self._acks)

    # ---- control ----

    def suspend(self) -> None:
        """No more messages are pulled until :meth:`resume`; others get them."""
        self._core.suspend(suspended=True)

    def resume(self) -> None:
        """Ends :meth:`suspend`."""
        self._core.suspend(suspended=False)

    def fileno(self) -> int:
        """A descriptor that is readable when :meth:`get` would not wait; for select and asyncio.

        Read it empty with :meth:`clear`.
        """
        if self._descriptor < 0:
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._core.event(self._descriptor)
            self._connection.start_io()
            self.clear()
        return self._descriptor

    def clear(self) -> None:
        """Resets :meth:`fileno`; it becomes readable again for what waits already or comes."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)
        if self._core.arm():
            os.eventfd_write(self._descriptor, 1)

    def cancel(self) -> None:
        """Ends the consumer.

        What was pulled and not taken goes back; what the application holds can still be settled.
        """
        self._end(return_everything=False)

    def close(self) -> None:
        """Ends the consumer; every message it holds unacked goes back to its place."""
        if not self._closed:
            self._closed = True
            self._end(return_everything=True)

    def _end(self, *, return_everything: bool) -> None:
        if self._cancelled and not return_everything:
            return
        self._cancelled = True
        if not self.core_connection.closed and not self.core_connection.attachment.forked:
            self.flush()
            self._core.cancel(return_everything=return_everything)
        self._connection.consumer_ended(self)
        if self._descriptor >= 0:
            self._core_event_off()

    def _core_event_off(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if not self.core_connection.closed:
            self._core.event(-1)
        os.close(descriptor)

    def statistics(self) -> ConsumerStatistics:
        """A snapshot."""
        return ConsumerStatistics(self.prefetch, self._delivered, self._core.unacked(), self._core.waiting())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- for messages ----

    def queue_name(self, subscription: int) -> str:
        """The queue of a message that came through here."""
        return self._queues[subscription].name if subscription < len(self._queues) else ""

    def next_delivery_tag(self) -> int:
        """The next number of a delivery."""
        return next(self._tags)

    def __repr__(self) -> str:
        names = ", ".join(repr(queue.name) for queue in self._queues)
        return f"<Consumer of {names}{', closed' if self._cancelled else ''}>"
