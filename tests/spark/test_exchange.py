# SPDX-License-Identifier: Apache-2.0
"""`shmbroker.spark.exchange` in Spark's own tasks."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from shmbroker.spark import exchange

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Servers

    import shmbroker

SCHEMA = "id long, text string"
ROWS = 20_000


def handed(df: Any, broker: shmbroker.Broker, queue: str = "requests", schema: str = SCHEMA, **options: Any) -> Any:  # noqa: ANN401
    """The DataFrame, through the servers of a queue."""
    return exchange(df, queue, "replies", schema, broker=broker.name, **options)


def rows(spark: Any, count: int = ROWS) -> Any:  # noqa: ANN401
    """A DataFrame of two partitions."""
    return spark.range(0, count, 1, 2).selectExpr("id", "repeat(cast(id as string), 50) as text")


def content(df: Any) -> dict[str, list[Any]]:  # noqa: ANN401
    """Its rows, in order. Spark forgets that a column has no nulls."""
    found: dict[str, list[Any]] = df.toArrow().to_pydict()
    return found


def at_rest(broker: shmbroker.Broker, until_true: Any) -> None:  # noqa: ANN401
    """Waits until no queue of answers and no request is left."""
    with broker.connect() as connection:
        until_true(
            lambda: all(
                one.name in {"requests", "more"} and not one.message_count for one in connection.queue_statistics()
            )
        )


def test_an_echo_is_equal(spark: Any, broker: shmbroker.Broker, servers: Servers, until_true: Any) -> None:  # noqa: ANN401
    """All rows come back, in the order of their partitions."""
    servers.start("echo")
    sent = rows(spark)
    assert content(handed(sent, broker)) == content(sent)
    at_rest(broker, until_true)


@pytest.mark.parametrize("broker", ["32M"], indirect=True)
def test_hand_overs_in_one_stage(spark: Any, broker: shmbroker.Broker, servers: Servers, until_true: Any) -> None:  # noqa: ANN401
    """Two in a row, whose workers wait for each other, come through with more under way than there is memory."""
    servers.start("echo")
    servers.start("echo", "more")
    sent = rows(spark, 4 * ROWS)
    twice = handed(handed(sent, broker, inflight=64), broker, "more", inflight=64)
    assert content(twice) == content(sent)
    at_rest(broker, until_true)


def test_another_server_takes_over(spark: Any, broker: shmbroker.Broker, servers: Servers, until_true: Any) -> None:  # noqa: ANN401
    """A server that is killed in the middle costs no row; another one does its work."""
    servers.start("dies", "requests", str(ROWS // 4))
    servers.start("echo")
    found = handed(rows(spark), broker).selectExpr("count(*)", "sum(id)").collect()
    assert [tuple(row) for row in found] == [(ROWS, ROWS * (ROWS - 1) // 2)]
    at_rest(broker, until_true)


def test_errors_reach_the_driver(spark: Any, broker: shmbroker.Broker, servers: Servers, until_true: Any) -> None:  # noqa: ANN401
    """Nobody serves; a function raises; the answer has another type: the job fails, and says so."""
    with pytest.raises(Exception, match=r"NoServer: 313 .*no process serves queue 'requests'"):
        handed(rows(spark), broker).count()
    server = servers.start("odd")
    with pytest.raises(Exception, match=r"FunctionFailed: 541 .*ValueError: 15 is odd"):
        handed(spark.range(15, 20, 1, 1).selectExpr("id", "'' as text"), broker).count()
    server.terminate()
    server.wait()
    servers.start("other_type")
    with pytest.raises(Exception, match=r"SchemaMismatch: 406 .*column 'id' is string"):
        handed(rows(spark), broker).count()
    at_rest(broker, until_true)


def test_limit_leaves_nothing(spark: Any, broker: shmbroker.Broker, servers: Servers, until_true: Any) -> None:  # noqa: ANN401
    """A task whose rows are wanted no more ends, and leaves no queue and no request."""
    servers.start("echo")
    assert handed(rows(spark, 50 * ROWS), broker).limit(1).count() == 1
    at_rest(broker, until_true)


def test_a_worker_is_killed(
    spark: Any,  # noqa: ANN401
    broker: shmbroker.Broker,
    servers: Servers,
    tmp_path: Path,
    until_true: Any,  # noqa: ANN401
) -> None:
    """Spark tries the task again; every row comes back once."""
    servers.start("echo")
    flag = str(tmp_path / "killed")

    def kills_once(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.column(0)[0].as_py() >= ROWS // 4 and not os.path.exists(flag):  # noqa: PTH110
                with open(flag, "w"):  # noqa: PTH123
                    os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    sent = rows(spark)
    assert content(handed(sent, broker).mapInArrow(kills_once, SCHEMA)) == content(sent)
    assert (tmp_path / "killed").exists()
    at_rest(broker, until_true)


def test_a_job_is_cancelled(
    spark: Any,  # noqa: ANN401
    broker: shmbroker.Broker,
    servers: Servers,
    tmp_path: Path,
    until_true: Any,  # noqa: ANN401
) -> None:
    """Tasks that wait for an answer end with their job, and leave nothing."""
    servers.start("waits", "requests", str(tmp_path))
    failures = []

    def job() -> None:
        spark.sparkContext.setJobGroup("to be cancelled", "", interruptOnCancel=True)
        try:
            handed(rows(spark), broker).count()
        except Exception as error:  # noqa: BLE001 - Spark has many
            failures.append(str(error))

    runs = threading.Thread(target=job)
    runs.start()
    until_true((tmp_path / "at").exists)
    spark.sparkContext.cancelJobGroup("to be cancelled")
    runs.join()
    (tmp_path / "go").touch()
    assert "cancelled" in failures[0]
    at_rest(broker, until_true)


def test_a_stream_is_handed_over(
    spark: Any,  # noqa: ANN401
    broker: shmbroker.Broker,
    servers: Servers,
    tmp_path: Path,
    until_true: Any,  # noqa: ANN401
) -> None:
    """From a queue, through a server, to a queue: each message once, also over two runs of the query."""
    servers.start("signed", "requests", "seen")
    with broker.connect() as connection:
        jobs, done = connection.queue("jobs"), connection.queue("done")

        def run() -> None:
            source = spark.readStream.format("shmbroker").option("broker", broker.name)
            table = source.option("maxRowsPerTrigger", 20).option("minPartitions", 2).load("jobs")
            scored = handed(table.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id"), broker)
            sink = scored.selectExpr("concat(text, id) AS value").writeStream.format("shmbroker")
            sink = sink.option("broker", broker.name).option("queue", "done")
            query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
            query.awaitTermination()

        jobs.put_many([b"%d" % n for n in range(30)])
        run()
        jobs.put_many([b"%d" % n for n in range(30, 40)])
        run()
        assert sorted(bytes(one) for one in done.browse()) == sorted(b"seen%d" % n for n in range(40))
        until_true(lambda: sorted(connection.queue_names()) == ["done", "jobs", "requests"])
