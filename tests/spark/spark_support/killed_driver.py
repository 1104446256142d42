# SPDX-License-Identifier: Apache-2.0
"""A driver that runs a query from one queue to another, and is killed at one point of it.

    python killed_driver.py BROKER CHECKPOINT POINT BATCH

Points: ``leased`` (before Spark has noted the offset), ``reading`` (in a task), ``staged`` (before the sink's commit),
``published`` (after it, before Spark has noted that the batch is done), ``none``. What is killed is Spark's JVM, with
the Python process that started it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from shmbroker.spark.sink import StreamWriter
from shmbroker.spark.source import ShmBrokerDataSource
from shmbroker.spark.stream import LeaseReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

PIDS, POINT, BATCH = "KILLED_DRIVER_PIDS", "KILLED_DRIVER_POINT", "KILLED_DRIVER_BATCH"


def kill_at(point: str, batch: int) -> None:
    """Kills the driver if that is when."""
    if (os.environ[POINT], int(os.environ[BATCH])) == (point, batch):
        for pid in Path(os.environ[PIDS]).read_text("ascii").split():
            os.kill(int(pid), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)  # of Spark's own processes not each notices that its driver is gone


class KilledReader(LeaseReader):
    """Kills after a lease, and in a task."""

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:  # noqa: N802
        """Leases; of a group without a name of ours batch 0 is empty, and batch 1 is lease 1."""
        found = super().latestOffset(start, limit)
        if found != start:
            kill_at("leased", found["lease"])
        return found

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401
        """Reads."""
        for batch in super().read(partition):
            kill_at("reading", partition.lease)
            yield batch


class KilledWriter(StreamWriter):
    """Kills before and after a commit."""

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Publishes."""
        kill_at("staged", batchId)
        super().commit(messages, batchId)
        kill_at("published", batchId)


class KilledSource(ShmBrokerDataSource):
    """The same source, and sink, with these."""

    @classmethod
    def name(cls) -> str:
        """As in ``.format(...)``."""
        return "killed"

    def streamReader(self, schema: Any) -> KilledReader:  # noqa: ANN401, N802
        """A reader."""
        return KilledReader(super().streamReader(schema)._options)  # noqa: SLF001

    def streamWriter(self, schema: Any, overwrite: bool) -> KilledWriter:  # noqa: ANN401, FBT001, N802
        """A writer."""
        return KilledWriter(super().streamWriter(schema, overwrite)._options)  # noqa: SLF001


def main(broker: str, checkpoint: str, point: str, batch: str) -> None:
    """Runs the query until nothing is left, or to its death."""
    os.environ.update({PIDS: f"{checkpoint}.pids", POINT: point, BATCH: batch, "PYSPARK_PYTHON": sys.executable})
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    jvm = session._jvm.java.lang.ProcessHandle.current().pid()  # noqa: SLF001
    Path(os.environ[PIDS]).write_text(f"{jvm} {os.getpid()}", "ascii")
    session.dataSource.register(KilledSource)
    source = session.readStream.format("killed").option("broker", broker)
    table = source.option("maxRowsPerTrigger", "10").option("minPartitions", "2").load("q").select("value")
    sink = table.writeStream.format("killed").option("broker", broker).option("queue", "out")
    sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    session.stop()


if __name__ == "__main__":
    from killed_driver import main as importable  # what is pickled must be found by the name of a module

    importable(*sys.argv[1:])
