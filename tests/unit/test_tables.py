# SPDX-License-Identifier: Apache-2.0
"""AMQP tables: one encoding for one content, and nothing is read back as something else."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest

from shmbroker import tables

KEPT: list[Any] = [
    0,
    -1,
    127,
    128,
    65_535,
    -32_769,
    2**31,
    2**63 - 1,
    -(2**63),
    True,
    False,
    None,
    "",
    "1",
    "é",
    1.1,
    1e300,
    -math.inf,
    b"\xff\0",
    Decimal("-1.50"),
    dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.UTC),
    dt.datetime(2200, 1, 1, tzinfo=dt.UTC),
    [],
    [1, True, "1", [None]],
    {},
    {"b": {"a": [1.5]}, "a": 0},
]


@pytest.mark.parametrize("value", KEPT, ids=repr)
def test_a_value_keeps_its_type(value: object) -> None:
    """What is read back equals what was given, and is of the same type, in lists and tables too."""
    back = tables.decode(tables.encode({"in": [{"it": value}], "it": value}))
    assert back == {"in": [{"it": value}], "it": value}
    for found in (back["it"], back["in"][0]["it"]):
        assert type(found) is type(value)


def test_values_that_differ_are_other_bytes() -> None:
    """No two values of different type or content have the same bytes."""
    encoded = [tables.encode({"it": value}) for value in [*KEPT, 1, 1.0]]
    assert len(set(encoded)) == len(encoded)


def test_the_order_of_names_does_not_matter() -> None:
    """Equal tables are equal bytes, in tables within them too."""
    one = tables.encode({"a": 1, "b": {"c": 2, "d": 3}})
    assert one == tables.encode({"b": {"d": 3, "c": 2}, "a": 1})


def test_no_arguments_take_no_bytes() -> None:
    """An empty table and none are the same."""
    assert tables.encode(None) == tables.encode({}) == b""
    assert tables.decode(b"") == {}


@pytest.mark.parametrize(
    "table",
    [
        {"a": ...},
        {"a": (1,)},
        {"a": 2**64},
        {"a": dt.datetime(1900, 1, 1, tzinfo=dt.UTC)},
        {"a": Decimal("NaN")},
        {1: "a"},
        {"a": {1: 2}},
        ["a"],
    ],
    ids=repr,
)
def test_what_amqp_cannot_say_is_a_type_error(table: dict[str, Any]) -> None:
    """A value without an AMQP form of the same meaning is refused."""
    with pytest.raises(TypeError):
        tables.encode(table)


def nested(depth: int, kind: str = "dict") -> dict[str, Any]:
    """Return a table so many levels deep."""
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if kind == "dict" else [value]
    return {"a": value}


@pytest.mark.parametrize("kind", ["dict", "list"])
def test_nesting_has_a_limit(kind: str) -> None:
    """As deep as can be encoded can be decoded; deeper is refused."""
    deepest = nested(tables.MAX_DEPTH - 1, kind)
    assert tables.decode(tables.encode(deepest)) == deepest
    with pytest.raises(ValueError, match="32 deep"):
        tables.encode(nested(tables.MAX_DEPTH, kind))


@pytest.mark.parametrize(
    ("table", "text"),
    [({"a": "x" * 60_000}, "60000"), ({"é" * 65: 1}, "128 bytes"), ({"a": "\ud800"}, "surrogates")],
    ids=["size", "name", "surrogate"],
)
def test_what_is_too_large_is_a_value_error(table: dict[str, Any], text: str) -> None:
    """Size and names have limits; text must be UTF-8."""
    with pytest.raises(ValueError, match=text):
        tables.encode(table)


def test_the_fields_are_what_was_encoded() -> None:
    """The bytes of a value within a table are those of the value alone."""
    table = {f"k{index}": value for index, value in enumerate(KEPT)}
    expected = {name: tables.encode_value(value) for name, value in table.items()}
    assert dict(tables.fields(tables.encode(table))) == expected


def test_every_shorter_table_is_refused() -> None:
    """No beginning of a table is a table, nor one with something behind it."""
    encoded = tables.encode({f"k{index}": value for index, value in enumerate(KEPT)})
    for length in range(1, len(encoded)):
        with pytest.raises(ValueError, match="table of"):
            tables.fields(encoded[:length])
    with pytest.raises(ValueError, match="table of"):
        tables.decode(encoded + b"\0")


@pytest.mark.parametrize(
    "encoded",
    [
        b"\0\0\0\3\1a?",
        b"\0\0\0\x08\1aS\0\0\0\2x",
        b"\0\0\0\x08\1aA\0\0\0\1t",
        b"\0\0\0\x08\1aF\0\0\0\1\1",
        b"\0\0\0\x0b\1aA\0\0\0\4S\0\0\1",
        b"\0\0\0\3\2aV",
        b"\0\0\0\3\1\xffV",
    ],
    ids=["type", "string", "list", "table", "string in a list", "name", "name in UTF-8"],
)
def test_damage_within_is_found(encoded: bytes) -> None:
    """Lengths, types and names are looked through, also in lists and tables."""
    with pytest.raises(ValueError, match=r"table of|utf-8"):
        tables.decode(encoded)


def test_a_time_that_no_calendar_has() -> None:
    """What has the right form may still be nothing."""
    with pytest.raises(ValueError, match="no table"):
        tables.decode(b"\0\0\0\x0b\1aT" + b"\xff" * 8)
