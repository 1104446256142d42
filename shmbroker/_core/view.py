# SPDX-License-Identifier: Apache-2.0
"""Bodies read in place: memoryviews on shared memory that keep slot and mapping as long as they live."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from shmbroker._core import attachment, library

if TYPE_CHECKING:
    from shmbroker._core.connection import CoreConnection

ffi = library.ffi


class _Hold:
    """What the last view of a body gives back. It knows no view, so that views go as soon as nobody refers to them."""

    def __init__(self, connection: CoreConnection, tag: int) -> None:
        self._lock = threading.Lock()
        self._settled = False
        self._dead = False
        self._connection = connection
        self._tag = tag
        connection.attachment.users += 1

    def died(self, _pointer: Any) -> None:  # noqa: ANN401
        with self._lock:
            self._dead = True
            settled = self._settled
        if settled:
            self._connection.end_view(self._tag)
        attachment.release(self._connection.attachment)

    def was_settled(self) -> None:
        with self._lock:
            self._settled = True
            dead = self._dead
        if dead:
            self._connection.end_view(self._tag)


class BodyView:
    """A body of a message in shared memory.

    ``memory`` may be sliced and kept; when the last of these views is gone *and* the message is settled, the slot is
    freed. Settling never waits for views.
    """

    def __init__(self, connection: CoreConnection, address: int, length: int, tag: int) -> None:
        self._hold = _Hold(connection, tag)
        exporter = ffi.gc(ffi.cast("char *", address), self._hold.died, length)
        self._exporter = weakref.ref(exporter)
        self.memory: memoryview | None = memoryview(ffi.buffer(exporter, length)).toreadonly()

    def let_go(self) -> bool:
        """Drops our own view; True while others look at the body."""
        self.memory = None
        return self._exporter() is not None

    def was_settled(self) -> None:
        """The message was settled with the view kept: the last view frees the slot."""
        self._hold.was_settled()
