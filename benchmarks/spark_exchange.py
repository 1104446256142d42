# SPDX-License-Identifier: Apache-2.0
"""What a hand-over and back costs in Spark: `exchange` to a server that echoes, beside an identity mapInArrow.

    python -m benchmarks.spark_exchange [--runs 7]

Needs `pip install shmbroker[spark]` and a Java. Both run in turn in one session, on the same rows; each run verifies
how many rows came out. The ratio is that of the medians; the goal is at most 1.05 for batches of 64 KiB and more.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

import shmbroker
from shmbroker.spark import exchange, serve

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = "id long, payload string"
GOAL = 1.05
SHAPES = ((1_000_000, 100, 10_000), (65_536, 1024, 64), (65_536, 1024, 1024), (8_192, 65_536, 100))


def echo(batch: Any) -> Any:  # noqa: ANN401
    """What came."""
    return batch


def identity(batches: Iterator[Any]) -> Iterator[Any]:
    """What came, without leaving the worker."""
    yield from batches


def measure(spark: Any, broker: str, shape: tuple[int, int, int], runs: int) -> None:  # noqa: ANN401
    """Prints a line for rows of a width, so many in a batch."""
    rows, width, together = shape
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(together))
    frame = spark.range(0, rows, 1, 2).selectExpr("id", f"repeat('x', {width}) as payload")
    ways = {
        "identity": frame.mapInArrow(identity, SCHEMA),
        "exchange": exchange(frame, "requests", "answers", SCHEMA, broker=broker),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(runs + 1):  # the first is not counted
        for name, way in ways.items():
            started = time.perf_counter()
            found = way.selectExpr("count(*)", "sum(length(payload))").collect()
            if run:
                seconds[name].append(time.perf_counter() - started)
            if tuple(found[0]) != (rows, rows * width):
                sys.exit(f"{name}: {found}")
    plain, handed = (statistics.median(seconds[name]) for name in ("identity", "exchange"))
    spread = "  ".join(f"{name} {min(times):.3f} to {max(times):.3f}" for name, times in seconds.items())
    print(  # noqa: T201
        f"{rows:>9,} x {width:>6} B, {together:>6} in a batch: identity {plain:.3f} s, exchange {handed:.3f} s, "
        f"{handed / plain:.2f} times (goal {GOAL}); {spread}"
    )


def main() -> None:
    """Runs all."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - it needs the environment below

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with shmbroker.Broker(name, memory="1G") as broker:
        spawn = multiprocessing.get_context("spawn")
        server = spawn.Process(target=serve, args=("requests", echo), kwargs={"broker": name})
        server.start()
        try:
            for shape in SHAPES:
                measure(spark, name, shape, runs)
        finally:
            server.terminate()
            server.join()
            spark.stop()
            broker.stop(purge=True)


if __name__ == "__main__":
    main()
