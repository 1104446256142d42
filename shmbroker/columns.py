# SPDX-License-Identifier: Apache-2.0
"""Messages by column, in the form of Arrow's arrays: for programs that read, or put, very many at once.

>>> import array, shmbroker
>>> from shmbroker.columns import Columns, Ready
>>> with shmbroker.connect("doctest-columns") as connection:
...     queue = connection.queue("jobs")
...     _ = queue.put_many([b"one", b"two", b"three"])
...     columns, bodies, ends = Columns(), bytearray(100), array.array("i", [0] * 11)
...     columns.set_text("body", ends, bodies)
...     Ready(queue).fill(columns, 10)
(3, False)
>>> ends[:4], bytes(bodies[: ends[3]])
(array('i', [0, 3, 6, 11]), b'onetwothree')
>>> shmbroker.Broker("doctest-columns").stop(purge=True)
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from shmbroker._core import library
from shmbroker._core.columns import (
    BITS,
    BODY,
    KEY,
    MOST_BYTES,
    NUMBERS,
    PLACE,
    PLACE_BYTES,
    PROPERTIES,
    TEXTS,
    Columns,
    places_in,
)
from shmbroker._session.queues import core_of

if TYPE_CHECKING:
    from shmbroker.queue import Queue

__all__ = [
    "BITS",
    "BODY",
    "KEY",
    "MOST_BYTES",
    "NUMBERS",
    "PLACE",
    "PLACE_BYTES",
    "PROPERTIES",
    "TEXTS",
    "Columns",
    "Ready",
    "places_in",
    "put",
]


class Ready:
    """The ready messages of a queue, oldest first, which stay there.

    Args:
        queue: whose.
        most: only so many; ``None`` = all.
    """

    def __init__(self, queue: Queue, most: int | None = None) -> None:
        self._queue, self._left, self._position = queue, sys.maxsize if most is None else most, 0

    def fill(self, columns: Columns, most: int) -> tuple[int, bool]:
        """Fills up to so many rows with the next ones; returns how many, and whether there may be more.

        None, though there may be more: some column has no room for the next one (:meth:`Columns.needed`).

        Raises:
            NotFound: the queue is deleted.
        """
        core, most = core_of(self._queue), min(most, self._left)
        count, self._position, more = columns._browse(core, self._position, most)  # noqa: SLF001
        self._left -= count
        return count, more and self._left > 0


def put(queue: Queue, columns: Columns, count: int, timeout: float | None = None, *, row: int = 0) -> int:
    """Puts the messages of so many rows from one on, in order: bodies, and keys and properties where these are set.

    Returns:
        How many went; not all, if there was room for some within ``timeout`` and not for the others.

    Raises:
        queue.Full: there was room for none in time.
        OutOfMemory: no memory in time, or the first one can never fit.
        ValueError: its key and properties are too long.
    """
    return columns._put(core_of(queue), row, count, library.deadline(timeout))  # noqa: SLF001
