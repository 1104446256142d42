# SPDX-License-Identifier: Apache-2.0
"""Queues of record batches: a queue has a registered Arrow schema, and each message contains batches of it.

The schema is stored in the broker, so that every process finds it; it does not change as long as the queue lives.
Neither the process that puts batches nor the one that reads them needs Spark. A message is an IPC stream, see
:mod:`shmbroker.spark.batches`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

import shmbroker
from shmbroker._process import locks
from shmbroker._process.living import Beside
from shmbroker._system_queues import schemas
from shmbroker.spark.batches import Decoder, Encoded, Encoder
from shmbroker.spark.schema import difference, may_be_null, null_in

if TYPE_CHECKING:
    from shmbroker import Queue

_lock = locks.lock()
_known = Beside["Queue", "Writer"]()
_NULLS = "columns differ in whether they may be null"


def register_schema(queue: Queue, schema: pa.Schema) -> None:
    """Registers the schema of a queue's messages. Repeated with the same schema, it does nothing.

    Args:
        queue: a queue of any broker.
        schema: the schema of the batches; its metadata is dropped.

    Raises:
        SchemaMismatch: the queue has another schema. The text names the first column that differs, unless columns
            differ only in whether they may be null.
    """
    if not isinstance(schema, pa.Schema):
        msg = f"schema={schema!r}: a pyarrow.Schema is needed"
        raise TypeError(msg)
    plain = schema.remove_metadata()
    text = ", ".join(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in plain)
    found = schemas.register(queue, schemas.Registered(plain.serialize().to_pybytes(), text))
    has = _decoded(found)
    if not has.equals(plain):
        why = difference(plain, has, exactly=True) or _NULLS
        refuse(queue.name, f"it has another Arrow schema: {why}")


def registered_schema(queue: Queue) -> pa.Schema | None:
    """Returns the schema of a queue's batches; ``None``: it has none."""
    found = schemas.registered(queue)
    return None if found is None else _decoded(found)


def put_batch(queue: Queue, batch: pa.RecordBatch, *, key: str = "", timeout: float | None = None) -> None:
    """Puts a batch into a queue that has a schema; a long batch is written once, directly into shared memory.

    Args:
        queue: a queue with a registered schema.
        batch: a batch with the columns of that schema. Strings and binaries may have Arrow's ``large_`` types, and
            times another time zone.
        key: the key of the message.
        timeout: seconds to wait for room; ``None`` = for ever.

    Raises:
        SchemaMismatch: the queue has no schema, the batch has another, or a value does not fit the schema, such as a
            null. The text names the first column that differs, unless columns differ only in whether they may be null.
        queue.Full: there was no room in time, or (``OutOfMemory``) no memory.
    """
    with _lock:
        writer = _known.get(queue) or _known.set(queue, Writer(queue.name, needed(queue)))
        why = writer.difference(batch.schema)
        if why:
            refuse(queue.name, f"in the batch {why}")
        encoded = writer.encoded(batch)
    encoded.put(queue, key, timeout)


def needed(queue: Queue) -> pa.Schema:
    """Returns the schema of a queue that must have one.

    Raises:
        SchemaMismatch: the queue has no schema.
    """
    found = registered_schema(queue)
    if found is None:
        refuse(queue.name, "it has no Arrow schema: shmbroker.spark.register_schema(queue, schema) gives it one")
    return found


class Reader:
    """Decodes the messages of a queue that has a schema.

    Args:
        queue: the name of the queue, for error texts.
        schema: the registered schema.
    """

    def __init__(self, queue: str, schema: pa.Schema) -> None:
        self._queue, self._schema, self._decoder = queue, schema, Decoder()

    def batches(self, body: memoryview | bytes, sequence: int) -> list[pa.RecordBatch]:
        """Decodes the batches of a message in place, or from a copy if the body is not aligned.

        The body, or the copy, lives until the last Arrow object made of it is gone.

        Raises:
            SchemaMismatch: the body has another schema, or is not a record batch. The text names the message, and for
                another schema the column.
        """
        try:
            found = self._decoder.batches(body)
        except pa.ArrowInvalid as error:
            refuse(self._queue, f"message {sequence} is not a record batch: {error}")
        for batch in found:
            why = "" if batch.schema.equals(self._schema) else difference(batch.schema, self._schema)
            why = why or null_in(batch, self._schema)
            if why:
                refuse(self._queue, f"in message {sequence} {why}")
        return found


class Writer:
    """Encodes batches as messages of a queue that has a schema. Casts each column to its type in the schema.

    Args:
        queue: the name of the queue, for error texts.
        schema: the registered schema.
    """

    def __init__(self, queue: str, schema: pa.Schema) -> None:
        self._queue, self._schema, self._encoder = queue, schema, Encoder()

    def difference(self, found: pa.Schema) -> str:
        """Describes why batches of a schema cannot be messages of the queue; empty: they can."""
        if found.equals(self._schema):
            return ""
        return difference(found, self._schema) or (_NULLS if may_be_null(found) != may_be_null(self._schema) else "")

    def encoded(self, batch: pa.RecordBatch) -> Encoded:
        """Encodes a batch as a message.

        Raises:
            SchemaMismatch: a value does not fit the schema; the text names its column.
        """
        why = null_in(batch, self._schema)
        if why:
            refuse(self._queue, why)
        columns = []
        for field in self._schema:
            column = batch.column(field.name)
            try:
                columns.append(column if column.type == field.type else column.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                refuse(self._queue, f"column {field.name!r} does not fit {field.type}: {error}")
        return self._encoder.encoded([pa.RecordBatch.from_arrays(columns, schema=self._schema)])


def refuse(queue: str, why: str) -> NoReturn:
    """Raises the error of a schema that does not fit."""
    raise shmbroker.SchemaMismatch(text=f"PRECONDITION_FAILED - queue {queue!r}: {why}")


def _decoded(found: schemas.Registered) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(found.encoded))
