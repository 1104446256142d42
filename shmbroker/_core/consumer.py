# SPDX-License-Identifier: Apache-2.0
"""A consumer handle: one consumer of one or more queues."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from shmbroker._core import native
from shmbroker._core.admission import attach
from shmbroker._core.calls import in_flight

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue

ffi, slow, fast, fast_ffi = native.ffi, native.slow, native.fast, native.fast_ffi


class CoreConsumer(native.Finalized):
    """A consumer in the core. ``settle`` takes a record and a disposition, and returns a status of the core.

    Attributes:
        descriptor: the eventfd that :meth:`event` was told; -1: none. The finalizer closes it when the core has freed
            the consumer, and so writes to it no more.
    """

    def __init__(
        self,
        connection: CoreConnection,
        queues: Sequence[CoreQueue],
        prefetch: int,
        priority: int,
        *,
        ack_batch: int,
        ack_interval: float,
        prefetch_bytes: int = 0,
        selector: bytes = b"",
        flags: int = 0,
        until: int = native.FOR_EVER,
    ) -> None:
        """Starts the consumer. ``prefetch_bytes``: 0 = any number. ``flags``: EXCLUSIVE and NO_LOCAL of a channel's.

        ``until``, and the errors: as for :func:`shmbroker._core.admission.attach`.
        """
        self.connection = connection
        self.descriptor = -1
        self._made: list[Any] = []
        self.queues = list(queues)
        self.what = " and ".join(queue.what for queue in queues)
        handles = ffi.new("sb_queue *[]", [queue.handle for queue in queues])
        program = ffi.from_buffer("char[]", selector)
        options = ffi.new(
            "sb_consumer_options *",
            {
                "prefetch": prefetch,
                "ack_batch": ack_batch,
                "ack_interval_ns": int(ack_interval * native.NANOSECONDS),
                "prefetch_bytes": prefetch_bytes,
                "priority": priority,
                "flags": flags,
                "selector_length": len(selector),
                "selector": program,
            },
        )

        def start() -> int:
            return connection.opening(
                slow.sb_consumer_open_with, connection.handle, handles, len(queues), options, made=self._made
            )[1]

        status = attach(connection, queues, until, start)
        handle = self._made[-1]
        if handle == ffi.NULL:
            native.raise_for(status, self.what)
        self.handle: Any = handle
        self.address = int(ffi.cast("uintptr_t", handle))
        near = native.cast_fast(handle, "sb_consumer *")
        self.settle: Callable[[bytes, int], int] = functools.partial(fast.sb_consumer_settle, near)
        self.waiting: Callable[[], int] = functools.partial(fast.sb_consumer_waiting, near)
        self.delivered: Callable[[], int] = functools.partial(fast.sb_consumer_delivered, near)
        self.unacked: Callable[[], int] = functools.partial(fast.sb_consumer_unacked, near)

    @in_flight
    def send_acks(self) -> None:
        """Settles the acknowledged messages that wait for their batch to fill."""
        slow.sb_consumer_send_acks(self.handle)

    @in_flight
    def wait(self, until: int) -> int:
        """Waits, without the GIL, until a message is prefetched, or all queues are deleted; returns a status.

        The wait ends at the deadline ``until`` at the latest. Waiting acknowledgements are sent first.
        """
        return int(slow.sb_consumer_wait(self.handle, until))

    @in_flight
    def suspend(self, *, suspended: bool) -> None:
        """Stops or resumes taking messages from the queues."""
        slow.sb_consumer_suspend(self.handle, suspended)

    @in_flight
    def event(self, descriptor: int) -> None:
        """Sets the eventfd. The core writes it once after each :meth:`arm`: when a message comes, or none ever will."""
        slow.sb_consumer_set_event(self.handle, descriptor)

    @in_flight
    def arm(self) -> bool:
        """Requests one event; True if a message is waiting already, or none will come."""
        return bool(slow.sb_consumer_arm_event(self.handle))

    @in_flight
    def cancel(self, *, return_everything: bool) -> None:
        """Ends the consumer and requeues messages not yet delivered; with ``return_everything``, also unacked ones."""
        slow.sb_consumer_cancel(self.handle, return_everything)

    def _finalize(self) -> None:
        made = getattr(self, "_made", None)
        if made is None:
            return
        self.connection.end_made(slow.sb_consumer_free, made)
        if self.descriptor >= 0:
            os.close(self.descriptor)
