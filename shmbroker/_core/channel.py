# SPDX-License-Identifier: Apache-2.0
"""A channel handle: consumers that share one order of deliveries, and the unacked deliveries."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker._core import native
from shmbroker._core.admission import attach
from shmbroker._core.calls import in_flight
from shmbroker._core.transaction import Settlement

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue

ffi, slow, fast, fast_ffi = native.ffi, native.slow, native.fast, native.fast_ffi
BY_GET: int = slow.SB_BY_GET  # the subscription number in the record of a message that a get took, not a consumer
AUTO_ACK: int = slow.SB_CONSUME_AUTO_ACK
NO_LOCAL: int = slow.SB_CONSUME_NO_LOCAL
EXCLUSIVE: int = slow.SB_CONSUME_EXCLUSIVE


class _Queue(NamedTuple):
    """A queue, known only by the address of its handle; another object keeps the handle alive."""

    address: int


class SubscriptionPlace:
    """The place where the core stores the subscription number of a consumer, in the call that starts the consumer.

    So a caller of :meth:`CoreChannel.consume` that a signal handler interrupts knows whether there is a consumer.
    """

    def __init__(self) -> None:
        self.pointer: Any = ffi.new("uint32_t *", BY_GET)

    @property
    def number(self) -> int | None:
        """The subscription number; ``None``: the core has started no consumer."""
        number = int(self.pointer[0])
        return None if number == BY_GET else number


class CoreChannel(native.Finalized):
    """A channel in the core. A ``Receiver``, made with the channel's ``address``, delivers the messages.

    Opening, closing and the methods with ``in_flight`` drop the GIL; the other methods keep it. ``settle_tag`` is the
    core's function, bound to the handle: it returns a status. A method returns one only if its docstring says so.
    """

    def __init__(self, connection: CoreConnection, channel_number: int) -> None:
        """Opens a channel.

        Args:
            connection: the connection of the channel.
            channel_number: not 0. The connection calls its ``on_ready`` with this number when the channel, which was
                armed, gets a message or has to report the end of a consumer.
        """
        self.connection = connection
        self.queues: dict[int, CoreQueue] = {}  # by subscription number; keeps their handles alive
        self._made: list[Any] = []
        status = ffi.new("sb_status *")
        # One call of C, `extend`, opens the channel and stores its handle. A signal handler that raises runs before
        # this call or after it, so the handle of an open channel is never lost.
        self._made.extend(itertools.starmap(slow.sb_channel_open, [(connection.handle, channel_number, status)]))
        handle = self._made[0]
        if handle == ffi.NULL:
            native.raise_for(int(status[0]), "the channel")
        self.handle: Any = handle
        self.address = int(ffi.cast("uintptr_t", handle))
        self._near = near = native.cast_fast(handle, "sb_channel *")
        self.settle_tag: Callable[[int, bool, int], int] = functools.partial(fast.sb_channel_settle, near)
        self.arm: Callable[[], bool] = functools.partial(fast.sb_channel_arm, near)

    def waiting(self) -> int:
        """The number of messages taken from the queues and not yet given to the application."""
        return int(fast.sb_channel_waiting(self._near))

    def unacked(self) -> int:
        """The number of messages given to the application and not settled."""
        return int(fast.sb_channel_unacked(self._near))

    def delivered(self) -> int:
        """The number of messages given to the application so far."""
        return int(fast.sb_channel_delivered(self._near))

    @in_flight
    def settle_multiple(self, tag: int, disposition: int) -> int:
        """Settles the delivery ``tag`` and all earlier ones; tag 0 settles all deliveries. Returns a status."""
        return int(slow.sb_channel_settle(self.handle, tag, True, disposition))  # noqa: FBT003 - multiple

    @in_flight
    def consume(
        self,
        queue: CoreQueue,
        prefetch: int,
        priority: int,
        flags: int,
        place: SubscriptionPlace | None = None,
        *,
        selector: bytes = b"",
        until: int = native.FOR_EVER,
    ) -> int:
        """Starts a consumer and returns its subscription number.

        Args:
            queue: the queue.
            prefetch: the most unacked messages of the consumer; 0: no limit.
            priority: the priority of the consumer.
            flags: any of AUTO_ACK, NO_LOCAL and EXCLUSIVE.
            place: has the subscription number if the consumer was started, even if a signal handler raised.
            selector: a compiled selector, which selects the messages; ``b""`` selects all.
            until: the deadline for the topology lock, which only a queue with ``max_consumers`` needs.

        Raises:
            AccessRefused: another consumer uses the queue exclusively; or EXCLUSIVE is set, and the queue has other
                consumers or the setting ``single_active_consumer``.
            ResourceLocked: the queue has as many consumers as its ``max_consumers`` allows.
            Timeout: another process holds the topology lock past ``until``.
        """
        pointer = (place or SubscriptionPlace()).pointer

        def start() -> int:
            return self.connection.growing(
                slow.sb_channel_consume_selected, self.handle, queue.handle, prefetch, priority, flags,
                ffi.from_buffer("char[]", selector), len(selector), pointer,
            )  # fmt: skip

        status = attach(self.connection, [queue], until, start)
        if status == native.CLOSED:
            native.raise_for(status, "the channel")
        if status != native.OK:
            native.raise_for(status, queue.what)
        self.queues[int(pointer[0])] = queue
        return int(pointer[0])

    @in_flight
    def cancel(self, subscription: int) -> int:
        """Ends a consumer and returns a status; its deliveries stay unacked."""
        return int(slow.sb_channel_cancel(self.handle, subscription))

    def next_cancelled(self) -> int | None:
        """Returns the subscription number of a consumer that ended because its queue was deleted.

        Reports each such consumer once. ``None``: there is none to report.
        """
        number = fast_ffi.new("uint32_t *")
        return int(number[0]) if fast.sb_channel_next_cancelled(self._near, number) else None

    @in_flight
    def limit(self, prefetch: int) -> int:
        """Limits how many messages the channel's consumers may have unacked together, 0: no limit; returns a status."""
        return int(slow.sb_channel_set_prefetch(self.handle, prefetch))

    @in_flight
    def failed(self, status: int) -> None:
        """Handles the status of a call that returned nothing: returns if the caller should retry, else raises."""
        if status == native.GROW:
            self.connection.attachment.grow()
        elif status == native.NO_MEMORY:
            self.connection.no_memory()
        elif status not in {native.OK, native.EMPTY, native.TIMEOUT, native.INTERRUPTED, native.TICK}:
            native.raise_for(status, "the channel")

    @in_flight
    def collect(self, tag: int, disposition: int, *, multiple: bool) -> list[Settlement]:
        """Lists the deliveries that a settlement with this tag would settle, the oldest first, but settles none.

        The list is empty if no unsettled delivery has the tag, or if the channel is closed.

        Raises:
            ConnectionClosedByBroker: the broker is being purged. The deliveries are not known then.
        """
        room = 1
        while True:
            settlements = ffi.new("sb_settlement[]", room)
            count = int(slow.sb_channel_collect(self.handle, tag, multiple, disposition, settlements, room))
            if count < 0 and -count not in {native.SETTLED, native.CLOSED}:
                native.raise_for(-count, "the channel")
            if count <= room:
                return [
                    Settlement(
                        _Queue(int(ffi.cast("uintptr_t", one.queue))),
                        int(one.token),
                        disposition,
                        int(one.delivery_tag),
                    )
                    for one in settlements[0 : max(0, count)]
                ]
            room = count

    @in_flight
    def forget(self, tag: int, *, multiple: bool) -> None:
        """Removes the deliveries that a tag covers, after a commit settled their messages.

        They no longer count as unacked, so consumers that had reached a prefetch limit may take messages again.
        """
        slow.sb_channel_forget(self.handle, tag, multiple)

    def close(self) -> None:
        """Ends consumers and waiting calls, and requeues unacked messages. Safe from any thread, and to call again."""
        self.connection.end(slow.sb_channel_close, self.handle)

    def _finalize(self) -> None:
        made = getattr(self, "_made", None)
        if made is not None:
            self.connection.end_made(slow.sb_channel_free, made)
