# SPDX-License-Identifier: Apache-2.0
"""Consumers: the connection's IO thread, or the calling thread, prefetches messages as they arrive."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue as standard_queue
import time
from typing import TYPE_CHECKING, Self

from shmbroker._core import native
from shmbroker._core.channel import EXCLUSIVE, NO_LOCAL
from shmbroker._core.consumer import CoreConsumer
from shmbroker._selectors.compiler import compile_selector
from shmbroker.exceptions import ConnectionClosed
from shmbroker.message import Message, MessageBatch
from shmbroker.statistics import ConsumerStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue
    from shmbroker._session.session import Session

MAX_PREFETCH = 1 << 20
MAX_PREFETCH_BYTES = (1 << 63) - 1
_MAX_PRIORITY = 2**31 - 1


def _check(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    msg = f"{name}={value!r}: an integer from {low} to {high} is allowed"
    raise ValueError(msg)


def _check_choice(queues: Sequence[CoreQueue], **choice: object) -> None:
    """Refuses a choice where a queue has message groups: other consumers would not find what it leaves out of one."""
    for queue in queues:
        for name, value in choice.items():
            if value and queue.has_groups:
                msg = f"{name}={value!r}: a consumer of {queue.what}, which has message groups, takes all messages"
                raise ValueError(msg)


class Consumer(native.ConsumerCalls):
    """Takes messages from one or more queues, in fair rotation.

    Iteration yields messages one by one. It stops when the consumer is closed, or when no message came for ``timeout``
    seconds. At most ``prefetch`` messages are unacked at a time, and at most ``prefetch_bytes`` bytes of their bodies.
    A message that is too long for what is left of these waits until enough others are settled, or goes to another
    consumer; this consumer takes no later one meanwhile. A message that is longer than ``prefetch_bytes`` comes when no
    other one is unacked.

    With ``ack_batch`` > 1, acknowledgements are sent when that number is waiting, after ``ack_interval`` seconds, when
    the prefetch is used up, and when the consumer waits for a message. :meth:`flush`, :meth:`cancel` and :meth:`close`
    also send them. If the process crashes before, the messages are redelivered.

    With a ``selector``, the consumer takes only messages for which this condition is true. With ``no_local``, it takes
    none that its own connection put. Others stay in the queue. With ``exclusive``, it is the only consumer of its
    queues: it is refused where there is another one, and others are refused as long as it is there.
    """

    def __init__(
        self,
        session: Session,
        queues: Sequence[CoreQueue],
        *,
        prefetch: int,
        priority: int,
        auto_ack: bool,
        timeout: float | None,
        ack_batch: int,
        ack_interval: float,
        prefetch_bytes: int | None = None,
        selector: str | None = None,
        exclusive: bool = False,
        no_local: bool = False,
    ) -> None:
        _check("prefetch", prefetch, 1, MAX_PREFETCH)
        if prefetch_bytes is not None:
            _check("prefetch_bytes", prefetch_bytes, 1, MAX_PREFETCH_BYTES)
        _check("priority", priority, -_MAX_PRIORITY, _MAX_PRIORITY)
        _check("ack_batch", ack_batch, 1, MAX_PREFETCH)
        if not isinstance(ack_interval, (int, float)) or not 0 < ack_interval <= 3600:  # noqa: PLR2004
            msg = f"ack_interval={ack_interval!r}: more than 0 and at most 3600 seconds are allowed"
            raise ValueError(msg)
        native.deadline(timeout)
        if not queues:
            msg = "a consumer needs at least one queue"
            raise ValueError(msg)
        _check_choice(queues, selector=selector, no_local=no_local)
        self._session = session
        self._core_connection: CoreConnection = session.core
        self._prefetch, self._timeout, self._auto_ack = prefetch, timeout, auto_ack
        self._closed = self._cancelled = self._ended = False
        self._core_notifies = False
        self._core = CoreConsumer(
            session.core,
            queues,
            prefetch,
            priority,
            ack_batch=ack_batch,
            ack_interval=ack_interval,
            prefetch_bytes=prefetch_bytes or 0,
            selector=b"" if selector is None else compile_selector(selector),
            flags=EXCLUSIVE * bool(exclusive) | NO_LOCAL * bool(no_local),
            until=session.operation_deadline(),
        )
        self._taker = native.Receiver(self._core.address, native.OF_CONSUMER, Message, MessageBatch)
        super().__init__(self._taker, auto_ack, ack_batch == 1)
        self._settle_record = self._core.settle
        self._tags = itertools.count(1)
        session.consumers.add(self)
        session.start_io()

    # ---- taking ----

    # `get` is compiled (`native.ConsumerCalls`). It calls the next method.

    def _get_slowly(self, timeout: float | None) -> Message:
        """Waits for a message; the compiled code did not find one."""
        until = native.deadline(timeout)
        waited, intervals = native.OK, native.signal_check_intervals()
        while True:
            status = self._taker.status
            if status != native.EMPTY:
                if self._ended:
                    native.raise_for(native.CLOSED, "the consumer")
                self._core.queues[0].get_failed(status)  # adds memory, or raises; then the take is tried again at once
            else:
                if waited == native.TIMEOUT and until <= time.monotonic_ns():
                    raise standard_queue.Empty
                waited = self._core.wait(min(until, time.monotonic_ns() + next(intervals)))
                if waited not in {native.OK, native.INTERRUPTED, native.TIMEOUT}:
                    native.raise_for(waited, "the consumer")
            message = self._taker.take(self, self._auto_ack)
            if message is not None:
                return message

    def __iter__(self) -> Iterator[Message]:
        return native.Messages(self._taker, self, self._auto_ack)

    def __next__(self) -> Message:
        if self._ended:
            raise StopIteration
        try:
            return self.get(self._timeout)
        except standard_queue.Empty:
            raise StopIteration from None
        except ConnectionClosed:
            if self._ended:
                raise StopIteration from None
            raise

    # ---- acknowledging ----

    def flush(self) -> None:
        """Sends the acknowledgements that wait for their batch."""
        self._core.send_acks()

    # ---- control ----

    def suspend(self) -> None:
        """Stops pulling messages until :meth:`resume`; other consumers get them."""
        self._core.suspend(suspended=True)

    def resume(self) -> None:
        """Resumes pulling after :meth:`suspend`."""
        self._core.suspend(suspended=False)

    def fileno(self) -> int:
        """Returns a descriptor that is readable when a message waits for :meth:`get`; for select and asyncio.

        It also becomes readable when all queues of the consumer are deleted, or the broker is purged: then :meth:`get`
        raises. :meth:`clear` resets it.

        Raises:
            ConnectionClosed: the consumer has ended, and its descriptor with it.
        """
        if self._ended:
            native.raise_for(native.CLOSED, "the consumer")
        if not self._core_notifies:
            self._make_descriptor()
            self._core.event(self._core.descriptor)
            self._session.start_io()
            self.clear()
            self._core_notifies = True  # last: if a signal handler raises before, the next call repeats these steps
        return self._core.descriptor

    def _make_descriptor(self) -> None:
        if self._core.descriptor < 0:
            made = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            # No call from here to the store: no other thread stores its descriptor in between.
            if self._core.descriptor < 0:
                self._core.descriptor = made
            else:
                os.close(made)

    def clear(self) -> None:
        """Resets the descriptor of :meth:`fileno`; a message that is waiting or arrives makes it readable again.

        So do deleted queues and a purged broker, whether before or after this call.
        """
        try:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._core.descriptor)
            if self._core.arm():
                os.eventfd_write(self._core.descriptor, 1)
        except BaseException:  # a signal handler raised, perhaps before the arming: let the application look anyway
            if self._core.descriptor >= 0:
                os.eventfd_write(self._core.descriptor, 1)
            raise

    def cancel(self) -> None:
        """Ends the consumer.

        Pulled messages that the application did not take return to their places. The application can still settle the
        messages that it holds.
        """
        if not self._cancelled:
            self._end(return_everything=False)
            self._cancelled = True  # last: if a signal handler raises before, a second cancel does what is left

    def close(self) -> None:
        """Ends the consumer, and returns every unacked message to its place."""
        if not self._closed:
            self._end(return_everything=True)
            self._closed = self._cancelled = True  # last, as in `cancel`

    def _end(self, *, return_everything: bool) -> None:
        self._ended = True
        if not self._core_connection.closed and not self._core_connection.attachment.forked:
            self._core.cancel(return_everything=return_everything)
        if self._core.descriptor >= 0:
            self._close_descriptor()

    def _close_descriptor(self) -> None:
        if not self._core_connection.closed:
            self._core.event(-1)
        close, descriptor = os.close, self._core.descriptor
        if descriptor >= 0:  # no other thread has closed it during the call above
            # No call from here to `close`: neither a signal handler nor another thread can run in between.
            self._core.descriptor = -1
            close(descriptor)

    def statistics(self) -> ConsumerStatistics:
        """Returns a snapshot of the statistics of the consumer."""
        return ConsumerStatistics(self._prefetch, self._core.delivered(), self._core.unacked(), self._core.waiting())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- for messages ----

    def _queue_name(self, subscription: int) -> str:
        queues = self._core.queues
        return queues[subscription].name if subscription < len(queues) else ""

    def _next_delivery_tag(self) -> int:
        return next(self._tags)

    def __repr__(self) -> str:
        names = ", ".join(repr(queue.name) for queue in self._core.queues)
        return f"<Consumer of {names}{', closed' if self._ended else ''}>"
