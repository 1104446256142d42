# SPDX-License-Identifier: Apache-2.0
"""Payloads and registered schemas: what a read shows, and which batches are messages of a queue."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import types

import shmbroker
from shmbroker import body_references
from shmbroker._system_queues import schemas
from shmbroker.spark import payloads, put_batch, register_schema, registered, registered_schema, rows
from shmbroker.spark.broker_identity import BrokerIdentity
from shmbroker.spark.payloads import Leased, Payload, payload_of
from shmbroker.spark.registered import Reader, Writer, needed

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.large_string())])
BATCH = pa.record_batch([[1, 2, 3], ["a", "b", None]], schema=SCHEMA)
SHOWN = pa.schema({"id": pa.int64(), "word": pa.string()})


def lists(batches: Iterator[pa.RecordBatch]) -> list[dict[str, list[Any]]]:
    """What batches have."""
    return [one.to_pydict() for one in batches]


def test_a_payload_has_columns() -> None:
    """Of rows, with bodies or handles; or those of its schema, in Spark's types; a part of them, in any order."""
    assert (Payload().kind, Payload().schema) == ("bytes", None)
    assert Payload().names == rows.WITH_BODIES
    assert Payload("handle").names == rows.WITH_HANDLES
    batches = Payload("arrow", SCHEMA)
    assert batches.names == ("id", "word")
    assert Payload().struct(["key", "value"]) == rows.schema_of(["key", "value"])
    word, number = types.StructField("word", types.StringType()), types.StructField("id", types.LongType(), False)  # noqa: FBT003
    assert batches.struct(["word", "id"]) == types.StructType([word, number])
    assert pickle.loads(pickle.dumps(batches)) == batches  # noqa: S301


def test_what_a_queue_shows(queue: shmbroker.Queue) -> None:
    """What was asked for; else batches if it has a schema."""
    connection = connection_of(queue)
    assert payload_of(None, connection, "q") == Payload()
    with pytest.raises(shmbroker.SchemaMismatch, match="queue 'q': it has no Arrow schema"):
        payload_of("arrow", connection, "q")
    register_schema(queue, SCHEMA)
    assert payload_of(None, connection, "q") == payload_of("arrow", connection, "q") == Payload("arrow", SCHEMA)
    assert payload_of("bytes", connection, "q") == Payload()
    assert payload_of("handle", connection, "missing") == Payload("handle")
    for kind in (None, "arrow"):
        with pytest.raises(shmbroker.NotFound):
            payload_of(kind, connection, "missing")
    assert connection.queue_names() == ["q"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (pa.float16(), "column 'odd' of the registered schema is halffloat: Spark has no type for it: "),
        (
            pa.decimal256(60, 2),
            "column 'odd' of the registered schema is decimal256(60, 2): Spark has no type for it: ",
        ),
        (pa.decimal256(20, 2), "column 'odd' of the registered schema is decimal256(20, 2): "),
    ],
)
def test_a_type_that_spark_has_not(queue: shmbroker.Queue, kind: pa.DataType, why: str) -> None:
    """The read is refused when it is planned; the error names the column and its type."""
    register_schema(queue, pa.schema([("id", pa.int64()), ("odd", kind)]))
    try:
        payload_of(None, connection_of(queue), "q")
    except shmbroker.SchemaMismatch as refused:
        assert refused.text.startswith(f"PRECONDITION_FAILED - {why}")  # noqa: PT017 - a newer Spark may have it
    else:
        assert kind == pa.decimal256(20, 2)


def test_a_type_that_cannot_be_cast(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried when the read is planned."""
    register_schema(queue, SCHEMA)

    def refused(column: pa.Array, to: pa.DataType) -> pa.Array:
        if to == pa.string():
            text = f"{column.type} of {len(column)}"
            raise pa.ArrowNotImplementedError(text)
        return column

    monkeypatch.setattr(payloads, "_cast", refused)
    with pytest.raises(shmbroker.SchemaMismatch) as odd:
        payload_of(None, connection_of(queue), "q")
    assert odd.value.text == (
        "PRECONDITION_FAILED - column 'word' of the registered schema is large_string: cannot become string: "
        "large_string of 0"
    )


def test_batches_that_are_browsed(queue: shmbroker.Queue) -> None:
    """Those of each message, in Spark's types, up to so many rows; nothing is taken."""
    register_schema(queue, SCHEMA)
    put_batch(queue, BATCH)
    put_batch(queue, BATCH.slice(1))
    connection, shows = connection_of(queue), Payload("arrow", SCHEMA)
    broker_identity = BrokerIdentity.of(connection)
    first, second = {"id": [1, 2, 3], "word": ["a", "b", None]}, {"id": [2, 3], "word": ["b", None]}
    found = list(shows.browsed(connection, "q", broker_identity, ["id", "word"], None))
    assert found[0].schema == pa.schema([SCHEMA.field("id"), ("word", pa.string())])
    assert lists(iter(found)) == [first, second]
    for most, wanted in (
        (1, [{"id": [1]}]),
        (3, [{"id": [1, 2, 3]}]),
        (4, [{"id": [1, 2, 3]}, {"id": [2]}]),
        (5, [{"id": [1, 2, 3]}, {"id": [2, 3]}]),
        (9, [{"id": [1, 2, 3]}, {"id": [2, 3]}]),
    ):
        assert lists(shows.browsed(connection, "q", broker_identity, ["id"], most)) == wanted
    assert len(queue) == 2
    with pytest.raises(shmbroker.NotFound):
        list(shows.browsed(connection, "missing", broker_identity, ["id"], None))
    with pytest.raises(shmbroker.NotFound):
        list(Payload().browsed(connection, "missing", broker_identity, ["value"], None))
    assert connection.queue_names() == ["q"]


def test_a_message_that_goes_meanwhile(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left out of what is browsed; the others are there."""
    register_schema(queue, SCHEMA)
    for at in range(3):
        put_batch(queue, BATCH.slice(at))
    shows, body_at = Payload("arrow", SCHEMA), body_references.body_at
    gone = [place for _, place in body_references.of_queue(queue)][1]
    monkeypatch.setattr(
        body_references, "body_at", lambda connection, place: None if place == gone else body_at(connection, place)
    )
    found = shows.browsed(connection_of(queue), "q", BrokerIdentity.of(connection_of(queue)), ["id"], None)
    assert lists(found) == [{"id": [1, 2, 3]}, {"id": [3]}]


def test_a_structure_that_is_missing(queue: shmbroker.Queue) -> None:
    """What is inside it may be of those that are never null; pyarrow does not cast such a column to its own type."""
    inside = pa.field("x", pa.int64(), nullable=False)
    deep = pa.StructArray.from_arrays([pa.array([1, None])], fields=[inside], mask=pa.array([False, True]))
    schema = pa.schema([("deep", deep.type)])
    register_schema(queue, schema)
    put_batch(queue, pa.record_batch([deep], schema))
    shows = payload_of(None, connection_of(queue), "q")
    found = shows.browsed(connection_of(queue), "q", BrokerIdentity.of(connection_of(queue)), ["deep"], None)
    assert lists(found) == [{"deep": [{"x": 1}, None]}]


def test_batches_that_are_leased(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some messages of a lease; one that is gone is an error, not left out."""
    register_schema(queue, SCHEMA)
    for at in range(3):
        put_batch(queue, BATCH.slice(at))
    connection = connection_of(queue)
    group = shmbroker.Group(connection, queue, "g")
    group.attach()
    assert group.lease(0) == 1
    broker_identity, shows = BrokerIdentity.of(connection), Payload("arrow", SCHEMA)
    assert lists(shows.leased(connection, Leased("q", "g", 1, 0, 3), broker_identity, ["id"])) == [
        {"id": [1, 2, 3]}, {"id": [2, 3]}, {"id": [3]},
    ]  # fmt: skip
    assert lists(shows.leased(connection, Leased("q", "g", 1, 1, 2), broker_identity, ["id"])) == [{"id": [2, 3]}]
    assert lists(Payload().leased(connection, Leased("q", "g", 1, 1, 3), broker_identity, ["sequence"])) == [
        {"sequence": [1, 2]}
    ]
    handles = lists(Payload("handle").leased(connection, Leased("q", "g", 1, 1, 2), broker_identity, ["handle"]))
    assert len(handles[0]["handle"]) == 1
    monkeypatch.setattr(body_references, "body_at", lambda *_: None)
    with pytest.raises(shmbroker.LeaseNotFound) as gone:
        list(shows.leased(connection, Leased("q", "g", 1, 1, 3), broker_identity, ["id"]))
    assert (gone.value.code, gone.value.text) == (404, "NOT_FOUND - message 1 of a lease of queue 'q' is gone")


def test_times_lose_what_spark_has_no_digits_for(queue: shmbroker.Queue) -> None:
    """As everywhere in Spark; a value that has no place at all is an error that names message and column."""
    schema = pa.schema([("at", pa.timestamp("ns", "Europe/Berlin")), ("day", pa.timestamp("s", "UTC"))])
    register_schema(queue, schema)
    put_batch(queue, pa.record_batch([pa.array([1_001], schema[0].type), pa.array([0], schema[1].type)], schema=schema))
    put_batch(queue, pa.record_batch([pa.array([0], schema[0].type), pa.array([2**62], schema[1].type)], schema=schema))
    shows = payload_of(None, connection_of(queue), "q")
    found = shows.browsed(connection_of(queue), "q", BrokerIdentity.of(connection_of(queue)), ["at", "day"], None)
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert next(found).to_pylist() == [{"at": epoch + dt.timedelta(microseconds=1), "day": epoch}]
    with pytest.raises(shmbroker.SchemaMismatch) as odd:
        next(found)
    assert odd.value.text.startswith(
        "PRECONDITION_FAILED - queue 'q': in message 1 column 'day' does not fit timestamp[us, tz=UTC]: "
    )


def test_what_is_registered(queue: shmbroker.Queue) -> None:
    """The schema without its metadata, and a text for people."""
    assert registered_schema(queue) is None
    with pytest.raises(shmbroker.SchemaMismatch) as missing:
        needed(queue)
    assert missing.value.text == (
        "PRECONDITION_FAILED - queue 'q': it has no Arrow schema: shmbroker.spark.register_schema(queue, schema) gives "
        "it one"
    )
    register_schema(queue, SCHEMA.with_metadata({"a": "b"}))
    found = schemas.registered(queue)
    assert found == schemas.Registered(SCHEMA.serialize().to_pybytes(), "id: int64 not null, word: large_string")
    assert needed(queue).equals(SCHEMA, check_metadata=True)


def test_a_schema_is_asked_for_once(
    queue: shmbroker.Queue, other: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all puts of a handle."""
    register_schema(queue, SCHEMA)
    asked = []

    def noted(found: shmbroker.Queue) -> pa.Schema:
        asked.append(found.name)
        return needed(found)

    monkeypatch.setattr(registered, "needed", noted)
    for _ in range(3):
        put_batch(queue, BATCH)
    assert asked == ["q"]
    put_batch(other.queue("q"), BATCH, key="k", timeout=1)
    assert asked == ["q", "q"]
    assert [one.key for one in queue.browse()] == [None, None, None, "k"]


def test_batches_that_a_writer_takes() -> None:
    """Those that are like the schema, with the same nulls; each difference has its words."""
    writer = Writer("q", SCHEMA)
    assert writer.difference(SCHEMA) == writer.difference(SCHEMA.with_metadata({"a": "b"})) == ""
    like = pa.schema([SCHEMA.field("id"), ("word", pa.string())])
    assert writer.difference(like) == ""
    assert writer.difference(pa.schema([("id", pa.int64()), ("word", pa.string())])) == (
        "columns differ in whether they may be null"
    )
    assert writer.difference(pa.schema([SCHEMA.field("id")])) == "column 'word' is missing"
    made = pa.record_batch([[1, 2, 3], ["a", "b", None]], schema=like)
    assert Reader("q", SCHEMA).batches(writer.encoded(made).body, 0) == [BATCH]


def test_values_without_a_place() -> None:
    """The error names the queue and the column."""
    writer = Writer("q", SCHEMA)
    for given, text in (
        ({"id": [None], "word": ["a"]}, "column 'id' has a null, and the schema says there is none"),
        ({"id": ["x"], "word": ["a"]}, "column 'id' does not fit int64: "),
        ({"id": [[1]], "word": ["a"]}, "column 'id' does not fit int64: "),
    ):
        with pytest.raises(shmbroker.SchemaMismatch) as odd:
            writer.encoded(pa.record_batch(given))
        assert odd.value.text.startswith(f"PRECONDITION_FAILED - queue 'q': {text}")


def test_messages_that_a_reader_takes() -> None:
    """Those of the schema, or alike; each difference names the message and the column."""
    reader = Reader("q", SCHEMA)
    like = pa.record_batch([[1], ["a"]], schema=pa.schema([("id", pa.int64()), ("word", pa.string())]))
    assert reader.batches(Writer("q", like.schema).encoded(like).body, 7) == [like]
    other = pa.record_batch({"id": [1], "text": ["a"]})
    null = pa.record_batch([pa.array([None], pa.int64()), ["a"]], schema=like.schema)
    for batch, text in (
        (other, "in message 7 column 'word' is missing"),
        (null, "in message 7 column 'id' has a null, and the schema says there is none"),
    ):
        with pytest.raises(shmbroker.SchemaMismatch) as odd:
            reader.batches(Writer("q", batch.schema).encoded(batch).body, 7)
        assert odd.value.text == f"PRECONDITION_FAILED - queue 'q': {text}"
    with pytest.raises(shmbroker.SchemaMismatch) as odd:
        reader.batches(b"x", 7)
    assert odd.value.text == (
        "PRECONDITION_FAILED - queue 'q': message 7 is not a record batch: a body of 1 bytes is not an Arrow stream"
    )
