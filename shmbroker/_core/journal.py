# SPDX-License-Identifier: Apache-2.0
"""The journal of exchanges and bindings: writers append bytes under the topology lock, every process reads them.

The journal lies in two files of the broker. One word in the broker's header says which file is in use, and how many of
its bytes count. Storing that word commits a change: a process killed before leaves bytes that the next writer
overwrites. To shorten the journal, a writer rewrites it into the other file. A reader that was overtaken by this sees a
changed word after its read, and reads again.

The topology lock keeps other writers out, but not a signal handler in the thread of the writer. A writer that such a
handler overtook writes nothing more: its bytes would damage what the handler wrote.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from typing import TYPE_CHECKING, TypeVar

from shmbroker import exceptions
from shmbroker._core import native, segments
from shmbroker._core.queue import raise_topology_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker._core.connection import CoreConnection

T = TypeVar("T")
ffi, slow, fast = native.ffi, native.slow, native.fast
_NUMBER_SHIFT, _LENGTH = 48, (1 << 48) - 1
_NUMBERS = 1 << 16


@contextlib.contextmanager
def topology_lock(connection: CoreConnection, until: int, what: str) -> Iterator[None]:
    """Holds the topology lock, so that no other thread or process changes the topology; the holding thread may nest it.

    Raises:
        Timeout: another holder keeps the lock past ``until``. The error names the holder's process, if it is known.
    """
    with connection.call():
        holder, statuses = ffi.new("int32_t *"), list[int]()
        begin = itertools.starmap(slow.sb_topology_begin, [(connection.handle, until, holder)])
        try:
            # One call of C takes the lock and stores the status. A signal handler that raises runs before this call or
            # after it. So `statuses` says whether this thread holds the lock.
            statuses.extend(begin)
            raise_topology_error(statuses[0], holder[0], what)
            yield
        finally:
            if statuses == [native.OK]:
                slow.sb_topology_end(connection.handle)


def unbound(connection: CoreConnection) -> None:
    """Tells the core that the caller has removed the bindings to a queue that it has deleted.

    The caller has held the topology lock since it deleted the queue.
    """
    with connection.call():
        slow.sb_topology_unbound(connection.handle)


def version(connection: CoreConnection) -> int:
    """A number that changes with every change of the topology."""
    with connection.call():
        return int(slow.sb_topology_version(connection.handle))


class Journal:
    """The journal of one broker, and the position up to which this reader has read it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = 0

    def has_news(self, connection: CoreConnection) -> bool:
        """Whether anything was written since the last call of :meth:`read_new`."""
        return self._word(connection) != self._seen

    def read_new(self, connection: CoreConnection) -> tuple[bool, bytes]:
        """Reads what was written since the last call.

        The position of this reader moves before the call returns. If an interrupt then loses the result, only a new
        reader can read these bytes again.

        Returns:
            Whether the journal was rewritten since the last call, and bytes: the whole journal if it was rewritten,
            else the bytes that were appended.

        Raises:
            CorruptSegment: the file does not hold what the header says.
        """
        while True:
            word = self._word(connection)
            if word == self._seen:
                return False, b""
            rewritten = word >> _NUMBER_SHIFT != self._seen >> _NUMBER_SHIFT
            start, end = 0 if rewritten else self._seen & _LENGTH, word & _LENGTH
            data = self._read(connection, word >> _NUMBER_SHIFT, start, end - start)
            if self._word(connection) >> _NUMBER_SHIFT != word >> _NUMBER_SHIFT:
                continue  # rewritten during the read, perhaps twice: the bytes may be anything
            if len(data) != end - start:
                text = f"the journal of broker {segments.name_of(self._path)!r} is cut short"
                raise exceptions.CorruptSegment(text=text)
            self._seen = word
            return rewritten, data

    def append(self, connection: CoreConnection, data: bytes) -> int:
        """Appends records, if this reader has read the whole journal. The caller holds the topology lock.

        Returns:
            The new length of the journal in bytes; 0: nothing was appended, because the journal has news. Under the
            lock, only a signal handler that ran in this thread after :meth:`read_new` can have written them, perhaps
            during this call.

        Raises:
            OutOfMemory: /dev/shm has no room for the records; nothing was changed.
        """
        word = self._seen
        number, end = word >> _NUMBER_SHIFT, word & _LENGTH
        if self._write(connection, word, number, end, data) and self._commit(connection, word, word + len(data)):
            return end + len(data)
        return 0

    def replace(self, connection: CoreConnection, data: bytes) -> None:
        """Makes ``data`` the whole journal, by writing it into the other file. The caller holds the topology lock.

        Does nothing if the journal has news that this reader has not read: ``data`` lacks these records.

        Raises:
            OutOfMemory: /dev/shm has no room for ``data``; nothing was changed.
        """
        word = self._seen
        number = word >> _NUMBER_SHIFT
        fresh = (number + 1) % _NUMBERS
        anew = fresh << _NUMBER_SHIFT | len(data)
        try:
            written = self._write(connection, word, fresh, 0, data)
        except exceptions.OutOfMemory:
            self._empty(connection, word, fresh)  # the bytes already written fill the rest of /dev/shm
            raise
        if written and self._commit(connection, word, anew):
            self._empty(connection, anew, number)

    def length(self, connection: CoreConnection) -> int:
        """The length of the journal in bytes. The file may be longer: uncommitted bytes may follow."""
        return self._word(connection) & _LENGTH

    def _word(self, connection: CoreConnection) -> int:
        with connection.call():
            return int(slow.sb_topology_journal(connection.handle))

    @staticmethod
    def _unless_overtaken(connection: CoreConnection, word: int, step: Callable[..., T], *given: object) -> list[T]:
        """Calls a function of C that changes the journal, if the word in the header is still ``word``.

        Returns:
            A list of what the function returned; empty: it was not called.
        """
        with connection.call():
            words = map(slow.sb_topology_journal, [connection.handle])
            steps = itertools.compress([given], map(word.__eq__, words))
            # One call of C compares the word and calls the function, so no signal handler runs in between.
            return list(itertools.starmap(step, steps))

    def _commit(self, connection: CoreConnection, word: int, new: int) -> bool:
        """Replaces the word; False if it is no longer ``word``."""
        commit = slow.sb_topology_journal_commit
        return bool(self._unless_overtaken(connection, word, commit, connection.handle, new))

    @contextlib.contextmanager
    def _open(self, connection: CoreConnection, number: int, flags: int) -> Iterator[int]:
        """Opens one of the two files for a block.

        Raises:
            ConnectionClosedByBroker: the file is gone because the broker was purged.
            CorruptSegment: the file is gone although the broker exists.
        """
        suffix = segments.JOURNALS[number % 2]
        with contextlib.ExitStack() as opened:
            try:
                descriptor = opened.enter_context(segments.open_file(self._path, suffix, flags))
            except FileNotFoundError:
                if connection.attachment.removed:
                    native.raise_for(native.STOPPING)
                text = f"{segments.file_of(self._path, suffix)} is gone"
                raise exceptions.CorruptSegment(text=text) from None
            yield descriptor

    def _read(self, connection: CoreConnection, number: int, start: int, size: int) -> bytes:
        with self._open(connection, number, os.O_RDONLY) as descriptor:
            return os.pread(descriptor, size, start)

    def _write(self, connection: CoreConnection, word: int, number: int, start: int, data: bytes) -> bool:
        """Writes into a file; False if the word is no longer ``word``, and a part of the bytes is not written."""
        with self._open(connection, number, os.O_RDWR) as descriptor:
            try:
                view = memoryview(data)
                while view:
                    written = self._unless_overtaken(connection, word, os.pwrite, descriptor, view, start)
                    if not written:
                        return False
                    start, view = start + written[0], view[written[0] :]
            except OSError as error:
                if error.errno in {errno.ENOSPC, errno.ENOMEM, errno.EDQUOT}:
                    raise segments.no_room(self._path, segments.JOURNALS[number % 2], len(data)) from None
                raise
        return True

    def _empty(self, connection: CoreConnection, word: int, number: int) -> None:
        """Frees the memory of the unused file. If the word is no longer ``word``, leaves that to a later rewrite."""
        with self._open(connection, number, os.O_RDWR) as descriptor:
            self._unless_overtaken(connection, word, os.ftruncate, descriptor, 0)
