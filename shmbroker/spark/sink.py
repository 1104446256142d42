# SPDX-License-Identifier: Apache-2.0
"""`write.format("shmbroker")` and `writeStream`: each row is written once, even if processes are killed.

A row becomes a message; with the option ``payload`` = ``arrow``, a record batch does. A task stages its messages where
no consumer sees them (:mod:`shmbroker.staging`). When all tasks are done, the driver publishes what the winning tasks
staged. A batch of a stream is identified by the query and the number of the batch, so that a batch which Spark runs
again after a crash is not published again. A batch write is identified by an id that is made for it, or by its options
``txnAppId`` and ``txnVersion``.

With the option ``delivery`` = ``at-least-once``, a task puts its rows immediately: a task that runs again repeats them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import uuid
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import types
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

import shmbroker
from shmbroker.columns import put
from shmbroker.leasing.lasting import store_of
from shmbroker.spark.attachment import broker_name, connection_to
from shmbroker.spark.broker_identity import BrokerIdentity
from shmbroker.spark.messages import columns_of, record_batches, refuse
from shmbroker.spark.payloads import ARROW, payload_of
from shmbroker.spark.registered import Writer, needed
from shmbroker.spark.schema import arrow_schema, may_be_null
from shmbroker.staging import Receipt, Stage

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # before Spark 4.1 a stream's tasks are given rows
    from pyspark.sql.datasource import DataSourceStreamWriter as DataSourceStreamArrowWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from shmbroker.columns import Columns
    from shmbroker.spark.options import WriteOptions

# A task waits so long for memory if no timeout is given. A longer wait could be for ever: the rows that the query
# itself has staged hold memory until they are published.
_PATIENCE_SECONDS = 60
# The most messages and bytes that one transaction publishes, by copying. A larger batch is moved, which takes a tenth
# of the time.
_AT_ONCE, _BYTES_AT_ONCE = 1000, 1 << 20
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_DIGITS = 16
# A publication's name contains the whole name of a queue of up to so many bytes; of a longer name, so many characters.
_MOST_BYTES_OF_NAME, _START_OF_NAME = 95, 32
_DROP_SECONDS = 10.0  # the most time for a drop: Spark waits for the drop before it reports why the job failed


@dataclasses.dataclass
class Staged(WriterCommitMessage):
    """The result of a task.

    Attributes:
        publication: the name of the publication that the batch belongs to.
        receipt: the receipt of the staged rows; ``None``: the task has put its rows into the queue, and staged none.
    """

    publication: str
    receipt: Receipt | None


def check_batches(schema: types.StructType, options: WriteOptions) -> None:
    """Checks that a table fits the batches of the queue, by the registered schema.

    Raises:
        SchemaMismatch: the queue has no schema, or the table has another; the text names the first column that differs.
    """
    connection = connection_to(broker_name(options.broker))
    payload = payload_of(ARROW, connection, options.queue)
    wanted, of_queue = payload.struct(payload.names), f"queue '{options.queue}'"
    for has, wants in itertools.zip_longest(schema.fields, wanted.fields):
        if has is None:
            refuse(f"there is no column '{wants.name}', which the batches of {of_queue} have")
        if wants is None or has.name != wants.name:
            refuse(f"column '{has.name}' is not in the batches of {of_queue}, or is in another place there")
        kind, wanted_kind = has.dataType.simpleString(), wants.dataType.simpleString()
        if kind != wanted_kind:
            refuse(f"column '{has.name}' is {kind}, not {wanted_kind}, which it is in the batches of {of_queue}")
        inside, wanted_inside = (may_be_null(arrow_schema(types.StructType([field])))[1:] for field in (has, wants))
        if any(may and not might for may, might in zip(inside, wanted_inside, strict=True)):
            refuse(f"column '{has.name}' may have nulls inside, and the schema of {of_queue} allows none there")


class _Writing:
    """The common part of batch and stream writers; travels from the planner to the tasks and to the committer.

    With ``delivery`` = ``exactly-once``, a batch belongs to the planner's broker: a task on another host raises before
    it stages. Rows that are put immediately go to the broker of the task's host.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._broker_identity = (
            BrokerIdentity.of(connection_to(broker_name(options.broker))) if options.exactly_once else None
        )

    def _connection(self) -> shmbroker.Connection:
        return (
            connection_to(broker_name(self._options.broker))
            if self._broker_identity is None
            else self._broker_identity.connection()
        )

    def _stage(self, batches: Iterable[pa.RecordBatch], publication: str, batch: int | uuid.UUID) -> Staged:
        connection = self._connection()
        context = TaskContext.get()
        partition, attempt = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
        queue = connection.queue(self._options.queue, passive=True)
        encoded = Writer(queue.name, needed(queue)).encoded if self._options.payload == ARROW else None
        if not self._options.exactly_once:
            for rows in batches:
                if encoded is not None:
                    encoded(rows).put(queue, timeout=self._options.timeout)
                else:
                    self._put(queue, columns_of(rows), len(rows))
            return Staged(publication, None)
        patience = self._options.timeout or _PATIENCE_SECONDS
        stage = Stage(connection, publication, durable=store_of(queue) != 0)
        with stage.attempt(batch, partition, attempt) as writer:
            for rows in batches:  # the writer holds no lock while Spark makes the next batch
                if encoded is not None:
                    encoded(rows).put(writer, timeout=patience)
                else:
                    writer.put_columns(columns_of(rows), len(rows), timeout=patience)
        return Staged(publication, writer.receipt)

    def _put(self, queue: shmbroker.Queue, columns: Columns, count: int) -> None:
        done = 0
        while done < count:  # `put` returns how many rows found room in time; it raises if none did
            done += put(queue, columns, count - done, self._options.timeout, row=done)

    def _publish(self, messages: Iterable[Any], batch: int | uuid.UUID) -> None:
        staged = [message for message in messages if isinstance(message, Staged)]
        receipts = [one.receipt for one in staged if one.receipt is not None]
        if receipts:
            publication = staged[0].publication
            numbered = self._options.app is not None
            limits = {"at_once": _AT_ONCE, "bytes_at_once": _BYTES_AT_ONCE}
            connection = self._connection()
            durable = store_of(connection.queue(self._options.queue, passive=True)) != 0
            stage = Stage(connection, publication, **limits, per_target=numbered, durable=durable)
            # A batch with a UUID that has not begun can only be published by this call: no later job knows the UUID. So
            # the wait has no limit.
            timeout = None if isinstance(batch, uuid.UUID) else self._options.timeout
            stage.publish(batch, receipts, self._options.queue, timeout=timeout)


class BatchWriter(_Writing, DataSourceArrowWriter):
    """Writes a table: the commit of the job publishes all rows that the tasks staged.

    With the options ``txnAppId`` and ``txnVersion`` the write is a numbered batch of an application for this queue: a
    number that is not above the last one publishes nothing.
    """

    def __init__(self, options: WriteOptions) -> None:
        super().__init__(options)
        self._batch: int | uuid.UUID = uuid.uuid4() if options.app is None else options.version
        digest = hashlib.sha256(options.queue.encode()).hexdigest()[:_DIGITS]  # the queue's name may be too long
        if options.app is not None:
            self._publication = f"txn.{digest}.{options.app}"
        elif len(options.queue.encode()) <= _MOST_BYTES_OF_NAME:
            self._publication = f"jobs.{options.queue}"
        else:
            self._publication = f"jobs.{options.queue[:_START_OF_NAME]}.{digest}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stages the rows of a task; with ``delivery`` = ``at-least-once``, puts them into the queue."""
        return self._stage(iterator, self._publication, self._batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publishes the staged rows in the driver, when all tasks are done.

        If the tasks put their rows immediately, there are none.
        """
        self._publish(messages, self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - all attempts are dropped
        """Drops the staged rows of the job, in the driver, after a task failed for good or :meth:`commit` raised.

        Other tasks may still run, and ``messages`` has nothing of them: so this drops all attempts of the job. It drops
        nothing of a batch that has begun to move: the next publish finishes it.
        """
        if self._options.exactly_once:
            Stage(self._connection(), self._publication).drop(self._batch, timeout=_DROP_SECONDS)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query; unless they are put immediately, each is published exactly once.

    Args:
        options: the options of the write.
        schema: the schema of the micro-batches; needed with ``payload`` = ``arrow``, before Spark 4.1.
    """

    def __init__(self, options: WriteOptions, schema: types.StructType | None = None) -> None:
        super().__init__(options)
        self._schema = schema if options.payload == ARROW else None  # None: the rows are messages

    def write(self, iterator: Iterator[pa.RecordBatch | types.Row]) -> Staged:
        """Stages the rows of a task; with ``delivery`` = ``at-least-once``, puts them into the queue."""
        context = TaskContext.get()
        query, batch = (None, None) if context is None else map(context.getLocalProperty, (_QUERY, _BATCH))
        if query is None or batch is None:
            text = "INTERNAL_ERROR - Spark does not say which query and batch a task belongs to"
            raise shmbroker.BrokerError(541, text)
        return self._stage(record_batches(iterator, self._schema), f"query.{query}", int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publishes the staged rows of the batch in the driver, when all its tasks are done.

        If the tasks put their rows immediately, there are none.
        """
        self._publish(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drops the staged rows of the batch, in the driver, after a task failed for good or :meth:`commit` raised.

        If the tasks put their rows immediately, there are none, and a drop would only make the marker's queue.

        The driver learns the publication's name, which contains the query's id, only from the messages of tasks:
        without any, it drops nothing. If the user restarts the query, Spark runs the batch again, and its publishing
        drops the attempts that are left.
        """
        staged = [message for message in messages if isinstance(message, Staged) and message.receipt is not None]
        for publication in {message.publication for message in staged}:
            Stage(self._connection(), publication).drop(batchId, timeout=_DROP_SECONDS)
