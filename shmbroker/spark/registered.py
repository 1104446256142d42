# SPDX-License-Identifier: Apache-2.0
"""Queues of record batches: a queue is given an Arrow schema, and each of its messages is batches of it.

The schema stands in the broker, so that every process finds it; it stays as it is as long as the queue lives. Neither
side needs Spark. A message is an IPC stream, see :mod:`shmbroker.spark.batches`.
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
    """Says what the messages of a queue are. Again with the same schema, it does nothing.

    Args:
        queue: of any broker.
        schema: of the batches; what it says besides columns and their types is dropped.

    Raises:
        SchemaMismatch: the queue has another one already; the text names the first column that differs.
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
    """The schema of a queue's batches; ``None``: it has none."""
    found = schemas.registered(queue)
    return None if found is None else _decoded(found)


def put_batch(queue: Queue, batch: pa.RecordBatch, *, key: str = "", timeout: float | None = None) -> None:
    """Puts a batch into a queue that has a schema; a long one is written once, into shared memory.

    Args:
        queue: has a registered schema.
        batch: with columns of that schema; strings and binaries may be large ones, and times have another zone.
        key: of the message.
        timeout: seconds to wait for room; ``None`` = for ever.

    Raises:
        SchemaMismatch: the queue has no schema, or the batch another one; the text names the first column that differs.
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
    """The schema of a queue that is to have one.

    Raises:
        SchemaMismatch: it has none.
    """
    found = registered_schema(queue)
    if found is None:
        refuse(queue.name, "it has no Arrow schema: shmbroker.spark.register_schema(queue, schema) gives it one")
    return found


class Reader:
    """Makes batches of the messages of a queue that has a schema.

    Args:
        queue: its name, for errors.
        schema: the registered one.
    """

    def __init__(self, queue: str, schema: pa.Schema) -> None:
        self._queue, self._schema, self._decoder = queue, schema, Decoder()

    def batches(self, body: memoryview | bytes, sequence: int) -> list[pa.RecordBatch]:
        """Those of a message, read in place as long as the body is.

        Raises:
            SchemaMismatch: it has another schema, or is none; the text names the message and the column.
        """
        try:
            found = self._decoder.batches(body)
        except pa.ArrowInvalid as error:
            refuse(self._queue, f"message {sequence} is no record batch: {error}")
        for batch in found:
            why = "" if batch.schema.equals(self._schema) else difference(batch.schema, self._schema)
            why = why or null_in(batch, self._schema)
            if why:
                refuse(self._queue, f"in message {sequence} {why}")
        return found


class Writer:
    """Makes messages of batches, for a queue that has a schema. What Spark has as another type is cast.

    Args:
        queue: its name, for errors.
        schema: the registered one.
    """

    def __init__(self, queue: str, schema: pa.Schema) -> None:
        self._queue, self._schema, self._encoder = queue, schema, Encoder()

    def difference(self, found: pa.Schema) -> str:
        """What keeps batches of that schema from being messages here; empty: nothing."""
        if found.equals(self._schema):
            return ""
        return difference(found, self._schema) or (_NULLS if may_be_null(found) != may_be_null(self._schema) else "")

    def encoded(self, batch: pa.RecordBatch) -> Encoded:
        """A message, to be put.

        Raises:
            SchemaMismatch: a value has no place in the schema; the text names its column.
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
