# SPDX-License-Identifier: Apache-2.0
"""Rows as messages: one column has the bodies, and optional columns have the keys and the headers.

The core puts the rows of a record batch directly from Arrow's memory. Python handles a single row only to find the
encoded form of its headers, or if Spark passes rows instead of batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types

import shmbroker
from shmbroker import properties as basic
from shmbroker.columns import BODY, KEY, PROPERTIES, Columns
from shmbroker.spark.rows import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_KEY, _HEADERS, _VALUE = WRITTEN = "key", "headers", "value"
_OF_READS = ("sequence", "queue", "timestamp", "redelivered")
"""The columns that a read adds and a write ignores, so that a table can be written as it was read."""
_TEXT_OR_BYTES = (types.StringType, types.BinaryType)
_PAIRS = tuple(types.MapType(types.StringType(), types.StringType(), nulls) for nulls in (True, False))
_MAX_KEY = 255
_PAIR_BYTES = 8
ROWS_AT_ONCE = 1000


def check_columns(schema: types.StructType) -> None:
    """Checks that a table is a table of messages.

    Raises:
        SchemaMismatch: a column is missing, unknown, or of another type; the text names it.
    """
    if _VALUE not in schema.names:
        refuse(f"there is no column '{_VALUE}' among {', '.join(schema.names)}")
    for field in schema.fields:
        if field.name in {_VALUE, _KEY}:
            if not isinstance(field.dataType, _TEXT_OR_BYTES):
                refuse(f"column '{field.name}' is {field.dataType.simpleString()}, not binary or string")
        elif field.name in _OF_READS:
            if field.dataType != COLUMNS[field.name].spark:
                has, wants = field.dataType.simpleString(), COLUMNS[field.name].spark.simpleString()
                refuse(f"column '{field.name}' is {has}, not {wants}, the type that a read gives it")
        elif field.name != _HEADERS:
            refuse(f"column '{field.name}' is none of {_VALUE}, {_KEY}, {_HEADERS}, {', '.join(_OF_READS)}")
        elif field.dataType not in _PAIRS:
            refuse(f"column '{_HEADERS}' is {field.dataType.simpleString()}, not map<string,string>")


def columns_of(batch: pa.RecordBatch) -> Columns:
    """Returns columns for the core that point to the messages in a batch; they keep alive what they point to.

    Raises:
        SchemaMismatch: a row has no body, or an invalid key.
    """
    columns = Columns()
    values = batch.column(_VALUE)
    if values.null_count:
        refuse(f"column '{_VALUE}' has a null: each message has a body")
    _set(columns, BODY, values)
    if _KEY in batch.schema.names:
        keys = batch.column(_KEY)
        _check_keys(keys)
        _set(columns, KEY, keys.fill_null(b"") if keys.null_count else keys)
    if _HEADERS in batch.schema.names:
        properties = _properties(batch.column(_HEADERS))
        if properties is not None:
            _set(columns, PROPERTIES, properties)
    return columns


def record_batches(
    given: Iterable[pa.RecordBatch | types.Row], schema: types.StructType | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields record batches of what Spark gives a task to write: a batch unchanged, rows collected into batches.

    Args:
        given: batches; or rows, before Spark 4.1.
        schema: the schema of the rows; ``None``: the rows are messages, and columns other than ``WRITTEN`` are
            left out.
    """
    rows: list[types.Row] = []
    for one in given:
        if isinstance(one, pa.RecordBatch):
            yield one
        else:
            rows.append(one)
            if len(rows) == ROWS_AT_ONCE:
                yield _of_rows(rows, schema)
                rows = []
    if rows:
        yield _of_rows(rows, schema)


def _of_rows(rows: list[types.Row], schema: types.StructType | None) -> pa.RecordBatch:
    return _of_messages(rows) if schema is None else _of_table(rows, schema)


def _of_table(rows: list[types.Row], schema: types.StructType) -> pa.RecordBatch:
    from pyspark.sql.conversion import LocalDataToArrowConversion  # noqa: PLC0415 - before Spark 4.1 only

    # Spark made these rows from a batch, and this call is the reverse: it expects local times, dicts as maps, and rows
    # as structs.
    table = LocalDataToArrowConversion.convert(rows, schema, use_large_var_types=False)
    return table.combine_chunks().to_batches()[0]


def _of_messages(rows: Sequence[types.Row]) -> pa.RecordBatch:
    columns = {name: [row[name] for row in rows] for name in rows[0].__fields__ if name in WRITTEN}
    if _HEADERS in columns:  # not every version of Arrow takes a dict for a map
        columns[_HEADERS] = [None if pairs is None else list(pairs.items()) for pairs in columns[_HEADERS]]
    kinds = {_HEADERS: pa.map_(pa.string(), pa.string())}
    arrays = [_typed(pa.array(values, kinds.get(name))) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def _typed(array: pa.Array) -> pa.Array:
    """Casts an array to binary if Arrow found no type for it, because all values are null."""
    return array.cast(pa.binary()) if pa.types.is_null(array.type) else array


def _set(columns: Columns, name: str, texts: pa.Array) -> None:
    plain = texts.cast(pa.binary())  # copies only if a setting of Spark made the type a `large_` one
    _, ends, data = plain.buffers()
    columns.set_text(name, ends.slice(4 * plain.offset), data if data is not None else b"\0")


def _check_keys(keys: pa.Array) -> None:
    longest = pc.max(pc.binary_length(keys)).as_py() or 0
    if longest > _MAX_KEY:
        refuse(f"column '{_KEY}' has a key of {longest} bytes: at most {_MAX_KEY} are allowed")
    try:
        keys.cast(pa.string())
    except pa.ArrowInvalid:
        refuse(f"column '{_KEY}' has a key that is no text in UTF-8")


def _properties(headers: pa.MapArray) -> pa.Array | None:
    """Encodes headers as properties of messages; ``None``: no row has headers.

    Rows often share them, so each distinct set is encoded once. Arrow numbers the distinct pairs of a name and a text.
    The numbers of its pairs identify the set of a row, so Python makes no object for a pair.
    """
    if headers.null_count == len(headers):
        return None
    starts, ends = headers.offsets[:-1], headers.offsets[1:]
    ends = pc.if_else(headers.is_valid(), ends, starts)  # Arrow may keep pairs in a null row
    if ends.equals(starts):
        return None
    names, texts = headers.keys.dictionary_encode(), headers.items.dictionary_encode("encode")  # a null is a text, too
    name_of, text_of = names.dictionary.to_pylist(), texts.dictionary.to_pylist()
    pairs = pc.add(pc.multiply(names.indices.cast(pa.int64()), len(text_of)), texts.indices).buffers()[1].to_pybytes()
    known, found = {b"": b""}, []
    for start, end in zip(starts.to_pylist(), ends.to_pylist(), strict=True):
        row = pairs[_PAIR_BYTES * start : _PAIR_BYTES * end]
        if row not in known:
            numbers = (divmod(pair, len(text_of)) for pair in memoryview(row).cast("q"))
            given = {name_of[name]: text_of[text] for name, text in numbers}
            known[row] = basic.encode(basic.BasicProperties(headers=given))
        found.append(known[row])
    return pa.array(found, pa.binary())


def refuse(what: str) -> NoReturn:
    """Raises the error of a table or batch that cannot be written."""
    raise shmbroker.SchemaMismatch(text=f"PRECONDITION_FAILED - {what}")
