# SPDX-License-Identifier: Apache-2.0
"""Reading a queue, beside a source that yields batches built before: what it costs to take them out of a queue."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.spark.comparison import Comparison
from benchmarks.spark.counterparts import Prebuilt
from shmbroker.spark import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import shmbroker

GOAL = 0.9
SHAPES = (
    ("value", 100, 2_000_000),
    (",".join(rows.WITH_BODIES), 100, 1_000_000),
    ("value", 1000, 500_000),
    ("value", 65_536, 8_000),
)


def comparisons(spark: Any, connection: shmbroker.Connection) -> Iterator[Comparison]:  # noqa: ANN401
    """One for each size of messages; the queue is there as long as it is being made."""
    spark.dataSource.register(Prebuilt)
    for columns, size, count in SHAPES:
        queue = connection.queue("bench")
        queue.put_many([bytes(size)] * count)
        together = min(rows.BATCH_ROWS, rows.TEXT_BYTES["body"] // size)
        options = {"columns": columns, "rows": count, "together": together, "size": size}
        theirs = spark.read.format("prebuilt").options(**options).load()
        ours = spark.read.format("shmbroker").options(broker=connection.broker_name, columns=columns).load("bench")
        name = f"source, {count:,} x {size:,} B, {columns.count(',') + 1} columns"
        yield Comparison(name, ("queue", _read(ours, count, size)), ("prebuilt", _read(theirs, count, size)), GOAL)
        queue.delete()


def _read(table: Any, count: int, size: int) -> Callable[[], float]:  # noqa: ANN401
    """Every column goes to the JVM, and nowhere from there; once before, it is seen to be complete."""
    found = table.selectExpr("count(*)", "sum(length(value))").collect()[0]
    if tuple(found) != (count, count * size):
        msg = f"{found} came out of {count} messages of {size} bytes"
        raise AssertionError(msg)

    def run() -> float:
        started = time.perf_counter()
        table.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started

    return run
