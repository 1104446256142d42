# SPDX-License-Identifier: Apache-2.0
"""Messages as rows: the available columns, and record batches of them for Spark.

The core fills columns in Arrow's memory, many messages in one call. Python handles a single message only to decode its
headers, or to make its handle (:mod:`shmbroker.spark.handles`): the value that stands for a message whose body stays in
shared memory.
"""

from __future__ import annotations

import functools
from concurrent import futures
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql import types

import shmbroker
from shmbroker import columns as core
from shmbroker import properties as basic
from shmbroker.spark import headers as headers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shmbroker.body_references import Place

    Handle = Callable[[int, Place], bytes]
    """Makes a handle from the sequence of a message and the place of its body."""
    Fill = Callable[[core.Columns, int], tuple[int, bool]]
    """Fills up to the given number of rows; returns the number filled, and whether there are more."""

BATCH_ROWS = 10_000
TEXT_BYTES = {core.KEY: 1 << 18, core.PROPERTIES: 1 << 18, core.BODY: 4 << 20}
"""The bytes of a batch for the texts of a column: few, as Spark makes several copies of a batch for the JVM."""
_HAS_KEY, _ENDS, _SEQUENCE = "has_key", ".ends", "sequence"
_ROW_BYTES = {core.PLACE: core.PLACE_BYTES}
_PAIRS = pa.map_(pa.string(), pa.string())


class Column(NamedTuple):
    """A column: its type in Spark, the same type in Arrow, and its name in the core (``None``: not in the core).

    Spark accepts a batch only if its column has exactly this Arrow type.
    """

    spark: types.DataType
    arrow: pa.DataType
    core: str | None


COLUMNS = {
    "sequence": Column(types.LongType(), pa.int64(), "sequence"),
    "queue": Column(types.StringType(), pa.string(), None),
    "key": Column(types.BinaryType(), pa.binary(), core.KEY),
    "headers": Column(types.MapType(types.StringType(), types.StringType()), _PAIRS, core.PROPERTIES),
    "timestamp": Column(types.TimestampType(), pa.timestamp("us", tz="UTC"), "timestamp_us"),
    "redelivered": Column(types.BooleanType(), pa.bool_(), "redelivered"),
    "value": Column(types.BinaryType(), pa.binary(), core.BODY),
    "handle": Column(types.BinaryType(), pa.binary(), core.PLACE),
}
WITH_BODIES = tuple(name for name in COLUMNS if name != "handle")
WITH_HANDLES = tuple(name for name in COLUMNS if name != "value")


def schema_of(columns: Sequence[str]) -> types.StructType:
    """Returns Spark's schema of some columns."""
    return types.StructType([types.StructField(name, COLUMNS[name].spark) for name in columns])


def batches(fill: Fill, queue: str, columns: Sequence[str], handle: Handle | None = None) -> Iterator[pa.RecordBatch]:
    """Yields messages of a queue as record batches; ``handle`` makes the values of a column of handles.

    While Spark takes one batch over, a separate thread makes the next one. Most of the time goes to the
    copying of bodies, and to Spark; neither holds the GIL.

    Raises:
        OutOfMemory: a message is too long for a column.
    """
    made = _Made(fill, queue, columns, handle)
    batch = made.next()
    if not made.more:
        yield from filter(None, [batch])
        return
    with futures.ThreadPoolExecutor(1, "shmbroker-rows") as maker:
        while batch is not None:
            following = maker.submit(made.next)
            yield batch
            batch = following.result()


class _Made:
    """Makes the batches, one by one."""

    def __init__(self, fill: Fill, queue: str, columns: Sequence[str], handle: Handle | None) -> None:
        self._fill, self._queue, self._columns, self._handle = fill, queue, columns, handle
        self.more = True

    def next(self) -> pa.RecordBatch | None:
        """Makes the next batch; None: there are no more."""
        texts = TEXT_BYTES
        while self.more:
            room = _Room(self._columns, texts, self._handle)
            count, self.more = self._fill(room.columns, BATCH_ROWS)
            if count:
                return room.batch(count, self._queue)
            texts = TEXT_BYTES | _enough(room.columns.needed())
        return None


def _enough(needed: dict[str, int]) -> dict[str, int]:
    for name, size in needed.items():
        if size > core.MOST_BYTES:
            text = f"a message whose {name} has {size} bytes is too long for a row: {core.MOST_BYTES} are allowed"
            raise shmbroker.OutOfMemory(text)
    return needed


class _Room:
    """The buffers of one record batch.

    Args:
        names: the names of the columns, of :data:`COLUMNS`.
        texts: the size of the buffer for the texts of each column, in bytes, by the column's name in the core.
        handle: makes the values of a column of handles, as in :func:`batches`.
    """

    def __init__(self, names: Sequence[str], texts: dict[str, int], handle: Handle | None) -> None:
        self.columns = core.Columns()
        self._names, self._handle = names, handle
        self._buffers: dict[str, pa.Buffer] = {}
        for column in {COLUMNS[name].core for name in names} | ({_SEQUENCE} if "handle" in names else set()):
            if column in core.TEXTS:
                self._add_text(column, texts[column])
            elif column is not None:
                self._add_row(column)
        if "key" in names:
            self._add_row(_HAS_KEY)

    def _add_text(self, column: str, size: int) -> None:
        ends, data = pa.allocate_buffer(4 * (BATCH_ROWS + 1)), pa.allocate_buffer(size)
        memoryview(ends).cast("B")[:4] = bytes(4)
        self._buffers[column], self._buffers[column + _ENDS] = data, ends
        self.columns.set_text(column, ends, data)

    def _add_row(self, column: str) -> None:
        size = -(-BATCH_ROWS // 8) if column in core.BITS else BATCH_ROWS * _ROW_BYTES.get(column, 8)
        self._buffers[column] = pa.allocate_buffer(size)
        self.columns.set_row(column, self._buffers[column])

    def batch(self, count: int, queue: str) -> pa.RecordBatch:
        """Makes a record batch of the first rows."""
        arrays = [self._array(name, count, queue) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=_arrow_schema(tuple(self._names)))

    def _array(self, name: str, count: int, queue: str) -> pa.Array:
        column = COLUMNS[name]
        if column.core is None:
            return pa.repeat(pa.scalar(queue), count)
        if column.core == core.PLACE:
            return self._handles(count)
        if column.core not in core.TEXTS:
            return pa.Array.from_buffers(column.arrow, count, [None, self._buffers[column.core]])
        used = self.columns.start(column.core, count)
        if column.core == core.PROPERTIES and used == 0:
            return _no_headers(count)
        valid = self._buffers[_HAS_KEY] if name == "key" else None
        ends, texts = self._buffers[column.core + _ENDS], self._buffers[column.core].slice(0, used)
        found = pa.Array.from_buffers(pa.binary(), count, [valid, ends, texts])
        return found if column.core != core.PROPERTIES else _headers(found)

    def _handles(self, count: int) -> pa.Array:
        assert self._handle is not None  # noqa: S101 - a caller that asks for handles says how they are made
        sequences = memoryview(self._buffers[_SEQUENCE]).cast("B").cast("q")[:count]
        places = core.places_in(memoryview(self._buffers[core.PLACE]).cast("B")[: count * core.PLACE_BYTES])
        return pa.array(map(self._handle, sequences, places), pa.binary(), size=count)


@functools.cache
def _arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(name, COLUMNS[name].arrow) for name in names])


def _no_headers(count: int) -> pa.Array:
    nothing = pa.array([], pa.string())
    return pa.MapArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count + 1), nothing, nothing)


def _headers(encoded: pa.Array) -> pa.Array:
    """Decodes headers; rows often share them, so each distinct set is decoded once."""
    known: dict[bytes, list[tuple[str, str | None]]] = {}
    found = []
    for properties in encoded.to_pylist():
        if properties not in known:
            headers = basic.decode(properties).headers
            known[properties] = [(name, headers_of.written(value)) for name, value in (headers or {}).items()]
        found.append(known[properties])
    return pa.array(found, _PAIRS)
