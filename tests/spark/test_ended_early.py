# SPDX-License-Identifier: Apache-2.0
"""Reads and writes that end before their time, since the job is cancelled or no more rows are wanted, leave nothing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

from shmbroker.staging import stages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import shmbroker

BODY = bytes(1_000_000)


def noting_source(note: str) -> type:
    """The source "noting": who reads writes down its process id; sent by value, since workers do not have this file."""
    import os  # noqa: PLC0415 - as that
    import pathlib  # noqa: PLC0415

    from shmbroker.spark import source  # noqa: PLC0415

    class Browsing(source.BrowseReader):
        def read(self, partition: Any) -> Iterator[Any]:  # noqa: ANN401
            pathlib.Path(note).write_text(str(os.getpid()), "ascii")
            return super().read(partition)

    class Noting(source.ShmBrokerDataSource):
        @classmethod
        def name(cls) -> str:
            return "noting"

        def reader(self, schema: Any) -> Any:  # noqa: ANN401
            return Browsing(super().reader(schema)._options)  # noqa: SLF001

    return Noting


def cancelled(spark: Any, job: Callable[[], Any], when: Callable[[], Any], until_true: Any) -> str:  # noqa: ANN401
    """Runs a job, which is cancelled at some time; what it fails with.

    The job has this thread: in another one Spark does not find sources that are written in Python.
    """
    is_over = threading.Event()

    def cancel() -> None:
        until_true(lambda: when() or is_over.is_set())
        spark.sparkContext.cancelJobGroup("to be cancelled")

    cancels = threading.Thread(target=cancel)
    cancels.start()
    spark.sparkContext.setJobGroup("to be cancelled", "", interruptOnCancel=True)
    try:
        job()
    except Exception as error:  # noqa: BLE001 - Spark has many
        return str(error)
    finally:
        is_over.set()
        cancels.join()
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            spark.sparkContext.setLocalProperty(name, None)
    return "nothing"


def test_a_read_is_cancelled(
    spark: Any,  # noqa: ANN401
    queue: shmbroker.Queue,
    tmp_path: Path,
    until_true: Callable[[Callable[[], Any]], None],
) -> None:
    """Its worker, which has rows that nobody takes, goes, and its connection; nothing is taken."""
    queue.put_many([bytes(500)] * 40_000, timeout=0)
    note, at, go = tmp_path / "pid", str(tmp_path / "at"), str(tmp_path / "go")

    def waits(batches: Iterator[Any]) -> Iterator[Any]:
        import pathlib  # noqa: PLC0415 - sent by value
        import time  # noqa: PLC0415

        for batch in batches:
            pathlib.Path(at).touch()
            while not pathlib.Path(go).exists():
                time.sleep(0.01)
            yield batch

    spark.dataSource.register(noting_source(str(note)))
    table = spark.read.format("noting").option("broker", connection_of(queue).broker_name).option("columns", "value")
    rows = table.load("q").mapInArrow(waits, "value binary")
    assert "cancelled" in cancelled(spark, rows.count, (tmp_path / "at").exists, until_true)
    reader = int(note.read_text("ascii"))
    until_true(lambda: reader not in {one.pid for one in connection_of(queue).connections()})
    (tmp_path / "go").touch()
    assert len(queue) == 40_000


@pytest.mark.parametrize("broker", ["32M"], indirect=True)
def test_a_write_that_waits_is_cancelled(
    spark: Any,  # noqa: ANN401
    queue: shmbroker.Queue,
    until_true: Callable[[Callable[[], Any]], None],
) -> None:
    """Its worker ends, though there still is no memory; what it had staged goes, and nothing is published."""
    hoard = connection_of(queue).queue("hoard")
    hoard.put_many([BODY] * 4, timeout=0)
    values = spark.range(0, 40, 1, 1).selectExpr("CAST(repeat('x', 1000000) AS BINARY) AS value")
    writer = values.write.format("shmbroker").mode("append").option("broker", connection_of(queue).broker_name)

    def is_waiting() -> bool:
        return any(one.count > 0 for one in stages(connection_of(queue))) and full(queue)

    assert "cancelled" in cancelled(spark, writer.option("queue", "q").save, is_waiting, until_true)
    until_true(lambda: stages(connection_of(queue)) == [])
    until_true(lambda: connection_of(queue).doctor() == [])
    assert (len(queue), len(hoard)) == (0, 4)


def full(queue: shmbroker.Queue) -> bool:
    """Has the broker no room for another body?"""
    import shmbroker  # noqa: PLC0415

    try:
        queue.put(BODY, timeout=0)
    except shmbroker.OutOfMemory:
        return True
    queue.get(timeout=0).ack()
    return False


def test_one_row_of_many(
    spark: Any,  # noqa: ANN401
    queue: shmbroker.Queue,
    until_true: Callable[[Callable[[], Any]], None],
) -> None:
    """The rest is not read; nothing is taken, nothing staged, and no connection is left of any read but the first."""
    queue.put_many([BODY] * 40, timeout=0)
    table = spark.read.format("shmbroker").option("broker", connection_of(queue).broker_name).load("q")
    assert table.limit(1).count() == 1
    before = len(connection_of(queue).connections())
    for _ in range(5):
        assert table.limit(1).count() == 1
    until_true(lambda: len(connection_of(queue).connections()) <= before)
    assert (len(queue), stages(connection_of(queue)), connection_of(queue).queue_names(all=True)) == (40, [], ["q"])
