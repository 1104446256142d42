# SPDX-License-Identifier: Apache-2.0
"""The long-lived process beside Spark, which tokenises files: `python -m shmbroker_cli.demo_spark.scorer BROKER`.

It needs no Spark. It runs from before the first driver starts until after the last one has ended.
"""

from __future__ import annotations

import dataclasses
import sys

import pyarrow as pa

from shmbroker.spark import serve
from shmbroker_cli.demo_spark.measures import score
from shmbroker_cli.demo_spark.parent import end_with_parent
from shmbroker_cli.demo_spark.query import REQUESTS, SOURCE

SCORES = pa.schema(
    [("tokens", pa.int64()), ("vocabulary", pa.int64()), ("volume", pa.float64()), ("unread", pa.int64())]
)


def scored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch, in which columns with the scores replace the column with the sources.

    Args:
        batch: The rows to score, with the source of a file in each. The batch lies in shared memory.
    """
    found = [dataclasses.asdict(score(source.as_py())) for source in batch[SOURCE]]
    scores = pa.RecordBatch.from_pylist(found, schema=SCORES)
    rest = [name for name in batch.schema.names if name != SOURCE]
    columns = [*(batch[name] for name in rest), *scores.columns]
    return pa.RecordBatch.from_arrays(columns, names=[*rest, *scores.schema.names])


def main(broker: str) -> None:
    """Serve until SIGTERM.

    Args:
        broker: Its name.
    """
    end_with_parent()
    serve(REQUESTS, scored, broker=broker)


if __name__ == "__main__":
    main(sys.argv[1])
