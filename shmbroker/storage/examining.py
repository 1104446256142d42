# SPDX-License-Identifier: Apache-2.0
"""Reads everything that a store has, and describes in words what is wrong. Nothing is changed.

The walk of :mod:`.verify` looks at pages and heads, as much as a start needs. This one compares all checksums, and
looks whether the databases of the store agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker.exceptions import StoreError
from shmbroker.storage import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import lmdb

    from shmbroker.storage.database import Database

MOST = 20
"""At most so many faults are described."""
_OFTEN = 1024  # entries between two calls of the progress
_SEQUENCE = 8  # bytes of a tail, and of the ends of a leaf
_OF_ROWS = "the heads", "the bodies", "the ends", "the state of a message"
_WHAT = {
    **{name: text for names in (rows.DURABLE, rows.TRANSIENT) for name, text in zip(names, _OF_ROWS, strict=True)},
    b"queues": "the record",
    b"tails": "the tail",
    b"topology": "a record of the topology",
    b"ids": "an id",
}


class Examination:
    """Examines a store within one transaction.

    Args:
        database: the store.
        progress: called with the number of entries read so far, and that of all.

    Attributes:
        problems: what is wrong, in words; at most :data:`MOST`, the last one says that there is more.
        queues: the records of the queues, by number.
        topology: the records of exchanges, bindings and address settings.
        messages: how many messages the store has that survive the loss of the memory.
    """

    def __init__(self, database: Database, progress: Callable[[int, int], object]) -> None:
        self._database, self._progress = database, progress
        self._done = self._total = 0
        self.problems: list[str] = []
        self.queues: dict[int, bytes] = {}
        self.topology: list[bytes] = []
        self.messages = 0
        self._tails: dict[tuple[int, int], int] = {}
        self._ends: dict[tuple[rows.RowNames, int, int], int] = {}
        self._names = rows.DURABLE  # the tables of rows that are read

    def run(self) -> None:
        """Reads the store; stops when :data:`MOST` faults are found."""
        names = self._database.names
        with self._database.read() as transaction:
            self._total = sum(transaction.stat(names[name])["entries"] for name in _WHAT)
            try:
                for name in (b"queues", b"topology", b"tails", b"ids"):
                    self._read(transaction, name)
                for self._names in (rows.DURABLE, rows.TRANSIENT):
                    for name in (self._names.ended, self._names.returned, self._names.heads, self._names.bodies):
                        self._read(transaction, name)
            except _EnoughError:
                self.problems.append("there is more; the examination has ended")
        self._progress(self._done, self._total)

    def found(self, text: str) -> None:
        """Notes a fault."""
        self.problems.append(text)
        if len(self.problems) >= MOST:
            raise _EnoughError

    def _read(self, transaction: lmdb.Transaction, name: bytes) -> None:
        look = _LOOKS[name]
        count = 0
        for key, value in self._entries(transaction, name):
            count += 1
            try:
                look(self, transaction, key, rows.opened(key, value, _WHAT[name]))
            except StoreError as error:
                self.found(error.text.removeprefix("the store is damaged: "))
        expected = transaction.stat(self._database.names[name])["entries"]
        if count != expected:
            self.found(f"{count} of {expected} entries of {name.decode()!r} are there")

    def _entries(self, transaction: lmdb.Transaction, name: bytes) -> Iterator[tuple[bytes, memoryview]]:
        with transaction.cursor(db=self._database.names[name]) as cursor:
            for key, value in cursor:
                if self._done % _OFTEN == 0:
                    self._progress(self._done, self._total)
                self._done += 1
                yield bytes(key), memoryview(value)

    # ---- what each database has ----

    def _queue(self, _: lmdb.Transaction, key: bytes, value: memoryview) -> None:
        self.queues[rows.queue_in(key)] = bytes(value)

    def _record(self, _: lmdb.Transaction, _key: bytes, value: memoryview) -> None:
        self.topology.append(bytes(value))

    def _tail(self, _: lmdb.Transaction, key: bytes, value: memoryview) -> None:
        queue = self._queue_of(key, "the tail")
        if len(value) != _SEQUENCE:
            raise StoreError(text=f"the tail of queue {queue} has {len(value)} bytes, not {_SEQUENCE}")
        tail = int.from_bytes(value, "little")
        self._tails[queue, tail >> rows.LANE_SHIFT] = tail

    def _ended(self, _: lmdb.Transaction, key: bytes, value: memoryview) -> None:
        queue, sequence = self._queue_of(key, "the ends"), rows.sequence_in(key)
        if sequence != rows.leaf_of(sequence) or len(value) != _SEQUENCE:
            raise StoreError(text=f"the ends of queue {queue} at {sequence} are those of no leaf")
        self._ends[self._names, queue, sequence] = int.from_bytes(value, "little")

    def _returned(self, _: lmdb.Transaction, key: bytes, value: memoryview) -> None:
        queue = self._queue_of(key, "the state of a message")
        if len(value) != rows.ENTRY:
            text = f"the state of the message {rows.sequence_in(key)} of queue {queue} has {len(value)} bytes"
            raise StoreError(text=text)

    def _heads(self, transaction: lmdb.Transaction, key: bytes, value: memoryview) -> None:
        queue, first = self._queue_of(key, "a row"), rows.sequence_in(key)
        row, found = rows.row_of(value), rows.messages_of(value)
        members = sum(1 << message.place for message in found)
        last = first + max((message.place for message in found), default=0)
        where = f"the row of queue {queue} at {first}"
        if row.first != first or members != row.members or rows.leaf_of(last) != rows.leaf_of(first):
            raise StoreError(text=f"{where} has other messages than it says")
        if sum(message.body_length for message in found) != row.bodies_length:
            raise StoreError(text=f"{where} has other lengths of bodies than it says")
        if last >= self._tails.get((queue, first >> rows.LANE_SHIFT), 0):
            raise StoreError(text=f"{where} has messages behind the tail")
        length = len(transaction.get(key, b"", db=self._database.names[self._names.bodies]))
        if length != rows.SEAL + row.bodies_length:
            raise StoreError(text=f"the bodies of queue {queue} at {first} have {length} bytes")
        leaf = rows.leaf_of(first)
        ended = self._ends.get((self._names, queue, leaf), 0) >> (first - leaf)
        if self._names == rows.DURABLE:
            self.messages += (members & ~ended).bit_count()

    def _bodies(self, transaction: lmdb.Transaction, key: bytes, _: memoryview) -> None:
        if transaction.get(key, db=self._database.names[self._names.heads]) is None:
            raise StoreError(text=f"the bodies of queue {rows.queue_in(key)} at {rows.sequence_in(key)} have no heads")

    def _id(self, _: lmdb.Transaction, key: bytes, value: memoryview) -> None:
        self._queue_of(key, "an id")
        rows.id_in(key)
        if len(value) != 0:
            raise StoreError(text=f"an id of queue {rows.queue_in(key)} has {len(value)} bytes, not 0")

    def _queue_of(self, key: bytes, what: str) -> int:
        queue = rows.queue_in(key)
        if queue not in self.queues:
            raise StoreError(text=f"{what} at {rows.sequence_in(key)} is of queue {queue}, which has no record")
        return queue


class _EnoughError(Exception):
    """So many faults were found that the examination ends."""


_LOOKS: dict[bytes, Callable[[Examination, Any, bytes, memoryview], None]] = {
    **{names.heads: Examination._heads for names in (rows.DURABLE, rows.TRANSIENT)},  # noqa: SLF001 - of this module
    **{names.bodies: Examination._bodies for names in (rows.DURABLE, rows.TRANSIENT)},  # noqa: SLF001
    **{names.ended: Examination._ended for names in (rows.DURABLE, rows.TRANSIENT)},  # noqa: SLF001
    **{names.returned: Examination._returned for names in (rows.DURABLE, rows.TRANSIENT)},  # noqa: SLF001
    b"queues": Examination._queue,  # noqa: SLF001
    b"tails": Examination._tail,  # noqa: SLF001
    b"topology": Examination._record,  # noqa: SLF001
    b"ids": Examination._id,  # noqa: SLF001
}
