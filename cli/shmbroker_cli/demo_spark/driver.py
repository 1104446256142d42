# SPDX-License-Identifier: Apache-2.0
"""The driver, which may be killed: `python -m shmbroker_cli.demo_spark.driver BROKER FOLDER ROWS`.

A driver keeps its state only in the checkpoint and in the broker. So a second driver that is started with the same
arguments continues the work of the first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from shmbroker.spark import exchange
from shmbroker_cli.demo_spark import query
from shmbroker_cli.demo_spark.checkpoint import CHECKPOINT
from shmbroker_cli.demo_spark.parent import end_with_parent

ROWS_OF_A_REQUEST = 25


def _session(folder: Path) -> SparkSession:
    """Start Spark, on two cores of this machine; Spark writes all its files into the folder."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("shmbroker demo-spark")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        # The JVM lives for seconds only, so its fast first-tier compiler is the better one.
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.io.tmpdir={folder}",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_OF_A_REQUEST),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def main(broker: str, folder: str, rows: str) -> None:
    """Run the query until it has processed all messages that were in the queue at its start.

    Args:
        broker: The name of the broker.
        folder: The folder for the checkpoint, and for all other files that Spark writes.
        rows: The most rows of a micro-batch.
    """
    end_with_parent()
    session = _session(Path(folder))
    source = session.readStream.format("shmbroker").option("broker", broker).option("group", query.GROUP)
    source = source.option("columns", "key,value").option("maxRowsPerTrigger", rows).option("minPartitions", 2)
    measured = query.text_measures(source.load(query.FILES))
    scored = exchange(measured, query.REQUESTS, query.REPLIES, query.SCORED, broker=broker)
    sink = query.results(scored).writeStream.format("shmbroker").option("broker", broker)
    sink = sink.option("queue", query.RESULTS).option("checkpointLocation", str(Path(folder, CHECKPOINT)))
    sink.trigger(availableNow=True).start().awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
