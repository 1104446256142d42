# SPDX-License-Identifier: Apache-2.0
"""The tables of rows, within a transaction that writes: heads, bodies, which messages have ended, and changed states.

A store has them twice. One set has the messages that survive the loss of the memory. The other one has transient
messages that had to leave the memory: they are needed while the memory exists, and a start from the disk drops them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker.storage import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lmdb

    from shmbroker.storage.database import Database
    from shmbroker.storage.leaves import Leaves

_ALL = (1 << rows.LEAF) - 1


class RowTables:
    """One set of these tables.

    Args:
        database: the store.
        transaction: the transaction.
        names: the names of the tables.
        leaves: what counts the messages of the leaves; ``None``: nothing does.
    """

    def __init__(
        self, database: Database, transaction: lmdb.Transaction, names: rows.RowNames, leaves: Leaves | None
    ) -> None:
        self._transaction, self._leaves = transaction, leaves
        self._heads, self._bodies, self._ended, self._returned = (database.names[name] for name in names)
        # Nearly all stores have no transient message: then nothing is looked for in their tables.
        self.is_empty = leaves is None and transaction.stat(self._heads)["entries"] == 0

    def put_row(self, queue: int, first: int, heads: rows.Bytes, bodies: rows.Bytes) -> None:
        """Writes a row, or replaces it."""
        self.is_empty = False
        key = rows.key(queue, first)
        new = self._transaction.put(key, heads, db=self._heads, overwrite=False)
        if not new:
            self._transaction.put(key, heads, db=self._heads)
        self._transaction.put(key, bodies, db=self._bodies)
        if self._leaves is not None:
            self._leaves.add(queue, first, rows.row_of(heads[rows.SEAL :]), again=not new)

    def members(self, queue: int, leaf: int) -> int:
        """Which messages of a leaf there are: bit i stands for the sequence number ``leaf`` + i."""
        found = 0
        if not self.is_empty:
            for first, row in self._rows_in(queue, leaf, rows.LEAF):
                found |= row.members << (first - leaf)
        return found & _ALL

    def put_returned(self, queue: int, sequence: int, entry: rows.Bytes) -> None:
        """Notes the state of a message."""
        key = rows.key(queue, sequence)
        self._transaction.put(key, rows.sealed(key, entry), db=self._returned)
        if self._leaves is not None:
            self._leaves.state(queue, sequence, waits=rows.waits(entry), expires=rows.expiry(entry) != 0)

    def end_span(self, queue: int, first: int, span: int) -> None:
        """Removes what begins in a span of sequence numbers."""
        if self.is_empty:
            return
        low, high = rows.key(queue, first), rows.key(queue, first + span)
        for table in (self._heads, self._bodies, self._ended, self._returned):
            self.remove(table, low, high)
        if self._leaves is not None:
            self._leaves.end_span(queue, first, first + span)

    def end_cells(self, queue: int, leaf: int, ended: int) -> None:
        """Notes that messages of a leaf have ended; removes the rows of which no message is left."""
        if self.is_empty:
            return
        key = rows.key(queue, leaf)
        found = self._transaction.get(key, db=self._ended)
        before = 0 if found is None else int.from_bytes(rows.opened(key, found, "the ends"), "little")
        ended |= before
        left, removed = 0, []
        for first, row in list(self._rows_in(queue, leaf, rows.LEAF)):
            members = row.members << (first - leaf) & _ALL
            if members & ~ended:
                left |= members
            else:
                removed.append(row)
                for table in (self._heads, self._bodies):
                    self._transaction.delete(rows.key(queue, first), db=table)
        if left & ended:
            if ended & left != before:
                self._transaction.put(key, rows.sealed(key, (ended & left).to_bytes(8, "little")), db=self._ended)
        elif found is not None:
            self._transaction.delete(key, db=self._ended)
        self._forget_returned(queue, leaf, ended)
        if self._leaves is not None:
            self._leaves.some_ended(queue, leaf, removed, left=left != 0, partly=bool(left & ended))

    def _forget_returned(self, queue: int, leaf: int, ended: int) -> None:
        with self._transaction.cursor(db=self._returned) as cursor:
            there = cursor.set_range(rows.key(queue, leaf))
            while there and bytes(cursor.key()) < rows.key(queue, leaf + rows.LEAF):
                gone = ended >> (rows.sequence_in(cursor.key()) - leaf) & 1
                there = cursor.delete() and bool(cursor.key()) if gone else cursor.next()

    def end_from(self, queue: int, sequence: int) -> None:
        """Removes what begins at a sequence number, or behind it in its lane."""
        if self.is_empty:
            return
        self.end_span(queue, sequence, rows.behind_lane(sequence) - sequence)
        leaf = rows.leaf_of(sequence)
        if leaf != sequence:  # the ends of that leaf may be those of messages that were removed
            key = rows.key(queue, leaf)
            found = self._transaction.get(key, db=self._ended)
            if found is not None:
                kept = int.from_bytes(rows.opened(key, found, "the ends"), "little") & (1 << (sequence - leaf)) - 1
                self._transaction.put(key, rows.sealed(key, kept.to_bytes(8, "little")), db=self._ended)

    def remove_queue(self, queue: int) -> None:
        """Removes all messages of a queue."""
        if self.is_empty:
            return
        low, high = rows.key(queue, 0), rows.key(queue + 1, 0)
        for table in (self._heads, self._bodies, self._ended, self._returned):
            self.remove(table, low, high)

    def drop(self) -> None:
        """Removes all messages of all queues."""
        for table in (self._heads, self._bodies, self._ended, self._returned):
            self._transaction.drop(table, delete=False)
        self.is_empty = True

    def _rows_in(self, queue: int, first: int, span: int) -> Iterator[tuple[int, rows.Row]]:
        """Yields the rows that begin in a span: the sequence number of each, and its head."""
        high = rows.key(queue, first + span)
        with self._transaction.cursor(db=self._heads) as cursor:
            there = cursor.set_range(rows.key(queue, first))
            while there and (key := bytes(cursor.key())) < high:
                yield rows.sequence_in(key), rows.row_of(rows.opened(key, cursor.value(), "the heads"))
                there = cursor.next()

    def remove(self, table: Any, low: bytes, high: bytes) -> None:  # noqa: ANN401 - lmdb has no types
        """Removes the keys of a table from ``low`` on, and below ``high``."""
        with self._transaction.cursor(db=table) as cursor:
            there = cursor.set_range(low)
            while there and bytes(cursor.key()) < high:
                there = cursor.delete() and bool(cursor.key())
