# SPDX-License-Identifier: Apache-2.0
"""Messages as rows: the columns there are, and batches of them for Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from shmbroker import Message

BATCH_ROWS = 10_000
ROWS_AT_ONCE = 1000
BATCH_BYTES = 16 << 20
"""Spark holds a batch several times over on its way into the JVM."""


class Column(NamedTuple):
    """A column: its type for Spark, the same in Arrow (they are compared exactly), and its value for a message."""

    spark: types.DataType
    arrow: pa.DataType
    of: Callable[[Message], Any]


def _microseconds(message: Message) -> int:
    return round(message.timestamp * 1e6)


def _headers(message: Message) -> list[tuple[str, str]]:
    """Text as it is, everything else as JSON."""
    return [
        (name, value if isinstance(value, str) else json.dumps(value, default=str))
        for name, value in message.headers.items()
    ]


def _key(message: Message) -> bytes | None:
    return None if message.key is None else message.key.encode()


COLUMNS = {
    "sequence": Column(types.LongType(), pa.int64(), lambda message: message.sequence),
    "queue": Column(types.StringType(), pa.string(), lambda message: message.queue),
    "key": Column(types.BinaryType(), pa.binary(), _key),
    "headers": Column(
        types.MapType(types.StringType(), types.StringType()), pa.map_(pa.string(), pa.string()), _headers
    ),
    "timestamp": Column(types.TimestampType(), pa.timestamp("us", tz="UTC"), _microseconds),
    "redelivered": Column(types.BooleanType(), pa.bool_(), lambda message: message.redelivered),
    "value": Column(types.BinaryType(), pa.binary(), bytes),
}


def schema_of(columns: Sequence[str]) -> types.StructType:
    """Spark's schema of some columns."""
    return types.StructType([types.StructField(name, COLUMNS[name].spark) for name in columns])


def batches(messages: Iterable[Message], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Messages as record batches; each is made when it is asked for, so that no more is read than is wanted."""
    chosen = [COLUMNS[name] for name in columns]
    schema = pa.schema([(name, COLUMNS[name].arrow) for name in columns])
    values: list[list[Any]] = [[] for _ in chosen]
    size = 0
    for message in messages:
        for column, into in zip(chosen, values, strict=True):
            into.append(column.of(message))
        size += len(message.body)
        if len(values[0]) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _batch(chosen, values, schema)
            values, size = [[] for _ in chosen], 0
    if values[0]:
        yield _batch(chosen, values, schema)


def record_batches(given: Iterable[pa.RecordBatch | types.Row]) -> Iterator[pa.RecordBatch]:
    """What a task is given to write: record batches as they are, or rows, of which batches are made."""
    rows: list[types.Row] = []
    for one in given:
        if isinstance(one, pa.RecordBatch):
            yield one
        else:
            rows.append(one)
            if len(rows) == ROWS_AT_ONCE:
                yield _of_rows(rows)
                rows = []
    if rows:
        yield _of_rows(rows)


def _of_rows(rows: Sequence[types.Row]) -> pa.RecordBatch:
    columns = {name: [row[name] for row in rows] for name in rows[0].__fields__}
    if "headers" in columns:  # not each Arrow takes a dict for a map
        columns["headers"] = [None if pairs is None else list(pairs.items()) for pairs in columns["headers"]]
    types_known = {"headers": COLUMNS["headers"].arrow}
    arrays = [pa.array(values, types_known.get(name)) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _batch(columns: Sequence[Column], values: list[list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(some, column.arrow) for column, some in zip(columns, values, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
