# SPDX-License-Identifier: Apache-2.0
"""What a store says of its leaves is what the rows say, whatever was written, and whatever ended."""

from __future__ import annotations

import contextlib
import shutil
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmbroker import exceptions
from shmbroker.storage import leaves, rows
from shmbroker.storage.database import Database
from shmbroker.storage.leaves import GROUP, StoredLeaf
from shmbroker.storage.reading import Reader
from shmbroker.storage.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker.storage.batch import Batch

LEAF = rows.LEAF
QUEUE = 3
_SPAN = 4 * LEAF


NONE, WAITS, EXPIRES = 0, 1, 2  # the flags of a row


def entry(place: int, length: int, *, timers: int = NONE) -> bytes:
    """The fixed part of the head of a message."""
    expires, due = int(timers & EXPIRES != 0), int(timers & WAITS != 0)
    return struct.pack("<QQQQQIIIHHBBBBI", length, expires, due, 1, 2**64 - 1, 0, 0, 0, 0, 0, place, 0, 0, 0, 0)


def put_row(batch: Batch, first: int, lengths: dict[int, int], *, timers: int = NONE) -> None:
    """Write a row whose messages have bodies of these lengths, by place."""
    members = sum(1 << place for place in lengths)
    size = sum(lengths.values())
    head = struct.pack("<HHIQQQQ", rows.FORMAT, len(lengths), timers, first, members, size, 5)
    heads = head + b"".join(entry(place, length, timers=timers) for place, length in lengths.items())
    batch.put_row(QUEUE, first, memoryview(bytearray(rows.SEAL) + heads), memoryview(bytearray(rows.SEAL + size)))


class Store:
    """A store in a folder of its own.

    Attributes:
        database: the database of the store.
        writer: its writer.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="shmbroker-leaves-"))
        self.database = Database(self._folder, owner="a test", syncs=False)
        self.writer = Writer(self.database)

    def found(self, lane: int = 0) -> list[StoredLeaf]:
        """What the store says of its leaves."""
        self.writer.settle()
        with self.database.read() as transaction:
            return list(Reader(self.database, transaction).leaves(QUEUE, lane))

    def counted(self) -> dict[int, StoredLeaf]:
        """What the rows say, of the leaves that have some."""
        self.writer.settle()
        with self.database.read() as transaction:
            reader = Reader(self.database, transaction)
            there = {rows.leaf_of(row.first) for row in reader.rows_from(QUEUE)}
            return {one: reader.counted(QUEUE, StoredLeaf(one, 0, 0, sure=False)) for one in there}

    def close(self) -> None:
        """Close it, and remove the folder."""
        self.writer.close()
        self.database.close()
        shutil.rmtree(self._folder)


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store."""
    with contextlib.closing(Store()) as made:
        yield made


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[object, ...]]:
    """What a turn does with a queue of some leaves."""
    some: list[tuple[object, ...]] = []
    timers = st.integers(NONE, WAITS | EXPIRES)
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["row", "row", "ended", "span", "tail", "returned"]))
        first = draw(st.integers(0, _SPAN - 1))
        if kind == "row":
            most = LEAF - first % LEAF
            places = draw(st.sets(st.integers(0, most - 1), min_size=1, max_size=8))
            some.append((kind, first, {place: 10 * place + 1 for place in sorted(places)}, draw(timers)))
        elif kind == "ended":
            some.append((kind, rows.leaf_of(first), draw(st.integers(1, (1 << LEAF) - 1))))
        elif kind == "span":
            some.append((kind, first, draw(st.integers(1, _SPAN))))
        else:
            some.append((kind, first, draw(timers)))
    return some


def make(batch: Batch, change: tuple[object, ...]) -> None:
    """Make a change."""
    kind, first, *others = change
    assert isinstance(first, int)
    match kind, others:
        case "row", [dict() as lengths, int() as timers]:
            put_row(batch, first, lengths, timers=timers)
        case "ended", [int() as ended]:
            batch.end_cells(QUEUE, first, ended)
        case "span", [int() as span]:
            batch.end_span(QUEUE, first, span)
        case "tail", _:
            batch.end_from(QUEUE, first)
        case _, [int() as timers]:
            leaf = rows.leaf_of(first)
            if batch.members(QUEUE, leaf)[0] >> (first - leaf) & 1:  # the storekeeper writes it only of what has a row
                batch.put_returned(QUEUE, first, entry(0, 1, timers=timers))


@given(st.lists(changes(), min_size=1, max_size=8))
def test_the_numbers_are_those_of_the_rows(turns: list[list[tuple[object, ...]]]) -> None:
    """Each leaf that has rows has a number; a number that is sure is right, and the flags miss no timer."""
    with contextlib.closing(Store()) as store:
        for turn in turns:
            with store.writer.turn() as batch:
                for change in turn:
                    make(batch, change)
        said, counted = {leaf.sequence: leaf for leaf in store.found()}, store.counted()
        assert counted.keys() <= said.keys()
        for sequence, leaf in said.items():
            if leaf.sure:
                true = counted.get(sequence, StoredLeaf(sequence, 0, 0, sure=True))
                assert (leaf.messages, leaf.size) == (true.messages, true.size)
            if sequence in counted:
                assert leaf.waits >= counted[sequence].waits
                assert leaf.expires >= counted[sequence].expires


def test_a_leaf_with_messages_that_have_ended_is_not_sure(store: Store) -> None:
    """Their lengths are in the heads; when their row is gone, the leaf is sure again."""
    with store.writer.turn() as batch:
        put_row(batch, LEAF, {0: 5, 1: 7})
        put_row(batch, LEAF + 2, {0: 11})
    assert store.found() == [StoredLeaf(LEAF, 3, 23, sure=True)]
    with store.writer.turn() as batch:
        batch.end_cells(QUEUE, LEAF, 0b001)
    assert [leaf.sure for leaf in store.found()] == [False]
    assert store.counted() == {LEAF: StoredLeaf(LEAF, 2, 18, sure=True)}
    with store.writer.turn() as batch:
        batch.end_cells(QUEUE, LEAF, 0b010)
    assert store.found() == [StoredLeaf(LEAF, 1, 11, sure=True)]
    with store.writer.turn() as batch:
        batch.end_cells(QUEUE, LEAF, 0b100)
    assert store.found() == []


@pytest.mark.parametrize("at", [0, GROUP - LEAF, GROUP, 1 << rows.LANE_SHIFT], ids=["first", "last", "next", "lane"])
def test_the_leaves_of_one_value(store: Store, at: int) -> None:
    """The first and the last leaf of a value, the first one of the next value, and one of another lane."""
    with store.writer.turn() as batch:
        put_row(batch, at, {0: 5})
    lane = at >> rows.LANE_SHIFT << rows.LANE_SHIFT
    assert store.found(lane) == [StoredLeaf(at, 1, 5, sure=True)]
    assert store.found((1 << rows.LANE_SHIFT) - lane) == []


def test_a_queue_that_is_removed_has_no_leaves(store: Store) -> None:
    """Those of other queues stay."""
    with store.writer.turn() as batch:
        put_row(batch, 0, {0: 5})
        batch.put_queue(QUEUE, b"record")
    with store.writer.turn() as batch:
        batch.remove_queue(QUEUE - 1)
        batch.remove_queue(QUEUE + 1)
    assert len(store.found()) == 1
    with store.writer.turn() as batch:
        batch.remove_queue(QUEUE)
    assert store.found() == []


def test_a_damaged_value_is_an_error(store: Store) -> None:
    """The checksum tells, and so does a length that is none of some leaves."""
    key = rows.key(QUEUE, 0)
    for value, words in ((b"x" * 16, "the leaves of queue 3"), (rows.sealed(key, b"123"), "have 3 bytes")):
        with store.database.environment.begin(write=True) as transaction:
            transaction.put(key, value, db=store.database.names[leaves.NAME])
        with pytest.raises(exceptions.StoreError, match=words):
            store.found()
