# SPDX-License-Identifier: Apache-2.0
"""`.format("shmbroker")` in a real Spark: batches browse, streams lease and acknowledge."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

import shmbroker

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def reading(spark: Any, broker: shmbroker.Broker) -> Any:  # noqa: ANN401
    """What reads from that broker; the source is found without being registered."""
    return spark.read.format("shmbroker").option("broker", broker.name)


def values(rows: list[Any]) -> list[int]:
    """The numbers in the bodies."""
    return [int(bytes(row.value)) for row in rows]


def test_a_batch_takes_nothing(reading: Any, queue: shmbroker.Queue) -> None:  # noqa: ANN401
    """Each evaluation shows what is ready then, in order; nothing is taken."""
    queue.put_many([str(n).encode() for n in range(25_000)])
    table = reading.load("q")
    assert values(table.select("value").collect()) == list(range(25_000))
    assert table.filter("sequence >= 24990").count() == 10
    assert len(queue) == 25_000
    queue.purge()
    assert table.count() == 0


def test_another_thread_reads(reading: Any, queue: shmbroker.Queue) -> None:  # noqa: ANN401
    """It need not say which session is its own."""
    queue.put_many([b"0", b"1"])
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(values(reading.load("q").collect())))
    thread.start()
    thread.join()
    assert found == [[0, 1]]


def test_columns_and_rows_that_are_asked_for(reading: Any, queue: shmbroker.Queue) -> None:  # noqa: ANN401
    """Only those are shipped."""
    queue.put_many([str(n).encode() for n in range(10)])
    table = reading.option("columns", "value, queue").option("maxRows", "3").load("q")
    assert [(bytes(row.value), row.queue) for row in table.collect()] == [(b"0", "q"), (b"1", "q"), (b"2", "q")]
    assert reading.load("q").limit(1).count() == 1


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("queue", "missing", "no queue 'missing' in vhost '/'"),
        ("broker", "missing", "no broker 'missing' on host"),
        ("colour", "red", "option 'colour' is unknown"),
        ("columns", "value,colour", "option columns has 'colour'"),
    ],
)
def test_a_read_that_cannot_be(reading: Any, queue: shmbroker.Queue, option: str, value: str, words: str) -> None:  # noqa: ANN401
    """The error says what is wrong with it."""
    assert len(queue) == 0
    with pytest.raises(Exception, match=words):
        reading.option("queue", "q").option(option, value).load().count()


def test_a_view_in_sql(spark: Any, queue: shmbroker.Queue) -> None:  # noqa: ANN401
    """It is read like any table; a table of Spark's catalog would lose its options, and is refused as it is made."""
    queue.put(b"A")
    given = f"USING shmbroker OPTIONS (broker '{connection_of(queue).broker_name}', queue 'q')"
    with pytest.raises(Exception, match="instead of CREATE TABLE use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE held {given}")
    spark.sql(f"CREATE TEMPORARY VIEW held {given}")
    try:
        assert [tuple(row) for row in spark.sql("SELECT queue, string(value) FROM held").collect()] == [("q", "A")]
    finally:
        spark.sql("DROP VIEW held")


def test_a_schema_that_differs(reading: Any, queue: shmbroker.Queue) -> None:  # noqa: ANN401
    """The error names the column."""
    assert len(queue) == 0
    with pytest.raises(
        Exception, match="the schema has column 'value' of string where the messages have column 'value' of binary"
    ):
        reading.schema("value STRING").option("columns", "value").load("q").count()


class Streaming:
    """Queries that read the queue into a table in memory, with a checkpoint of the test's own."""

    def __init__(self, spark: Any, broker: str, folder: Path) -> None:  # noqa: ANN401
        self._spark, self._broker, self._folder = spark, broker, folder
        self.seen: list[tuple[int, list[int]]] = []

    def run(self, *, fail_in: int | None = None, **options: str) -> None:
        """Everything that is there now, micro-batch by micro-batch."""

        def note(batch: Any, number: int) -> None:  # noqa: ANN401
            self.seen.append((number, sorted(values(batch.select("value").collect()))))
            if number == fail_in:
                text = "the sink fails"
                raise RuntimeError(text)

        stream = self._spark.readStream.format("shmbroker").option("broker", self._broker)
        for name, value in options.items():
            stream = stream.option(name, value)
        query = (
            stream.load("q")
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


@pytest.fixture
def streaming(spark: Any, broker: shmbroker.Broker, tmp_path: Path) -> Streaming:  # noqa: ANN401
    """Runs queries."""
    return Streaming(spark, broker.name, tmp_path)


def test_a_stream_takes_everything_once(streaming: Streaming, queue: shmbroker.Queue) -> None:
    """In micro-batches of the size that is asked for; the last one is acknowledged when the query has ended.

    The first one is empty: it brings the name of the group into the checkpoint.
    """
    queue.put_many([str(n).encode() for n in range(25)])
    streaming.run(maxRowsPerTrigger="10")
    assert streaming.seen == [(0, []), (1, [*range(10)]), (2, [*range(10, 20)]), (3, [*range(20, 25)])]
    (group,) = shmbroker.groups(connection_of(queue))
    assert (group.queue, group.acked, group.messages, len(queue)) == ("q", 3, 0, 0)
    queue.put_many([str(n).encode() for n in range(25, 30)])
    streaming.run(maxRowsPerTrigger="10")
    assert streaming.seen[4:] == [(4, [*range(25, 30)])]


def test_sequences_tell_the_messages_of_a_stream_apart(
    spark: Any,  # noqa: ANN401
    queue: shmbroker.Queue,
    tmp_path: Path,
) -> None:
    """Over micro-batches: each message passes `dropDuplicates` once, under the sequence that it has in its queue."""
    queue.put_many([str(n).encode() for n in range(25)])
    seen: list[tuple[int, int]] = []
    source = spark.readStream.format("shmbroker").option("broker", connection_of(queue).broker_name)
    query = (
        source.option("maxRowsPerTrigger", 10)
        .load("q")
        .dropDuplicates(["sequence"])
        .writeStream.foreachBatch(
            lambda batch, _: seen.extend((int(row.value), row.sequence) for row in batch.collect())
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(seen) == [(n, n) for n in range(25)]


def test_a_batch_that_failed_comes_again(streaming: Streaming, queue: shmbroker.Queue) -> None:
    """With the same messages, though others were put meanwhile; nothing is lost, nothing comes twice."""
    queue.put_many([str(n).encode() for n in range(20)])
    with pytest.raises(Exception, match="the sink fails"):
        streaming.run(fail_in=1, maxRowsPerTrigger="8", group="mine")
    queue.put_many([str(n).encode() for n in range(20, 22)])
    streaming.run(maxRowsPerTrigger="100", group="mine")
    assert streaming.seen == [
        (0, [*range(8)]),
        (1, [*range(8, 16)]),
        (1, [*range(8, 16)]),
        (2, [*range(16, 22)]),
    ]
    assert [one.messages for one in shmbroker.groups(connection_of(queue))] == [0]


def test_a_batch_in_parts_and_by_bytes(streaming: Streaming, queue: shmbroker.Queue) -> None:
    """A lease is read in parts; the limit of bytes ends a batch with the message that reaches it."""
    queue.put_many([str(n).rjust(1000, "0").encode() for n in range(30)])
    streaming.run(maxBytesPerTrigger="9500", minPartitions="4")
    assert [len(seen) for _, seen in streaming.seen] == [0, 10, 10, 10]
    assert [n for _, seen in streaming.seen for n in seen] == list(range(30))


def test_what_was_leased_is_gone(streaming: Streaming, queue: shmbroker.Queue) -> None:
    """A replay of messages that somebody released is an error, or is passed over if that was asked for."""
    queue.put_many([str(n).encode() for n in range(20)])
    with pytest.raises(Exception, match="the sink fails"):
        streaming.run(fail_in=1, maxRowsPerTrigger="10", group="mine")
    group = shmbroker.Group(connection_of(queue), queue, "mine")
    group.attach()
    assert group.release() == 10
    with pytest.raises(Exception, match="no lease 2 of group 'mine'"):
        streaming.run(group="mine")
    streaming.run(group="mine", failOnDataLoss="false")
    assert sorted(n for _, seen in streaming.seen[2:] for n in seen) == list(range(10, 20))
