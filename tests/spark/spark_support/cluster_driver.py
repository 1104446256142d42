# SPDX-License-Identifier: Apache-2.0
"""A driver on a cluster, which writes what it has seen as JSON: ``cluster_driver.py MASTER ARCHIVE REPORT``.

Its broker is that of its environment; it has queues "jobs", with messages, and "out".
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from shmbroker.spark import exchange
from shmbroker.spark.attachment import broker_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

WHERE = "broker string, host string, variable string, module string"


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: which broker it would use, on which host, what it has of the driver, and whose code it is."""
    import os  # noqa: PLC0415 - sent by value: the modules of this file are not there
    import socket  # noqa: PLC0415

    import pyarrow as pa  # noqa: PLC0415

    import shmbroker  # noqa: PLC0415
    from shmbroker.spark.attachment import broker_name  # noqa: PLC0415

    for _ in batches:
        found = broker_name(None), socket.gethostname(), os.environ.get("ONLY_DRIVER"), shmbroker.__file__
        yield pa.RecordBatch.from_arrays(
            [pa.array([one], pa.string()) for one in found], ["broker", "host", "variable", "module"]
        )


def error_of(action: Callable[[], Any]) -> str:
    """What a job fails with; Spark's own errors have no common type."""
    try:
        action()
    except Exception as error:  # noqa: BLE001
        return str(error)
    return "none"


def both(session: Any) -> Any:  # noqa: ANN401
    """A row for each of the two hosts: each of them has one core."""
    return session.range(0, 2, 1, 2)


def seen(session: Any) -> list[dict[str, str]]:  # noqa: ANN401
    """What tasks say of where they are, one on each host."""
    return [row.asDict() for row in both(session).mapInArrow(where, WHERE, barrier=True).collect()]


def answers(session: Any) -> list[str]:  # noqa: ANN401
    """Who has served the tasks."""
    return sorted(row.text for row in exchange(both(session), "requests", "replies", "id long, text string").collect())


def write(session: Any, delivery: str) -> None:  # noqa: ANN401
    """A message from a task on each host."""
    table = both(session).selectExpr("CAST(id AS STRING) AS value")
    writer = table.write.format("shmbroker").mode("append").option("queue", "out").option("delivery", delivery)
    writer.save()


def main(master: str, archive: str, report: str) -> None:
    """All of it, in one session."""
    builder = SparkSession.builder.master(master).appName("shmbroker tests of a cluster")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "1",
        "spark.archives": f"{archive}#environment",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    jobs = session.read.format("shmbroker").load("jobs")
    found: dict[str, Any] = {"driver": broker_name(None), "variable": os.environ["ONLY_DRIVER"]}
    found["seen"] = seen(session)
    found["answers"] = answers(session)
    found["nowhere"] = error_of(exchange(both(session), "requests", "replies", "id long", broker="nowhere").collect)
    found["read"] = error_of(jobs.union(jobs).count)
    found["published"] = error_of(lambda: write(session, "exactly-once"))
    found["put"] = error_of(lambda: write(session, "at-least-once"))
    session.conf.set("spark.sql.execution.pyspark.python", "./environment/bin/python")
    found["shipped"] = seen(session)
    found["shipped_answers"] = answers(session)
    session.stop()
    Path(report).write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
