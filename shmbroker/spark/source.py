# SPDX-License-Identifier: Apache-2.0
"""`.format("shmbroker")`: Spark's entry points for reading queues and writing to them.

Spark evaluates a DataFrame any number of times, in several processes, and never says that it is done with one. So a
batch read browses: messages stay, and each evaluation shows the current messages. This module implements Spark's Python
data source API.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import shmbroker
from shmbroker.spark.attachment import broker_name, connection_to
from shmbroker.spark.broker_identity import BrokerIdentity
from shmbroker.spark.messages import check_columns
from shmbroker.spark.options import (
    ReadOptions,
    WriteOptions,
    columns_asked_for,
    read_options,
    stream_options,
    stream_write_options,
    table_asked_for,
    write_options,
)
from shmbroker.spark.payloads import ARROW, BYTES, HANDLE, Payload, payload_of
from shmbroker.spark.sink import BatchWriter, StreamWriter, check_batches
from shmbroker.spark.stream import LeaseReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType


class ShmBrokerDataSource(DataSource):
    """Queues of shared memory, for Spark.

    Options of a read: ``queue`` (or the path given to ``load``), ``broker``, ``payload``, ``columns``; of a batch read
    also ``maxRows``; of a streaming read also ``group``, ``maxRowsPerTrigger``, ``maxBytesPerTrigger``,
    ``minPartitions`` and ``failOnDataLoss``. Options of a write: ``queue`` (or the path given to ``save``), ``broker``,
    ``payload``, ``delivery``, ``timeout``; of a batch write also ``txnAppId`` and ``txnVersion``.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``.format(...)``."""
        return "shmbroker"

    def schema(self) -> StructType:
        """Returns Spark's schema of the requested columns."""
        payload = self._payload()
        return payload.struct(columns_asked_for(self.options, payload))

    def _payload(self) -> Payload:
        queue, broker, kind = table_asked_for(self.options)
        if kind in {BYTES, HANDLE}:  # these forms need no look at the broker, which may not exist yet
            return Payload(kind)
        return payload_of(kind, connection_to(broker_name(broker)), queue)

    def reader(self, schema: StructType) -> BrowseReader:
        """Makes the reader of a batch read."""
        options = read_options(self.options, self._payload())
        check_schema(schema, options.payload.struct(options.columns))
        return BrowseReader(options)

    def streamReader(self, schema: StructType) -> LeaseReader:  # noqa: N802 - Spark's name
        """Makes the reader of a streaming read."""
        options = stream_options(self.options, self._payload())
        check_schema(schema, options.payload.struct(options.columns))
        return LeaseReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001
        """Makes the writer of a batch write."""
        options = _checked(schema, write_options(self.options))
        if overwrite:
            msg = "mode overwrite: a queue is not overwritten; append is allowed"
            raise ValueError(msg)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: ARG002, FBT001, N802
        """Makes the writer of a streaming write."""
        return StreamWriter(_checked(schema, stream_write_options(self.options)), schema)


def _checked(schema: StructType, options: WriteOptions) -> WriteOptions:
    if options.payload == ARROW:
        check_batches(schema, options)
    else:
        check_columns(schema)
    return options


class QueuePartition(InputPartition):
    """All ready messages of a queue: the only part of a batch read, since a reader walks the messages in sequence."""

    def __init__(self, broker_identity: BrokerIdentity) -> None:
        super().__init__(broker_identity)
        self.broker_identity = broker_identity


class BrowseReader(DataSourceReader):
    """Reads ready messages without taking them."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Returns the only part; the queue must exist."""
        connection = connection_to(broker_name(self._options.broker))
        connection.queue(self._options.queue, passive=True)
        return [QueuePartition(BrokerIdentity.of(connection))]

    def read(self, partition: QueuePartition) -> Iterator[pa.RecordBatch]:
        """Reads the messages that are ready now."""
        connection, options = partition.broker_identity.connection(), self._options
        return options.payload.browsed(
            connection, options.queue, partition.broker_identity, options.columns, options.max_rows
        )


def check_schema(given: StructType, wanted: StructType) -> None:
    """Checks that a schema given to ``.schema(...)`` is ``wanted``, that of the columns which the options request.

    Raises:
        SchemaMismatch: the schemas differ; the text names the first column that differs.
    """
    for has, wants in itertools.zip_longest(given.fields, wanted.fields):
        if has is None or wants is None or (has.name, has.dataType) != (wants.name, wants.dataType):
            text = f"PRECONDITION_FAILED - the schema has {_shown(has)} where the messages have {_shown(wants)}"
            raise shmbroker.SchemaMismatch(text=text)


def _shown(field: StructField | None) -> str:
    return "no more columns" if field is None else f"column '{field.name}' of {field.dataType.simpleString()}"
