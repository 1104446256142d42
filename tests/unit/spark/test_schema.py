# SPDX-License-Identifier: Apache-2.0
"""Schemas: Spark's in Arrow's words, the first difference of two, and where there may be nulls."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

import shmbroker
from shmbroker.spark.schema import Promised, arrow_schema, difference, may_be_null, null_in

TIMES = [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC", "Europe/Berlin")]


def of(**kinds: pa.DataType) -> pa.Schema:
    """A schema."""
    return pa.schema(list(kinds.items()))


def alike(one: pa.DataType, two: pa.DataType) -> bool:
    """Are columns of these types the same as far as that matters? Then they are so both ways."""
    found = difference(of(x=one), of(x=two)) == ""
    assert (difference(of(x=two), of(x=one)) == "") == found
    return found


def test_the_first_difference() -> None:
    """Missing before superfluous, before the order, before types; each is named."""
    wanted = of(a=pa.int64(), b=pa.string())
    assert difference(wanted, wanted) == difference(wanted, wanted, exactly=True) == ""
    assert difference(of(c=pa.int64(), a=pa.int64()), wanted) == "column 'b' is missing"
    assert difference(of(b=pa.string(), c=pa.int64(), a=pa.int64()), wanted) == "column 'c' is one too many"
    assert difference(of(b=pa.int8(), a=pa.int8()), wanted) == "the columns are in the order ['b', 'a'], not ['a', 'b']"
    assert difference(of(a=pa.int64(), b=pa.binary()), wanted) == "column 'b' is binary, and the schema says string"
    large = of(a=pa.int64(), b=pa.large_string())
    assert difference(large, wanted) == ""
    assert difference(large, wanted, exactly=True) == "column 'b' is large_string, and the schema says string"


def test_types_that_are_alike() -> None:
    """Texts of both kinds, times of any zone, and what is made of them."""
    text, large, raw = pa.string(), pa.large_string(), pa.binary()
    for one, two in ((text, large), (raw, pa.large_binary())):
        assert alike(one, two)
        assert alike(pa.list_(one), pa.list_(two))
        assert alike(pa.struct([("a", pa.int8()), ("b", one)]), pa.struct([("a", pa.int8()), ("b", two)]))
        assert alike(pa.map_(one, one), pa.map_(two, two))
        assert alike(pa.list_(pa.field("item", one)), pa.list_(pa.field("element", two)))
        assert not alike(pa.list_(one), pa.large_list(one))
        assert not alike(pa.struct([("a", one)]), pa.struct([("b", two)]))
        assert not alike(pa.struct([("a", one)]), pa.struct([("a", two), ("b", two)]))
        assert not alike(pa.struct([("a", one), ("b", pa.int8())]), pa.struct([("a", two), ("b", pa.int16())]))
        assert not alike(pa.list_(one), pa.list_(pa.int8()))
        assert not alike(one, pa.list_(two))
        assert not alike(pa.struct([]), pa.list_(one))
    assert not alike(text, raw)
    assert not alike(large, pa.large_binary())
    assert not alike(pa.int32(), pa.int64())
    assert not alike(pa.decimal128(10, 2), pa.decimal128(11, 2))


@pytest.mark.parametrize("one", TIMES, ids=str)
def test_times_that_are_alike(one: pa.DataType) -> None:
    """Of the same unit, and both with a zone or both without."""
    for two in TIMES:
        assert alike(one, two) == (one.unit == two.unit and (one.tz is None) == (two.tz is None))
    assert not alike(one, pa.date32())
    assert not alike(one, pa.int64())


def test_where_nulls_may_be() -> None:
    """Of each field, and of each that is inside one, in their order."""
    deep = pa.struct([pa.field("x", pa.int8(), nullable=False), pa.field("y", pa.list_(pa.int8()))])
    fields = [pa.field("a", pa.int8(), nullable=False), pa.field("b", deep), pa.field("c", pa.int8(), nullable=False)]
    assert may_be_null(fields) == [False, True, False, True, True, False]
    assert may_be_null([]) == []


NEVER = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string(), nullable=False)])


def batch(a: list[Any], b: list[Any], kind: pa.DataType | None = None) -> pa.RecordBatch:
    """A batch whose schema allows nulls."""
    return pa.record_batch({"a": pa.array(a, pa.int64()), "b": pa.array(b, kind or pa.string())})


def test_a_null_is_found() -> None:
    """Where the schema has none; others do not matter."""
    assert null_in(batch([None], ["x"]), NEVER) == ""
    assert null_in(batch([1, 2], ["x", None]), NEVER) == "column 'b' has a null, and the schema says there is none"
    assert null_in(batch([1, 2], ["x", None]), of(a=pa.int64(), b=pa.string())) == ""


def test_what_was_promised() -> None:
    """Each batch is compared, whatever the ones before it were; the error names the queue and the column."""
    promised = Promised(NEVER, "requests")
    promised.check(batch([1], ["x"]))
    promised.check(batch([1], ["x"]))
    promised.check(batch([None], ["x"], pa.large_string()))
    for wrong, text in (
        (batch([1], ["x"]).select(["a"]), "column 'b' is missing"),
        (batch([1], [None]), "column 'b' has a null, and the schema says there is none"),
        (batch([1], [None], pa.large_string()), "column 'b' has a null, and the schema says there is none"),
        (batch([1], [b"x"], pa.binary()), "column 'b' is binary, and the schema says string"),
    ):
        for _ in range(2):
            with pytest.raises(shmbroker.SchemaMismatch) as refused:
                promised.check(wrong)
            assert refused.value.text == f"PRECONDITION_FAILED - queue 'requests': in the server's answer {text}"
        promised.check(batch([1], ["x"]))


def test_nothing_was_promised() -> None:
    """Then everything is right; and where nulls are allowed they are not looked for."""
    Promised(None, "requests").check(batch([1], [None]))
    promised = Promised(of(a=pa.int64(), b=pa.string()), "requests")
    promised.check(batch([1], [None]))
    with pytest.raises(shmbroker.SchemaMismatch):
        promised.check(batch([1], [b"x"], pa.binary()))


def test_a_schema_of_spark() -> None:
    """In Arrow's words, with times in UTC; what is none is refused."""
    pytest.importorskip("pyspark")
    from pyspark.sql import types  # noqa: PLC0415 - may be missing

    struct = types.StructType().add("id", "long", nullable=False).add("at", "timestamp")
    wanted = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC"))])
    assert arrow_schema(struct).equals(wanted)
    odd: Any = 7
    with pytest.raises(TypeError, match="schema=7: a StructType, or its text such as 'id long, score double', is need"):
        arrow_schema(odd)


def test_a_schema_of_an_older_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its converter knows no time zone; a text is read by Spark."""
    pytest.importorskip("pyspark")
    from pyspark.sql import types  # noqa: PLC0415 - may be missing
    from pyspark.sql.pandas import types as converter  # noqa: PLC0415

    struct = types.StructType().add("id", "long")
    read: list[str] = []

    def from_text(text: str) -> types.StructType:
        read.append(text)
        return struct

    monkeypatch.setattr(types.StructType, "fromDDL", from_text)
    monkeypatch.setattr(converter, "to_arrow_schema", lambda given: (given, "in Arrow"))
    assert arrow_schema("id long") == (struct, "in Arrow")
    assert read == ["id long"]
