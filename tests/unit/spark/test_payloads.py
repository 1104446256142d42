# SPDX-License-Identifier: Apache-2.0
"""What reads show of messages besides their bodies: handles, and the batches that they are."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from scenario_support.inside import connection_of

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql import types  # noqa: E402 - it, and pyarrow, may be missing

import shmbroker  # noqa: E402
from shmbroker.spark import ShmBrokerDataSource, put_batch, register_schema, resolve  # noqa: E402

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.large_string()), ("at", pa.timestamp("ns", tz="Europe/Berlin"))])
AT = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)
LONG = 64 << 10


def batch(start: int, stop: int) -> Any:  # noqa: ANN401 - a batch
    """Rows of those numbers; their times have nanoseconds."""
    words = [f"w{n}" for n in range(start, stop)]
    times = pa.array([int(AT.timestamp()) * 10**9 + 1] * (stop - start), pa.int64()).cast(SCHEMA.field("at").type)
    return pa.record_batch([[*range(start, stop)], words, times], SCHEMA)


def read(queue: shmbroker.Queue, **options: str) -> tuple[Any, list[Any]]:
    """The schema that Spark would see, and the batches of a batch read."""
    source = ShmBrokerDataSource({"broker": connection_of(queue).broker_name, "queue": queue.name, **options})
    reader = source.reader(source.schema())
    (part,) = reader.partitions()
    return source.schema(), list(reader.read(part))


def leased(queue: shmbroker.Queue, **options: str) -> tuple[shmbroker.Group, list[Any]]:
    """What one micro-batch of a stream reads."""
    given = {"broker": connection_of(queue).broker_name, "queue": queue.name, "group": "g", **options}
    source = ShmBrokerDataSource(given)
    planner, worker = source.streamReader(source.schema()), source.streamReader(source.schema())
    start = planner.initialOffset()
    parts = planner.partitions(start, planner.latestOffset(start, None))
    group = shmbroker.Group(connection_of(queue), queue, "g")
    group.attach()
    return group, [one for part in parts for one in worker.read(part)]


@pytest.mark.parametrize("options", [{}, {"payload": "arrow"}])
def test_a_queue_with_a_schema_is_a_table_of_it(queue: shmbroker.Queue, options: dict[str, str]) -> None:
    """Without being asked; with Spark's types, exactly; nothing is taken."""
    register_schema(queue, SCHEMA)
    put_batch(queue, batch(0, 3))
    put_batch(queue, batch(3, 5))
    schema, found = read(queue, **options)
    assert schema.simpleString() == "struct<id:bigint,word:string,at:timestamp>"
    assert {one.schema for one in found} == {
        pa.schema([("id", pa.int64()), ("word", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    }
    assert [row["id"] for one in found for row in one.to_pylist()] == [0, 1, 2, 3, 4]
    assert found[0].to_pylist()[1] == {"id": 1, "word": "w1", "at": AT}
    assert len(queue) == 2


def test_columns_and_rows_of_batches(queue: shmbroker.Queue) -> None:
    """Columns of the schema may be chosen; maxRows counts rows."""
    register_schema(queue, SCHEMA)
    for start in (0, 3, 6):
        put_batch(queue, batch(start, start + 3))
    assert [one.to_pydict() for one in read(queue, columns="word", maxRows="4")[1]] == [
        {"word": ["w0", "w1", "w2"]},
        {"word": ["w3"]},
    ]
    with pytest.raises(ValueError, match="option columns has 'value': each of id, word, at is allowed once"):
        read(queue, columns="value")
    assert [one.num_rows for one in read(queue, payload="bytes", columns="value")[1]] == [3]


def test_batches_are_leased(queue: shmbroker.Queue) -> None:
    """A stream's micro-batch has the batches of its messages; gone ones are an error."""
    register_schema(queue, SCHEMA)
    put_batch(queue, batch(0, 3))
    put_batch(queue, batch(3, 5))
    group, found = leased(queue)
    assert [row["id"] for one in found for row in one.to_pylist()] == [0, 1, 2, 3, 4]
    assert len(queue) == 0
    group.ack(1)


def test_a_message_that_is_none_of_the_table(queue: shmbroker.Queue) -> None:
    """The error names the queue and the message."""
    register_schema(queue, SCHEMA)
    put_batch(queue, batch(0, 3))
    queue.put(b"hello")
    with pytest.raises(shmbroker.SchemaMismatch, match="queue 'q': message 1 is not a record batch"):
        read(queue)


def test_batches_are_asked_for_and_there_are_none(queue: shmbroker.Queue) -> None:
    """When the read is planned; so is a schema refused that Spark has no types for."""
    with pytest.raises(shmbroker.SchemaMismatch, match=r"queue 'q': it has no Arrow schema: shmbroker\.spark"):
        read(queue, payload="arrow")
    for kind, word in ((pa.float16(), "halffloat"), (pa.decimal256(40, 2), "decimal256")):
        other = connection_of(queue).queue(word)
        register_schema(other, pa.schema([("id", pa.int64()), ("odd", kind)]))
        with pytest.raises(shmbroker.SchemaMismatch, match=f"column 'odd' of the registered schema is {word}"):
            read(other)


def nested(*, nulls: bool) -> Any:  # noqa: ANN401 - a column
    """A type of Spark's that has, or has not, nulls inside."""
    return types.ArrayType(types.StructType([types.StructField("x", types.LongType(), nulls)]), nulls)


@pytest.mark.parametrize("nulls", [True, False])
def test_nulls_inside_what_is_written(queue: shmbroker.Queue, nulls: bool) -> None:  # noqa: FBT001
    """Values without them are among those with them, and not the other way round."""
    inside = pa.list_(pa.field("item", pa.struct([pa.field("x", pa.int64(), nulls)]), nulls))
    register_schema(queue, pa.schema([("deep", inside)]))
    source = ShmBrokerDataSource({"broker": connection_of(queue).broker_name, "queue": "q", "payload": "arrow"})
    without, with_them = (types.StructType([types.StructField("deep", nested(nulls=one))]) for one in (False, True))
    writer = source.writer(without, overwrite=False)
    writer.commit([writer.write(iter([pa.record_batch({"deep": [[{"x": 1}], None]})]))])
    assert [row for one in read(queue)[1] for row in one.to_pylist()] == [{"deep": [{"x": 1}]}, {"deep": None}]
    if nulls:
        source.writer(with_them, overwrite=False)
    else:
        with pytest.raises(shmbroker.SchemaMismatch, match="column 'deep' may have nulls inside, and the schema of"):
            source.writer(with_them, overwrite=False)


def test_handles_stand_for_bodies(queue: shmbroker.Queue) -> None:
    """A table of handles is resolved to the bodies, in order; other columns are as in other reads."""
    bodies = [bytes([n]) * (LONG if n % 2 else 10) for n in range(30)]
    for n, body in enumerate(bodies):
        queue.put(body, key=f"k{n}")
    schema, found = read(queue, payload="handle", columns="key,handle,sequence", maxRows="20")
    assert schema.simpleString() == "struct<key:binary,handle:binary,sequence:bigint>"
    (resolved,) = resolve(found)
    assert resolved.schema.names == ["key", "value", "sequence"]
    assert resolved["value"].to_pylist() == bodies[:20]
    assert resolved["key"].to_pylist() == [b"k%d" % n for n in range(20)]
    assert resolved["sequence"].to_pylist() == [*range(20)]
    assert read(queue, payload="handle")[0].names[-1] == "handle"


def test_handles_of_a_lease(queue: shmbroker.Queue) -> None:
    """They are valid until the lease is acknowledged; what was resolved before stays."""
    queue.put_many([bytes([n]) * LONG for n in range(5)])
    group, found = leased(queue, payload="handle", columns="handle")
    (resolved,) = resolve(found)
    (copies,) = resolve(found)
    group.ack(1)
    assert resolved["value"].to_pylist() == copies["value"].to_pylist() == [bytes([n]) * LONG for n in range(5)]
    del resolved
    with pytest.raises(shmbroker.StaleHandle, match="message 0 of queue 'q' is gone"):
        next(resolve(found))
