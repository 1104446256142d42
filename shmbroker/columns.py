# SPDX-License-Identifier: Apache-2.0
"""Messages by column, in the form of Arrow's arrays: one call reads or puts many messages.

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

from shmbroker._core import native
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
    """Reads the ready messages of a queue, oldest first, without taking them.

    Args:
        queue: the queue.
        most: the most messages to read; ``None`` = all.
    """

    def __init__(self, queue: Queue, most: int | None = None) -> None:
        self._queue, self._left, self._position = queue, sys.maxsize if most is None else most, 0

    def fill(self, columns: Columns, most: int) -> tuple[int, bool]:
        """Fills up to ``most`` rows with the next messages.

        Returns:
            The number of rows, and whether there may be more messages. 0 rows although there may be more: a column has
            no room for the next message (:meth:`Columns.needed`).

        Raises:
            NotFound: the queue is deleted.
        """
        core, most = core_of(self._queue), min(most, self._left)
        count, self._position, more = columns._browse(core, self._position, most)  # noqa: SLF001
        self._left -= count
        return count, more and self._left > 0


def put(queue: Queue, columns: Columns, count: int, timeout: float | None = None, *, row: int = 0) -> int:
    """Puts the messages of ``count`` rows from ``row`` on, in order.

    A message has the body of its row, and the key and the properties if these columns are set.

    Returns:
        The number of messages that were put; less than ``count`` if the others had no room within ``timeout``.

    Raises:
        queue.Full: no message found room in time. It is a :class:`NeverFits` if the first one can never fit.
        OutOfMemory: there was no memory in time for any message, or the first one can never fit into the broker.
        ValueError: the key and properties of a message are too long. The messages of the rows before it were put.
        Timeout: the queue is stored, and the messages that were put are not on the disk in time.
    """
    core, until = core_of(queue), native.deadline(timeout)
    done = columns._put(core, row, count, until)  # noqa: SLF001
    core.await_store(0 if timeout == 0 else until)
    return done
