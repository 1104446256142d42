# SPDX-License-Identifier: Apache-2.0
"""Claim check: turns handles that passed through Spark into bodies, read in place.

A column of bodies is Arrow's ``binary_view``: each value points into a separate slot of shared memory, and is not
copied. Only some bodies are copied, such as short ones; :func:`shmbroker.body_references.body_at` lists the cases. A
slot is not reused until the last Arrow object that points into it is gone. If the worker is killed, the broker's
housekeeper frees the slots that the worker kept.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa

import shmbroker
from shmbroker.spark.handles import Handle, Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

HANDLE, VALUE = "handle", "value"
_INLINE = 12  # bytes; an Arrow view (16 bytes) holds values up to this length itself, and points to longer ones
_SHORT, _LONG = struct.Struct("<i12s"), struct.Struct("<i4sii")
_NULL = bytes(16)


def resolve(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replaces handles by bodies, without copying them.

    Use it on the host of the broker, in a function for ``mapInArrow``::

        def score(batches):
            for batch in resolve(batches):
                for body in batch["value"]:
                    features = numpy.frombuffer(body.as_buffer(), "f4")

    Args:
        batches: batches with a column ``handle``, from a read with ``payload=handle``.

    Yields:
        The same batches with a column ``value`` of type ``binary_view`` in place of ``handle``; null where the handle
        is null. Spark itself takes such a column only as a copy, ``batch["value"].cast(pa.binary())``.

    Raises:
        StaleHandle: a message is gone; the text says which one.
        BrokerNotFound: the broker of a handle is on another host, or gone.
        SchemaMismatch: there is no column ``handle`` of type binary, or there is a column ``value`` already.
    """
    connections: dict[Origin, shmbroker.Connection] = {}
    for batch in batches:
        at = batch.schema.get_field_index(HANDLE)
        if at < 0 or not (pa.types.is_binary(batch.schema[at].type) or pa.types.is_large_binary(batch.schema[at].type)):
            text = f"PRECONDITION_FAILED - there is no column '{HANDLE}' of type binary among {_shown(batch.schema)}"
            raise shmbroker.SchemaMismatch(text=text)
        if VALUE in batch.schema.names:
            text = f"PRECONDITION_FAILED - column '{VALUE}' exists already, among {_shown(batch.schema)}"
            raise shmbroker.SchemaMismatch(text=text)
        bodies = array_of([None if one is None else _body(one, connections) for one in _handles(batch.column(at))])
        yield batch.set_column(at, pa.field(VALUE, pa.binary_view()), bodies)
        del bodies  # while the next batch is made, only the caller keeps these bodies alive


def _handles(column: pa.Array) -> list[bytes | None]:
    return list(column.to_pylist())


def _body(written: bytes, connections: dict[Origin, shmbroker.Connection]) -> memoryview:
    handle = Handle.read(written)
    connection = connections.get(handle.origin)
    if connection is None:
        connection = connections[handle.origin] = handle.origin.broker_identity.connection()
    return handle.body(connection)


def array_of(bodies: Sequence[memoryview | None]) -> pa.Array:
    """Makes an array that points to the bodies in place, and keeps them alive."""
    views: list[bytes] = []
    buffers: list[pa.Buffer] = []
    nulls = bytearray(-(-len(bodies) // 8))
    for at, body in enumerate(bodies):
        if body is None:
            views.append(_NULL)
            continue
        nulls[at // 8] |= 1 << at % 8  # a set bit: there is a value
        if len(body) <= _INLINE:
            views.append(_SHORT.pack(len(body), bytes(body)))
        else:
            views.append(_LONG.pack(len(body), bytes(body[:4]), len(buffers), 0))
            buffers.append(pa.py_buffer(body))
    missing = sum(body is None for body in bodies)
    every = [pa.py_buffer(bytes(nulls)), pa.py_buffer(b"".join(views)), *buffers]
    return pa.Array.from_buffers(pa.binary_view(), len(bodies), every, missing)


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)
