# SPDX-License-Identifier: Apache-2.0
"""Record batches as messages, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql import types  # noqa: E402 - it, and pyarrow, may be missing

import shmbroker  # noqa: E402
from shmbroker import columns  # noqa: E402
from shmbroker.columns import Ready  # noqa: E402
from shmbroker.spark import ShmBrokerDataSource, rows  # noqa: E402
from shmbroker.spark.messages import columns_of, record_batches  # noqa: E402
from shmbroker.staging import Stage  # noqa: E402

PAIRS = pa.map_(pa.string(), pa.string())
VALUES = [b"one", b"", b"three", b"4" * 5000]


def written(queue: shmbroker.Queue, batch: Any) -> list[tuple[bytes, str | None, dict[str, Any]]]:  # noqa: ANN401
    """Puts a batch; the body, key and headers of what is in the queue then."""
    assert columns.put(queue, columns_of(batch), len(batch)) == len(batch)
    return [(bytes(one), one.key, one.headers) for one in queue.browse()]


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()], ids=str)
@pytest.mark.parametrize("start", [0, 1, 3, 4])
def test_values_of_any_kind(queue: shmbroker.Queue, kind: Any, start: int) -> None:  # noqa: ANN401
    """Also where a batch is a part of another one."""
    batch = pa.record_batch({"value": pa.array(VALUES, pa.binary()).cast(kind)}).slice(start)
    assert written(queue, batch) == [(value, None, {}) for value in VALUES[start:]]


def test_keys_and_headers_that_are_missing(queue: shmbroker.Queue) -> None:
    """Null is none, and so is nothing."""
    rows: list[tuple[bytes, str | None, Any]] = [
        (b"a", "k", [("h", "v")]),
        (b"b", None, None),
        (b"c", "", []),
        (b"d", "k" * 255, [("h", "v")]),
        (b"e", "ä", [("h", None), ("i", "w")]),
    ]
    names = ("value", "key", "headers")
    kinds = (pa.binary(), pa.string(), PAIRS)
    batch = pa.record_batch(
        [pa.array(list(one), kind) for one, kind in zip(zip(*rows, strict=True), kinds, strict=True)], names
    )
    assert written(queue, batch) == [(value, key or None, dict(pairs or ())) for value, key, pairs in rows]
    assert written(queue, batch.slice(3))[-1] == (b"e", "ä", {"h": None, "i": "w"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"value": pa.array([b"a", None])}, "column 'value' has a null"),
        ({"value": [b"a"], "key": ["k" * 256]}, "a key of 256 bytes: at most 255"),
        ({"value": [b"a"], "key": [b"\xff"]}, "a key that is no text in UTF-8"),
    ],
)
def test_rows_that_are_no_messages(given: dict[str, Any], words: str) -> None:
    """The error names the column."""
    with pytest.raises(shmbroker.SchemaMismatch, match=words):
        columns_of(pa.record_batch(given))


def test_what_a_read_adds_is_left_out(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """A table is written as it was read, in whatever order its columns are, also row by row."""
    out = connection.queue("out")
    queue.put(b"A", key="k", headers={"h": "v"})
    queue.put(b"B")
    (table,) = rows.batches(Ready(queue).fill, "q", rows.WITH_BODIES[::-1])
    source = ShmBrokerDataSource({"broker": connection.broker_name, "queue": "out"})
    writer = source.writer(rows.schema_of(rows.WITH_BODIES[::-1]), overwrite=False)
    writer.commit([writer.write(iter([table]))])
    given = [types.Row(**(row | {"headers": dict(row["headers"])})) for row in table.to_pylist()]
    (again,) = record_batches(given)
    assert columns.put(out, columns_of(again), len(again)) == 2
    assert [(bytes(one), one.key, one.headers) for one in out.browse()] == 2 * [
        (b"A", "k", {"h": "v"}),
        (b"B", None, {}),
    ]


@pytest.mark.parametrize("name", ["sequence", "queue", "timestamp", "redelivered"])
def test_a_column_of_that_name_of_another_type(connection: shmbroker.Connection, name: str) -> None:
    """It is not what a read adds, so it is refused rather than left out."""
    connection.queue("out")
    given = {"value": types.BinaryType(), name: types.DoubleType()}
    schema = types.StructType([types.StructField(field, kind) for field, kind in given.items()])
    source = ShmBrokerDataSource({"broker": connection.broker_name, "queue": "out"})
    with pytest.raises(
        shmbroker.SchemaMismatch, match=f"column '{name}' is double, not .*, the type that a read gives it"
    ):
        source.writer(schema, overwrite=False)


@pytest.mark.parametrize("start", ["q", "ä", "\N{ROCKET}"])
def test_queues_with_long_names(connection: shmbroker.Connection, start: str) -> None:
    """Their jobs are kept apart, though their names begin alike."""
    names = [start * (250 // len(start.encode())) + end for end in ("", "a", "b")]
    given = {"broker": connection.broker_name}
    schema = types.StructType([types.StructField("value", types.StringType())])
    publications = set()
    for name in names:
        connection.queue(name)
        writer = ShmBrokerDataSource(given | {"queue": name}).writer(schema, overwrite=False)
        staged = writer.write(iter([pa.record_batch({"value": [name]})]))
        publications.add(staged.publication)
        writer.commit([staged])
    assert [[bytes(one).decode() for one in connection.queue(name).browse()] for name in names] == [[n] for n in names]
    assert len(publications) == len(names)


def test_a_stage_counts_what_is_put_by_column(connection: shmbroker.Connection) -> None:
    """A receipt says how many messages there are and how long, and they are published; a part of a batch as well."""
    connection.queue("out")
    stage, batch = Stage(connection, "query"), pa.record_batch({"value": VALUES})
    with stage.attempt(0, 0, 0) as writer:
        writer.put_columns(columns_of(batch), len(batch))
        writer.put_columns(columns_of(batch.slice(2)), 2)
    assert (writer.receipt.count, writer.receipt.bytes) == (6, sum(map(len, VALUES + VALUES[2:])))
    assert stage.publish(0, [writer.receipt], "out") == 6
    assert [bytes(one) for one in connection.queue("out").browse()] == VALUES + VALUES[2:]


def test_a_stage_without_memory(broker_name: str) -> None:
    """What it staged before is counted; nothing is lost on the way out."""
    with shmbroker.Broker(broker_name, memory="64M") as broker, broker.connect() as connection:
        stage, batch = Stage(connection, "query"), pa.record_batch({"value": [bytes(1 << 20)] * 80})
        with stage.attempt(0, 0, 0) as writer:
            with pytest.raises(shmbroker.OutOfMemory):
                writer.put_columns(columns_of(batch), len(batch), timeout=0)
            count = writer.count
        assert 0 < writer.receipt.count == count < 80
        stage.drop(0)
