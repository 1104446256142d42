# SPDX-License-Identifier: Apache-2.0
"""Comparison of Arrow schemas: Spark's schema as an Arrow schema, and the first difference of two as text.

The answers of servers (:mod:`shmbroker.spark.handover`) have an expected schema, and so have the messages of a queue
with a registered schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructType


def arrow_schema(schema: StructType | str) -> pa.Schema:
    """Converts Spark's schema, or its text, to the Arrow schema of its batches."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - only the driver needs Spark
    from pyspark.sql.types import StructType  # noqa: PLC0415

    struct: Any = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(struct, StructType):
        msg = f"schema={schema!r}: a StructType, or its text such as 'id long, score double', is needed"
        raise TypeError(msg)
    try:
        return to_arrow_schema(struct, timezone="UTC")
    except TypeError:  # before about Spark 4.1, the function has no argument ``timezone``
        return to_arrow_schema(struct)


class Promised:
    """The columns that the servers of :mod:`shmbroker.spark.handover` must give in their answers.

    Args:
        schema: the expected schema; ``None``: no expectation.
        queue: the queue of requests, for error texts.
    """

    def __init__(self, schema: pa.Schema | None, queue: str) -> None:
        self._schema, self._queue = schema, queue
        self._seen: pa.Schema | None = None
        self._has_never_null = schema is not None and not all(field.nullable for field in schema)

    def check(self, batch: pa.RecordBatch) -> None:
        """Checks a batch of an answer against the schema.

        Raises:
            SchemaMismatch: a column is missing, unexpected, in another place or of another type, or has a null that the
                schema forbids; the text names the column.
        """
        if self._schema is None:
            return
        why = ""
        if self._seen is None or not batch.schema.equals(self._seen):
            why = difference(batch.schema, self._schema)
        if self._has_never_null:
            why = why or null_in(batch, self._schema)
        if why:
            text = f"PRECONDITION_FAILED - queue {self._queue!r}: in the server's answer {why}"
            raise shmbroker.SchemaMismatch(text=text)
        self._seen = batch.schema


def null_in(batch: pa.RecordBatch, schema: pa.Schema) -> str:
    """Describes the first column that has a null although the schema forbids it; empty: there is none.

    Spark's own error would not name the column.
    """
    wrong = (field.name for field in schema if not field.nullable and batch.column(field.name).null_count)
    return next((f"column {name!r} has a null, and the schema says there is none" for name in wrong), "")


def difference(found: pa.Schema, wanted: pa.Schema, *, exactly: bool = False) -> str:
    """Describes the first difference between the columns of two schemas; empty: there is none.

    Types that are alike, see `_alike`, count as a difference only if ``exactly`` is set.
    """
    for name in wanted.names:
        if name not in found.names:
            return f"column {name!r} is missing"
    for name in found.names:
        if name not in wanted.names:
            return f"column {name!r} is one too many"
    if found.names != wanted.names:
        return f"the columns are in the order {found.names}, not {wanted.names}"
    for has, wants in zip(found, wanted, strict=True):
        if not (has.type == wants.type if exactly else _alike(has.type, wants.type)):
            return f"column {has.name!r} is {has.type}, and the schema says {wants.type}"
    return ""


def may_be_null(fields: Iterable[pa.Field]) -> list[bool]:
    """Lists whether each field may be null; the fields inside a field follow it."""
    found = []
    for field in fields:
        found += [field.nullable, *may_be_null(field.type.field(at) for at in range(field.type.num_fields))]
    return found


def _alike(one: pa.DataType, two: pa.DataType) -> bool:
    """Whether types are equal, apart from what depends on Spark's settings, and from whether inner fields may be null.

    The length of fixed-size lists, and whether a map's keys are sorted, make no difference either.
    The settings decide the offset size of strings and binaries, and the time zone of timestamps that have one.
    """
    if one == two:
        return True
    kinds = ((pa.string(), pa.large_string()), (pa.binary(), pa.large_binary()))
    if any(one in kind and two in kind for kind in kinds):
        return True
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(two):
        return bool(one.unit == two.unit) and (one.tz is None) == (two.tz is None)
    if one.id != two.id or not one.num_fields or one.num_fields != two.num_fields:
        return False
    pairs = [(one.field(at), two.field(at)) for at in range(one.num_fields)]
    named = pa.types.is_struct(one)
    return all((not named or a.name == b.name) and _alike(a.type, b.type) for a, b in pairs)
