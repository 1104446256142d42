# SPDX-License-Identifier: Apache-2.0
"""Queue handles: putting, getting, browsing and consuming messages, and administration of the queue."""

from __future__ import annotations

import functools
import itertools
import os
import queue as standard_queue
import time
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from shmbroker import exceptions, settings
from shmbroker._core import managing, native, segments
from shmbroker._core.journal import topology_lock
from shmbroker._core.queue import NO_OPTIONS, PAUSED, PutOptions
from shmbroker._core.reservation import Reserved
from shmbroker._core.settings import PERSISTENT_PAUSE
from shmbroker._core.storing import is_stored
from shmbroker._dataclasses import replace
from shmbroker._process import connections
from shmbroker._put_many import put_rest
from shmbroker._put_options import PutKeywords, body_of, check_size, fields_of, is_awaited, options_of
from shmbroker._session.queues import ClosedQueue
from shmbroker._session.session import Session
from shmbroker._setting_conflicts import check_together
from shmbroker.consumer import Consumer
from shmbroker.management import ManagedQueue
from shmbroker.message import OPEN, Message, MessageBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from shmbroker._core.queue import CoreQueue, PutFields
    from shmbroker.statistics import QueueStatistics

_MAX_BATCH = native.MOST_MESSAGES


class Queue(ManagedQueue):
    """A connection's handle of a queue. Safe to use from several threads.

    A connection has one open handle of each queue. The handle closes with the connection, with :meth:`close`, or at the
    end of a ``with`` block. A handle is pickled as the names of the broker and the queue. The process that loads it
    opens the queue again, over one connection that all loaded handles of that broker share. A forked child does the
    same when it first uses the handle.
    """

    # Slots instead of a dict: one cache miss fewer when an application cycles through thousands of queues.
    __slots__ = (
        "__weakref__", "_again", "_core", "_left", "_length", "_put_at_once_with", "_put_many",
        "_session", "_settle_record", "_tags", "_take_many", "name",
    )  # fmt: skip

    def __init__(self, session: Session, core: CoreQueue) -> None:
        self._session = session
        self._core = core
        self._left: CoreQueue | None = None
        self._again: Queue | None = None  # opened by a forked child, see `_process.inherited`
        self.name = core.name
        taker = native.Receiver(core.address, native.OF_QUEUE, Message, MessageBatch)
        super().__init__(core.address, taker, core.connection)
        self._take_many = taker.take_many
        sender = native.Sender(core.address)
        self._put_at_once_with, self._put_many = sender.put_with, sender.put_many
        self._length = core.length
        self._settle_record = core.settle
        self._tags = itertools.count(1)

    # ---- putting ----

    # `put`, `get` and `get_nowait` are compiled (`native.QueueCalls`). They call the next methods.

    def _put_with(self, body: Any, timeout: float | None, options: PutKeywords) -> None:  # noqa: ANN401
        """Puts a message with options that the compiled code cannot read, or that it could not put; may wait."""
        fields = fields_of(options)
        put = self._put_at_once_with
        status = put(body, fields, timeout)
        if status is not None:
            self._put_slowly(body, timeout, status, fields, awaited=is_awaited(options))

    def _put_slowly(
        self,
        body: Any,  # noqa: ANN401
        timeout: float | None,
        status: int,
        fields: PutFields | None = None,
        *,
        awaited: bool = True,
    ) -> None:
        """Puts a message that the compiled code did not put, for the reason ``status``; waits for room.

        ``awaited``: whether the call waits for the store, if the queue is stored.
        """
        data, size = body_of(body)
        until = native.deadline(timeout)
        if size > native.MAX_BODY:
            limit = f"at most {native.MAX_BODY} bytes are allowed"
            text = f"queue {self.name!r}: a body of {size} bytes can never fit: {limit}"
            raise exceptions.NeverFitsMemory(text)
        with self._core_connection.memory_waits:
            if status > 0 and status != native.REJECTED:  # a message that the queue rejects may become a dead letter
                self._core.put_failed(status, size, until)
            self._core.put_with(data, size, NO_OPTIONS if fields is None else PutOptions(*fields), until)
        self._core.await_store(until if timeout != 0 and awaited else 0)

    def put_nowait(self, body: Any, **options: Any) -> None:  # noqa: ANN401
        """Puts a message as :meth:`put` does, without waiting for room."""
        self.put(body, timeout=0, **options)

    def put_many(
        self,
        bodies: Iterable[Any],
        *,
        timeout: float | None = None,
        **given: Unpack[PutKeywords],
    ) -> int:
        """Puts messages in order, with the same options, in as few calls of the core as possible.

        Returns:
            The number of messages put: all, or those that found room in time. It includes messages that a full queue
            with overflow="drop" dropped at once.

        Raises:
            queue.Full: no message found room in time. It is a :class:`PublishRejected` if the queue rejected the first
                one. A queue that rejects a later message ends the call, which returns how many were put before.
        """
        wanted = tuple(bodies)
        options = options_of(**given)
        until = native.deadline(timeout)
        done = self._put_many(wanted, 0, options.address, False)  # noqa: FBT003 - keeps the GIL
        if done != len(wanted):
            with self._core_connection.memory_waits:
                done = put_rest(self._core, self._put_many, wanted, done, options, until)
        self._core.await_store(until if timeout != 0 and is_awaited(given) else 0)
        return done

    def _reserve_with(self, size: Any, timeout: float | None, given: PutKeywords) -> Reserved:  # noqa: ANN401
        """Makes a reservation that the compiled code does not make, for its size or its options; called by C."""
        until = native.deadline(timeout)
        room_until = 0 if timeout == 0 else until
        return Reserved(self._core, check_size(size), room_until, options_of(**given), awaited=is_awaited(given))

    def _reserve_slowly(self, size: int, until: int, *options: Any) -> Reserved:  # noqa: ANN401
        """Makes a reservation that the compiled code could not begin at once; called by C."""
        key, priority, properties = options
        given = PutKeywords(key=key, priority=priority, properties=properties)
        return Reserved(self._core, size, until, options_of(**given), awaited=is_awaited(given))

    def _take_over(self, record: bytes, until: int, writable: native.Writable | None, awaited: bool) -> Reserved:  # noqa: FBT001 (called by C)
        """Makes a reservation of one that the compiled code has begun; called by C."""
        return Reserved.of(self._core, until, record, writable, awaited=awaited)

    # ---- getting ----

    def _get_slowly(self, status: int, auto_ack: bool, timeout: float | None) -> Message:  # noqa: FBT001 (called by C)
        """Waits for a message; the compiled code did not take one, for the reason ``status``."""
        until = native.deadline(timeout)
        while status != native.EMPTY:
            self._core.get_failed(status)
            message = self._taker.take(self, auto_ack, None)
            if message is not None:
                return message
            status = self._taker.status
        connection = self._core_connection
        if timeout is not None and until <= time.monotonic_ns():
            connection.polled()
            raise standard_queue.Empty
        if not connection.has_io:
            connection.start_io()  # the IO thread notices if the housekeeper died, which makes delayed messages ready
        connection.enter()
        try:
            while isinstance(found := self._taker.wait(self, auto_ack, until), int):
                self._core.get_failed(found)
        finally:
            connection.calls -= 1  # no call of `leave`: a signal handler may raise as that begins
            if connection.closed and not connection.calls:
                connection.forget()
        return found

    def _get_nowait_slowly(self, status: int, auto_ack: bool) -> Message:  # noqa: FBT001 (called by C)
        """Takes a message; the compiled code did not take one, for the reason ``status``."""
        if status != native.TICK:
            return self._get_slowly(status, auto_ack, 0)
        self._core_connection.polled()
        raise standard_queue.Empty

    def get_many(self, max_messages: int, *, timeout: float | None = None, auto_ack: bool = False) -> MessageBatch:
        """Waits for one message, then takes the ready messages, up to ``max_messages`` (1 to 65,536).

        A batch has room for 1 MiB of records, so it may end earlier. A body longer than 4 KiB is not in its record, and
        takes none of this room.

        Raises:
            queue.Empty: no message came in time.
        """
        if not isinstance(max_messages, int) or isinstance(max_messages, bool) or not 1 <= max_messages <= _MAX_BATCH:
            msg = f"max_messages={max_messages!r}: an integer from 1 to {_MAX_BATCH} is allowed"
            raise ValueError(msg)
        batch = self._take_many(self, max_messages, auto_ack, timeout)
        if isinstance(batch, int):
            batch = self._get_many_slowly(batch, max_messages, timeout, auto_ack=auto_ack)
        if not auto_ack:
            batch._state = OPEN  # noqa: SLF001 - an interrupt before this line returns it to its place
        return batch

    def _get_many_slowly(self, status: int, room: int, timeout: float | None, *, auto_ack: bool) -> MessageBatch:
        until = native.deadline(timeout)
        if status != native.EMPTY:
            self._core.get_failed(status)
        elif until <= time.monotonic_ns():
            if not self._core_connection.has_io:
                self._core_connection.polled()
            raise standard_queue.Empty
        self._core.connection.start_io()  # the IO thread notices if the housekeeper died
        with self._core.connection.call():
            while isinstance(batch := self._taker.wait_many(self, room, auto_ack, until), int):
                self._core.get_failed(batch)
        return batch

    def consume(
        self,
        *,
        prefetch: int = 64,
        priority: int = 0,
        auto_ack: bool = False,
        timeout: float | None = None,
        ack_batch: int = 1,
        ack_interval: float = 0.001,
        prefetch_bytes: int | None = None,
        selector: str | None = None,
        exclusive: bool = False,
        no_local: bool = False,
    ) -> Consumer:
        """Opens a consumer of this queue; see :class:`Consumer`.

        Raises:
            AccessRefused: the queue has an exclusive consumer; or ``exclusive`` is set, and the queue has another
                consumer, or a single active one.
            ResourceLocked: the queue has as many consumers as its ``max_consumers`` allows.
            ValueError: an argument is not allowed.
        """
        return Consumer(
            self._session, [self._core], prefetch=prefetch, priority=priority, auto_ack=auto_ack, timeout=timeout,
            ack_batch=ack_batch, ack_interval=ack_interval, prefetch_bytes=prefetch_bytes, selector=selector,
            exclusive=exclusive, no_local=no_local,
        )  # fmt: skip

    # ---- the queue itself ----

    def delete(self, if_unused: bool = False, if_empty: bool = False) -> int:  # noqa: FBT001, FBT002 - as AMQP has it
        """Deletes the queue and returns the number of ready and scheduled messages deleted with it.

        Raises:
            PreconditionFailed: the queue has consumers (``if_unused``), or ready or scheduled messages (``if_empty``).
                Delivered messages that are not settled do not count; they end with the queue.
            Timeout: the broker's topology lock, under which queues are made and deleted, was not free within the
                connection's ``operation_timeout``.
        """
        session, until = self._session, self._session.operation_deadline()
        with topology_lock(session.core, until, self._core.what):
            removed = self._core.delete(if_unused=if_unused, if_empty=if_empty, until=until)
            session.administration.queue_gone(self._core)
        session.queues.forget(self)
        return removed

    def configure(self, *, trim: bool = False, **given: Any) -> None:  # noqa: ANN401
        """Changes settings while the queue is in use; settings that are not given stay.

        A shorter ``message_ttl`` is also for the ready messages: those that were published longer ago expire now, the
        others when their time is over. The same call again completes one that was interrupted. The other settings of
        the lives of messages are for messages that are put later.

        Args:
            trim: evict messages during the call to enforce a smaller ``ring_size``; otherwise the queue keeps the ready
                messages, and its bound falls as consumers take them. Messages that are in the store, and not in the
                memory, are evicted during the call, too.
            given: settings that are not fixed for the life of a queue (see :class:`QueueSettings`).

        Raises:
            OutOfMemory: with ``trim``: there is no memory for messages that are in the store, and have to come back
                before they are evicted. The settings have changed.
            PreconditionFailed: the queue has more consumers than a new ``max_consumers``. Nothing changed.
        """
        checked = settings.validate(given)
        for name in (name for name in checked if settings.ROWS[name].fixed):
            fixed = f"{name} of queue {self.name!r} cannot change; delete the queue and declare it anew"
            msg = f"{name}={checked[name]!r}: {fixed}"
            raise ValueError(msg)
        if "overflow" in checked and (checked["overflow"] == settings.PAGING) != (
            self.settings.overflow == settings.PAGING
        ):
            msg = f"overflow={checked['overflow']!r}: overflow={settings.PAGING!r} of queue {self.name!r} "
            msg += "cannot be set or unset; delete the queue and declare it anew"
            raise ValueError(msg)
        before: list[settings.QueueSettings] = []

        def merged(current: settings.QueueSettings, flags: int) -> tuple[settings.QueueSettings, int]:
            before.append(current)
            return replace(current, **checked), flags

        self._change(merged, trim=trim, given=frozenset(checked))
        if trim:
            managing.trim(self._core)  # what the core could not reach: it is in the store, and not in the memory
        if not checked.get("no_expiry", before[-1].no_expiry):
            managing.shorten_lives(self._core, before[-1].message_ttl, checked.get("message_ttl"))

    def pause(self, *, persist: bool = False) -> None:
        """Stops deliveries until :meth:`resume`; producers can still put.

        Args:
            persist: whether the pause outlives the memory: a queue on disk is then paused after a restart, too. Without
                it, a pause ends with the memory. A later call without ``persist`` does not change that.
        """
        given = frozenset({PERSISTENT_PAUSE}) if persist else frozenset()
        self._change(lambda current, flags: (current, flags | PAUSED), given=given)

    def resume(self) -> None:
        """Resumes deliveries after :meth:`pause`, also after a restart."""
        self._change(lambda current, flags: (current, flags & ~PAUSED), no_longer_given=frozenset({PERSISTENT_PAUSE}))

    def _change(
        self,
        change: Callable[[settings.QueueSettings, int], tuple[settings.QueueSettings, int]],
        *,
        trim: bool = False,
        given: frozenset[str] = frozenset(),
        no_longer_given: frozenset[str] = frozenset(),
    ) -> None:
        # The core stores all settings anew. The lock keeps other changes from coming between the read and the store.
        until = self._session.operation_deadline()
        with topology_lock(self._core.connection, until, self._core.what):
            wanted, flags = change(*self._core.settings())
            check_together(self.name, wanted)
            given = (self._core.given() | given) - no_longer_given
            self._core.configure(wanted, flags, trim=trim, until=until, given=given)

    @property
    def paused(self) -> bool:
        """Whether the queue is paused."""
        return bool(self._core.settings()[1] & PAUSED)

    @property
    def pause_persists(self) -> bool:
        """Whether the queue is paused, and will be after a restart, too: see :meth:`pause`. Only a queue on disk is."""
        return self.paused and PERSISTENT_PAUSE in self._core.given() and is_stored(self._core)

    @property
    def settings(self) -> settings.QueueSettings:
        """The current settings."""
        return self._core.settings()[0]

    def statistics(self) -> QueueStatistics:
        """Returns a snapshot of the statistics of the queue.

        Raises:
            NotFound: the queue was deleted.
        """
        len(self)  # raises if this queue was deleted, even if another queue uses the slot now
        found = self._core_connection.queue_statistics(self._core.slot, in_full=True)
        if found is None:
            native.raise_for(native.DELETED, f"queue {self.name!r}")
        return found

    def __len__(self) -> int:
        length = self._length()
        if length < 0:
            native.raise_for(-length, f"queue {self.name!r}")
        return length

    def __bool__(self) -> bool:
        return True

    # ---- closing ----

    def close(self) -> None:
        """Closes the handle; the queue stays. Safe to call again.

        Messages that were taken through the handle can still be settled. Its consumers and waiting calls continue.
        Other uses of the handle raise :exc:`ConnectionClosed`. ``connection.queue()`` opens another handle.
        """
        with self._session.lock:  # else another thread could open the queue and get the handle that is being closed
            if self._left is None:
                self._left = self._core  # a waiting thread may still use it
                self._core = cast("CoreQueue", ClosedQueue(self._core.what))
                self._calls_closed = True
                self._put_at_once_with = lambda *_: native.CLOSED
                self._put_many = lambda *_: native.CLOSED << 32
                self._take_many = lambda *_: native.CLOSED
                self._length = lambda: -native.CLOSED
                self._session.queues.closed(self, self._left)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- for messages ----

    def _queue_name(self, subscription: int) -> str:  # noqa: ARG002
        return self.name

    def _next_delivery_tag(self) -> int:
        return next(self._tags)

    # ---- in another process ----

    def _here(self) -> Queue:
        """Returns the handle to use in this process: this one.

        In a forked child, an inherited handle has the class ``InheritedQueue``. Its method opens the queue again, and
        returns the new handle.
        """
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return reopen, (self._session.broker_full_name, self.name)

    def __repr__(self) -> str:
        closed = "" if self._left is None else ", closed"
        return f"<Queue {self.name!r} of broker {self._session.broker_name!r}{closed}>"


def open_queue(session: Session, name: str, /, *, passive: bool = False, **given: Any) -> Queue:  # noqa: ANN401
    """Declares a queue and opens it; see :meth:`Connection.queue`."""
    return session.queues.open(name, given, passive=passive, make=functools.partial(Queue, session))


def open_to_consume(session: Session, name: str) -> Queue:
    """Opens a queue; makes it if there is none, and the settings of its address say so.

    Raises:
        NotFound: there is no such queue.
    """
    while True:
        try:
            return open_queue(session, name, passive=True)
        except exceptions.NotFound:
            if not session.addresses.auto_create(name) and session.core.queue_slot(name) == 0:
                raise


def session_of_queue(queue: Queue) -> Session:
    """Returns the session of this process that has the queue open."""
    return queue._here()._session  # noqa: SLF001


def reopen(broker: str, name: str) -> Queue:
    """Opens the queue of a pickled or inherited handle in this process, and returns the handle to use instead."""
    return open_queue(connections.shared(_session_for_pickles, broker), name, passive=True)


def _session_for_pickles(broker: str) -> Session:
    return Session(segments.path_of(broker), name=f"unpickled in {os.getpid()}")
