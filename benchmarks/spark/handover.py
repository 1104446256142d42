# SPDX-License-Identifier: Apache-2.0
"""Hand-over and back: `exchange` to a server that echoes, beside an identity mapInArrow."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.spark.comparison import Comparison
from shmbroker.spark import exchange, serve
from shmbroker.spark.handover.client import hand_over
from shmbroker.spark.handover.protocol import Handover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import shmbroker

SCHEMA = "id long, payload string"
GOAL, GOAL_OF_SMALL = 1.05, 1.10
SMALL = 64 << 10
COST_GOAL, COSTED = 30e-6, 3000
SHAPES = ((1_000_000, 100, 10_000), (65_536, 1024, 64), (65_536, 1024, 1024), (8_192, 65_536, 100))
"""Rows, the width of each, and how many are in a batch."""


def _goal(size: int) -> float | None:
    """What is to be reached with batches of so many bytes."""
    if size < SMALL:
        return None
    return GOAL_OF_SMALL if size == SMALL else GOAL


def echo(batch: Any) -> Any:  # noqa: ANN401
    """What came."""
    return batch


def identity(batches: Iterator[Any]) -> Iterator[Any]:
    """What came, without leaving the worker."""
    yield from batches


@contextlib.contextmanager
def echoing(broker: str, queue: str) -> Iterator[None]:
    """A process that serves."""
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(queue, echo), kwargs={"broker": broker})
    server.start()
    try:
        yield
    finally:
        server.terminate()
        server.join()


def comparisons(spark: Any, connection: shmbroker.Connection) -> Iterator[Comparison]:  # noqa: ANN401
    """One for each shape."""
    with echoing(connection.broker_name, "requests"):
        yield _cost(connection.broker_name)
        for rows, width, together in SHAPES:
            spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(together))
            frame = spark.range(0, rows, 1, 2).selectExpr("id", f"repeat('x', {width}) as payload")
            ours = exchange(frame, "requests", "answers", SCHEMA, broker=connection.broker_name)
            theirs = frame.mapInArrow(identity, SCHEMA)
            name = f"exchange, {rows:,} x {width:,} B, {together:,} in a batch"
            ways = ("exchange", _counted(ours, rows, width)), ("identity", _counted(theirs, rows, width))
            yield Comparison(name, *ways, _goal(width * together), "time")


def _cost(broker: str) -> Comparison:
    """What a batch costs in the task's thread, without Spark: the processor's time, of which nothing is waiting."""
    made = pa.record_batch({"id": pa.array(range(10)), "payload": pa.array(["x" * (SMALL // 10)] * 10)})
    handover = Handover("requests", "answers", made.schema, broker=broker)

    def through(way: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> Callable[[], float]:
        def run() -> float:
            started = time.thread_time()
            if sum(batch.num_rows for batch in way(made for _ in range(COSTED))) != COSTED * made.num_rows:
                msg = "not everything came back"
                raise AssertionError(msg)
            return (time.thread_time() - started) / COSTED

        return run

    ours = through(lambda batches: hand_over(batches, handover))
    name = f"exchange, a batch of {SMALL >> 10} KiB, in the task's thread"
    return Comparison(name, ("exchange", ours), ("identity", through(identity)), COST_GOAL, "more")


def _counted(table: Any, rows: int, width: int) -> Callable[[], float]:  # noqa: ANN401
    def run() -> float:
        started = time.perf_counter()
        found = table.selectExpr("count(*)", "sum(length(payload))").collect()[0]
        taken = time.perf_counter() - started
        if tuple(found) != (rows, rows * width):
            msg = f"{found} came back of {rows} rows of {width} bytes"
            raise AssertionError(msg)
        return taken

    return run
