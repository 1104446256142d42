# SPDX-License-Identifier: Apache-2.0
"""What Spark 4.0 and 4.1 do not have yet: a process without it; without a session of Spark."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql import Row

import shmbroker
from shmbroker.columns import put
from shmbroker.spark import messages

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
