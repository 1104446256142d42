# SPDX-License-Identifier: Apache-2.0
"""Executor-side hand-over: the driver's side, which says what the tasks are to do."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from shmbroker._amqp.utf8 import size_in_utf8

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_MOST_INFLIGHT = 1024
_MOST_PREFIX = 200  # bytes; the rest of 255 is for what makes the names differ


@dataclasses.dataclass(frozen=True, slots=True)
class Handover:
    """What :func:`exchange` is given, on its way to the tasks.

    Attributes:
        request_queue: where requests go.
        reply_queue: the names of the queues for answers begin with this.
        schema: of the answers; ``None`` = any.
        inflight: requests under way at once, at most.
        timeout: seconds to wait for an answer; ``None`` = for ever.
        broker: its name; ``None`` = as the task's environment says.
    """

    request_queue: str
    reply_queue: str
    schema: pa.Schema | None = None
    inflight: int = 4
    timeout: float | None = None
    broker: str | None = None

    def __post_init__(self) -> None:
        """Checks what can be checked here.

        Raises:
            ValueError: a value is not allowed.
        """
        for name, most in (("request_queue", 255), ("reply_queue", _MOST_PREFIX)):
            value = getattr(self, name)
            if not isinstance(value, str) or not 1 <= (size_in_utf8(value) or 0) <= most or "\0" in value:
                msg = f"{name}={value!r}: 1 to {most} bytes of UTF-8 without NUL are allowed"
                raise ValueError(msg)
        counts = isinstance(self.inflight, int) and not isinstance(self.inflight, bool)
        if not counts or not 1 <= self.inflight <= _MOST_INFLIGHT:
            msg = f"inflight={self.inflight!r}: an integer from 1 to {_MOST_INFLIGHT} is allowed"
            raise ValueError(msg)
        if self.timeout is not None and not (isinstance(self.timeout, (int, float)) and self.timeout > 0):
            msg = f"timeout={self.timeout!r}: seconds, more than 0, or None are allowed"
            raise ValueError(msg)


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
    """Hands the batches of a DataFrame, on the executors, to a process on the same host, and gives what that answers.

    The process runs :func:`serve`. A batch is written once into shared memory and read there, its answer likewise. The
    answers of a partition are in the order of its batches.

    Args:
        df: streaming ones as well.
        request_queue: the queue that is served.
        reply_queue: what the names of the queues for answers begin with; each task has one of its own, gone with it.
        schema: of what the server answers; a ``StructType``, or its text.
        inflight: how many requests a task may have under way at once; it has fewer where they would take more than its
            share of the broker's memory.
        timeout: seconds to wait for an answer when those before it are there; ``None`` = as long as somebody serves.
        broker: its name; else ``SHMBROKER_BROKER`` in the executor's environment, else "default".

    Raises:
        ValueError: an argument is not allowed.

    In the tasks are raised, and end the job when its retries are used up:

    - ``NoServer``: nobody serves the queue, or the server died and none took over within a second.
    - ``FunctionFailed``: the server's function raised; its text.
    - ``RequestRefused``: the batch was in the hands of three servers that died.
    - ``SchemaMismatch``: the answer has other columns; the first difference is named.
    - ``queue.Full``: a request can never fit the ``max_bytes`` of its queue.
    - ``Timeout``, ``OutOfMemory``, ``BrokerNotFound``, ``ConnectionClosedByBroker``.
    """
    from shmbroker.spark.schema import arrow_schema  # noqa: PLC0415 - see `through`

    handover = Handover(request_queue, reply_queue, arrow_schema(schema), inflight, timeout, broker)

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from shmbroker.spark.handover.client import hand_over  # noqa: PLC0415 - imported where the tasks run

        return hand_over(batches, handover)

    return df.mapInArrow(through, schema)
