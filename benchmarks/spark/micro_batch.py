# SPDX-License-Identifier: Apache-2.0
"""How long a micro-batch takes, beside one of Spark's own rate source; both write to nowhere."""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any

from benchmarks.spark.comparison import Comparison
from benchmarks.spark.counterparts import Prebuilt
from shmbroker.spark import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import shmbroker

GOAL_ABOVE_PYTHON = 0.002
ROWS = 100
BATCHES = 25
WHOLE = ("triggerExecution",)
OF_THE_SOURCE = ("latestOffset", "getBatch", "queryPlanning", "addBatch")
"""The parts of a micro-batch in which Spark asks the source, and reads it. The rest is Spark's own: it writes a log
before, and another one after each micro-batch, which takes more than half of the time, and varies most."""


def comparisons(spark: Any, connection: shmbroker.Connection) -> Iterator[Comparison]:  # noqa: ANN401
    """The median of some micro-batches of a query that has begun.

    The rate source needs no Python. What a source in Python costs at least is the second comparison's counterpart.
    """
    spark.dataSource.register(Prebuilt)
    queue = connection.queue("stream")
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS, numPartitions=1)
    plain = {"columns": ",".join(rows.WITH_BODIES), "rows": ROWS, "together": ROWS, "size": 100}
    python = spark.readStream.format("prebuilt").options(**plain)
    ours = spark.readStream.format("shmbroker").options(broker=connection.broker_name, maxRowsPerTrigger=ROWS)

    def read() -> Any:  # noqa: ANN401
        queue.purge()
        queue.put_many([bytes(100)] * (ROWS * BATCHES * 3))
        return ours.load("stream")

    for name, load, parts, goal in (
        ("rate-micro-batch", rate.load, WHOLE, None),
        ("prebuilt, in Python", python.load, WHOLE, GOAL_ABOVE_PYTHON),
        ("prebuilt, in Python", python.load, OF_THE_SOURCE, None),
    ):
        ways = ("queue", _query(spark, read, parts)), (name, _query(spark, load, parts))
        what = f"micro-batch of {ROWS} messages" + (", without Spark's logs" if parts is OF_THE_SOURCE else "")
        yield Comparison(what, *ways, goal, "more")
    queue.purge()


def _query(spark: Any, load: Callable[[], Any], parts: Sequence[str]) -> Callable[[], float]:  # noqa: ANN401
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
        durations = [one["durationMs"] for one in progress[5:]]  # workers start in the first ones
        times = [sum(one.get(part, 0) for part in parts) for one in durations]
        return statistics.median(times) / 1000

    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "200")
    return run
