# SPDX-License-Identifier: Apache-2.0
"""Messages by column, in the form of Arrow's arrays: one call browses or puts many messages.

A column of texts has two parts: the bytes of all texts, without separators, and ``ends``. These are 32-bit offsets, one
more than there are texts, from the start of the first text to the end of the last.
"""

from __future__ import annotations

import queue as standard_queue
import struct
from typing import TYPE_CHECKING, Any

from shmbroker._core import native
from shmbroker._core.bodies import Place
from shmbroker._core.queue import PutOptions

if TYPE_CHECKING:
    from shmbroker._core.queue import CoreQueue

ffi, slow = native.ffi, native.slow
KEY, PROPERTIES, BODY = TEXTS = ("key", "properties", "body")
NUMBERS = ("sequence", "timestamp_us")
BITS = ("redelivered", "has_key")
PLACE = "place"
_PLACES = struct.Struct("=QQII")
PLACE_BYTES = _PLACES.size
MOST_BYTES = 2**31 - 1
"""The size limit of a column of texts."""


def places_in(data: memoryview) -> list[Place]:
    """Decodes the places of rows."""
    return [Place(slot, generation, length) for generation, length, slot, _ in _PLACES.iter_unpack(data)]


class Columns:
    """Pointers to columns in the caller's memory. A browse writes into the columns, so it needs writable buffers."""

    def __init__(self) -> None:
        self._pointer = ffi.new("sb_columns *")
        self._kept: dict[str, Any] = {}  # cffi's views of the buffers, which keep the buffers alive

    def set_text(self, name: str, ends: Any, data: Any) -> None:  # noqa: ANN401
        """Sets a column of :data:`TEXTS`: its offsets ``ends`` and its bytes ``data``.

        A browse fills both, except ``ends[0]``, which the caller sets.
        """
        kept = ffi.from_buffer("int32_t[]", ends), ffi.from_buffer("char[]", data)
        column = getattr(self._pointer, name)
        column.ends, column.bytes, column.room = *kept, min(len(kept[1]), MOST_BYTES)
        self._kept[name] = kept

    def set_row(self, name: str, data: Any) -> None:  # noqa: ANN401
        """Sets a column of :data:`NUMBERS` (8 bytes a row), :data:`BITS` (1 bit a row) or PLACE (PLACE_BYTES a row)."""
        kind = "sb_place[]" if name == PLACE else "uint8_t[]" if name in BITS else "int64_t[]"
        kept = ffi.from_buffer(kind, data)
        setattr(self._pointer, name, kept)
        self._kept[name] = kept

    def start(self, name: str, row: int) -> int:
        """The offset at which the text of a row begins; for the row after the last, the end of the last text."""
        return int(getattr(self._pointer, name).ends[row])

    def needed(self) -> dict[str, int]:
        """For each column of texts that had no room for the next row: the bytes that it needs to hold that row, too."""
        columns = {name: getattr(self._pointer, name) for name in TEXTS}
        return {name: int(column.needed) for name, column in columns.items() if column.needed > column.room}

    def _browse(self, queue: CoreQueue, position: int, most: int) -> tuple[int, int, bool]:
        """Fills rows with private copies of ready messages from a position on, the oldest first.

        Returns:
            The number of rows; the position after them; whether there may be more messages, because ``most`` rows
            were filled, a column had no more room, or messages were loaded that the next call finds.

        Raises:
            NotFound: the queue is deleted.
        """
        at, status, connection = ffi.new("uint64_t *", position), ffi.new("sb_status *"), queue.connection
        with connection.call():
            rows = int(slow.sb_queue_browse_columns(queue.handle, at, most, self._pointer, status))
        if status[0] == native.GROW:
            connection.attachment.grow()
        elif status[0] not in {native.OK, native.EMPTY, native.FULL}:
            native.raise_for(int(status[0]), queue.what)
        return rows, int(at[0]), status[0] != native.EMPTY

    def _text(self, name: str, row: int) -> bytes:
        column = getattr(self._pointer, name)
        if column.ends == ffi.NULL:
            return b""
        start = column.ends[row]
        return bytes(ffi.buffer(column.bytes + start, column.ends[row + 1] - start))

    def _options(self, row: int) -> PutOptions:
        return PutOptions(0, 0, 0, self._text(KEY, row), self._text(PROPERTIES, row))

    def _put(self, queue: CoreQueue, row: int, count: int, until: int) -> int:
        """Puts the messages of ``count`` rows from ``row`` on: bodies, and keys and properties if they are set.

        Returns:
            The number of messages that were put, at least 1 unless ``count`` is 0. The next one had no room in time, or
            can never fit: a call that begins with its row raises the reason.

        Raises:
            queue.Full: there was no room in time for any message. It is a NeverFits if the first one can never fit, a
                PublishRejected if the queue rejected it.
            OutOfMemory: there was no memory in time for any message, or the first body can never fit into the broker.
            ValueError: the key and properties of a message are too long. The messages of the rows before it were put.
        """
        done, status, body = 0, ffi.new("sb_status *"), self._pointer.body
        with queue.connection.memory_waits:
            try:
                while done < count:
                    with queue.connection.call():
                        done += int(
                            slow.sb_queue_put_columns(queue.handle, self._pointer, row + done, count - done, status)
                        )
                    at = row + done
                    if status[0] == native.REJECTED and done > 0:
                        break
                    if status[0] == native.REJECTED:  # if it is rejected again, it may become a dead letter
                        size = body.ends[at + 1] - body.ends[at]
                        queue.put_with(self._text(BODY, at), size, self._options(at), until)
                        done = 1
                    elif status[0] != native.OK:
                        queue.put_failed(int(status[0]), body.ends[at + 1] - body.ends[at], until)
            except standard_queue.Full:
                if done == 0:
                    raise
        return done
