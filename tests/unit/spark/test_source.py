# SPDX-License-Identifier: Apache-2.0
"""What Spark asks of the data source, in the order in which it does; and sessions of threads of the driver."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
import pyspark.sql
from pyspark.sql import types

import shmbroker
from pyspark_shmbroker import DefaultSource
from shmbroker.spark import ShmBrokerDataSource, put_batch, register_schema, rows, use_session
from shmbroker.spark.broker_identity import BrokerIdentity
from shmbroker.spark.sink import BatchWriter, StreamWriter
from shmbroker.spark.source import BrowseReader, check_schema
from shmbroker.spark.stream import LeaseReader

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = pa.schema({"id": pa.int64(), "word": pa.string()})
VALUE = rows.schema_of(["value"])


def source(queue: shmbroker.Queue, **options: str) -> ShmBrokerDataSource:
    """The source of a queue."""
    return ShmBrokerDataSource({"queue": queue.name, "broker": connection_of(queue).broker_name, **options})


def test_the_name() -> None:
    """Spark finds the source by it, and by the module of its own."""
    assert ShmBrokerDataSource.name() == "shmbroker"
    assert DefaultSource is ShmBrokerDataSource


def test_columns_are_known_without_a_broker(broker_name: str) -> None:
    """If the payload was said; else the broker is asked whether the queue has a schema."""
    given = {"queue": "q", "broker": broker_name}
    assert ShmBrokerDataSource(given | {"payload": "bytes"}).schema() == rows.schema_of(rows.WITH_BODIES)
    assert ShmBrokerDataSource(given | {"payload": "handle"}).schema() == rows.schema_of(rows.WITH_HANDLES)
    assert ShmBrokerDataSource(given | {"payload": "bytes", "columns": "value"}).schema() == VALUE
    for payload in ({}, {"payload": "arrow"}):
        with pytest.raises(shmbroker.BrokerNotFound):
            ShmBrokerDataSource(given | payload).schema()


def test_a_batch_read(queue: shmbroker.Queue) -> None:
    """Shows what is ready, and takes nothing; the plan travels to another process, with its broker."""
    queue.put_many([b"A", b"B", b"C"])
    found = source(queue, columns="value", maxRows="2")
    reader = found.reader(found.schema())
    assert isinstance(reader, BrowseReader)
    (part,) = reader.partitions()
    assert part.broker_identity == part.value == BrokerIdentity.of(connection_of(queue))
    again, sent = pickle.loads(pickle.dumps((reader, part)))  # noqa: S301
    assert [batch.to_pydict() for batch in again.read(sent)] == [{"value": [b"A", b"B"]}]
    assert len(queue) == 3


def test_a_queue_that_is_not_there(connection: shmbroker.Connection) -> None:
    """It is missed when the read is planned, and not made."""
    found = ShmBrokerDataSource({"queue": "missing", "broker": connection.broker_name, "payload": "bytes"})
    with pytest.raises(shmbroker.NotFound):
        found.reader(found.schema()).partitions()
    with pytest.raises(shmbroker.NotFound):
        ShmBrokerDataSource({"queue": "missing", "broker": connection.broker_name}).schema()
    assert connection.queue_names() == []


def test_what_is_made_for_each_use(queue: shmbroker.Queue) -> None:
    """Readers and writers of batches and of streams."""
    found = source(queue, columns="value")
    assert isinstance(found.streamReader(VALUE), LeaseReader)
    assert isinstance(source(queue).writer(VALUE, overwrite=False), BatchWriter)
    assert isinstance(source(queue).streamWriter(VALUE, overwrite=False), StreamWriter)
    assert isinstance(source(queue).streamWriter(VALUE, overwrite=True), StreamWriter)
    with pytest.raises(ValueError, match="mode overwrite: a queue is not overwritten; append is allowed"):
        source(queue).writer(VALUE, overwrite=True)


def test_what_is_written_is_checked(queue: shmbroker.Queue) -> None:
    """When the write is planned, of batches and of streams; as messages, or as the batches that the queue has."""
    number = types.StructType([types.StructField("value", types.LongType())])
    calls: list[Callable[[ShmBrokerDataSource], Any]] = [
        lambda made: made.writer(number, overwrite=False),
        lambda made: made.streamWriter(number, overwrite=False),
    ]
    for call in calls:
        with pytest.raises(shmbroker.SchemaMismatch, match="column 'value' is bigint, not binary or string"):
            call(source(queue))
        with pytest.raises(shmbroker.SchemaMismatch, match="it has no Arrow schema"):
            call(source(queue, payload="arrow"))
    register_schema(queue, pa.schema({"value": pa.int64()}))
    for call in calls:
        call(source(queue, payload="arrow"))
        with pytest.raises(shmbroker.SchemaMismatch, match="column 'value' is bigint, not binary or string"):
            call(source(queue))


OTHERS = [
    ([("id", types.LongType())], "no more columns where the messages have column 'word' of string"),
    (
        [("id", types.LongType()), ("word", types.StringType()), ("x", types.LongType())],
        "column 'x' of bigint where the messages have no more columns",
    ),
    (
        [("id", types.StringType()), ("word", types.StringType())],
        "column 'id' of string where the messages have column 'id' of bigint",
    ),
    ([("ident", types.LongType())], "column 'ident' of bigint where the messages have column 'id' of bigint"),
]


@pytest.mark.parametrize(("given", "text"), OTHERS, ids=[text[:20] for _, text in OTHERS])
def test_another_schema_is_refused(queue: shmbroker.Queue, given: list[tuple[str, types.DataType]], text: str) -> None:
    """When the read is planned; the error names the first column that differs."""
    register_schema(queue, SCHEMA)
    struct = types.StructType([types.StructField(*one) for one in given])
    for plan in (source(queue).reader, source(queue).streamReader):
        with pytest.raises(shmbroker.SchemaMismatch) as refused:
            plan(struct)
        assert refused.value.text == f"PRECONDITION_FAILED - the schema has {text}"


def test_a_schema_may_say_that_there_are_no_nulls() -> None:
    """That is not compared."""
    check_schema(types.StructType([types.StructField("value", types.BinaryType(), False)]), VALUE)  # noqa: FBT003


def test_record_batches_are_read(queue: shmbroker.Queue) -> None:
    """Of a queue that has a schema, unless something else is asked for."""
    register_schema(queue, SCHEMA)
    batch = pa.record_batch([[1, 2], ["a", "b"]], schema=SCHEMA)
    put_batch(queue, batch)
    for options, names in (({}, ["id", "word"]), ({"payload": "handle"}, list(rows.WITH_HANDLES))):
        found = source(queue, **options)
        assert found.schema().names == names
        reader = found.reader(found.schema())
        (part,) = reader.partitions()
        (read,) = reader.read(part)
        assert read.schema.names == names
        if not options:
            assert read == batch


class Session:
    """Stands in for a session of Spark."""

    _jvm, _jsparkSession = "machine", "session of the machine"  # noqa: N815 - Spark's name
    active: list[object]

    @classmethod
    def _get_j_spark_session_class(cls, machine: object) -> Any:  # noqa: ANN401
        assert machine == "machine"
        return type("Made", (), {"setActiveSession": staticmethod(cls.active.append)})


def test_a_thread_takes_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes the thread's active one; what is no session is refused; with Spark Connect nothing is done."""
    Session.active = []
    monkeypatch.setattr(pyspark.sql, "SparkSession", Session)
    session: Any = Session()
    use_session(session)
    assert Session.active == ["session of the machine"]
    with pytest.raises(TypeError, match="spark=7: a SparkSession is needed"):
        use_session(7)
    monkeypatch.setattr("pyspark.sql.utils.is_remote", lambda: True)
    use_session(session)
    use_session(7)
    assert Session.active == ["session of the machine"]
