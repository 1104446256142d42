# SPDX-License-Identifier: Apache-2.0
"""`write.format("shmbroker")` and `writeStream`: each row becomes a message, once, whatever is killed.

A task stages its rows where nobody sees them (:mod:`shmbroker.staging`); the driver publishes what the tasks that won
have staged, when Spark has all of them. A stream's batch is known by the query and its number, so that one which Spark
runs again after a crash is not published again; a batch write is known by an id that was made for it.
"""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark import TaskContext
from pyspark.sql import types
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

import shmbroker
from shmbroker.spark.attachment import broker_name, connection_to
from shmbroker.spark.home import Home
from shmbroker.spark.payloads import ARROW, payload_of
from shmbroker.spark.registered import Writer, needed
from shmbroker.staging import Receipt, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from shmbroker.spark.options import WriteOptions

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_KEY, _HEADERS, _VALUE = "key", "headers", "value"
_TEXT_OR_BYTES = (types.StringType, types.BinaryType)


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


def check_columns(schema: types.StructType) -> None:
    """Is that a table of messages?

    Raises:
        SchemaMismatch: a column is missing, unknown, or of another type; the text names it.
    """
    if _VALUE not in schema.names:
        _refuse(f"there is no column '{_VALUE}' among {', '.join(schema.names)}")
    for field in schema.fields:
        if field.name in {_VALUE, _KEY}:
            if not isinstance(field.dataType, _TEXT_OR_BYTES):
                _refuse(f"column '{field.name}' is {field.dataType.simpleString()}, not binary or string")
        elif field.name != _HEADERS:
            _refuse(f"column '{field.name}' is none of {_VALUE}, {_KEY}, {_HEADERS}")
        elif field.dataType != types.MapType(types.StringType(), types.StringType(), field.dataType.valueContainsNull):
            _refuse(f"column '{_HEADERS}' is {field.dataType.simpleString()}, not map<string,string>")


def check_batches(schema: types.StructType, options: WriteOptions) -> None:
    """Is that a table of the batches that the queue has, by the schema that is registered?

    Raises:
        SchemaMismatch: it has none, or another one; the text names the first column that differs.
    """
    connection = connection_to(broker_name(options.broker))
    payload = payload_of(ARROW, connection, options.queue)
    wanted = payload.struct(payload.names)
    for has, wants in itertools.zip_longest(schema.fields, wanted.fields):
        if has is None:
            _refuse(f"there is no column '{wants.name}', which the batches of queue '{options.queue}' have")
        if wants is None or has.name != wants.name:
            _refuse(f"column '{has.name}' is none of the batches of queue '{options.queue}', or in another place")
        if has.dataType != wants.dataType:
            kinds = f"{has.dataType.simpleString()}, not {wants.dataType.simpleString()}"
            _refuse(f"column '{has.name}' is {kinds}, which it is in the batches of queue '{options.queue}'")


def _refuse(what: str) -> NoReturn:
    raise shmbroker.SchemaMismatch(text=f"PRECONDITION_FAILED - {what}")


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
        put_all = self._put_batches(queue) if self._options.payload == ARROW else _put_all
        if not self._options.exactly_once:
            put_all(batches, queue.put, queue.put_many)
            return Staged(home, publication, None)
        with Stage(connection, publication).attempt(batch, partition, attempt) as writer:
            put_all(batches, writer.put, writer.put_many)
        return Staged(home, publication, writer.receipt)

    def _put_batches(self, queue: shmbroker.Queue) -> Callable[..., None]:
        writer = Writer(queue.name, needed(queue))

        def put_all(batches: Iterable[pa.RecordBatch], put: Callable[..., object], _put_many: object) -> None:
            for batch in batches:
                put(writer.body(batch))

        return put_all

    def _publish(self, messages: Iterable[Any], batch: int | uuid.UUID) -> None:
        staged = [message for message in messages if isinstance(message, Staged) and message.receipt is not None]
        if staged:
            connection = self._connection()
            for one in staged:
                one.home.check(connection)
            stage = Stage(connection, staged[0].publication)
            stage.publish(batch, [one.receipt for one in staged if one.receipt is not None], self._options.queue)

    def _drop(self, messages: Iterable[Any], batch: int | uuid.UUID) -> None:
        for publication in {message.publication for message in messages if isinstance(message, Staged)}:
            Stage(self._connection(), publication).drop(batch)


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

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """In the driver: one of them failed for good. None may have ended yet, and so none have told of a stage."""
        if self._options.exactly_once:
            Stage(self._connection(), self._publication).drop(self._job)


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
        self._drop(messages, batchId)


def _put_all(batches: Iterable[pa.RecordBatch], put: Callable[..., object], put_many: Callable[..., object]) -> None:
    """A batch is held no longer than until its messages are there; nothing is locked while the next one is made."""
    for batch in batches:
        values = batch.column(_VALUE).to_pylist()
        if None in values:
            _refuse(f"column '{_VALUE}' has a null: each message has a body")
        bodies = [value.encode() for value in values] if values and isinstance(values[0], str) else values
        if batch.num_columns == 1:
            put_many(bodies)
        else:
            for body, options in zip(bodies, _options_of(batch), strict=True):
                put(body, **options)


def _options_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    nothing = [None] * len(batch)
    keys = batch.column(_KEY).to_pylist() if _KEY in batch.schema.names else nothing
    headers = batch.column(_HEADERS).to_pylist() if _HEADERS in batch.schema.names else nothing
    for key, pairs in zip(keys, headers, strict=True):
        options: dict[str, Any] = {}
        if key is not None:
            options["key"] = key if isinstance(key, str) else key.decode()
        if pairs:
            options["headers"] = dict(pairs)
        yield options
