# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.spark`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import shmbroker
from benchmarks import machine, report
from benchmarks.spark import claim, handover, micro_batch, sink, source
from benchmarks.spark.comparison import shown

SUBJECTS = {"source": source, "sink": sink, "exchange": handover, "claim": claim, "micro-batch": micro_batch}
HEADER = ("what", "ours", "counterpart", "figure", "goal")


def _session() -> Any:  # noqa: ANN401
    from pyspark.sql import SparkSession  # noqa: PLC0415 - it needs the environment below

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # the workers import the counterparts
    builder = SparkSession.builder.master("local[2]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.unix.domain.socket.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def main() -> int:
    """Makes the comparisons; 1 if some goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description="What shmbroker costs in Spark.")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", choices=SUBJECTS, action="append")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    spark, name, found = _session(), f"bench-{uuid.uuid4().hex[:8]}", []
    with shmbroker.Broker(name, memory="2G") as broker:
        try:
            with broker.connect() as connection:
                for subject in given.only or SUBJECTS:
                    for comparison in SUBJECTS[subject].comparisons(spark, connection):
                        found.append(comparison.made(given.runs))
                        print("  ".join(shown(found[-1])), flush=True)  # noqa: T201
        finally:
            spark.stop()
            broker.stop(purge=True)
    print("\n" + report.table(HEADER, [shown(one) for one in found]))  # noqa: T201
    if given.json:
        document = {
            "taken": datetime.now(UTC).isoformat(),
            "runs": given.runs,
            "machine": machine.describe(),
            "pyspark": spark.version,
            "found": found,
        }
        given.json.write_text(json.dumps(document, indent=1), "utf-8")
    return int(any(one["met"] is False for one in found))


if __name__ == "__main__":
    sys.exit(main())
