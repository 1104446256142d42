# SPDX-License-Identifier: Apache-2.0
"""Writing tables and streams to a queue, in a real Spark."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

import shmbroker
from shmbroker.spark import use_session
from shmbroker.staging import stages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def bodies(queue: shmbroker.Queue) -> list[bytes]:
    """What is ready, in order."""
    return [bytes(message) for message in queue.browse()]


def write(table: Any, broker: shmbroker.Broker, **options: str) -> None:  # noqa: ANN401
    """Appends a table to the queue."""
    writer = table.write.format("shmbroker").mode("append").option("broker", broker.name)
    for name, value in ({"queue": "q"} | options).items():
        writer = writer.option(name, value)
    writer.save()


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_table_becomes_messages(spark: Any, broker: shmbroker.Broker, queue: shmbroker.Queue, delivery: str) -> None:  # noqa: ANN401
    """In the order of partitions, if it is published as a whole; nothing is left of the stage."""
    write(spark.range(0, 5000, 1, 3).selectExpr("CAST(id AS STRING) AS value"), broker, delivery=delivery)
    found = [int(body) for body in bodies(queue)]
    assert (found if delivery == "exactly-once" else sorted(found)) == list(range(5000))
    assert stages(connection_of(queue)) == []


def test_keys_and_headers(spark: Any, broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:  # noqa: ANN401
    """They go with the message."""
    columns = (
        "CAST('v' AS BINARY) AS value",
        "IF(id = 0, NULL, 'k') AS key",
        "IF(id = 0, NULL, map('a', 'b')) AS headers",
    )
    write(spark.range(0, 2, 1, 1).selectExpr(*columns), broker)
    assert [(bytes(one), one.key, one.headers) for one in queue.browse()] == [(b"v", None, {}), (b"v", "k", {"a": "b"})]


def test_a_table_is_written_as_it_was_read(spark: Any, broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:  # noqa: ANN401
    """And inserted, by place; what the read added is left out."""
    queue.put(b"v", key="k", headers={"a": "b"})
    out = connection_of(queue).queue("out")
    table = spark.read.format("shmbroker").option("broker", broker.name).load("q")
    write(table, broker, queue="out")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW target USING shmbroker OPTIONS (broker '{broker.name}', queue 'out')")
    try:
        table.write.insertInto("target")
    finally:
        spark.sql("DROP VIEW target")
    assert [(bytes(one), one.key, one.headers) for one in out.browse()] == 2 * [(b"v", "k", {"a": "b"})]


def test_another_thread_writes(
    spark: Any,  # noqa: ANN401
    broker: shmbroker.Broker,
    queue: shmbroker.Queue,
    tmp_path: Path,
) -> None:
    """A table, and a stream, when it has said which session is its own."""
    out, failed = connection_of(queue).queue("out"), []
    queue.put(b"streamed")

    def job() -> None:
        try:
            use_session(spark)
            write(spark.sql("SELECT 'written' AS value"), broker, queue="out")
            stream = spark.readStream.format("shmbroker").option("broker", broker.name).load("q")
            sink = stream.writeStream.format("shmbroker").option("broker", broker.name).option("queue", "out")
            sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
            sink.start().awaitTermination()
        except Exception as error:  # noqa: BLE001 - Spark has many
            failed.append(error)

    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    assert failed == []
    assert bodies(out) == [b"written", b"streamed"]
    with pytest.raises(TypeError, match="spark=5: a SparkSession is needed"):
        use_session(5)  # type: ignore[arg-type]


@pytest.mark.timeout(900)
def test_a_query_that_waits_for_room_is_stopped(
    spark: Any,  # noqa: ANN401
    broker: shmbroker.Broker,
    queue: shmbroker.Queue,
    tmp_path: Path,
    until_true: Callable[[Callable[[], Any]], None],
) -> None:
    """It ends with the timeout of its sink; started again when there is room, it writes each message once."""
    queue.put_many([b"%d" % n for n in range(5)])
    out = connection_of(queue).queue("out", max_length=5)
    out.put(b"in the way")

    def query() -> Any:  # noqa: ANN401
        table = spark.readStream.format("shmbroker").option("broker", broker.name).option("group", "g").load("q")
        sink = table.writeStream.format("shmbroker").option("broker", broker.name).option("queue", "out")
        sink = sink.option("timeout", "2").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return sink.start()

    waits = query()
    until_true(lambda: not waits.isActive or sum(one.count for one in stages(connection_of(queue))) == 5)
    waits.stop()
    assert not waits.isActive
    assert bytes(out.get(auto_ack=True)) == b"in the way"
    again = query()
    until_true(lambda: not again.isActive or len(out) == 5)
    again.stop()
    assert bodies(out) == [b"%d" % n for n in range(5)]


def test_a_task_that_fails_publishes_nothing(
    spark: Any,  # noqa: ANN401
    broker: shmbroker.Broker,
    queue: shmbroker.Queue,
    until_true: Callable[[Callable[[], Any]], None],
) -> None:
    """The job fails after its second attempt; what other tasks had staged is dropped, and what those stage later."""
    table = spark.range(0, 100, 1, 2).selectExpr("IF(id = 99, raise_error('odd'), CAST(id AS STRING)) AS value")
    with pytest.raises(Exception, match="odd"):
        write(table, broker)
    until_true(lambda: not stages(connection_of(queue)))  # Spark lets its other tasks run on
    assert bodies(queue) == []


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (["id"], {}, "there is no column 'value' among id"),
        (["id AS value"], {}, "column 'value' is bigint, not binary or string"),
        (["'v' AS value", "id"], {}, "column 'id' is none of value, key, headers, sequence, queue"),
        (["'v' AS value", "map('a', 1) AS headers"], {}, "column 'headers' is map<string,int>"),
        (["CAST(NULL AS STRING) AS value"], {}, "column 'value' has a null"),
        (["'v' AS value"], {"queue": "missing"}, "no queue 'missing'"),
        (["'v' AS value"], {"delivery": "twice"}, "option delivery is 'twice': exactly-once or at-least-once"),
        (["'v' AS value"], {"group": "g"}, "option 'group' is unknown: broker, queue, delivery, payload, timeout"),
    ],
)
def test_a_write_that_cannot_be(
    spark: Any,  # noqa: ANN401
    broker: shmbroker.Broker,
    queue: shmbroker.Queue,
    *,
    columns: list[str],
    options: dict[str, str],
    words: str,
) -> None:
    """The error names what is wrong; nothing is written."""
    with pytest.raises(Exception, match=words):
        write(spark.range(1).selectExpr(*columns), broker, **options)
    assert bodies(queue) == []


def test_a_stream_from_queue_to_queue(
    spark: Any,  # noqa: ANN401
    broker: shmbroker.Broker,
    queue: shmbroker.Queue,
    tmp_path: Path,
) -> None:
    """Each message once, over several runs of the query; a run that has nothing to do changes nothing."""
    out = connection_of(queue).queue("out")

    def run() -> None:
        source = spark.readStream.format("shmbroker").option("broker", broker.name)
        table = (
            source.option("maxRowsPerTrigger", "10").load("q").selectExpr("value", "CAST(sequence AS STRING) AS key")
        )
        query = (
            table.writeStream.format("shmbroker")
            .option("broker", broker.name)
            .option("queue", "out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    queue.put_many([b"%d" % n for n in range(25)])
    run()
    queue.put_many([b"%d" % n for n in range(25, 30)])
    run()
    run()
    assert bodies(out) == [b"%d" % n for n in range(30)]
    assert (stages(connection_of(queue)), len(queue)) == ([], 0)
    assert [one.messages for one in shmbroker.groups(connection_of(queue))] == [0]
