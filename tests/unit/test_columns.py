# SPDX-License-Identifier: Apache-2.0
"""Messages by column: what a browse by record says, and a put one by one does."""

from __future__ import annotations

import array
import queue as standard_queue
import random
from typing import Any

import pytest

import shmbroker
from shmbroker import columns as by_column
from shmbroker.columns import Columns, Ready

ROWS = 8


class Arrays:
    """All columns, with room for so many rows, and so many bytes in each column of texts."""

    def __init__(self, rows: int = ROWS, room: int = 1000, **rooms: int) -> None:
        self.columns = Columns()
        self.ends = {name: array.array("i", [0] * (rows + 1)) for name in by_column.TEXTS}
        self.texts = {name: bytearray(rooms.get(name, room)) for name in by_column.TEXTS}
        self.rows = {name: array.array("q", [0] * rows) for name in by_column.NUMBERS}
        self.bits = {name: bytearray(b"\xaa" * (-(-rows // 8))) for name in by_column.BITS}
        for name in by_column.TEXTS:
            self.columns.set_text(name, self.ends[name], self.texts[name])
        for name, data in (self.rows | self.bits).items():
            self.columns.set_row(name, data)

    def text(self, name: str, row: int) -> bytes:
        """A text of a row."""
        return bytes(self.texts[name][self.ends[name][row] : self.ends[name][row + 1]])

    def bit(self, name: str, row: int) -> bool:
        """A bit of a row."""
        return bool(self.bits[name][row // 8] >> row % 8 & 1)

    def row(self, row: int) -> tuple[Any, ...]:
        """As `seen` has it."""
        key = self.text("key", row).decode() if self.bit("has_key", row) else None
        times = self.rows["sequence"][row], self.rows["timestamp_us"][row]
        return (*times, self.bit("redelivered", row), key, self.text("body", row))


def seen(queue: shmbroker.Queue) -> list[tuple[Any, ...]]:
    """The messages of a queue, record by record."""
    return [
        (one.sequence, int(one._fields.timestamp_ns) // 1000, one.redelivered, one.key, bytes(one))
        for one in queue.browse()
    ]


def by_columns(queue: shmbroker.Queue, **room: int) -> list[tuple[Any, ...]]:
    """The messages of a queue, by column."""
    ready, found, more = Ready(queue), [], True
    while more:
        arrays = Arrays(**room)
        count, more = ready.fill(arrays.columns, len(arrays.rows["sequence"]))
        found += [arrays.row(at) for at in range(count)]
        if more and not count:
            room["room"] = max(arrays.columns.needed().values())
    return found


def put_columns(queue: shmbroker.Queue, messages: list[tuple[bytes, bytes]], **options: Any) -> int:  # noqa: ANN401
    """Puts keys and bodies by column."""
    columns = Columns()
    for at, name in enumerate(("key", "body")):
        texts = [message[at] for message in messages]
        ends = array.array("i", [0])
        for text in texts:
            ends.append(ends[-1] + len(text))
        columns.set_text(name, ends, b"".join(texts))
    return by_column.put(queue, columns, len(messages), **options)


@pytest.mark.parametrize("rows", [1, 7, 500])
def test_columns_say_what_records_say(queue: shmbroker.Queue, rows: int) -> None:
    """Every field of every message, also of those that were given back, held, taken, expired, or are long."""
    for at in range(300):
        ttl = 1e-9 if at % 11 == 0 else None
        queue.put(b"%d" % at * (at % 7) * (5000 if at % 50 == 0 else 1), key=f"k{at}" if at % 3 else None, ttl=ttl)
    held = queue.get_many(20)
    for at in range(0, len(held), 2):
        held[at].nack()
    held[1].ack()
    assert by_columns(queue, rows=rows, room=40_000) == seen(queue)
    held.nack()
    assert by_columns(queue, rows=rows, room=40_000) == seen(queue)


def test_only_what_is_wanted_is_filled(queue: shmbroker.Queue) -> None:
    """Rows may be counted without any column."""
    queue.put_many([b"a"] * 5)
    assert Ready(queue).fill(Columns(), 3) == (3, True)
    assert Ready(queue, most=3).fill(Columns(), 10) == (3, False)
    assert Ready(queue).fill(Columns(), 10) == (5, False)


@pytest.mark.parametrize("name", by_column.TEXTS)
def test_what_has_no_room_comes_next(queue: shmbroker.Queue, name: str) -> None:
    """A row is whole or not there; the column says how much it would have needed."""
    for size in (3, 4, 30):
        queue.put(b"b" * size, key="k" * size, headers={"h": "v" * size})
    arrays, ready = Arrays(**{name: 8 if name != "properties" else 40}), Ready(queue)
    count, more = ready.fill(arrays.columns, ROWS)
    assert (0 < count < 3, more) == (True, True)
    assert list(arrays.columns.needed()) == [name]
    larger = Arrays()
    assert ready.fill(larger.columns, ROWS) == (3 - count, False)
    assert larger.text("body", 2 - count) == b"b" * 30


def test_a_queue_that_is_deleted(queue: shmbroker.Queue) -> None:
    """The error is that of any other call."""
    ready = Ready(queue)
    queue.delete()
    with pytest.raises(shmbroker.NotFound, match="q"):
        ready.fill(Columns(), 1)
    with pytest.raises(shmbroker.NotFound, match="q"):
        put_columns(queue, [(b"", b"a")])


def test_a_connection_that_is_closed(broker: shmbroker.Broker) -> None:
    """The error says so."""
    with broker.connect() as connection:
        ready = Ready(connection.queue("q"))
    with pytest.raises(shmbroker.ConnectionClosed):
        ready.fill(Columns(), 1)


def test_what_is_put_by_column_is_there(queue: shmbroker.Queue) -> None:
    """In order, with keys, also none and empty bodies and long ones."""
    chosen = random.Random(7)
    for count in (0, 1, 2, 300):
        sizes = [chosen.choice([0, 1, 64, 5000]) for _ in range(count)]
        messages = [(b"k" * chosen.randrange(4), chosen.randbytes(size)) for size in sizes]
        assert put_columns(queue, messages) == count
        assert [((one.key or "").encode(), bytes(one)) for one in queue.browse()] == messages
        queue.purge()


def test_putting_into_a_full_queue(connection: shmbroker.Connection) -> None:
    """What there was room for is there; if there was none for any that is an error."""
    queue = connection.queue("small", max_length=3)
    assert put_columns(queue, [(b"", b"%d" % at) for at in range(5)], timeout=0) == 3
    with pytest.raises(standard_queue.Full):
        put_columns(queue, [(b"", b"again")], timeout=0)
    assert [bytes(one) for one in queue.browse()] == [b"0", b"1", b"2"]


def test_putting_what_can_never_fit(connection: shmbroker.Connection) -> None:
    """The error names the size."""
    queue = connection.queue("small", max_bytes=10)
    assert put_columns(queue, [(b"", b"a"), (b"", b"b" * 11)]) == 1
    with pytest.raises(standard_queue.Full, match="11 bytes can never fit"):
        put_columns(queue, [(b"", b"b" * 11)])
    with pytest.raises(ValueError, match="64 KiB"):
        put_columns(queue, [(b"k" * 70_000, b"")])
    assert len(queue) == 1
