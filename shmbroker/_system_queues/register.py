# SPDX-License-Identifier: Apache-2.0
"""Registers: a small value that processes share, that outlives them, and that changes by compare and replace.

Form: a queue whose messages are versions of a value. The number of a version is its position in the queue. Each
version names the version that it replaces, by number: one that its writer has read, and that counted. When a version
arrives, it *counts* if it names the latest of the versions that count. So if two versions name the same one, only the
earlier of the two can count, and every reader sees that. No process ever takes a message out of the queue: a process
that is stopped, at any instruction, holds nothing that another process needs.

To find the latest version that counts, a reader does not need the whole history. It takes the versions that name the
highest number: the one of these that arrived first is the latest that counts. The reason: a version that does not count
names a lower number than the latest version does, or names the same number and arrived later. Therefore the queue is a
ring that keeps only the newest :data:`KEPT` messages. The ring could drop the latest version only if that many
processes (`_NEEDED`, while the ring is lowered) put versions after it that do not count.

Memory: if a writer finds no memory for another version, it lowers the size of the ring to `_NEEDED`, which drops the
oldest messages, and uses their slots. After its put it restores the size. All bodies are padded to multiples of one
size, so that the slots of versions of about the same length fit. The writer of the first version finds messages to
drop, too, if it has called :meth:`Register.set_aside`, which fills the empty queue with messages that are no versions.

Store: the register of something that outlives the memory is a durable queue. Its writer calls :meth:`Register.synced`
before it relies on a version: a later start from the store then has that version, or one that replaced it. The ring of
a stored register is restored with all its messages, at their positions, so each version counts, or does not, as before.

Death (a writer is killed -> the state of the register):
 before the put -> the value is what it was.
 after the put -> the version counts, or does not; nothing is in between.
 after lowering the size of the ring -> the ring keeps `_NEEDED` messages, until a later writer that finds no memory
  restores the size.
"""

from __future__ import annotations

import array
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker import exceptions
from shmbroker._core.columns import BODY, Columns
from shmbroker._session.queues import core_of
from shmbroker._system_queues import queues

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker._session.session import Session
    from shmbroker.queue import Queue

KEPT = 64
_NEEDED = 16  # the ring size while there is no memory
_SPARE = 24
_NONE, _NO_VERSION = -1, -2
_HEAD = b'{"replaces":'
_SIZE = 512  # bytes; bodies are padded to multiples of this, so that those of about the same length fit the same slots


class Version(NamedTuple):
    """A version that counted, as the module describes it.

    Attributes:
        number: The position of the version in the queue.
        replaces: The number of the version it replaces; -1: it is the first version, and replaces none.
        value: A value that JSON can represent.
        written_at: The time of writing, in POSIX seconds.
    """

    number: int
    replaces: int
    value: dict[str, Any]
    written_at: float


class _Entry(NamedTuple):
    """A message of the register's queue. Whether it is a version that counts is not known yet."""

    number: int
    replaces: int
    body: bytes
    time_us: int


class Register:
    """One user's handle of a register: it remembers the version that this user saw last.

    A user is any object that holds such a handle; a process may have several. Not safe for several threads.

    Args:
        queue: The queue of the register.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._known: Version | None = None

    @classmethod
    def made(cls, session: Session, name: str, *, durable: bool = False) -> Register:
        """Opens a register, and makes it if it does not exist; ``durable``: in the store, if the broker has one."""
        return cls(queues.ensure(session, name, ring_size=KEPT, durable=durable))

    @property
    def queue(self) -> Queue:
        """The queue of the register."""
        return self._queue

    @property
    def lasts(self) -> bool:
        """Whether the register is in the store of the broker."""
        return core_of(self._queue).lasts

    def synced(self, until: int) -> None:
        """Waits until all versions that were written so far are in the store; not if the register is not stored.

        The caller holds no lock: while the storekeeper is stopped, the wait lasts until the deadline.

        Raises:
            Timeout: they are not in time. They count nevertheless, as long as the memory exists.
        """
        core_of(self._queue).await_store(until)

    def latest(self) -> Version | None:
        """Returns the latest version that counts; None: no process has written one.

        Raises:
            NotFound: the register was deleted.
            CorruptSegment: a message of the queue does not have the form of a version.
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
        """Whether the queue has messages after the version that this user saw last. Reads no message, only the tail.

        ``True`` does not mean that the value changed: these messages may be versions that do not count. ``False`` may
        be wrong for a while: a writer was killed or stopped after it appended a version, before it advanced the tail.

        Raises:
            NotFound: the register was deleted.
        """
        return core_of(self._queue).facts().tail > (0 if self._known is None else self._known.number + 1)

    def replace(self, value: dict[str, Any], *, timeout: float | None) -> bool:
        """Replaces the version that this user saw last.

        Args:
            value: A value that JSON can represent. It must differ from every value that other users write, for
                example by a token of the user: the register recognizes this user's version by its value.
            timeout: Seconds to wait for memory.

        Returns:
            ``True``: the new version counted when it arrived, although another process may have replaced it since.
            ``False``: another process was faster, and the value is unchanged by this call. Or so many messages came
            after the new version that the ring has dropped it before this call looked: then it may have counted.

        Raises:
            NotFound: the register was deleted.
            OutOfMemory: there is no memory for another version; the value is unchanged.
            Timeout: there was no memory at first, and the topology lock, which changes of the ring's size need, was not
                free in time. The new version may have been put.
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
        """Fills an empty register with messages that are no versions. They reserve memory for later versions.

        Does nothing if the register has messages: more messages could push the latest version out of the ring. The
        caller holds a lock that keeps other processes from writing the first version meanwhile.
        """
        if len(self._queue) == 0:
            self._queue.put_many([_written(_NO_VERSION, {})] * _SPARE, timeout=0)

    def _counted(self, replaces: int, value: dict[str, Any]) -> bool:
        """Whether this user's newest version counts: the one that it has just put.

        Afterwards, the version that this user saw last is this one if it counts, or else the latest one that counts.

        Args:
            replaces: the number of the version that the newest version replaces.
            value: the value of the newest version.
        """
        since = list(self._entries(replaces + 1))
        first = next((entry for entry in since if entry.replaces == replaces), None)
        whole = bool(since) and since[0].number == replaces + 1  # else entries may be missing
        if first is not None and (whole or all(one.replaces <= replaces for one in since)):
            version = self._decoded(first)
            if version.value == value:
                self._known = version
                return True
        self.latest()
        return False

    def _entries(self, position: int) -> Iterator[_Entry]:
        """Yields the queue's messages from a position on. Decodes which version each replaces, but not its value."""
        more, size = True, KEPT * _SIZE
        while more:
            sequences, times, ends = (array.array(kind, [0] * (KEPT + 1)) for kind in "qqi")
            columns, bodies = Columns(), bytearray(size)
            columns.set_row("sequence", sequences)
            columns.set_row("timestamp_us", times)
            columns.set_text(BODY, ends, bodies)
            count, position, more = columns._browse(core_of(self._queue), position, KEPT)  # noqa: SLF001
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
