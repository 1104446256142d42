# SPDX-License-Identifier: Apache-2.0
"""Record batches of messages: their size, their columns, and what is made while Spark takes one."""

from __future__ import annotations

import threading
from concurrent import futures
from typing import TYPE_CHECKING, Any

import pytest

from shmbroker import body_references

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa

import shmbroker
from shmbroker import columns as core
from shmbroker import properties as basic
from shmbroker.columns import Ready
from shmbroker.spark import headers, rows

if TYPE_CHECKING:
    from collections.abc import Iterator


def of(queue: shmbroker.Queue, *names: str, most: int | None = None) -> Iterator[pa.RecordBatch]:
    """What is ready, as batches."""
    return rows.batches(Ready(queue, most).fill, queue.name, names)


@pytest.mark.parametrize("name", rows.COLUMNS)
def test_each_column_alone(queue: shmbroker.Queue, name: str) -> None:
    """It has its type and its values, whatever other columns there are; batches hold so many rows."""
    for at in range(3):
        queue.put(b"b%d" % at, key=None if at == 1 else f"k{at}", headers={"h": at} if at else None)
    given = {
        "sequence": [0, 1, 2],
        "queue": ["q"] * 3,
        "key": [b"k0", None, b"k2"],
        "headers": [[], [("h", "1")], [("h", "2")]],
        "redelivered": [False] * 3,
        "value": [b"b0", b"b1", b"b2"],
        "handle": [b"%d %d" % (at, place.slot) for at, (_, place) in enumerate(body_references.of_queue(queue))],
    }
    handle = lambda sequence, place: b"%d %d" % (sequence, place.slot)  # noqa: E731
    for names in ([name], list(dict.fromkeys([name, "sequence"])), list(dict.fromkeys(["value", "key", name]))):
        (batch,) = rows.batches(Ready(queue).fill, "q", names, handle)
        batch.validate(full=True)
        assert batch.schema == pa.schema([(one, rows.COLUMNS[one].arrow) for one in names])
        assert batch.num_rows == 3
        if name != "timestamp":
            assert batch.column(name).to_pylist() == given[name]
        else:
            seen = [one.timestamp() for one in batch.column(name).to_pylist()]
            assert seen == pytest.approx([one.timestamp for one in queue.browse()], abs=1e-5)


def test_redelivered_messages(queue: shmbroker.Queue) -> None:
    """Of many, each has its own bit."""
    queue.put_many([b"x"] * 20)
    for message in queue.get_many(13)[::3]:
        message.nack()
    for left in list(queue.browse()):
        assert left.redelivered == (left.sequence in {0, 3, 6, 9, 12})
    (batch,) = of(queue, "sequence", "redelivered")
    found = {row["sequence"]: row["redelivered"] for row in batch.to_pylist()}
    assert found == {at: at in {0, 3, 6, 9, 12} for at in found}


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (4, [4]), (5, [5]), (6, [5, 1]), (13, [5, 5, 3])])
def test_batches_have_so_many_rows(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch, count: int, sizes: list[int]
) -> None:
    """And the last one what is left."""
    monkeypatch.setattr(rows, "BATCH_ROWS", 5)
    queue.put_many([b"%d" % at for at in range(count)])
    found = list(of(queue, "value", "redelivered"))
    assert [batch.num_rows for batch in found] == sizes
    assert [value for batch in found for value in batch["value"].to_pylist()] == [b"%d" % at for at in range(count)]


def test_the_next_batch_is_made_meanwhile(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one thread of its own, which has a name; a single batch needs none."""
    monkeypatch.setattr(rows, "BATCH_ROWS", 2)
    queue.put_many([b"x"] * 9)
    ready, makers = Ready(queue), []

    def fill(columns: core.Columns, most: int) -> tuple[int, bool]:
        makers.append(threading.current_thread().name)
        return ready.fill(columns, most)

    assert len(list(rows.batches(fill, "q", ["value"]))) == 5
    first, *others = makers
    assert first == threading.current_thread().name
    assert set(others) == {"shmbroker-rows_0"}
    makers.clear()
    ready = Ready(queue, 2)
    monkeypatch.setattr(futures, "ThreadPoolExecutor", lambda *_: pytest.fail("a thread"))
    assert len(list(rows.batches(fill, "q", ["value"]))) == 1
    assert set(makers) == {threading.current_thread().name}


def test_room_grows_for_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has none is asked for again with as much as it needs, and only then; others have the usual room."""
    rooms: list[dict[str, int]] = []
    answers = iter([(0, True), (2, True), (0, False)])
    made = rows._Room.__init__  # noqa: SLF001

    def noted(self: Any, names: Any, texts: dict[str, int], handle: Any) -> None:  # noqa: ANN401
        rooms.append(dict(texts))
        made(self, names, texts, handle)

    monkeypatch.setattr(rows._Room, "__init__", noted)  # noqa: SLF001
    monkeypatch.setattr(core.Columns, "needed", lambda _self: {core.BODY: 5 << 20})
    monkeypatch.setattr(rows._Room, "batch", lambda _self, count, _queue: count)  # noqa: SLF001
    batches = rows._Made(lambda _columns, _most: next(answers), "q", ["value"], None)  # noqa: SLF001
    assert (batches.next(), batches.more) == (2, True)
    assert (batches.next(), batches.more) == (None, False)
    assert batches.next() is None
    assert rooms == [rows.TEXT_BYTES, rows.TEXT_BYTES | {core.BODY: 5 << 20}, rows.TEXT_BYTES]


def test_a_message_that_is_too_long() -> None:
    """For a column of Arrow's: the error says how long it is, and what is allowed."""
    for size in (core.MOST_BYTES, core.MOST_BYTES + 1):
        needed = {core.KEY: 5, core.BODY: size}
        if size == core.MOST_BYTES:
            assert rows._enough(needed) == needed  # noqa: SLF001
        else:
            with pytest.raises(shmbroker.OutOfMemory) as long:
                rows._enough(needed)  # noqa: SLF001
            allowed = f"is too long for a row: {core.MOST_BYTES} are allowed"
            assert str(long.value) == f"a message whose {core.BODY} has {size} bytes {allowed}"


def test_headers_of_neighbours_are_read_once(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """If they are the same; properties without headers are an empty map."""
    seen: list[object] = []
    written = headers.written

    def noted(value: object) -> str | None:
        seen.append(value)
        return written(value)

    monkeypatch.setattr(headers, "written", noted)
    given: list[dict[str, Any] | None] = [{"a": 1}, {"a": 1}, None, {"b": "x"}, {"a": 1}]
    for one in given:
        queue.put(b"", headers=one)
    queue.put(b"", properties=basic.BasicProperties(correlation_id="c"))
    (batch,) = of(queue, "headers")
    assert [dict(one) for one in batch["headers"].to_pylist()] == [{"a": "1"}] * 2 + [{}, {"b": "x"}, {"a": "1"}, {}]
    assert seen == [1, "x"]


def test_no_headers_at_all(queue: shmbroker.Queue) -> None:
    """Each row has an empty map."""
    queue.put_many([b"x"] * 3)
    (batch,) = of(queue, "headers", "value")
    batch.validate(full=True)
    assert batch["headers"].to_pylist() == [[], [], []]


def test_the_room_of_a_batch() -> None:
    """Each column has what its rows need, and no more."""
    texts = {core.KEY: 10, core.PROPERTIES: 20, core.BODY: 30}
    names = ["key", "value", "headers", "redelivered", "timestamp", "queue", "handle"]
    room = rows._Room(names, texts, None)  # noqa: SLF001
    assert {name: buffer.size for name, buffer in room._buffers.items()} == {  # noqa: SLF001
        core.KEY: 10,
        core.PROPERTIES: 20,
        core.BODY: 30,
        core.KEY + ".ends": 40_004,
        core.PROPERTIES + ".ends": 40_004,
        core.BODY + ".ends": 40_004,
        "has_key": 1250,
        "redelivered": 1250,
        "timestamp_us": 80_000,
        "sequence": 80_000,
        core.PLACE: 10_000 * core.PLACE_BYTES,
    }
    assert set(rows._Room(["value"], texts, None)._buffers) == {core.BODY, core.BODY + ".ends"}  # noqa: SLF001


def test_memory_that_is_not_empty(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was in the buffers before does not matter; a column takes no more of them than it has bytes."""
    allocate = pa.allocate_buffer

    def used(size: int) -> pa.Buffer:
        found = allocate(size)
        memoryview(found).cast("B")[:] = b"\xff" * size
        return found

    monkeypatch.setattr(pa, "allocate_buffer", used)
    for at in range(3):
        queue.put(b"b%d" % at, key=None if at == 1 else f"k{at}", headers={"h": at} if at else None)
    (batch,) = of(queue, *rows.WITH_BODIES)
    batch.validate(full=True)
    assert batch["value"].to_pylist() == [b"b0", b"b1", b"b2"]
    assert batch["key"].to_pylist() == [b"k0", None, b"k2"]
    assert [dict(one) for one in batch["headers"].to_pylist()] == [{}, {"h": "1"}, {"h": "2"}]
    assert batch["redelivered"].to_pylist() == [False] * 3
    assert batch["value"].buffers()[2].size == 6
    assert batch["key"].buffers()[2].size == 4
