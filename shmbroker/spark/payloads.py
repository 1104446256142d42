# SPDX-License-Identifier: Apache-2.0
"""The form of messages in a read: a row with the body, a row with a handle, or the rows of the record batches in them.

The option ``payload`` chooses the form. Without it, a read gives the record batches of a queue that has a registered
schema, and the bodies of any other queue.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types
from pyspark.sql.pandas.types import from_arrow_type

import shmbroker
from shmbroker import body_references
from shmbroker.columns import Ready
from shmbroker.spark import handles, registered, rows
from shmbroker.spark.schema import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shmbroker import Connection, Message
    from shmbroker.spark.broker_identity import BrokerIdentity

BYTES, ARROW, HANDLE = PAYLOADS = ("bytes", "arrow", "handle")


class Leased(NamedTuple):
    """A range of messages of a lease: of messages that a consumer group holds for a reader (:mod:`shmbroker.leasing`).

    Attributes:
        queue: the queue that they were leased from.
        group: the group that leased them.
        lease: the number of the lease.
        start: the index of the first message, from 0.
        stop: the index after the last message.
    """

    queue: str
    group: str
    lease: int
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Payload:
    """The form of messages of a queue.

    Attributes:
        kind: "bytes", "arrow" or "handle".
        schema: the registered schema, for ARROW; ``None`` for the other kinds.
    """

    kind: str = BYTES
    schema: pa.Schema | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The available columns."""
        if self.schema is not None:
            return tuple(self.schema.names)
        return rows.WITH_BODIES if self.kind == BYTES else rows.WITH_HANDLES

    def struct(self, columns: Sequence[str]) -> types.StructType:
        """Returns Spark's schema of some columns."""
        if self.schema is not None:
            return types.StructType([_field(self.schema.field(name)) for name in columns])
        return rows.schema_of(columns)

    def browsed(
        self,
        connection: Connection,
        name: str,
        broker_identity: BrokerIdentity,
        columns: Sequence[str],
        most: int | None,
    ) -> Iterator[pa.RecordBatch]:
        """Reads up to ``most`` rows of ready messages. For ARROW, it skips messages that are removed meanwhile."""
        queue = connection.queue(name, passive=True)
        if self.kind != ARROW:
            return rows.batches(Ready(queue, most).fill, name, columns, handles.Origin(broker_identity, name).handle_of)
        return _at_most(self._decoded(connection, body_references.of_queue(queue), name, columns, may_go=True), most)

    def leased(
        self, connection: Connection, part: Leased, broker_identity: BrokerIdentity, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Reads some messages of a lease.

        Raises:
            LeaseNotFound: the lease is gone.
        """
        group, span = shmbroker.Group(connection, part.queue, part.group), (part.lease, part.start, part.stop)
        if self.kind != ARROW:
            return _rows(group, span, handles.Origin(broker_identity, part.queue), columns)
        return self._decoded(connection, group.places(*span), part.queue, columns, may_go=False)

    def _decoded(
        self,
        connection: Connection,
        found: Iterable[tuple[Message, body_references.Place]],
        queue: str,
        columns: Sequence[str],
        *,
        may_go: bool,
    ) -> Iterator[pa.RecordBatch]:
        assert self.schema is not None  # noqa: S101 - always set for ARROW
        reader, wanted = registered.Reader(queue, self.schema), arrow_schema(self.struct(columns))
        for message, place in found:
            body = body_references.body_at(connection, place)
            if body is not None:
                for batch in reader.batches(body, message.sequence):
                    yield _fitted(batch, wanted, f"queue {queue!r}: in message {message.sequence}")
            elif not may_go:
                text = f"NOT_FOUND - message {message.sequence} of a lease of queue {queue!r} is gone"
                raise shmbroker.LeaseNotFound(404, text)


def _rows(
    group: shmbroker.Group, span: tuple[int, int, int], origin: handles.Origin, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    with group.by_column(*span) as found:
        yield from rows.batches(found.fill, origin.queue, columns, origin.handle_of)


def payload_of(kind: str | None, connection: Connection, queue: str) -> Payload:
    """Returns the form of messages that the option ``payload`` requests, or, without the option, that the queue has.

    Args:
        kind: the value of the option; ``None`` = without the option.
        connection: a connection to the broker of the queue.
        queue: the name of the queue.

    Raises:
        SchemaMismatch: ARROW is requested, and the queue has no schema; or a column of its schema has no form in Spark.
        NotFound: there is no such queue. BYTES and HANDLE do not look for it.
    """
    if kind in {BYTES, HANDLE}:
        return Payload(kind)
    opened = connection.queue(queue, passive=True)
    schema = registered.needed(opened) if kind == ARROW else registered.registered_schema(opened)
    if schema is None:
        return Payload()
    found = Payload(ARROW, schema)
    for has, wants in zip(schema, arrow_schema(found.struct(schema.names)), strict=True):
        try:
            _cast(pa.array([], has.type), wants.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _unfit(has, f"cannot become {wants.type}: {error}") from None
    return found


def _field(field: pa.Field) -> types.StructField:
    try:
        found = types.StructField(field.name, from_arrow_type(field.type), field.nullable)
        arrow_schema(types.StructType([found]))  # raises for a decimal type with more digits than Spark allows
    except Exception as error:  # noqa: BLE001 - Spark raises errors of several modules
        raise _unfit(field, f"Spark has no type for it: {error}") from None
    return found


def _unfit(field: pa.Field, why: str) -> shmbroker.SchemaMismatch:
    text = f"PRECONDITION_FAILED - column {field.name!r} of the registered schema is {field.type}: {why}"
    return shmbroker.SchemaMismatch(text=text)


def _cast(column: pa.Array, to: pa.DataType) -> pa.Array:
    """Casts a column; times are truncated to Spark's precision, as everywhere in Spark."""
    return column if column.type == to else pc.cast(column, options=pc.CastOptions(to, allow_time_truncate=True))


def _fitted(batch: pa.RecordBatch, wanted: pa.Schema, where: str) -> pa.RecordBatch:
    columns = []
    for field in wanted:
        try:
            columns.append(_cast(batch.column(field.name), field.type))
        except pa.ArrowInvalid as error:
            text = f"PRECONDITION_FAILED - {where} column {field.name!r} does not fit {field.type}: {error}"
            raise shmbroker.SchemaMismatch(text=text) from None
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _at_most(batches: Iterator[pa.RecordBatch], most: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, most)
        if most is not None:
            most -= len(batch)
            if most <= 0:
                return
