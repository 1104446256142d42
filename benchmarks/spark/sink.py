# SPDX-License-Identifier: Apache-2.0
"""Writing to a queue, once and all of it, beside an Arrow writer that only counts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.spark.comparison import Comparison
from benchmarks.spark.counterparts import Counting
from shmbroker.spark import register_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import shmbroker

GOAL = 0.9
SHAPES = ((100, 2_000_000), (1000, 800_000), (65_536, 12_000))


def comparisons(spark: Any, connection: shmbroker.Connection) -> Iterator[Comparison]:  # noqa: ANN401
    """One for each size of messages, and way of delivery."""
    spark.dataSource.register(Counting)
    queue = connection.queue("sink")
    for size, count in SHAPES:
        table = spark.range(0, count, 1, 2).selectExpr(f"repeat('x', {size}) AS value")
        for delivery in ("exactly-once", "at-least-once"):
            options = {"broker": connection.broker_name, "queue": "sink", "delivery": delivery}
            name = f"sink, {count:,} x {size:,} B, {delivery}"
            yield Comparison(name, ("queue", _into(queue, table, count, options)), ("counting", _counting(table)), GOAL)
    queue.delete()
    yield from _by_batch(spark, connection)


def _by_batch(spark: Any, connection: shmbroker.Connection) -> Iterator[Comparison]:  # noqa: ANN401
    """A message for each record batch, of a queue that has a schema."""
    queue = connection.queue("batches")
    register_schema(queue, pa.schema({"value": pa.string()}))
    for size, count in SHAPES:
        table = spark.range(0, count, 1, 2).selectExpr(f"repeat('x', {size}) AS value")
        options = {"broker": connection.broker_name, "queue": "batches", "payload": "arrow"}
        name = f"sink, {count:,} x {size:,} B, a message for each record batch"
        yield Comparison(name, ("queue", _into(queue, table, None, options)), ("counting", _counting(table)), GOAL)
    queue.delete()


def _into(queue: shmbroker.Queue, table: Any, count: int | None, options: dict[str, str]) -> Callable[[], float]:  # noqa: ANN401
    def run() -> float:
        started = time.perf_counter()
        table.write.format("shmbroker").mode("append").options(**options).save()
        taken = time.perf_counter() - started
        found = queue.purge()
        if found == 0 or count not in {None, found}:
            msg = f"not all of {count} messages were there"
            raise AssertionError(msg)
        return taken

    return run


def _counting(table: Any) -> Callable[[], float]:  # noqa: ANN401
    def run() -> float:
        started = time.perf_counter()
        table.write.format("counting").mode("append").save()
        return time.perf_counter() - started

    return run
