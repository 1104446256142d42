# SPDX-License-Identifier: Apache-2.0
"""`write.format("shmbroker")` and `writeStream`: each row becomes a message, once, whatever is killed.

A task stages its rows where nobody sees them (:mod:`shmbroker.staging`); the driver publishes what the tasks that won
have staged, when Spark has all of them. A stream's batch is known by the query and its number, so that one which Spark
runs again after a crash is not published again; a batch write is known by an id that was made for it.
"""

from __future__ import annotations

import dataclasses
import queue as standard_queue
import uuid
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

import shmbroker
from shmbroker.columns import put
from shmbroker.spark.attachment import broker_name, connection_to
from shmbroker.spark.home import Home
from shmbroker.spark.messages import columns_of
from shmbroker.staging import Receipt, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from shmbroker.columns import Columns
    from shmbroker.spark.options import WriteOptions

_PATIENCE_SECONDS = 60  # for memory, which may be full of what is staged: that will not go before the batch is done
_AT_ONCE, _BYTES_AT_ONCE = 1000, 1 << 20  # larger ones are moved: a tenth of the time
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclasses.dataclass
class Staged(WriterCommitMessage):
    """What a task has done.

    Attributes:
        home: the broker it did it in.
        publication: what the batch belongs to.
        receipt: of what it has staged; ``None``: it has put everything.
    """

    home: Home
    publication: str
    receipt: Receipt | None


class _Writing:
    """What the writers of batches and of streams share; travels from the planner to the tasks and to the committer."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def _connection(self) -> shmbroker.Connection:
        return connection_to(broker_name(self._options.broker))

    def _stage(self, batches: Iterable[pa.RecordBatch], publication: str, batch: int | uuid.UUID) -> Staged:
        connection = self._connection()
        context = TaskContext.get()
        partition, attempt = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
        queue = connection.queue(self._options.queue, passive=True)
        home = Home.of(connection)
        if not self._options.exactly_once:
            for rows in batches:
                self._put(queue, columns_of(rows), len(rows))
            return Staged(home, publication, None)
        with Stage(connection, publication).attempt(batch, partition, attempt) as writer:
            for rows in batches:  # nothing is locked while the next one is made
                timeout = self._options.timeout or _PATIENCE_SECONDS
                writer.put_columns(columns_of(rows), len(rows), timeout=timeout)
        return Staged(home, publication, writer.receipt)

    def _put(self, queue: shmbroker.Queue, columns: Columns, count: int) -> None:
        if put(queue, columns, count, self._options.timeout) < count:
            text = (
                f"queue {queue.name!r}: no room for a batch of {count} messages within {self._options.timeout} seconds"
            )
            raise standard_queue.Full(text)

    def _publish(self, messages: Iterable[Any], batch: int | uuid.UUID) -> None:
        staged = [message for message in messages if isinstance(message, Staged) and message.receipt is not None]
        if staged:
            connection = self._connection()
            for one in staged:
                one.home.check(connection)
            stage = Stage(connection, staged[0].publication, at_once=_AT_ONCE, bytes_at_once=_BYTES_AT_ONCE)
            winners = [one.receipt for one in staged if one.receipt is not None]
            stage.publish(batch, winners, self._options.queue, timeout=self._options.timeout)

    def _drop(self, publications: Iterable[str], batch: int | uuid.UUID) -> None:
        for publication in publications:
            Stage(self._connection(), publication).drop(batch, timeout=self._options.timeout)


class BatchWriter(_Writing, DataSourceArrowWriter):
    """Writes a table: all of it is published by the commit of the job."""

    def __init__(self, options: WriteOptions) -> None:
        super().__init__(options)
        self._job = uuid.uuid4()
        self._publication = f"jobs.{options.queue}"[:100]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In a task."""
        return self._stage(iterator, self._publication, self._job)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver: all tasks are done."""
        self._publish(messages, self._job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - nobody may have got so far
        """In the driver: one of them failed for good."""
        self._drop([self._publication], self._job)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, each once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In a task."""
        context = TaskContext.get()
        query, batch = (None, None) if context is None else map(context.getLocalProperty, (_QUERY, _BATCH))
        if query is None or batch is None:
            text = "INTERNAL_ERROR - Spark does not say which query and batch a task is of"
            raise shmbroker.BrokerError(541, text)
        return self._stage(iterator, f"query.{query}", int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """In the driver: all tasks of the batch are done."""
        self._publish(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """In the driver: one of them failed for good."""
        self._drop({message.publication for message in messages if isinstance(message, Staged)}, batchId)
