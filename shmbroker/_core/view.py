# SPDX-License-Identifier: Apache-2.0
"""Bodies read in place: memoryviews on shared memory that keep slot and mapping as long as they live."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from shmbroker._core import attachment, library

if TYPE_CHECKING:
    from shmbroker._core.connection import CoreConnection

ffi, fast = library.ffi, library.fast


class _Hold:
    """What the last look at a body gives back. It knows no memoryview, so that they go when nobody refers to them."""

    def __init__(self, connection: CoreConnection, view: int) -> None:
        self._connection = connection
        self._view = view
        connection.attachment.users += 1

    def ended(self, _pointer: Any) -> None:  # noqa: ANN401
        self._connection.end_view(self._view)
        attachment.release(self._connection.attachment)


class BodyView:
    """A body of a message in shared memory: a reference of its own to the slot, whatever becomes of the message.

    ``memory`` may be sliced and kept; the slot is freed when the last of these views is gone *and* the message is done
    with. Settling, returning and closing never wait for views.

    Args:
        view: what :func:`begin` or a get with ``auto_ack`` took.
    """

    def __init__(self, connection: CoreConnection, view: int, address: int, length: int) -> None:
        exporter = ffi.gc(ffi.cast("char *", address), _Hold(connection, view).ended, length)
        self._exporter = weakref.ref(exporter)
        self.memory = memoryview(ffi.buffer(exporter, length)).toreadonly()


def begin(connection: CoreConnection, tag: int, sequence: int, address: int, length: int) -> BodyView:
    """Looks at the body of a message that is held under ``tag``.

    Raises:
        MessageSettled: it is not held any more.
        OutOfMemory: there is no memory to note the view in.
    """
    return BodyView(connection, connection.begin_view(tag, sequence, address), address, length)
