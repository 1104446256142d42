# SPDX-License-Identifier: Apache-2.0
"""Handles and record batches on their way through Spark."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow.compute as pc  # noqa: E402 - pyarrow may be missing

import shmbroker  # noqa: E402
from shmbroker.spark import ShmBrokerDataSource, put_batch, register_schema, resolve  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


def test_a_claim_check_through_spark(spark: Any, broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:  # noqa: ANN401
    """Handles go through Spark, bodies do not: a worker finds them where they lie; one that is gone is an error."""
    queue.put_many([bytes([n % 251]) * LONG for n in range(400)])
    table = spark.read.format("shmbroker").option("broker", broker.name).option("payload", "handle").load("q")

    def measure(batches: Iterator[Any]) -> Iterator[Any]:
        for one in resolve(batches):
            sums = [sum(body.as_buffer().slice(0, 3).to_pybytes()) for body in one["value"]]
            sizes = pc.binary_length(one["value"].cast(pa.binary())).cast(pa.int64())
            yield pa.record_batch({"sequence": one["sequence"], "size": sizes, "sum": sums})

    measured = table.repartition(2).mapInArrow(measure, "sequence long, size long, sum long")
    found = {row.sequence: (row["size"], row["sum"]) for row in measured.collect()}
    assert found == {n: (LONG, 3 * (n % 251)) for n in range(400)}

    broker_name = broker.name

    def lose_them(batches: Iterator[Any]) -> Iterator[Any]:
        for one in batches:
            with shmbroker.connect(broker_name, create=False) as connection:
                source = connection.queue("q", passive=True)
                source.purge()
                source.put_many([b"of the next attempt"] * 5)
            for resolved in resolve([one]):
                yield resolved.select(["sequence"])

    with pytest.raises(Exception, match=r"NOT_FOUND - message \d+ of queue 'q' is gone"):
        table.coalesce(1).mapInArrow(lose_them, "sequence long").collect()


def test_batches_through_spark(spark: Any, broker: shmbroker.Broker, queue: shmbroker.Queue, tmp_path: Path) -> None:  # noqa: ANN401
    """From a queue of batches to another one, by a batch write and by a stream; a column of another type is refused."""
    connection = connection_of(queue)
    target = connection.queue("target")
    for one in (queue, target):
        register_schema(one, SCHEMA)
    for start in range(0, 100, 25):
        put_batch(queue, batch(start, start + 25))
    table = spark.read.format("shmbroker").option("broker", broker.name).load("q")
    assert sorted(row.id for row in table.filter("id % 10 = 0").collect()) == [*range(0, 100, 10)]
    writing = table.withColumn("id", table.id + 1000).coalesce(1).write.format("shmbroker").mode("append")
    writing.option("broker", broker.name).option("payload", "arrow").option("queue", "target").save()
    stream = spark.readStream.format("shmbroker").option("broker", broker.name).load("q").writeStream
    stream = stream.format("shmbroker").option("broker", broker.name).option("payload", "arrow")
    stream = stream.option("queue", "target").option("checkpointLocation", str(tmp_path))
    stream.trigger(availableNow=True).start().awaitTermination()
    assert len(queue) == 0
    found = [row for one in read(target)[1] for row in one.to_pylist()]
    assert sorted(row["id"] for row in found) == [*range(100), *range(1000, 1100)]
    assert {(row["word"], row["at"]) for row in found} == {(f"w{n}", AT) for n in range(100)}
    wrong = table.withColumn("id", table.word).write.format("shmbroker").mode("append").option("broker", broker.name)
    with pytest.raises(Exception, match="column 'id' is string, not bigint"):
        wrong.option("payload", "arrow").option("queue", "target").save()
