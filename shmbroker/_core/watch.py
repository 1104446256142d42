# SPDX-License-Identifier: Apache-2.0
"""Waiting for a queue without blocking a thread: the connection's IO thread writes an eventfd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker._core import native
from shmbroker._core.calls import in_flight

if TYPE_CHECKING:
    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue

ffi, slow = native.ffi, native.slow


class CoreWatch(native.Finalized):
    """Writes an eventfd when a queue may have a message; with ``room``, when the queue may have room.

    After :meth:`arm`, the caller tries once more to get or put, and then waits for the eventfd.
    """

    def __init__(self, queue: CoreQueue, descriptor: int, *, room: bool) -> None:
        self.connection: CoreConnection = queue.connection
        self._queue = queue  # keeps the queue's handle alive
        self._made: list[Any] = []
        with self.connection.call():
            handle, status = self.connection.opening(
                slow.sb_watch_open, queue.handle, room, descriptor, made=self._made
            )
        self._check(status)
        self.handle: Any = handle

    def _check(self, status: int) -> None:
        if status != native.OK:
            native.raise_for(status, self._queue.what)

    @in_flight
    def arm(self, size: int = 0) -> None:
        """Requests one notification.

        Args:
            size: bytes of the body that needs room; unused if the watch is for messages.
        """
        self._check(self.connection.growing(slow.sb_watch_arm, self.handle, size))

    @in_flight
    def disarm(self) -> None:
        """Withdraws the request, so that other waiters are notified instead."""
        slow.sb_watch_disarm(self.handle)

    def close(self) -> None:
        """Ends the watch. Safe to call again."""
        self.connection.end(slow.sb_watch_close, self.handle)

    def _finalize(self) -> None:
        made = getattr(self, "_made", None)
        if made is not None:
            self.connection.end_made(slow.sb_watch_free, made)
