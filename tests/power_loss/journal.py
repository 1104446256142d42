# SPDX-License-Identifier: Apache-2.0
"""The journal of a run: changes and syncs of files, as `tests/c/write_recorder.c` notes them, and marks of clients.

All are appended to one file, each in one write, so their order is that of the file. A sync is noted when it has ended,
and before the process continues. So a mark that a client makes when it was told comes after the sync that it
was told of.

| mark | meaning |
|---|---|
| put, queue, producer, first, count | about to be put |
| confirmed, producer, first, count | the call returned: they are on the disk |
| ack, producer, number | about to be acknowledged |
| gone, [[producer, number], ...] | acknowledged, and then a wait for the store returned |
| commit, number; committed, number | a transaction that hands the token on; it is on the disk |
| drain, upto; drained, upto | a transaction that ends what earlier transactions left; it is on the disk |
| declared, queue, max_priority | the queue is on the disk |
| delete, queue, producer; deleted, queue, producer | about to be deleted; the deletion is on the disk |
| life | a broker is about to be created |
"""

from __future__ import annotations

import json
import os
import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEAD = struct.Struct("<IIQQQQ")
_MAGIC = 0x4A505753
_LIFE = b'["life"]'
FOLDER = "."
"""How the journal names the folder itself."""


class Kind(IntEnum):
    """What a record notes; those below MARK have the numbers of `write_recorder.c`."""

    OPEN = 1
    WRITE = 2
    TRUNCATE = 3
    ALLOCATE = 4
    SYNC = 5
    RENAME = 6
    UNLINK = 7
    MAP = 8
    KILLED = 9
    UNKNOWN = 10
    MARK = 100


CHANGES = {Kind.OPEN, Kind.WRITE, Kind.TRUNCATE, Kind.ALLOCATE, Kind.SYNC, Kind.RENAME, Kind.UNLINK}
"""Records after which the disk may have something else than before."""
CREATED, EMPTIED, SYNCED = 1, 2, 4
"""In the value of an OPEN: the file was made; its bytes were removed; writes through it are synced. Also of a WRITE."""


class Record(NamedTuple):
    """A record.

    Attributes:
        kind: what it notes.
        file: the number of the opening.
        offset: where a write begins, or the new length.
        value: flags, or the length of an allocation.
        content: the bytes of a write; or the names; or the mark.
    """

    kind: Kind
    file: int
    offset: int
    value: int
    content: bytes

    def begins_life(self) -> bool:
        """Whether this is the mark of a broker that is about to be created."""
        return self.kind is Kind.MARK and self.content == _LIFE

    def mark(self) -> list[Any]:
        """The words of a mark."""
        found: list[Any] = json.loads(self.content)
        return found


def read(path: Path) -> Iterator[Record]:
    """Yields the records of a journal."""
    with path.open("rb", buffering=1 << 20) as journal:
        while head := journal.read(_HEAD.size):
            magic, kind, file, offset, value, length = _HEAD.unpack(head)
            assert magic == _MAGIC, "the journal is torn"
            yield Record(Kind(kind), file, offset, value, journal.read(length))


class Marks:
    """Appends the marks of a client. Threads may share one."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def note(self, *words: object) -> None:
        """Appends a mark."""
        content = json.dumps(words).encode()
        record = _HEAD.pack(_MAGIC, Kind.MARK, 0, 0, 0, len(content)) + content
        assert os.write(self._descriptor, record) == len(record)

    def length(self) -> int:
        """How many bytes the journal has."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Closes the journal."""
        os.close(self._descriptor)
