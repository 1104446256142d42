# SPDX-License-Identifier: Apache-2.0
"""A batch: what one turn of the storekeeper changes in the store, all or nothing.

The order of the calls within a batch is theirs to choose, but for one rule: a row that was written in this batch is not
touched by the ends that were collected before it.

A batch notes its changes as bytes, for the log. :func:`apply` makes them in a transaction of the database. On a store
that is as it was before the batch, they have the same effect each time.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from shmbroker.exceptions import StoreError
from shmbroker.storage import leaves, rows
from shmbroker.storage.row_tables import RowTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import lmdb

    from shmbroker.storage.database import Database

_CHANGE = struct.Struct("<BQQQII")  # which change, three numbers, the lengths of two texts, which follow
_LENGTH = struct.Struct("<I")
_MOST = 256 << 10  # bytes


class Batch:
    """Changes of the store, for a transaction that is open.

    Attributes:
        changes: the changes, as :func:`apply` takes them; empty: nothing is changed. ``None``: they have more than 256
            KiB, and the log is not for them.
        applied: whether the transaction has them. It has, when the batch was asked what the store has, or is large.
        rows: the bytes of the rows of messages.
    """

    def __init__(self, database: Database, transaction: lmdb.Transaction) -> None:
        self.changes: bytearray | None = bytearray()
        self.applied = False
        self.rows = 0
        self._tables = _Tables(database, transaction)

    def _change(self, which: int, *numbers: int, text: rows.Bytes = b"", other: rows.Bytes = b"") -> None:
        queue, first, second = (*numbers, 0, 0)[:3]
        if self.changes is not None:
            self.changes += _CHANGE.pack(which, queue, first, second, len(text), len(other))
            self.changes += text
            self.changes += other
        if self.applied:
            _CHANGES[which](self._tables, queue, first, second, text, other)
        if self.changes is not None and len(self.changes) > _MOST:
            self.apply()
            self.changes = None

    def apply(self) -> None:
        """Brings the changes into the transaction, which has those of all later calls as well."""
        if not self.applied and self.changes is not None:
            self._tables.apply(self.changes)
        self.applied = True

    def finish(self) -> None:
        """Brings what was applied into the transaction as a whole. The last call."""
        self._tables.leaves.flush()

    # ---- messages ----

    def put_row(
        self, queue: int, first: int, heads: memoryview, bodies: memoryview, *, transient: bool = False
    ) -> None:
        """Writes a row. Both buffers begin with room for the checksum, which is filled in.

        Args:
            queue: the number of the queue in the store.
            first: the sequence number of the row.
            heads: room for the checksum, then the heads.
            bodies: room for the checksum, then the bodies.
            transient: whether its messages are for the time only in which the memory exists.
        """
        key = rows.key(queue, first)
        self.rows += len(heads) + len(bodies)
        for value in (heads, bodies):
            value[: rows.SEAL] = rows.seal_of(key, value[rows.SEAL :])
        self._change(_PUT_ROW, queue, first, int(transient), text=heads, other=bodies)

    def members(self, queue: int, leaf: int) -> tuple[int, int]:
        """Which messages of a leaf the store has: those that survive, and the transient ones.

        Bit i stands for the sequence number ``leaf`` + i.
        """
        self.apply()
        return self._tables.durable.members(queue, leaf), self._tables.transient.members(queue, leaf)

    def put_returned(self, queue: int, sequence: int, entry: bytes, *, transient: bool = False) -> None:
        """Notes the delivery count and the state of a message that has changed since its row was written.

        Args:
            queue: the number of the queue in the store.
            sequence: the sequence number of the message.
            entry: the fixed part of the message's head as it is now.
            transient: whether the message is transient.
        """
        self._change(_PUT_RETURNED, queue, sequence, int(transient), text=entry)

    def end_span(self, queue: int, first: int, span: int) -> None:
        """Removes all messages of a span of sequence numbers."""
        self._change(_END_SPAN, queue, first, span)

    def end_cells(self, queue: int, leaf: int, ended: int) -> None:
        """Notes that messages of a leaf have ended; removes the rows of which no message is left.

        Args:
            queue: the number of the queue in the store.
            leaf: the first sequence number of the leaf.
            ended: bit i is set if the message with the sequence number ``leaf`` + i has ended.
        """
        self._change(_END_CELLS, queue, leaf, ended)

    def end_from(self, queue: int, sequence: int) -> None:
        """Removes all messages of a lane from a sequence number on."""
        self._change(_END_FROM, queue, sequence)

    def end_transient(self, queue: int, first: int, span: int) -> None:
        """Removes the rows of transient messages that begin in a span of sequence numbers: they are written anew."""
        self._change(_END_TRANSIENT, queue, first, span)

    def drop_transient(self) -> None:
        """Removes all transient messages of all queues: the memory that had them is gone."""
        if not self.has_transient():
            return
        self._change(_DROP_TRANSIENT, 0)

    def has_transient(self) -> bool:
        """Whether the store has transient messages."""
        self.apply()
        return not self._tables.transient.is_empty

    # ---- duplicate ids ----

    def ids(self, queue: int) -> list[tuple[bytes, int]]:
        """The duplicate ids that the store has of a queue: the hash and the number of each, by ascending number."""
        self.apply()
        return self._tables.ids(queue)

    def set_ids(
        self, queue: int, forgotten: int, added: Iterable[tuple[bytes, int]], removed: Iterable[tuple[bytes, int]]
    ) -> None:
        """Changes which duplicate ids the store has of a queue.

        Args:
            queue: the number of the queue in the store.
            forgotten: ids with this number, or a lower one, are removed.
            added: the hash and the number of each new id.
            removed: the same of those that are removed.
        """
        self._change(_SET_IDS, queue, forgotten, text=rows.packed_ids(added), other=rows.packed_ids(removed))

    # ---- queues ----

    def set_tail(self, queue: int, tail: int) -> None:
        """Notes the sequence number that the next message of a lane gets."""
        self._change(_SET_TAIL, queue, tail)

    def put_queue(self, queue: int, record: bytes) -> None:
        """Writes the record of a queue."""
        self._change(_PUT_QUEUE, queue, text=record)

    def remove_queue(self, queue: int) -> None:
        """Removes a queue, with its messages."""
        self._change(_REMOVE_QUEUE, queue)

    def put_topology(self, records: list[bytes]) -> None:
        """Replaces the records of exchanges, bindings and address settings."""
        text = b"".join(_LENGTH.pack(len(record)) + record for record in records)
        self._change(_PUT_TOPOLOGY, 0, text=text)


def apply(database: Database, transaction: lmdb.Transaction, changes: rows.Bytes) -> None:
    """Makes the changes that a batch noted, in a transaction of its environment.

    Raises:
        StoreError: the changes are damaged, or of another version.
    """
    _Tables(database, transaction).apply(changes)


class _Tables:
    """The databases of the store, within a transaction."""

    def __init__(self, database: Database, transaction: lmdb.Transaction) -> None:
        self._transaction = transaction
        self._tails, self._queues = database.names[b"tails"], database.names[b"queues"]
        self._topology, self._ids = database.names[b"topology"], database.names[b"ids"]
        self.leaves = leaves.Leaves(transaction, database.names[leaves.NAME])
        self.durable = RowTables(database, transaction, rows.DURABLE, self.leaves)
        self.transient = RowTables(database, transaction, rows.TRANSIENT, None)

    def apply(self, changes: rows.Bytes) -> None:
        view, at = memoryview(changes), 0
        while at < len(view):
            try:
                which, queue, first, second, length, other = _CHANGE.unpack_from(view, at)
                change = _CHANGES[which]
            except (struct.error, IndexError) as error:
                raise StoreError(text=f"the log has a change that this version does not know, at {at}") from error
            at += _CHANGE.size + length + other
            change(self, queue, first, second, view[at - other - length : at - other], view[at - other : at])
        self.leaves.flush()

    def _of(self, transient: int) -> RowTables:
        return self.transient if transient else self.durable

    def put_row(self, queue: int, first: int, transient: int, heads: rows.Bytes, bodies: rows.Bytes) -> None:
        self._of(transient).put_row(queue, first, heads, bodies)

    def put_returned(self, queue: int, sequence: int, transient: int, entry: rows.Bytes, _none: rows.Bytes) -> None:
        self._of(transient).put_returned(queue, sequence, entry)

    def end_span(self, queue: int, first: int, span: int, *_: rows.Bytes) -> None:
        self.durable.end_span(queue, first, span)
        self.transient.end_span(queue, first, span)

    def end_transient(self, queue: int, first: int, span: int, *_: rows.Bytes) -> None:
        self.transient.end_span(queue, first, span)

    def end_cells(self, queue: int, leaf: int, ended: int, *_: rows.Bytes) -> None:
        self.durable.end_cells(queue, leaf, ended)
        self.transient.end_cells(queue, leaf, ended)

    def end_from(self, queue: int, sequence: int, *_: rows.Bytes | int) -> None:
        self.durable.end_from(queue, sequence)
        self.transient.end_from(queue, sequence)

    def drop_transient(self, *_: rows.Bytes | int) -> None:
        self.transient.drop()

    def set_tail(self, queue: int, tail: int, *_: rows.Bytes | int) -> None:
        key = rows.key(queue, tail >> rows.LANE_SHIFT << rows.LANE_SHIFT)
        self._transaction.put(key, rows.sealed(key, tail.to_bytes(8, "little")), db=self._tails)

    def put_queue(self, queue: int, _: int, _second: int, record: rows.Bytes, _none: rows.Bytes) -> None:
        key = rows.key(queue, 0)
        self._transaction.put(key, rows.sealed(key, record), db=self._queues)

    def remove_queue(self, queue: int, *_: rows.Bytes | int) -> None:
        for one in (self.durable, self.transient):
            one.remove_queue(queue)
        low, high = rows.key(queue, 0), rows.key(queue + 1, 0)
        for table in (self._tails, self._queues, self._ids):
            self.durable.remove(table, low, high)
        self.leaves.forget(queue)

    def put_topology(self, _: int, _first: int, _second: int, text: rows.Bytes, _none: rows.Bytes) -> None:
        self._transaction.drop(self._topology, delete=False)
        at = number = 0
        while at < len(text):
            (length,) = _LENGTH.unpack_from(text, at)
            at += _LENGTH.size + length
            key = rows.key(0, number)
            self._transaction.put(key, rows.sealed(key, text[at - length : at]), db=self._topology)
            number += 1

    def ids(self, queue: int) -> list[tuple[bytes, int]]:
        found = []
        high = rows.key(queue + 1, 0)
        with self._transaction.cursor(db=self._ids) as cursor:
            there = cursor.set_range(rows.key(queue, 0))
            while there and (key := bytes(cursor.key())) < high:
                found.append(rows.id_in(key))
                there = cursor.next()
        return found

    def set_ids(self, queue: int, forgotten: int, _: int, added: rows.Bytes, removed: rows.Bytes) -> None:
        for hashed, number in rows.unpacked_ids(removed):
            self._transaction.delete(rows.key_of_id(queue, number, hashed), db=self._ids)
        for hashed, number in rows.unpacked_ids(added):
            key = rows.key_of_id(queue, number, hashed)
            self._transaction.put(key, rows.sealed(key, b""), db=self._ids)
        self.durable.remove(self._ids, rows.key(queue, 0), rows.key(queue, forgotten + 1))


# Where a change stands here is its number in the log.
_CHANGES: tuple[Callable[[_Tables, int, int, int, rows.Bytes, rows.Bytes], None], ...] = (
    _Tables.put_row,
    _Tables.put_returned,
    _Tables.end_span,
    _Tables.end_cells,
    _Tables.end_from,
    _Tables.set_tail,
    _Tables.put_queue,
    _Tables.remove_queue,
    _Tables.put_topology,
    _Tables.set_ids,
    _Tables.end_transient,
    _Tables.drop_transient,
)
(
    _PUT_ROW, _PUT_RETURNED, _END_SPAN, _END_CELLS, _END_FROM, _SET_TAIL, _PUT_QUEUE, _REMOVE_QUEUE, _PUT_TOPOLOGY,
    _SET_IDS, _END_TRANSIENT, _DROP_TRANSIENT,
) = range(len(_CHANGES))  # fmt: skip
