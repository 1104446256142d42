# SPDX-License-Identifier: Apache-2.0
"""Messages by column: what a browse by record says, and a put one by one does."""

from __future__ import annotations

import array
import queue as standard_queue
import random
from typing import Any

import pytest
from scenario_support.inside import core_of

import shmbroker
from shmbroker import body_references
from shmbroker import columns as by_column
from shmbroker._core import native
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
    with pytest.raises(shmbroker.NeverFits, match="11 bytes can never fit"):
        put_columns(queue, [(b"", b"b" * 11)])
    with pytest.raises(ValueError, match="64 KiB"):
        put_columns(queue, [(b"k" * 70_000, b"")])
    assert len(queue) == 1


def test_places_of_rows(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Each is that which a browse by place gives, and leads to the body."""
    for size in (5, 70_000, 0):
        queue.put(bytes([size % 251]) * size)
    columns, data = Columns(), bytearray(4 * by_column.PLACE_BYTES)
    columns.set_row(by_column.PLACE, data)
    assert Ready(queue).fill(columns, 4) == (3, False)
    found = by_column.places_in(memoryview(data)[: 3 * by_column.PLACE_BYTES])
    assert found == [place for _, place in body_references.of_queue(queue)]
    bodies = [body_references.body_at(connection, place) for place in found]
    assert [bytes(body) for body in bodies if body is not None] == [b"\x05" * 5, bytes([222]) * 70_000, b""]


@pytest.mark.parametrize("name", [*by_column.TEXTS, *by_column.NUMBERS, *by_column.BITS, by_column.PLACE])
def test_the_memory_of_columns_is_kept(name: str) -> None:
    """As long as there are columns that lie in it, it cannot get another size: the core would write elsewhere."""
    columns, data, ends = Columns(), bytearray(24), array.array("i", [0, 0])
    if name in by_column.TEXTS:
        columns.set_text(name, ends, data)
        with pytest.raises(BufferError):
            ends.append(0)
    else:
        columns.set_row(name, data)
    with pytest.raises(BufferError):
        data.append(0)
    del columns
    data.append(0)


def test_only_columns_without_room_need_more(queue: shmbroker.Queue) -> None:
    """One that the next row would fill exactly is large enough, and one that is not there needs nothing."""
    queue.put(b"12345678", key="1234")
    columns, ends = Columns(), {name: array.array("i", [0, 0]) for name in ("key", "body")}
    columns.set_text("key", ends["key"], bytearray(4))
    columns.set_text("body", ends["body"], bytearray(7))
    assert Ready(queue).fill(columns, 1) == (0, True)
    assert columns.needed() == {"body": 8}
    columns.set_text("body", ends["body"], bytearray(8))
    assert Ready(queue).fill(columns, 1) == (1, True)
    assert columns.needed() == {}
    assert (columns.start("body", 0), columns.start("body", 1), columns.start("key", 1)) == (0, 8, 4)


@pytest.mark.parametrize("row", [0, 2])
def test_a_put_goes_on_where_it_waited(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch, row: int
) -> None:
    """Each row goes once, in order; whoever waits for room is told the size of the first body that has none."""
    queue = connection.queue("small", max_length=2)
    bodies, taken, waits = [b"x" * (size + 1) for size in range(7)], [], []
    put_failed = core_of(queue).put_failed

    def make_room(*failure: int) -> None:
        if failure[0] == native.GROW:
            put_failed(*failure)
            return
        waits.append(failure)
        taken.append(bytes(queue.get(timeout=0, auto_ack=True)))

    monkeypatch.setattr(core_of(queue), "put_failed", make_room)
    columns, ends = Columns(), array.array("i", [0])
    for body in bodies:
        ends.append(ends[-1] + len(body))
    columns.set_text("body", ends, b"".join(bodies))
    assert columns._put(core_of(queue), row, 5, 4711) == 5  # noqa: SLF001
    assert taken + [bytes(one) for one in queue.browse()] == bodies[row : row + 5]
    assert waits == [(native.FULL, row + 3 + at, 4711) for at in range(3)]


def test_a_put_without_any_row(connection: shmbroker.Connection) -> None:
    """Nothing goes, and nothing is waited for."""
    queue = connection.queue("small", max_length=1)
    queue.put(b"A")
    assert put_columns(queue, [], timeout=0) == 0


def test_rows_are_read_on_from_where_the_last_call_ended(queue: shmbroker.Queue) -> None:
    """Up to the number that was asked for in all, and not one more."""
    queue.put_many([b"%d" % at for at in range(9)])
    ready, found = Ready(queue, most=5), []
    for count, expected in ((2, (2, True)), (2, (2, True)), (2, (1, False)), (2, (0, False))):
        arrays = Arrays()
        assert ready.fill(arrays.columns, count) == expected
        found += [arrays.text("body", at) for at in range(expected[0])]
    assert found == [b"0", b"1", b"2", b"3", b"4"]


def test_rows_are_put_from_one_on(queue: shmbroker.Queue) -> None:
    """As many as are said; those before it and behind them stay out."""
    columns, texts = Columns(), [b"a", b"b", b"c", b"d"]
    columns.set_text("body", array.array("i", range(5)), b"".join(texts))
    assert by_column.put(queue, columns, 2, row=1) == 2
    assert [bytes(one) for one in queue.browse()] == [b"b", b"c"]
