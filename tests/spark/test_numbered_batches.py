# SPDX-License-Identifier: Apache-2.0
"""Batch writes with a number, of which each is published once: what `foreachBatch` needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

from shmbroker.staging import stages

if TYPE_CHECKING:
    from pathlib import Path

    import shmbroker


def write(table: Any, broker: shmbroker.Broker, queue: str, version: int) -> None:  # noqa: ANN401
    """Appends a table to a queue, as a batch of "copying"."""
    writer = table.write.format("shmbroker").mode("append").option("broker", broker.name).option("queue", queue)
    writer.option("txnAppId", "copying").option("txnVersion", version).save()


def numbers(connection: shmbroker.Connection, queue: str) -> list[int]:
    """What is ready, in order."""
    return [int(bytes(message)) for message in connection.queue(queue, passive=True).browse()]


def test_a_number_is_published_once(spark: Any, broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:  # noqa: ANN401
    """A number that is not above the last one publishes nothing, and leaves nothing; each queue has its own numbers."""
    connection_of(queue).queue("more")
    for version, first in ((0, 0), (0, 90), (2, 2), (1, 80), (2, 70), (3, 4)):
        write(spark.range(first, first + 2, 1, 2).selectExpr("CAST(id AS STRING) AS value"), broker, "q", version)
        assert stages(connection_of(queue)) == []
    write(spark.range(1).selectExpr("CAST(id AS STRING) AS value"), broker, "more", 0)
    assert numbers(connection_of(queue), "q") == list(range(6))
    assert numbers(connection_of(queue), "more") == [0]


def test_a_queue_that_is_made_anew_remembers_nothing(
    spark: Any,  # noqa: ANN401
    broker: shmbroker.Broker,
    queue: shmbroker.Queue,
) -> None:
    """Its first batch is published, whatever number the deleted queue of its name had come to."""
    table = spark.sql("SELECT '7' AS value")
    write(table, broker, "q", 5)
    queue.delete()
    connection_of(queue).queue("q")
    for version in (0, 0):
        write(table, broker, "q", version)
    assert numbers(connection_of(queue), "q") == [7]


def test_a_number_that_failed_may_come_again(spark: Any, broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:  # noqa: ANN401
    """A write that failed has published nothing, so that its number is free."""
    table = spark.range(0, 4, 1, 1)
    with pytest.raises(Exception, match="odd"):
        write(table.selectExpr("IF(id = 3, raise_error('odd'), CAST(id AS STRING)) AS value"), broker, "q", 0)
    write(table.selectExpr("CAST(id AS STRING) AS value"), broker, "q", 0)
    assert numbers(connection_of(queue), "q") == list(range(4))
    assert stages(connection_of(queue)) == []


def test_a_batch_that_runs_again(
    spark: Any,  # noqa: ANN401
    broker: shmbroker.Broker,
    queue: shmbroker.Queue,
    tmp_path: Path,
) -> None:
    """A query that fails between its writes to two queues, and is started again, writes each message once to each."""
    for name in ("even", "odd"):
        connection_of(queue).queue(name)
    queue.put_many([b"%d" % n for n in range(30)])
    tries = []

    def sort(batch: Any, version: int) -> None:  # noqa: ANN401
        values = batch.selectExpr("CAST(value AS STRING) AS value")
        write(values.filter("CAST(value AS BIGINT) % 2 = 0"), broker, "even", version)
        tries.append(version)
        if tries == [0, 1]:
            text = "between the two"
            raise RuntimeError(text)
        write(values.filter("CAST(value AS BIGINT) % 2 = 1"), broker, "odd", version)

    def run() -> None:
        source = spark.readStream.format("shmbroker").option("broker", broker.name).option("group", "sorting")
        query = (
            source.option("maxRowsPerTrigger", "10")
            .load("q")
            .writeStream.foreachBatch(sort)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(Exception, match="between the two"):
        run()
    run()
    assert tries == [0, 1, 1, 2]
    assert numbers(connection_of(queue), "even") == list(range(0, 30, 2))
    assert numbers(connection_of(queue), "odd") == list(range(1, 30, 2))
    assert (stages(connection_of(queue)), len(queue)) == ([], 0)
