# SPDX-License-Identifier: Apache-2.0
"""How long a micro-batch takes, beside one of Spark's own rate source; both write to nowhere."""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any

from benchmarks.spark.comparison import Comparison

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import shmbroker

GOAL = 0.005
ROWS = 100
BATCHES = 25


def comparisons(spark: Any, connection: shmbroker.Connection) -> Iterator[Comparison]:  # noqa: ANN401
    """One: the median of some micro-batches of a query that has begun."""
    queue = connection.queue("stream")
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 1)
    ours = spark.readStream.format("shmbroker").options(broker=connection.broker_name, maxRowsPerTrigger=ROWS)

    def read() -> Any:  # noqa: ANN401
        queue.purge()
        queue.put_many([bytes(100)] * (ROWS * BATCHES * 3))
        return ours.load("stream")

    name = f"micro-batch of {ROWS} messages"
    yield Comparison(name, ("queue", _query(spark, read)), ("rate-micro-batch", _query(spark, rate.load)), GOAL, "more")
    queue.purge()


def _query(spark: Any, load: Callable[[], Any]) -> Callable[[], float]:  # noqa: ANN401
    def run() -> float:
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = load().writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(processingTime="0 seconds").start()
            try:
                while len(query.recentProgress) < BATCHES + 5:
                    if query.exception() is not None:
                        raise query.exception()
                    time.sleep(0.05)
                progress = [one for one in query.recentProgress if one["numInputRows"] == ROWS]
            finally:
                query.stop()
        times = [one["durationMs"]["triggerExecution"] for one in progress[5:]]  # workers start in the first ones
        return statistics.median(times) / 1000

    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "200")
    return run
