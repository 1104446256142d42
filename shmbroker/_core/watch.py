# SPDX-License-Identifier: Apache-2.0
"""Waiting for a queue without a thread: the connection's IO thread writes an eventfd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker._core import library
from shmbroker._core.connection import CoreConnection, guarded, out_of_memory

if TYPE_CHECKING:
    from shmbroker._core.queue import CoreQueue

ffi, slow = library.ffi, library.slow


class CoreWatch:
    """Writes an eventfd when a queue may have a message, or room; the caller tries once more after :meth:`arm`."""

    def __init__(self, queue: CoreQueue, descriptor: int, *, room: bool) -> None:
        self.connection: CoreConnection = queue.connection
        self._queue = queue  # keeps the handle
        status = ffi.new("sb_status *")
        with self.connection.call():
            while True:
                handle = slow.sb_watch_open(queue.handle, room, descriptor, status)
                if status[0] != library.GROW:
                    break
                self.connection.attachment.grow()
        self._check(int(status[0]))
        self.handle: Any = handle

    def _check(self, status: int) -> None:
        if status == library.NO_MEMORY:
            raise out_of_memory(self.connection, 0)
        if status != library.OK:
            library.raise_for(status, self._queue.what)

    @guarded
    def arm(self, size: int = 0) -> None:
        """Requests one notification.

        Args:
            size: bytes of the body that needs room.
        """
        while (status := int(slow.sb_watch_arm(self.handle, size))) == library.GROW:
            self.connection.attachment.grow()
        self._check(status)

    @guarded
    def disarm(self) -> None:
        """Withdraws the request, so that other waiters are notified instead."""
        slow.sb_watch_disarm(self.handle)

    def close(self) -> None:
        """Ends the watch. Safe to call again."""
        self.connection.end(slow.sb_watch_close, self.handle)

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)
        if handle is not None:
            self.connection.end(slow.sb_free_watch, handle)
