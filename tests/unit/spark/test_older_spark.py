# SPDX-License-Identifier: Apache-2.0
"""What Spark 4.0 and 4.1 do not have yet: a process without it; without a session of Spark."""

from __future__ import annotations

import datetime as dt
import decimal
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.conversion import ArrowTableToRowsConversion

import shmbroker
from shmbroker.columns import put
from shmbroker.spark import messages, register_schema, sink
from shmbroker.spark.payloads import payload_of
from shmbroker.spark.registered import Reader
from shmbroker.spark.source import ShmBrokerDataSource

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDER = """
    import sys
    import pyspark.sql.datasource
    del pyspark.sql.datasource.DataSourceStreamArrowWriter
    sys.modules["pyspark.sql.streaming.datasource"] = None

    from pyspark.sql import Row, types

    from pyspark_shmbroker import DefaultSource
    from shmbroker.spark import sink

    class Context:
        get = classmethod(lambda cls: cls())
        partitionId = taskAttemptId = lambda self: 0
        getLocalProperty = {"sql.streaming.queryId": "one", "streaming.sql.batchId": "7"}.get

    sink.TaskContext = Context
    pairs = types.MapType(types.StringType(), types.StringType())
    schema = types.StructType().add("value", "string").add("key", "string").add("headers", pairs)
    source = DefaultSource({"queue": "q", "group": "g", "broker": sys.argv[1]})
    reader = source.streamReader(source.schema())
    assert reader.latestOffset()["lease"] == 0
    writer = DefaultSource({"queue": "q", "broker": sys.argv[1]}).streamWriter(schema, overwrite=False)
    assert isinstance(writer, pyspark.sql.datasource.DataSourceStreamWriter)
    given = [Row(value=str(n), key=None if n else "k", headers={"a": "b"} if n else None) for n in range(3)]
    for _ in range(2):
        writer.commit([writer.write(iter(given))], 7)
"""


def test_a_stream_in_an_older_spark(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """It is found, reads, and writes rows instead of record batches, each batch once."""
    program = [sys.executable, "-P", "-c", textwrap.dedent(OLDER), broker.name]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = [(bytes(one), one.key, one.headers) for one in queue.browse()]
    assert found == [(b"0", "k", {}), (b"1", None, {"a": "b"}), (b"2", None, {"a": "b"})]


def test_rows_become_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, so many at a time; bytes stay bytes, and text text."""
    monkeypatch.setattr(messages, "ROWS_AT_ONCE", 2)
    given = [Row(value=b"A", key="k"), Row(value=b"B", key=None), Row(value=b"C", key="k")]
    found = [batch.to_pylist() for batch in messages.record_batches(iter(given))]
    assert found == [[{"value": b"A", "key": "k"}, {"value": b"B", "key": None}], [{"value": b"C", "key": "k"}]]
    assert list(messages.record_batches(iter([]))) == []


@pytest.mark.parametrize("values", [["A", "B"], [b"A", b"B"], [bytearray(b"A"), bytearray(b"B")]])
def test_rows_without_a_key_among_them(queue: shmbroker.Queue, values: list[Any]) -> None:
    """Nor with headers: they are messages without a key and without headers, as a queue of such is written."""
    given = [Row(value=value, key=None, headers=None) for value in values]
    (batch,) = messages.record_batches(iter(given))
    assert put(queue, messages.columns_of(batch), 2) == 2
    assert [(bytes(one), one.key, one.headers) for one in queue.browse()] == [(b"A", None, {}), (b"B", None, {})]


def test_rows_without_a_value_are_refused() -> None:
    """By the error that names the column."""
    (batch,) = messages.record_batches(iter([Row(value=None, key=None, headers=None)]))
    with pytest.raises(shmbroker.SchemaMismatch, match="column 'value' has a null"):
        messages.columns_of(batch)


AT = dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC)  # in Berlin 2:30, and 3:30 two hours later
PARTS = pa.struct([("n", pa.int32()), ("day", pa.date32())])
OF_BATCHES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("body", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(10, 2)),
        ("words", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("parts", pa.list_(PARTS)),
        ("took", pa.duration("us")),
    ]
)
TABLE = {
    "id": [1, 2],
    "body": [b"A", None],
    "at": [AT, AT + dt.timedelta(hours=2)],
    "local": [dt.datetime(2024, 1, 2, 3, 4), None],  # noqa: DTZ001 - has none in Arrow
    "price": [decimal.Decimal("1.50"), None],
    "words": [["a", None], []],
    "counts": [[("a", 1)], None],
    "parts": [[{"n": 1, "day": dt.date(2024, 1, 2)}, None], []],
    "took": [dt.timedelta(seconds=1), None],
}


@pytest.fixture
def _in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_in_berlin")
@pytest.mark.parametrize("nulls", [False, True])
def test_rows_become_batches_of_a_queue(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch, *, nulls: bool
) -> None:
    """Each column has the type of the schema, whatever it is, also if all its values are null; times are the same."""
    register_schema(queue, OF_BATCHES)
    table = pa.table(TABLE, schema=OF_BATCHES).slice(1 if nulls else 0)
    struct = payload_of("arrow", connection_of(queue), "q").struct(OF_BATCHES.names)
    place = {"sql.streaming.queryId": "one", "streaming.sql.batchId": "7"}
    context = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 0, getLocalProperty=place.get)
    monkeypatch.setattr(sink, "TaskContext", SimpleNamespace(get=lambda: context))
    options = {"queue": "q", "broker": connection_of(queue).broker_name, "payload": "arrow"}
    writer = ShmBrokerDataSource(options).streamWriter(struct, overwrite=False)
    writer.commit([writer.write(iter(ArrowTableToRowsConversion.convert(table, struct)))], 7)
    (message,) = queue.browse()
    found = pa.Table.from_batches(Reader("q", OF_BATCHES).batches(bytes(message), 0))
    assert found.schema == OF_BATCHES
    assert found.to_pylist() == table.to_pylist()
