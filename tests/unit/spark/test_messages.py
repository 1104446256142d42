# SPDX-License-Identifier: Apache-2.0
"""Which tables are messages, and how rows become record batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import Row, types

import shmbroker
from shmbroker import columns
from shmbroker import properties as basic
from shmbroker.spark import messages
from shmbroker.spark.messages import check_columns, columns_of, record_batches

TEXT, BYTES, NUMBER = types.StringType(), types.BinaryType(), types.LongType()
PAIRS = pa.map_(pa.string(), pa.string())


def pairs(key: types.DataType = TEXT, value: types.DataType = TEXT, *, nulls: bool = True) -> types.MapType:
    """The type of a column of headers."""
    return types.MapType(key, value, nulls)


def table(**kinds: types.DataType) -> types.StructType:
    """The schema of a table."""
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


READ = {"sequence": NUMBER, "queue": TEXT, "timestamp": types.TimestampType(), "redelivered": types.BooleanType()}
BAD: list[tuple[types.StructType, str]] = [
    (table(key=TEXT, other=TEXT), "there is no column 'value' among key, other"),
    (table(value=NUMBER), "column 'value' is bigint, not binary or string"),
    (table(value=TEXT, key=NUMBER), "column 'key' is bigint, not binary or string"),
    (table(value=TEXT, colour=TEXT), "column 'colour' is none of value, key, headers, sequence, queue, timestamp, red"),
    (table(value=TEXT, handle=BYTES), "column 'handle' is none of value, key, headers, sequence, queue, timestamp, re"),
    (table(value=TEXT, headers=TEXT), "column 'headers' is string, not map<string,string>"),
    (table(value=TEXT, headers=pairs(value=NUMBER)), "column 'headers' is map<string,bigint>, not map<string,string>"),
    (table(value=TEXT, headers=pairs(NUMBER)), "column 'headers' is map<bigint,string>, not map<string,string>"),
    (table(value=TEXT, sequence=TEXT), "column 'sequence' is string, not bigint, the type that a read gives it"),
    (table(value=TEXT, timestamp=TEXT), "column 'timestamp' is string, not timestamp, the type that a read gives it"),
]


@pytest.mark.parametrize(("schema", "text"), BAD, ids=[text[:40] for _, text in BAD])
def test_a_table_that_is_none_of_messages(schema: types.StructType, text: str) -> None:
    """The error names the column, what it is, and what it has to be."""
    with pytest.raises(shmbroker.SchemaMismatch) as refused:
        check_columns(schema)
    assert refused.value.text.startswith(f"PRECONDITION_FAILED - {text}")


@pytest.mark.parametrize(
    "schema",
    [
        table(value=TEXT),
        table(value=BYTES, key=BYTES),
        table(key=TEXT, headers=pairs(), value=TEXT),
        table(headers=pairs(nulls=False), value=TEXT),
        table(value=BYTES, **READ),
    ],
)
def test_a_table_of_messages(schema: types.StructType) -> None:
    """Values and keys are text or bytes; headers may have nulls, or none; columns of a read are let through."""
    check_columns(schema)


def put(queue: shmbroker.Queue, batch: pa.RecordBatch) -> list[tuple[bytes, str | None, dict[str, Any]]]:
    """What is in a queue after a batch was put."""
    assert columns.put(queue, columns_of(batch), len(batch)) == len(batch)
    return [(bytes(one), one.key, one.headers) for one in queue.browse()]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()], ids=str)
def test_keys_of_each_kind(queue: shmbroker.Queue, kind: pa.DataType) -> None:
    """Some null, or none; the longest one that is allowed; in a part of a batch, too."""
    keys = pa.array([b"a", None, "ä".encode(), b"k" * 255], pa.binary()).cast(kind)
    batch = pa.record_batch({"value": [b"1", b"2", b"3", b"4"], "key": keys})
    assert [key for _, key, _ in put(queue, batch)] == ["a", None, "ä", "k" * 255]
    queue.purge()
    assert [(body, key) for body, key, _ in put(queue, batch.slice(2))] == [(b"3", "ä"), (b"4", "k" * 255)]
    queue.purge()
    assert put(queue, batch.slice(0, 0)) == []


def test_keys_that_are_null_and_have_bytes(queue: shmbroker.Queue) -> None:
    """Arrow may keep something there; it is no key."""
    ends = pa.py_buffer(b"".join(at.to_bytes(4, "little") for at in (0, 4, 8)))
    keys = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), ends, pa.py_buffer(b"junkreal")])
    assert keys.to_pylist() == [None, b"real"]
    assert [key for _, key, _ in put(queue, pa.record_batch({"value": ["a", "b"], "key": keys}))] == [None, "real"]


def test_no_keys_at_all(queue: shmbroker.Queue) -> None:
    """A column of nulls is none."""
    nothing = pa.array([None, None], pa.binary())
    assert put(queue, pa.record_batch({"value": ["a", ""], "key": nothing})) == [(b"a", None, {}), (b"", None, {})]


def test_no_rows(queue: shmbroker.Queue) -> None:
    """An older Arrow has no memory for their bodies."""
    empty: Any = SimpleNamespace(offset=0, buffers=lambda: (None, pa.py_buffer(bytes(8)), None))
    empty.cast = lambda _kind: empty
    given = columns.Columns()
    messages._set(given, columns.BODY, empty)  # noqa: SLF001
    assert columns.put(queue, given, 1) == 1
    assert bytes(queue.get(timeout=0, auto_ack=True)) == b""
    assert put(queue, pa.record_batch({"value": [b"", b""]})) == [(b"", None, {}), (b"", None, {})]


def test_headers_of_neighbours(queue: shmbroker.Queue) -> None:
    """Each row has its own; none, empty and null; the same ones are encoded once."""
    headers = [[("a", "1")], [("a", "1")], [("a", "2"), ("b", None)], [], None, [("a", "1")]]
    batch = pa.record_batch({"value": list("123456"), "headers": pa.array(headers, PAIRS)})
    assert [found for _, _, found in put(queue, batch)] == [
        {"a": "1"}, {"a": "1"}, {"a": "2", "b": None}, {}, {}, {"a": "1"},
    ]  # fmt: skip


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()], ids=str)
def test_headers_of_a_part_of_a_batch(queue: shmbroker.Queue, text: pa.DataType) -> None:
    """Each row has its own there, too: also one without a text, and one that swaps name and text with its neighbour."""
    headers = [[("a", "b"), ("b", "a")], None, [("b", "a"), ("a", "b")], [("a", None)], [], [("a", ""), ("ä", "a")]]
    batch = pa.record_batch({"value": list("123456"), "headers": pa.array(headers, pa.map_(text, text))})
    for start in range(7):
        for count in range(7 - start):
            found = put(queue, batch.slice(start, count))
            assert [list(given.items()) for _, _, given in found] == [row or [] for row in headers[start:][:count]]
            queue.purge()


def test_headers_that_are_null_and_have_pairs(queue: shmbroker.Queue) -> None:
    """Arrow may keep some there; they are no headers."""
    pairs = pa.array([[("a", "1")], [("b", "2")]], PAIRS)
    for valid, expected in ((b"\x02", [{}, {"b": "2"}]), (b"\x01", [{"a": "1"}, {}])):
        headers = pa.Array.from_buffers(PAIRS, 2, [pa.py_buffer(valid), pairs.buffers()[1]], children=[pairs.values])
        batch = pa.record_batch({"value": ["x", "y"], "headers": headers})
        assert [found for _, _, found in put(queue, batch)] == expected
        queue.purge()


def test_no_headers_at_all() -> None:
    """The core gets no column of properties for rows of which none has headers."""
    for headers in ([], [None, None], [[], None, []]):
        batch = pa.record_batch({"value": ["x"] * len(headers), "headers": pa.array(headers, PAIRS)})
        assert messages._properties(batch.column("headers")) is None  # noqa: SLF001 - what the core is not given


def test_a_set_of_headers_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows of a batch have it."""
    encode, seen = basic.encode, []

    def noted(properties: basic.BasicProperties) -> bytes:
        seen.append(properties.headers)
        return encode(properties)

    monkeypatch.setattr(basic, "encode", noted)
    headers = [[("a", "1")], [], [("a", "2")], [("a", "1")], None, [("a", "2")], [("a", "1")]]
    columns_of(pa.record_batch({"value": list("1234567"), "headers": pa.array(headers, PAIRS)}))
    assert seen == [{"a": "1"}, {"a": "2"}]


def test_rows_that_are_no_messages() -> None:
    """A body that is null, a key that is too long, or no text; the error says what is allowed."""
    for given, text in (
        ({"value": pa.array([b"a", None])}, "column 'value' has a null: each message has a body"),
        ({"value": ["a"], "key": ["ä" * 128]}, "column 'key' has a key of 256 bytes: at most 255 are allowed"),
        ({"value": ["a"], "key": [b"\xff"]}, "column 'key' has a key that is no text in UTF-8"),
    ):
        with pytest.raises(shmbroker.SchemaMismatch) as refused:
            columns_of(pa.record_batch(given))
        assert refused.value.text == f"PRECONDITION_FAILED - {text}"


def test_rows_become_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, so many at a time; what a read adds is left out, and headers are pairs."""
    monkeypatch.setattr(messages, "ROWS_AT_ONCE", 2)
    given = [Row(sequence=n, value=b"%d" % n, key="k", headers={"n": str(n)} if n else None) for n in range(5)]
    found = list(record_batches(iter(given)))
    assert [batch.num_rows for batch in found] == [2, 2, 1]
    assert found[0].schema == pa.schema({"value": pa.binary(), "key": pa.string(), "headers": PAIRS})
    assert [row for batch in found for row in batch.to_pylist()] == [
        {"value": b"%d" % n, "key": "k", "headers": [("n", str(n))] if n else None} for n in range(5)
    ]
    without = list(record_batches(iter([Row(value="a"), Row(value="b")])))
    assert without == [pa.record_batch({"value": ["a", "b"]})]


def test_headers_of_rows_are_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For Arrow, since not each takes a dict for a map."""
    array, seen = pa.array, []

    def noted(values: Any, *kinds: Any) -> pa.Array:  # noqa: ANN401
        seen.append((values, *kinds))
        return array(values, *kinds)

    monkeypatch.setattr(pa, "array", noted)
    list(record_batches(iter([Row(value="a", headers={"h": "v"}), Row(value="b", headers=None)])))
    assert seen == [(["a", "b"], None), ([[("h", "v")], None], PAIRS)]


def test_batches_stay_batches() -> None:
    """They are given on as they are, one by one."""
    given = [pa.record_batch({"value": ["a"]}), pa.record_batch({"value": ["b"]})]
    found = record_batches(iter(given))
    assert [next(found), next(found)] == given
    assert list(found) == []
