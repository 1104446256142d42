# SPDX-License-Identifier: Apache-2.0
"""Messages by column, in the form of Arrow's arrays: many of them are looked at, or put, in one call.

A column of texts is their bytes, one behind the other, and ``ends``: 32-bit numbers, one more than there are texts,
from where the first begins to where the last one ends.
"""

from __future__ import annotations

import queue as standard_queue
import struct
from typing import TYPE_CHECKING, Any

from shmbroker._core import library
from shmbroker._core.connection import Place

if TYPE_CHECKING:
    from shmbroker._core.queue import CoreQueue

ffi, slow = library.ffi, library.slow
KEY, PROPERTIES, BODY = TEXTS = ("key", "properties", "body")
NUMBERS = ("sequence", "timestamp_us")
BITS = ("redelivered", "has_key")
PLACE = "place"
_PLACES = struct.Struct("=QQII")
PLACE_BYTES = _PLACES.size
MOST_BYTES = 2**31 - 1
"""In a column of texts."""


def places_in(data: memoryview) -> list[Place]:
    """The places of rows."""
    return [Place(slot, generation, length) for generation, length, slot, _ in _PLACES.iter_unpack(data)]


class Columns:
    """Where columns are. The memory is the caller's: buffers that may be written, if messages are to be looked at."""

    def __init__(self) -> None:
        self._pointer = ffi.new("sb_columns *")
        self._kept: dict[str, Any] = {}  # what cffi made of the buffers, which keeps those

    def set_text(self, name: str, ends: Any, data: Any) -> None:  # noqa: ANN401
        """One of :data:`TEXTS`. ``data`` is room for bytes, or the bytes."""
        kept = ffi.from_buffer("int32_t[]", ends), ffi.from_buffer("char[]", data)
        column = getattr(self._pointer, name)
        column.ends, column.bytes, column.room = *kept, min(len(kept[1]), MOST_BYTES)
        self._kept[name] = kept

    def set_row(self, name: str, data: Any) -> None:  # noqa: ANN401
        """One of :data:`NUMBERS`: 8 bytes for each row; of :data:`BITS`: a bit; or PLACE: PLACE_BYTES."""
        kind = "sb_place[]" if name == PLACE else "uint8_t[]" if name in BITS else "int64_t[]"
        kept = ffi.from_buffer(kind, data)
        setattr(self._pointer, name, kept)
        self._kept[name] = kept

    def start(self, name: str, row: int) -> int:
        """Where the text of a row begins; of the one behind the last, where that one ends."""
        return int(getattr(self._pointer, name).ends[row])

    def needed(self) -> dict[str, int]:
        """Of texts that had no room for the row behind the last one: how many bytes they would have needed."""
        columns = {name: getattr(self._pointer, name) for name in TEXTS}
        return {name: int(column.needed) for name, column in columns.items() if column.needed > column.room}

    def browse(self, queue: CoreQueue, position: int, most: int) -> tuple[int, int, bool]:
        """Fills rows with ready messages from a position on, oldest first, as private copies.

        Returns:
            How many; the position behind them; and whether there may be more: then ``most`` were found, or no room.

        Raises:
            NotFound: the queue is deleted.
        """
        at, status, connection = ffi.new("uint64_t *", position), ffi.new("sb_status *"), queue.connection
        with connection.call():
            rows = int(slow.sb_browse_columns(queue.handle, at, most, self._pointer, status))
        if status[0] not in {library.OK, library.EMPTY, library.FULL}:
            library.raise_for(int(status[0]), queue.what)
        return rows, int(at[0]), status[0] != library.EMPTY

    def put(self, queue: CoreQueue, row: int, count: int, until: int) -> int:
        """Puts the messages of so many rows from one on: bodies, and keys and properties if there are any.

        Returns:
            How many went, at least one of some; the others had no room in time.

        Raises:
            queue.Full: there was no room in time for any.
            OutOfMemory: no memory in time, or the first one can never fit.
            ValueError: its key and properties are too long.
        """
        done, status, body = 0, ffi.new("sb_status *"), self._pointer.body
        try:
            while done < count:
                with queue.connection.call():
                    done += int(slow.sb_put_columns(queue.handle, self._pointer, row + done, count - done, status))
                if status[0] != library.OK:
                    at = row + done
                    queue.put_failed(int(status[0]), body.ends[at + 1] - body.ends[at], until)
        except standard_queue.Full:
            if done == 0:
                raise
        return done
