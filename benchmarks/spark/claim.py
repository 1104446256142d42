# SPDX-License-Identifier: Apache-2.0
"""Claim check: handles through the JVM and bodies read in place, beside bodies through the JVM; all are looked at."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.spark.comparison import Comparison
from shmbroker.spark import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import shmbroker

GOAL = 3.0
SHAPES = ((8192, 65_536, GOAL), (65_536, 4096, None))
SCHEMA = "bytes long, last string"


def looked_at(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How many bytes, and the largest body: to know which one that is, they are compared to the last byte."""
    for batch in batches:
        values = batch.column("value").cast(pa.binary())
        largest = pc.max(values).as_py()
        yield pa.record_batch({"bytes": [pc.sum(pc.binary_length(values)).as_py()], "last": [largest[-8:].decode()]})


def claimed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same of handles."""
    return looked_at(resolve(batches))


def comparisons(spark: Any, connection: shmbroker.Connection) -> Iterator[Comparison]:  # noqa: ANN401
    """One for each size."""
    for count, size, goal in SHAPES:
        queue = connection.queue("claims")
        queue.put_many([bytes(size - 8) + b"%08d" % at for at in range(count)])
        read = spark.read.format("shmbroker").option("broker", connection.broker_name)
        ours = read.options(payload="handle", columns="handle").load("claims").mapInArrow(claimed, SCHEMA)
        theirs = read.options(payload="bytes", columns="value").load("claims").mapInArrow(looked_at, SCHEMA)
        ways = ("handles", _run(ours, count, size)), ("bodies", _run(theirs, count, size))
        yield Comparison(f"claim check, {count:,} x {size:,} B", *ways, goal)
        queue.delete()


def _run(table: Any, count: int, size: int) -> Callable[[], float]:  # noqa: ANN401
    def run() -> float:
        started = time.perf_counter()
        found = table.selectExpr("sum(bytes)", "max(last)").collect()[0]
        taken = time.perf_counter() - started
        if tuple(found) != (count * size, f"{count - 1:08d}"):
            msg = f"{found} was found in {count} messages of {size} bytes"
            raise AssertionError(msg)
        return taken

    return run
