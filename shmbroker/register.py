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

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker import exceptions, internal
from shmbroker.message import browsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker.connection import Connection
    from shmbroker.message import Message
    from shmbroker.queue import Queue

KEPT = 64
_NEEDED = 16  # when there is no memory
_SPARE = 24
_NONE, _NO_VERSION = -1, -2
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
        return cls(internal.make(connection, name, ring_size=KEPT))

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
        found = self._known
        for version in self._versions(0 if found is None else found.number + 1):
            if found is None or version.replaces > found.replaces:
                found = version
        self._known = found
        return found

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
        since = list(self._versions(replaces + 1))
        first = next((version for version in since if version.replaces == replaces), None)
        whole = bool(since) and since[0].number == replaces + 1  # or the first of them may have been dropped
        if first is not None and first.value == value and (whole or all(one.replaces <= replaces for one in since)):
            self._known = first
            return True
        self.latest()
        return False

    def _versions(self, position: int) -> Iterator[Version]:
        while (found := self._queue.core.browse(position)) is not None:
            data, position = found
            version = self._version(browsed(self._queue, data))
            if version.replaces != _NO_VERSION:
                yield version

    def _version(self, message: Message) -> Version:
        try:
            content = json.loads(bytes(message))
            return Version(message.sequence, int(content["replaces"]), dict(content["value"]), message.timestamp)
        except (ValueError, TypeError, KeyError) as error:
            text = f"queue {self._queue.name!r}: message {message.sequence} was not written by the broker"
            raise exceptions.CorruptSegment(text=text) from error


def _written(replaces: int, value: dict[str, Any]) -> bytes:
    body = json.dumps({"replaces": replaces, "value": value}, separators=(",", ":")).encode()
    return body.ljust(-(-len(body) // _SIZE) * _SIZE)
