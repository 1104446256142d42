# SPDX-License-Identifier: Apache-2.0
"""Executor-side hand-over: the driver's side, which tells the tasks what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker.spark.handover.protocol import Handover

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def exchange(
    df: DataFrame,
    request_queue: str,
    reply_queue: str,
    schema: StructType | str,
    *,
    inflight: int = 4,
    timeout: float | None = None,
    broker: str | None = None,
) -> DataFrame:
    """Passes the batches of a DataFrame, on the executors, to a process on the same host, and returns its answers.

    The process runs :func:`serve`. A batch is written once into shared memory and read there, its answer likewise. The
    answers of a partition are in the order of its batches.

    Args:
        df: a DataFrame, also a streaming one.
        request_queue: the queue that the process serves.
        reply_queue: the prefix of the names of the queues for answers; each task has one, which ends with the task.
        schema: the schema of the answers; a ``StructType``, or its DDL text, such as "id long, score double".
        inflight: how many requests a task may have in flight; it has fewer where they would take more than its share of
            the broker's memory.
        timeout: the most seconds of each wait of a task: for an answer, for the turn to send a large request alone, for
            room for that request; ``None`` = as long as a process serves the queue.
        broker: the name of the broker; else ``SHMBROKER_BROKER`` in the executor's environment, else "default".

    Raises:
        TypeError: ``schema`` is neither a ``StructType`` nor a string.
        ValueError: the value of another argument is not allowed.

    The tasks raise these errors, which end the job when its retries are used up:

    - ``NoServer``: no process serves the queue, or the server died and none took over within a second.
    - ``FunctionFailed``: the server's function raised; the error has the text of that exception.
    - ``RequestRefused``: three servers died while they processed the batch.
    - ``SchemaMismatch``: the answer has other columns; the text names the first difference.
    - ``queue.Full``: a request can never fit the ``max_bytes`` of its queue.
    - ``Timeout``, ``OutOfMemory``, ``BrokerNotFound``, ``ConnectionClosedByBroker``.
    """
    from shmbroker.spark.schema import arrow_schema  # noqa: PLC0415 - see `through`

    handover = Handover(request_queue, reply_queue, arrow_schema(schema), inflight, timeout, broker)

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from shmbroker.spark.handover.client import hand_over  # noqa: PLC0415 - imported where the tasks run

        return hand_over(batches, handover)

    return df.mapInArrow(through, schema)
