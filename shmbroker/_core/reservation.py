# SPDX-License-Identifier: Apache-2.0
"""Reservations: bodies that the application writes in place, before their messages are published."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from shmbroker._core import native
from shmbroker._core.queue import NO_OPTIONS

if TYPE_CHECKING:
    from types import TracebackType

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue, PutOptions

ffi, slow, fast, fast_ffi = native.ffi, native.slow, native.fast, native.fast_ffi


class _Written:
    """Keeps the slot of a reservation, and the connection, until the reservation and all views have ended.

    It refers to no view: a reference would keep the view from ending. A signal handler may raise inside its methods:
    the next call of either does what is left to do.
    """

    def __init__(self, connection: CoreConnection, pointer: Any) -> None:  # noqa: ANN401
        self._connection, self._pointer = connection, pointer
        self._unviewed = self._done = False
        # The call in flight that `Reservation.begin` counted: 1 until this object ends it.
        self._counted = 1

    def unviewed(self) -> None:
        """Handles the end of the last view."""
        self._unviewed = True
        self._give_back()

    def done(self, *, viewed: bool) -> None:
        """Handles the end of the reservation, after which views of its memory may remain."""
        self._unviewed, self._done = self._unviewed or not viewed, True
        self._give_back()

    def _give_back(self) -> None:
        if not (self._unviewed and self._done):
            return
        connection = self._connection
        if self._pointer.kept:
            handle = native.cast_fast(connection.handle, "sb_connection *")
            pointer = native.cast_fast(self._pointer, "sb_reservation *")
            # Two threads may run this at the same time. Neither drops the GIL between the check of `_counted` and the
            # return of the C function. So no thread uses the connection after the other one has ended the call in
            # flight.
            if self._counted:
                fast.sb_reservation_end_view(handle, pointer)
        # One line without a call: a signal handler sees both changes or none.
        connection.calls, self._counted = connection.calls - self._counted, 0
        if connection.closed and not connection.calls:
            connection.forget()


class Reservation(native.Finalized):
    """A slot being written: the caller calls :meth:`begin`, then perhaps :meth:`commit`, and always :meth:`end`.

    A published body is never written again. If views of the memory remain, the message is a copy, and the slot that
    they write into is given back with the last view.

    A signal handler may raise between any two instructions, also after the core has published the message and before
    this object notes it. So :meth:`end` uses what the core has noted, and is safe whatever happened before.
    """

    _entered = False  # whether `end` has something to do
    # `begin` counts the reservation as a call in flight. 1: this object has to end that call; 0: `_Written` has to.
    _counted = 0

    def __init__(self, queue: CoreQueue, size: int, until: int) -> None:
        self._queue, self._size, self._until = queue, size, until
        self._pointer, self._copy = ffi.new("sb_reservation *"), ffi.new("sb_reservation *")
        self._written: _Written | None = None
        self._writable: native.Writable | None = None
        self._memory: memoryview | None = None

    def begin(self, options: PutOptions) -> memoryview:
        """Reserves the slot and returns memory to write the body into: of the slot, or private if it will lie in parts.

        Raises:
            queue.Full: the queue has no room in time.
            OutOfMemory: the broker has no memory in time.
            NeverFits: the body can never fit the queue, or the broker.
            ValueError: header (64 bytes), exchange, key and properties take more than 64 KiB.
        """
        queue = self._queue
        queue.connection.enter()  # a reservation counts as a call: after a close, the last call that ends frees memory
        self._entered, self._counted = True, 1
        with queue.connection.memory_waits:
            while (
                status := slow.sb_reservation_begin(queue.handle, self._size, options.pointer, self._pointer)
            ) != native.OK:
                queue.put_failed(status, self._size, self._until)
        written = _Written(queue.connection, self._pointer)
        self._written, self._counted = written, 0
        self._writable = writable = native.Writable(int(ffi.cast("uintptr_t", self._pointer.body)), self._size)
        self._memory = memory = memoryview(writable)
        return memory

    def commit(self) -> None:
        """Publishes the message.

        Raises:
            OutOfMemory: there is no memory for the copy, or in time none for the message's place in the queue.
        """
        reservation = self._pointer
        if self._is_viewed():
            reservation = self._copy
            while (status := slow.sb_reservation_copy(self._queue.handle, self._pointer, self._copy)) != native.OK:
                self._queue.put_failed(status, self._size, 0)  # no wait: this reservation may hold the memory needed
        while (status := slow.sb_reservation_publish(self._queue.handle, reservation)) != native.OK:
            self._queue.put_failed(status, self._size, self._until)

    def end(self) -> None:
        """Gives back what was not published. Safe to call again, also after a signal handler raised in it."""
        if not self._entered:
            return
        connection, viewed = self._queue.connection, self._is_viewed()
        if self._copy.kept:
            self._abandon(self._copy, viewed=False)
        if self._pointer.admitted or (self._pointer.kept and not viewed):
            self._abandon(self._pointer, viewed=viewed)
        if self._written is not None:
            if viewed and self._writable is not None:
                self._writable.unviewed = self._written.unviewed
                viewed = self._writable.views > 0  # another thread may have let go of the last view just before
            self._written.done(viewed=viewed)
        else:
            # One line without a call: a signal handler sees both changes or none.
            connection.calls, self._counted = connection.calls - self._counted, 0
            if connection.closed and not connection.calls:
                connection.forget()
        self._entered = False

    def _abandon(self, reservation: Any, *, viewed: bool) -> None:  # noqa: ANN401
        """Gives back the room in the queue, and the slot unless a view remains."""
        queue = self._queue
        if queue.handle is not None:
            slow.sb_reservation_abandon(queue.handle, reservation, viewed)
        elif not viewed:  # the queue is finalized: frees only the slot; the housekeeper corrects the queue's room
            slow.sb_reservation_end_view(queue.connection.handle, reservation)

    def _finalize(self) -> None:
        if self._entered:  # a signal handler raised in `end`, or before the caller reached `end`
            self.end()

    def _is_viewed(self) -> bool:
        """Releases this object's view. True: other views remain, through which the application may still write."""
        memory, self._memory = self._memory, None
        if memory is not None:
            with contextlib.suppress(BufferError):  # an object made from the view, such as an array, still uses it
                memory.release()
        return self._writable is not None and self._writable.views > 0


class Reserved(Reservation):
    """A reservation as a context manager: the end of the block publishes it, or drops it if the block raises.

    Args:
        queue: the queue.
        size: the length of the body.
        until: the deadline; 0: the reservation waits for nothing.
        options: the options of the put.
        awaited: whether the end of the block waits for the store, if the queue is stored.
    """

    def __init__(self, queue: CoreQueue, size: int, until: int, options: PutOptions, *, awaited: bool = True) -> None:
        super().__init__(queue, size, until)
        self._options = options
        self._awaited = awaited

    @classmethod
    def of(
        cls, queue: CoreQueue, until: int, record: bytes, writable: native.Writable | None, *, awaited: bool = True
    ) -> Self:
        """Makes an object for a reservation that compiled code has begun, and has counted as a call in flight.

        The object takes over when the compiled code sets `_entered`. A signal handler may raise before that, and then
        the compiled code still has the reservation.

        Args:
            queue: the queue.
            until: the deadline.
            record: the `sb_reservation` of the core, as bytes.
            writable: its memory; ``None``: it has none yet.
            awaited: as for the class.
        """
        one = cls(queue, 0, until, NO_OPTIONS, awaited=awaited)
        ffi.memmove(one._pointer, record, len(record))
        one._size = one._pointer.size
        one._writable = writable
        one._written = _Written(queue.connection, one._pointer)
        return one

    def __enter__(self) -> memoryview:
        try:
            return self.begin(self._options)
        except BaseException:
            self.end()  # Python does not call `__exit__`
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.end()
        if kind is None and self._awaited:
            self._queue.await_store(self._until)
