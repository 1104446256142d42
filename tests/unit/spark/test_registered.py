# SPDX-License-Identifier: Apache-2.0
"""Queues of record batches, without Spark: a schema that stands in the broker, and batches that are put and read."""

from __future__ import annotations

import queue as standard_queue
import subprocess
import sys
from typing import Any

import pytest
from scenario_support.inside import connection_of, core_of

pytest.importorskip("pyarrow")

import pyarrow as pa

import shmbroker
from shmbroker._amqp import names
from shmbroker.spark import put_batch, register_schema, registered_schema
from shmbroker.spark.registered import Reader, Writer

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("word", pa.large_string()), ("at", pa.timestamp("ns"))]
)
BATCH = pa.record_batch([[1, 2], ["a", None], [1_000_000_001, None]], schema=SCHEMA)
OTHERS = [
    (pa.schema([*SCHEMA][:2]), "column 'at' is missing"),
    (SCHEMA.append(pa.field("more", pa.int8())), "column 'more' is one too many"),
    (SCHEMA.set(0, pa.field("id", pa.int32(), nullable=False)), "column 'id' is int32, and the schema says int64"),
    (SCHEMA.set(0, pa.field("id", pa.int64())), "columns differ in whether they may be null"),
]
WITH_NULL = pa.record_batch([[None], ["a"], [None]], schema=SCHEMA)
LIKE_IT = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("word", pa.string()), ("at", pa.timestamp("ns"))], {"a": "b"}
)
SHOWS = (
    "import sys, shmbroker, shmbroker.spark as s;"
    "c = shmbroker.connect(sys.argv[1], create=False);"
    "print(s.registered_schema(c.queue('q', passive=True)).names)"
)


def body_of(schema: pa.Schema, batch: pa.RecordBatch) -> bytes:
    """A message that a sink makes of a batch."""
    encoded = Writer("q", schema).encoded(batch)
    if encoded.write is None:
        return bytes(encoded.body)
    memory = bytearray(encoded.size)
    encoded.write(memoryview(memory))
    return bytes(memory)


def registers(connection: shmbroker.Connection) -> list[str]:
    """The broker's own queues that hold schemas."""
    return [name for name in core_of(connection).queue_incarnations() if name.startswith(names.SCHEMA)]


def test_a_schema_is_found_by_every_process(queue: shmbroker.Queue, broker: shmbroker.Broker) -> None:
    """It is equal to the one that was given, but for metadata; again, it changes nothing."""
    assert registered_schema(queue) is None
    for _ in range(2):
        register_schema(queue, SCHEMA.with_metadata({"made": "by somebody"}))
    found = registered_schema(queue)
    assert found is not None
    assert found.equals(SCHEMA, check_metadata=True)
    shown = subprocess.run([sys.executable, "-c", SHOWS, broker.name], capture_output=True, text=True, check=True)
    assert shown.stdout == "['id', 'word', 'at']\n"
    assert len(registers(connection_of(queue))) == 1


@pytest.mark.parametrize(("schema", "words"), OTHERS, ids=[words[:20] for _, words in OTHERS])
def test_another_schema_is_refused(queue: shmbroker.Queue, schema: pa.Schema, words: str) -> None:
    """A queue keeps its schema for life; so does a batch of another one find no way in. The error names the column."""
    register_schema(queue, SCHEMA)
    with pytest.raises(shmbroker.SchemaMismatch, match=f"queue 'q': it has another Arrow schema: {words}"):
        register_schema(queue, schema)
    with pytest.raises(shmbroker.SchemaMismatch, match=f"queue 'q': in the batch {words}"):
        put_batch(queue, pa.RecordBatch.from_pylist([], schema=schema))
    assert registered_schema(queue) == SCHEMA
    assert len(queue) == 0


def test_a_queue_that_is_made_anew_has_no_schema(queue: shmbroker.Queue) -> None:
    """Nor is the old one kept: it goes when the next schema is registered."""
    connection = connection_of(queue)
    register_schema(queue, SCHEMA)
    (old,) = registers(connection)
    queue.delete()
    again = connection.queue("q")
    assert registered_schema(again) is None
    with pytest.raises(shmbroker.SchemaMismatch, match="queue 'q': it has no Arrow schema"):
        put_batch(again, BATCH)
    other = pa.schema([("other", pa.bool_())])
    register_schema(again, other)
    assert registered_schema(again) == other
    (new,) = registers(connection)
    assert new != old


def test_what_is_no_schema(queue: shmbroker.Queue) -> None:
    """The error shows it."""
    wrong: Any = "id long"
    with pytest.raises(TypeError, match=r"schema='id long': a pyarrow.Schema is needed"):
        register_schema(queue, wrong)


def test_batches_are_put_and_read(queue: shmbroker.Queue) -> None:
    """One message is one batch, however long, with a key; metadata of the schema does not matter."""
    register_schema(queue, SCHEMA)
    long = pa.RecordBatch.from_pylist([{"id": one, "word": "w" * 50} for one in range(20_000)], schema=SCHEMA)
    put_batch(queue, BATCH.replace_schema_metadata({"a": "b"}), key="k")
    put_batch(queue, long)
    reader = Reader("q", SCHEMA)
    first, second = queue.get_many(2)
    assert (first.key, reader.batches(first.body, 0), reader.batches(second.body, 1)) == ("k", [BATCH], [long])
    assert body_of(SCHEMA, long) == bytes(second.body)


def test_a_structure_that_is_missing() -> None:
    """What is inside it may be of those that are never null; pyarrow does not cast such a column to its own type."""
    inside = pa.field("x", pa.int64(), nullable=False)
    deep = pa.StructArray.from_arrays([pa.array([1, None])], fields=[inside], mask=pa.array([False, True]))
    schema = pa.schema([("deep", deep.type)])
    batch = pa.record_batch([deep], schema)
    assert Reader("q", schema).batches(body_of(schema, batch), 0) == [batch]


def test_a_batch_with_strings_of_the_other_kind(queue: shmbroker.Queue) -> None:
    """It is put as one of the schema; as a schema of its own it is another one, and the error says why."""
    register_schema(queue, SCHEMA)
    put_batch(queue, BATCH.cast(LIKE_IT))
    assert Reader("q", SCHEMA).batches(queue.get().body, 0) == [BATCH]
    words = "queue 'q': it has another Arrow schema: column 'word' is string, and the schema says large_string"
    with pytest.raises(shmbroker.SchemaMismatch, match=words):
        register_schema(queue, LIKE_IT)


def test_a_null_where_there_is_none(queue: shmbroker.Queue) -> None:
    """A batch that says that it has none may have one; the error names the column."""
    register_schema(queue, SCHEMA)
    with pytest.raises(shmbroker.SchemaMismatch, match="column 'id' has a null, and the schema says there is none"):
        put_batch(queue, WITH_NULL)


def test_a_full_queue(connection: shmbroker.Connection) -> None:
    """A batch waits for room as long as it may, and no longer."""
    queue = connection.queue("full", max_length=1)
    register_schema(queue, SCHEMA)
    put_batch(queue, BATCH)
    with pytest.raises(standard_queue.Full):
        put_batch(queue, BATCH, timeout=0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"no batch at all", "message 7 is not a record batch: a body of 15 bytes is not an Arrow stream"),
        (body_of(OTHERS[2][0], BATCH.cast(OTHERS[2][0])), "in message 7 column 'id' is int32, and"),
        (body_of(OTHERS[3][0], WITH_NULL), "in message 7 column 'id' has a null, and the schema says there is none"),
    ],
)
def test_a_message_of_another_schema(body: bytes, words: str) -> None:
    """Anybody may put anything; the error names message and column."""
    with pytest.raises(shmbroker.SchemaMismatch, match=f"queue 'q': {words}"):
        Reader("q", SCHEMA).batches(body, 7)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"id": [None], "word": ["a"], "at": [None]}, "column 'id' has a null"),
        ({"id": ["x"], "word": ["a"], "at": [None]}, "column 'id' does not fit int64"),
    ],
)
def test_values_that_do_not_fit(table: dict[str, list[object]], words: str) -> None:
    """What Spark hands over is cast; if it cannot be, the error names the column."""
    with pytest.raises(shmbroker.SchemaMismatch, match=words):
        Writer("q", SCHEMA).encoded(pa.record_batch(table))
