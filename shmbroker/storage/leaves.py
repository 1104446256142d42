# SPDX-License-Identifier: Apache-2.0
"""What the store has of each leaf: how many messages, and how many bytes. A start reads this instead of the rows.

A value has the leaves of 8,192 successive sequence numbers of a queue: for each of them one number of eight bytes. So
a start reads ten million messages of one queue as 1,221 values.

The number of a leaf is exact, or it says that it is not. It is not when some of its messages have ended: the lengths of
these are in the heads. Then the heads of the leaf tell.
"""

from __future__ import annotations

import array
from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker.exceptions import StoreError
from shmbroker.storage import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lmdb

NAME = b"leaves"
GROUP = 128 * rows.LEAF
"""So many sequence numbers have their leaves in one value; the first one is a multiple of this."""
_BYTES = 8
_SIZE = (1 << 48) - 1  # the bytes of the bodies
_MESSAGES, _MOST = 48, 0xFF
_NUMBERS = (1 << 56) - 1
_WAITS = 1 << 56
_UNSURE = 1 << 57  # rows are counted as they were written, and some of their messages have ended
_ODD = 1 << 58  # a row was written twice, or removed without a look at it
_EXPIRES = 1 << 59
_TIMERS = _WAITS | _EXPIRES


class StoredLeaf(NamedTuple):
    """What the store has of a leaf.

    Attributes:
        sequence: the first sequence number of the leaf.
        messages: how many messages it has.
        size: the bytes of their bodies.
        sure: whether both numbers are exact; if not, some messages have ended that are counted.
        waits: whether one of them is delayed, or waits as dead, or may have done so.
        expires: whether one of them expires, or one did that has ended.
    """

    sequence: int
    messages: int
    size: int
    sure: bool
    waits: bool = False
    expires: bool = False


class Leaves:
    """The numbers of the leaves, within a transaction that writes. They are in it after :meth:`flush`.

    Args:
        transaction: the transaction.
        table: the table of the store.
    """

    def __init__(self, transaction: lmdb.Transaction, table: Any) -> None:  # noqa: ANN401 - lmdb has no types
        self._transaction, self._table = transaction, table
        self._groups: dict[bytes, array.array[int]] = {}

    def add(self, queue: int, first: int, row: rows.Row, *, again: bool) -> None:
        """Counts a row that was written.

        Args:
            queue: the number of the queue in the store.
            first: the sequence number of the row.
            row: its head.
            again: whether there was a row with this sequence number already.
        """
        group, at = self._of(queue, first)
        found = group[at]
        messages = min((found >> _MESSAGES & _MOST) + row.messages, _MOST)
        flags = found & ~_NUMBERS | _timers(waits=row.waits, expires=row.expires) | (_ODD if again else 0)
        group[at] = min((found & _SIZE) + row.bodies_length, _SIZE) | messages << _MESSAGES | flags

    def state(self, queue: int, sequence: int, *, waits: bool, expires: bool) -> None:
        """Notes that the state of a message of the leaf was written again.

        Args:
            queue: the number of the queue in the store.
            sequence: the sequence number of the message.
            waits: whether it is delayed, or waits as dead.
            expires: whether it expires.
        """
        if waits or expires:
            group, at = self._of(queue, sequence)
            group[at] |= _timers(waits=waits, expires=expires)

    def some_ended(self, queue: int, leaf: int, removed: list[rows.Row], *, left: bool, partly: bool) -> None:
        """Notes that messages of a leaf have ended.

        Args:
            queue: the number of the queue in the store.
            leaf: the first sequence number of the leaf.
            removed: the rows that were removed, since no message of them is left.
            left: whether the leaf has other rows.
            partly: whether messages of these have ended.
        """
        group, at = self._of(queue, leaf)
        messages = (group[at] >> _MESSAGES & _MOST) - sum(row.messages for row in removed)
        size = (group[at] & _SIZE) - sum(row.bodies_length for row in removed)
        if not left:
            group[at] = 0
        elif messages <= 0 or size < 0:  # it was not exact
            group[at] |= _ODD
        else:
            flags = group[at] & (_TIMERS | _ODD) | (_UNSURE if partly else 0)
            group[at] = size | messages << _MESSAGES | flags

    def end_span(self, queue: int, first: int, behind: int) -> None:
        """Notes that the rows that begin in a span of sequence numbers were removed."""
        self.flush()
        low, high = rows.key(queue, first // GROUP * GROUP), rows.key(queue, behind)
        found = []
        with self._transaction.cursor(db=self._table) as cursor:
            there = cursor.set_range(low)
            while there and (key := bytes(cursor.key())) < high:
                start = rows.sequence_in(key)
                if first <= start and start + GROUP <= behind:
                    there = cursor.delete() and bool(cursor.key())
                    continue
                found.append(start)
                there = cursor.next()
        for start in found:
            group, _ = self._of(queue, start)
            for at in range(GROUP // rows.LEAF):
                leaf = start + at * rows.LEAF
                if first <= leaf and leaf + rows.LEAF <= behind:
                    group[at] = 0
                elif leaf < behind and first < leaf + rows.LEAF and group[at]:
                    group[at] |= _ODD

    def forget(self, queue: int) -> None:
        """Removes the numbers of a queue."""
        self.flush()
        with self._transaction.cursor(db=self._table) as cursor:
            there = cursor.set_range(rows.key(queue, 0))
            while there and rows.queue_in(cursor.key()) == queue:
                there = cursor.delete() and bool(cursor.key())

    def flush(self) -> None:
        """Brings all numbers into the transaction."""
        for key, group in self._groups.items():
            used = len(group)
            while used and not group[used - 1]:
                used -= 1
            if used:
                self._transaction.put(key, rows.sealed(key, group[:used].tobytes()), db=self._table)
            else:
                self._transaction.delete(key, db=self._table)
        self._groups.clear()

    def _of(self, queue: int, sequence: int) -> tuple[array.array[int], int]:
        start = sequence // GROUP * GROUP
        key = rows.key(queue, start)
        group = self._groups.get(key)
        if group is None:
            found = self._transaction.get(key, db=self._table)
            group = array.array("Q") if found is None else _numbers(key, found)
            group.extend([0] * (GROUP // rows.LEAF - len(group)))
            self._groups[key] = group
        return group, (sequence - start) // rows.LEAF


def leaves_of(transaction: lmdb.Transaction, table: Any, queue: int, lane: int) -> Iterator[StoredLeaf]:  # noqa: ANN401
    """Yields what a store has of each leaf of a lane, by ascending sequence number.

    Raises:
        StoreError: a value is damaged.
    """
    with transaction.cursor(db=table) as cursor:
        there = cursor.set_range(rows.key(queue, lane))
        high = rows.key(queue, rows.behind_lane(lane)) if rows.behind_lane(lane) < rows.BEHIND_ALL else None
        while there and rows.queue_in(key := bytes(cursor.key())) == queue and (high is None or key < high):
            start = rows.sequence_in(key)
            for at, found in enumerate(_numbers(key, cursor.value())):
                if found:
                    yield StoredLeaf(
                        start + at * rows.LEAF,
                        found >> _MESSAGES & _MOST,
                        found & _SIZE,
                        not found & (_UNSURE | _ODD),
                        bool(found & _WAITS),
                        bool(found & _EXPIRES),
                    )
            there = cursor.next()


def expiring(
    transaction: lmdb.Transaction,
    table: Any,  # noqa: ANN401
    queue: int,
    sequence: int,
    most: int,
) -> tuple[list[int], int | None]:
    """Which values of a queue have leaves with messages that expire.

    Args:
        transaction: the transaction.
        table: the table of the store.
        queue: the number of the queue in the store.
        sequence: the first value is the first one with this sequence number, or a later one.
        most: how many values are read at most.

    Returns:
        The first sequence number of each, and where to continue; ``None`` = there is no other one.

    Raises:
        StoreError: a value is damaged.
    """
    found: list[int] = []
    with transaction.cursor(db=table) as cursor:
        there = cursor.set_range(rows.key(queue, sequence))
        while there and rows.queue_in(key := bytes(cursor.key())) == queue:
            if most == 0:
                return found, rows.sequence_in(key)
            if any(leaf & _EXPIRES for leaf in _numbers(key, cursor.value())):
                found.append(rows.sequence_in(key))
            most -= 1
            there = cursor.next()
    return found, None


def _timers(*, waits: bool, expires: bool) -> int:
    return (_WAITS if waits else 0) | (_EXPIRES if expires else 0)


def _numbers(key: bytes, value: rows.Bytes) -> array.array[int]:
    payload = rows.opened(key, value, "the leaves")
    if len(payload) % _BYTES or len(payload) > GROUP // rows.LEAF * _BYTES:
        raise StoreError(text=f"the store is damaged: the leaves at {rows.sequence_in(key)} have {len(payload)} bytes")
    found = array.array("Q")
    found.frombytes(payload)
    return found
