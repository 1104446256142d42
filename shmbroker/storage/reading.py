# SPDX-License-Identifier: Apache-2.0
"""Reading a store: its queues, and the rows of each in the order of delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shmbroker.exceptions import StoreError
from shmbroker.storage import leaves, rows
from shmbroker.storage.leaves import StoredLeaf, leaves_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lmdb

    from shmbroker.storage.database import Database


class StoredRow(NamedTuple):
    """A row of the store, with what has changed since it was written.

    Attributes:
        first: the sequence number of the row.
        row: its head.
        heads: the heads of its messages.
        bodies: their bodies.
        ended: bit i is set if the message with the sequence number ``first`` + i has ended.
        returned: the fixed part of the head of each message that has changed, by sequence number.
    """

    first: int
    row: rows.Row
    heads: memoryview
    bodies: memoryview
    ended: int
    returned: dict[int, bytes]


class Reader:
    """Reads a store within a transaction that :meth:`Database.read` began; what it returns is valid until that ends."""

    def __init__(self, database: Database, transaction: lmdb.Transaction) -> None:
        self._transaction = transaction
        self._names = database.names

    def queues(self) -> dict[int, bytes]:
        """The records of all queues by number."""
        found = {}
        with self._transaction.cursor(db=self._names[b"queues"]) as cursor:
            for key, value in cursor:
                found[rows.queue_in(key)] = bytes(rows.opened(bytes(key), value, "the record"))
        return found

    def topology(self) -> list[bytes]:
        """The records of exchanges, bindings and address settings."""
        with self._transaction.cursor(db=self._names[b"topology"]) as cursor:
            return [bytes(rows.opened(bytes(key), value, "a record of the topology")) for key, value in cursor]

    def tails(self, queue: int) -> list[int]:
        """The sequence number that the next message of each lane gets, by ascending number of the lane."""
        found = []
        with self._transaction.cursor(db=self._names[b"tails"]) as cursor:
            there = cursor.set_range(rows.key(queue, 0))
            while there and rows.queue_in(cursor.key()) == queue:
                payload = rows.opened(bytes(cursor.key()), cursor.value(), "the tail")
                found.append(int.from_bytes(payload, "little"))
                there = cursor.next()
        return found

    def ids(self, queue: int) -> list[tuple[bytes, int]]:
        """The duplicate ids that a queue remembers: the hash and the number of each, by ascending number.

        Raises:
            StoreError: a value is damaged.
        """
        found = []
        high = rows.key(queue + 1, 0)
        with self._transaction.cursor(db=self._names[b"ids"]) as cursor:
            there = cursor.set_range(rows.key(queue, 0))
            while there and (key := bytes(cursor.key())) < high:
                rows.opened(key, cursor.value(), "an id")
                found.append(rows.id_in(key))
                there = cursor.next()
        return found

    def first(self, queue: int, lane: int) -> int | None:
        """The sequence number of the first row of a lane; ``None``: the lane has none."""
        with self._transaction.cursor(db=self._names[b"heads"]) as cursor:
            if cursor.set_range(rows.key(queue, lane)) and rows.queue_in(cursor.key()) == queue:
                found = rows.sequence_in(cursor.key())
                return found if found < rows.behind_lane(lane) else None
        return None

    def rows_from(
        self, queue: int, sequence: int = 0, end: int = rows.BEHIND_ALL, names: rows.RowNames = rows.DURABLE
    ) -> Iterator[StoredRow]:
        """Yields the rows of a queue, by ascending sequence number.

        Args:
            queue: the number of the queue in the store.
            sequence: the first row is the first one that begins there, or behind it.
            end: the last row begins before it.
            names: which messages: those that survive, or the transient ones.

        Raises:
            StoreError: a value is damaged, or missing.
        """
        with self._transaction.cursor(db=self._names[names.heads]) as cursor:
            there = cursor.set_range(rows.key(queue, sequence))
            while there and rows.queue_in(key := bytes(cursor.key())) == queue:
                first = rows.sequence_in(key)
                if first >= end:
                    return
                heads = rows.opened(key, cursor.value(), "the heads")
                row = rows.row_of(heads)
                found = self._transaction.get(key, b"", db=self._names[names.bodies])
                if len(found) != rows.SEAL + row.bodies_length:  # compared before the bodies are touched
                    raise StoreError(text=f"the store is damaged: the bodies at {first} have {len(found)} bytes")
                bodies = rows.opened(key, found, "the bodies")
                ended, returned = self._ended(queue, first, names), self._returned(queue, first, names)
                yield StoredRow(first, row, heads, bodies, ended, returned)
                there = cursor.next()

    def in_order(self, queue: int, lane: int) -> Iterator[tuple[rows.Bytes, memoryview, int]]:
        """Yields the messages of a lane by ascending sequence number: heads, bodies, and which of them have ended.

        The rows of a leaf may overlap: messages of a commit are written when the commit is carried out.

        Raises:
            StoreError: a value is damaged, or missing.
        """
        leaf: list[StoredRow] = []
        for row in self.rows_from(queue, lane):
            if row.first >= rows.behind_lane(lane):
                break
            if leaf and rows.leaf_of(row.first) != rows.leaf_of(leaf[0].first):
                yield from _merged(leaf)
                leaf = []
            leaf.append(row)
        yield from _merged(leaf)

    def leaves(self, queue: int, lane: int) -> Iterator[StoredLeaf]:
        """Yields what the store has of each leaf of a lane, by ascending sequence number. Reads no rows.

        Raises:
            StoreError: a value is damaged.
        """
        return leaves_of(self._transaction, self._names[leaves.NAME], queue, lane)

    def counted(self, queue: int, leaf: StoredLeaf) -> StoredLeaf:
        """What the store has of a leaf, exactly. Reads the heads of its rows, and no bodies.

        Raises:
            StoreError: a value is damaged.
        """
        messages, size, waits, expires = 0, 0, False, False
        with self._transaction.cursor(db=self._names[b"heads"]) as cursor:
            there = cursor.set_range(rows.key(queue, leaf.sequence))
            while there and (key := bytes(cursor.key())) < rows.key(queue, leaf.sequence + rows.LEAF):
                first, heads = rows.sequence_in(key), rows.opened(key, cursor.value(), "the heads")
                row, ended = rows.row_of(heads), self._ended(queue, first)
                waits, expires = waits or row.waits, expires or row.expires
                if ended & row.members:
                    left = [one for one in rows.messages_of(heads) if not ended >> one.place & 1]
                    messages, size = messages + len(left), size + sum(one.body_length for one in left)
                else:
                    messages, size = messages + row.messages, size + row.bodies_length
                there = cursor.next()
        for entry in self._returned(queue, leaf.sequence).values():
            waits, expires = waits or rows.waits(entry), expires or rows.expiry(entry) != 0
        return StoredLeaf(leaf.sequence, messages, size, sure=True, waits=waits, expires=expires)

    def expiring(self, queue: int, sequence: int, most: int) -> tuple[list[int], int | None]:
        """Which sequence numbers of a queue have messages that may expire; see :func:`.leaves.expiring`.

        Of transient messages nothing counts what leaves have: any of them may expire.
        """
        found, behind = leaves.expiring(self._transaction, self._names[leaves.NAME], queue, sequence, most)
        at, end = sequence, rows.BEHIND_ALL if behind is None else behind
        with self._transaction.cursor(db=self._names[rows.TRANSIENT.heads]) as cursor:
            while at < end and cursor.set_range(rows.key(queue, at)) and rows.queue_in(cursor.key()) == queue:
                first = rows.sequence_in(cursor.key()) // leaves.GROUP * leaves.GROUP
                found.append(first)
                at = first + leaves.GROUP
        return sorted({one for one in found if one < end}), behind

    def expiries(self, queue: int, leaf: int) -> list[int]:
        """When the messages of a leaf expire that have not ended. Reads the heads of its rows, and no bodies.

        Args:
            queue: the number of the queue in the store.
            leaf: the first sequence number of the leaf.

        Returns:
            The times in nanoseconds of the wall clock, only of messages that expire.

        Raises:
            StoreError: a value is damaged.
        """
        return [at for names in (rows.DURABLE, rows.TRANSIENT) for at in self._expiries(queue, leaf, names)]

    def _expiries(self, queue: int, leaf: int, names: rows.RowNames) -> Iterator[int]:
        times = {}
        with self._transaction.cursor(db=self._names[names.heads]) as cursor:
            there = cursor.set_range(rows.key(queue, leaf))
            while there and (key := bytes(cursor.key())) < rows.key(queue, leaf + rows.LEAF):
                first, heads = rows.sequence_in(key), rows.opened(key, cursor.value(), "the heads")
                if rows.row_of(heads).expires:
                    ended = self._ended(queue, first, names)
                    left = [one for one in rows.messages_of(heads) if not ended >> one.place & 1]
                    entries = ((one.place, heads[one.head : one.head + rows.ENTRY]) for one in left)
                    times.update({first + place: rows.expiry(entry) for place, entry in entries})
                there = cursor.next()
        for sequence, entry in self._returned(queue, leaf, names).items():
            times[sequence] = rows.expiry(entry)
        return (at for at in times.values() if at)

    def leaf(self, queue: int, leaf: int) -> Iterator[tuple[rows.Bytes, memoryview, int]]:
        """Yields the messages of a leaf that survive, as :meth:`in_order` does.

        Args:
            queue: the number of the queue in the store.
            leaf: the first sequence number of the leaf.

        Raises:
            StoreError: a value is damaged, or missing.
        """
        found = list(self.rows_from(queue, leaf, leaf + rows.LEAF))
        yield from _merged(found)

    def whole_leaf(self, queue: int, leaf: int) -> Iterator[tuple[rows.Bytes, memoryview, int]]:
        """Yields all messages of a leaf that has left the memory, as :meth:`leaf` does, and in any order."""
        for names in (rows.DURABLE, rows.TRANSIENT):
            for row in self.rows_from(queue, leaf, leaf + rows.LEAF, names):
                yield _as_it_is(row), row.bodies, row.ended

    def _ended(self, queue: int, first: int, names: rows.RowNames = rows.DURABLE) -> int:
        leaf = rows.leaf_of(first)
        key = rows.key(queue, leaf)
        found = self._transaction.get(key, db=self._names[names.ended])
        if found is None:
            return 0
        return int.from_bytes(rows.opened(key, found, "the ends"), "little") >> (first - leaf)

    def _returned(self, queue: int, first: int, names: rows.RowNames = rows.DURABLE) -> dict[int, bytes]:
        found = {}
        high = rows.key(queue, rows.leaf_of(first) + rows.LEAF)
        with self._transaction.cursor(db=self._names[names.returned]) as cursor:
            there = cursor.set_range(rows.key(queue, first))
            while there and (key := bytes(cursor.key())) < high:
                found[rows.sequence_in(key)] = bytes(rows.opened(key, cursor.value(), "the state of a message"))
                there = cursor.next()
        return found


def _merged(leaf: list[StoredRow]) -> Iterator[tuple[rows.Bytes, memoryview, int]]:
    ends = [row.first + row.row.members.bit_length() for row in leaf]
    if all(row.first >= end for row, end in zip(leaf[1:], ends, strict=False)):
        for row in leaf:
            yield _as_it_is(row), row.bodies, row.ended
        return
    pieces = []
    for row in leaf:
        heads = _as_it_is(row)
        for message in rows.messages_of(heads):
            body = row.bodies[message.body : message.body + message.body_length]
            ended = row.ended >> message.place & 1
            pieces.append((row.first + message.place, (rows.single(heads, message), body, ended)))
    yield from (piece for _, piece in sorted(pieces, key=lambda pair: pair[0]))


def _as_it_is(row: StoredRow) -> rows.Bytes:
    """The heads of a row, with what has changed since it was written."""
    if not row.returned:
        return row.heads
    heads = bytearray(row.heads)
    for message in rows.messages_of(heads):
        found = row.returned.get(row.first + message.place)
        if found is not None:
            rows.with_state(heads, message, found)
    return heads
