# SPDX-License-Identifier: Apache-2.0
"""Registers: a small value that processes share, that outlives them, and that is changed by compare and replace.

What: a queue whose messages are versions of a value. Each names the version that it replaces. A version *counts* if the
one that it names is the latest that counted when it came; so of two that replace the same one, the first counts, and
every reader sees that. Nothing is ever taken out of the queue: whoever is stopped, at whatever instruction, holds
nothing that another one needs.

The latest one: of the versions that name the highest number, the first. For whoever replaces has read a version that
counted: one that does not count names an older version than the latest one does, or the same and came later. So the
latest version has to be seen, not its history, and the queue is a ring of the newest :data:`KEPT`: so many would have
to lose the same race for the latest one to be pushed out.

Memory: if there is none for another version, older ones make room, of the same size. So that there are some from the
start, the first who writes puts messages before it that are no versions.

Death (after -> state):
 before the put -> the value is what it was.    the put -> it counts, or does not; there is nothing in between.
"""

from __future__ import annotations

import array
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker import exceptions
from shmbroker._core.columns import BODY, Columns
from shmbroker._system_queues import queues

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker.connection import Connection
    from shmbroker.queue import Queue

KEPT = 64
_NEEDED = 16  # when there is no memory
_SPARE = 24
_NONE, _NO_VERSION = -1, -2
_HEAD = b'{"replaces":'
_SIZE = 512  # bytes; versions are multiples of it, so that one fits where another was


class Version(NamedTuple):
    """A value that counted.

    Attributes:
        number: Its place in the queue.
        replaces: The number of the one before it; -1 = it is the first.
        value: What JSON can hold.
        written_at: POSIX seconds.
    """

    number: int
    replaces: int
    value: dict[str, Any]
    written_at: float


class _Entry(NamedTuple):
    """What is in the queue, of which it is not known yet whether it counts."""

    number: int
    replaces: int
    body: bytes
    time_us: int


class Register:
    """One such value, as one of its users knows it. Not for several threads at once.

    Args:
        queue: Where it is.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._known: Version | None = None

    @classmethod
    def made(cls, connection: Connection, name: str) -> Register:
        """Opens a register, and makes it if there is none."""
        return cls(queues.make(connection, name, ring_size=KEPT))

    @property
    def queue(self) -> Queue:
        """Where it is."""
        return self._queue

    def latest(self) -> Version | None:
        """The value now; None: nobody has written one.

        Raises:
            NotFound: the register was deleted.
            CorruptSegment: there is something else in its queue.
        """
        known, found = self._known, None
        highest = _NO_VERSION if known is None else known.replaces
        for entry in self._entries(0 if known is None else known.number + 1):
            if entry.replaces > highest:
                found, highest = entry, entry.replaces
        if found is not None:
            self._known = self._decoded(found)
        return self._known

    def has_moved(self) -> bool:
        """Whether somebody wrote since this user saw the latest version: that need not count. A look at a counter.

        Raises:
            NotFound: the register was deleted.
        """
        return int(self._queue.core.facts().tail) > (0 if self._known is None else self._known.number + 1)

    def replace(self, value: dict[str, Any], *, timeout: float | None) -> bool:
        """Replaces the version that this user saw last.

        Args:
            value: What JSON can hold. No other user writes an equal one.
            timeout: Seconds to wait for memory.

        Returns:
            Whether it counts; if not, somebody else was faster. One that counts may have been replaced meanwhile.

        Raises:
            NotFound: the register was deleted.
            OutOfMemory: there is none for another version; nothing happened.
        """
        replaces = _NONE if self._known is None else self._known.number
        body = _written(replaces, value)
        try:
            self._queue.put(body, timeout=0)
        except exceptions.OutOfMemory:
            self._queue.configure(ring_size=_NEEDED, trim=True)
            try:
                self._queue.put(body, timeout=timeout)
            finally:
                self._queue.configure(ring_size=KEPT)
        return self._counted(replaces, json.loads(body)["value"])

    def set_aside(self) -> None:
        """Keeps memory for when there is none. Under a lock, and before anybody writes: else it pushes versions out."""
        if len(self._queue) == 0:
            self._queue.put_many([_written(_NO_VERSION, {})] * _SPARE, timeout=0)

    def _counted(self, replaces: int, value: dict[str, Any]) -> bool:
        """Whether that one did; then it is what this user saw last, although it may have been replaced already."""
        since = list(self._entries(replaces + 1))
        first = next((entry for entry in since if entry.replaces == replaces), None)
        whole = bool(since) and since[0].number == replaces + 1  # or the first of them may have been dropped
        if first is not None and (whole or all(one.replaces <= replaces for one in since)):
            version = self._decoded(first)
            if version.value == value:
                self._known = version
                return True
        self.latest()
        return False

    def _entries(self, position: int) -> Iterator[_Entry]:
        """What is in the queue from there on; only its beginning is looked at, since of many one counts."""
        more, size = True, KEPT * _SIZE
        while more:
            sequences, times, ends = (array.array(kind, [0] * (KEPT + 1)) for kind in "qqi")
            columns, bodies = Columns(), bytearray(size)
            columns.set_row("sequence", sequences)
            columns.set_row("timestamp_us", times)
            columns.set_text(BODY, ends, bodies)
            count, position, more = columns.browse(self._queue.core, position, KEPT)
            for at in range(count):
                yield self._entry(sequences[at], bytes(bodies[ends[at] : ends[at + 1]]), times[at])
            size = max([size, *columns.needed().values()])

    def _entry(self, number: int, body: bytes, time_us: int) -> _Entry:
        head, separator, _ = body.partition(b",")
        if not head.startswith(_HEAD) or not separator or not head[len(_HEAD) :].lstrip(b"-").isdigit():
            raise self._corrupt(number)
        return _Entry(number, int(head[len(_HEAD) :]), body, time_us)

    def _decoded(self, entry: _Entry) -> Version:
        try:
            value = dict(json.loads(entry.body)["value"])
        except (ValueError, TypeError, KeyError):
            raise self._corrupt(entry.number) from None
        return Version(entry.number, entry.replaces, value, entry.time_us / 1e6)

    def _corrupt(self, number: int) -> exceptions.CorruptSegment:
        text = f"queue {self._queue.name!r}: message {number} was not written by the broker"
        return exceptions.CorruptSegment(text=text)


def _written(replaces: int, value: dict[str, Any]) -> bytes:
    body = json.dumps({"replaces": replaces, "value": value}, separators=(",", ":")).encode()
    return body.ljust(-(-len(body) // _SIZE) * _SIZE)
