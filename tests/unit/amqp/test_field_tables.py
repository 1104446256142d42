# SPDX-License-Identifier: Apache-2.0
"""AMQP tables: one encoding for one content, and nothing is read back as something else."""

from __future__ import annotations

import calendar
import datetime as dt
import math
import struct
import time
from decimal import Decimal
from typing import Any

import pytest

from shmbroker._amqp import field_tables

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
    back = field_tables.decode(field_tables.encode({"in": [{"it": value}], "it": value}))
    assert back == {"in": [{"it": value}], "it": value}
    for found in (back["it"], back["in"][0]["it"]):
        assert type(found) is type(value)


def test_values_that_differ_are_other_bytes() -> None:
    """No two values of different type or content have the same bytes."""
    encoded = [field_tables.encode({"it": value}) for value in [*KEPT, 1, 1.0]]
    assert len(set(encoded)) == len(encoded)


def test_the_order_of_names_does_not_matter() -> None:
    """Equal tables are equal bytes, in tables within them too."""
    one = field_tables.encode({"a": 1, "b": {"c": 2, "d": 3}})
    assert one == field_tables.encode({"b": {"d": 3, "c": 2}, "a": 1})


def test_no_arguments_take_no_bytes() -> None:
    """An empty table and none are the same."""
    assert field_tables.encode(None) == field_tables.encode({}) == b""
    assert field_tables.decode(b"") == {}


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
        field_tables.encode(table)


def nested(depth: int, kind: str = "dict") -> dict[str, Any]:
    """Return a table so many levels deep."""
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if kind == "dict" else [value]
    return {"a": value}


@pytest.mark.parametrize("kind", ["dict", "list"])
def test_nesting_has_a_limit(kind: str) -> None:
    """As deep as can be encoded can be decoded; deeper is refused."""
    deepest = nested(field_tables.MAX_DEPTH - 1, kind)
    assert field_tables.decode(field_tables.encode(deepest)) == deepest
    with pytest.raises(ValueError, match="32 deep"):
        field_tables.encode(nested(field_tables.MAX_DEPTH, kind))


@pytest.mark.parametrize(
    ("table", "text"),
    [({"a": "x" * 60_000}, "60000"), ({"é" * 65: 1}, "128 bytes"), ({"a": "\ud800"}, "surrogates")],
    ids=["size", "name", "surrogate"],
)
def test_what_is_too_large_is_a_value_error(table: dict[str, Any], text: str) -> None:
    """Size and names have limits; text must be UTF-8."""
    with pytest.raises(ValueError, match=text):
        field_tables.encode(table)


def test_the_fields_are_what_was_encoded() -> None:
    """The bytes of a value within a table are those of the value alone."""
    table = {f"k{index}": value for index, value in enumerate(KEPT)}
    expected = {name: field_tables.encode_value(value) for name, value in table.items()}
    assert dict(field_tables.fields(field_tables.encode(table))) == expected


def test_every_shorter_table_is_refused() -> None:
    """No beginning of a table is a table, nor one with something behind it."""
    encoded = field_tables.encode({f"k{index}": value for index, value in enumerate(KEPT)})
    for length in range(1, len(encoded)):
        with pytest.raises(ValueError, match="table of"):
            field_tables.fields(encoded[:length])
    with pytest.raises(ValueError, match="table of"):
        field_tables.decode(encoded + b"\0")


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
        field_tables.decode(encoded)


def test_a_time_that_no_calendar_has() -> None:
    """What has the right form may still be nothing."""
    with pytest.raises(ValueError, match="not a table"):
        field_tables.decode(b"\0\0\0\x0b\1aT" + b"\xff" * 8)


def test_what_is_no_dict_is_named() -> None:
    """The error says what was to be encoded, and what was given."""
    with pytest.raises(TypeError, match=r"arguments=\['a'\]: a dict is needed"):
        field_tables.encode(["a"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="filter='a': a dict is needed"):
        field_tables.encode("a", "filter")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"arguments=\[\]: a dict is needed"):
        field_tables.encode([])  # type: ignore[arg-type]


def test_a_table_takes_at_most_60000_bytes() -> None:
    """The limit counts names and types too, and can be reached."""
    frame = len(field_tables.encode({"a": ""}))
    assert len(field_tables.encode({"a": "x" * (60_000 - frame)})) == 60_000
    with pytest.raises(ValueError, match="filter take 60001 bytes encoded: at most 60000 are allowed"):
        field_tables.encode({"a": "x" * (60_001 - frame)}, "filter")


def test_what_is_read_back_as_another_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An identity is not made of a value that the decoder takes for another one."""
    encoded = field_tables.encode({"a": 1})
    monkeypatch.setattr("pamqp.decode.field_table", lambda data: (len(data), {"a": 2}))
    with pytest.raises(TypeError, match=r"arguments=\{'a': 1\}: a value would be decoded as a different one"):
        field_tables.encode({"a": 1})
    assert field_tables.encode_as_given({"a": 1}) == encoded


def test_a_number_that_the_encoder_cannot_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a TypeError that names the value."""

    def fail(_: object) -> bytes:
        text = "out of range"
        raise struct.error(text)

    monkeypatch.setattr("pamqp.encode.encode_table_value", fail)
    with pytest.raises(TypeError, match="5 in a table: out of range"):
        field_tables.encode({"a": 5})


def test_every_type_has_its_bytes() -> None:
    """The letter of the type, then the value; names are sorted."""
    at = dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC)
    inner = {"d": b"\1", "c": bytearray(b"\2")}
    table = {"b": [True, None, "é"], "a": inner, "f": 1.5, "e": at, "g": -1, "h": Decimal(5)}
    assert field_tables.encode(table) == counted(
        b"\1aF\0\0\0\x10\1cx\0\0\0\1\2\1dx\0\0\0\1\1"
        b"\1bA\0\0\0\x0at\1VS\0\0\0\2\xc3\xa9"
        b"\1eT\0\0\0\0\0\0\0\5"
        b"\1fd\x3f\xf8\0\0\0\0\0\0"
        b"\1gb\xff"
        b"\1hD\0\0\0\0\5"
    )


def test_a_table_in_its_own_order() -> None:
    """Headers keep the order of their names, in tables within them too; a tuple is a list there."""
    table = {"b": 1, "a": {"d": (True,), "c": [{"z": 1, "y": 2}]}}
    encoded = field_tables.encode_as_given(table)
    assert [name for name, _ in field_tables.fields(encoded)] == ["b", "a"]
    back = field_tables.decode(encoded)
    assert list(back["a"]) == ["d", "c"]
    assert list(back["a"]["c"][0]) == ["z", "y"]
    assert back == {"b": 1, "a": {"d": [True], "c": [{"z": 1, "y": 2}]}}
    assert field_tables.encode_as_given({}) == b"\0\0\0\0"


@pytest.mark.parametrize("kind", ["dict", "list"])
def test_the_limit_of_nesting_holds_for_headers_and_single_values(kind: str) -> None:
    """A table is one level; a value alone may have as many levels as one in a table has with it."""
    deepest = nested(field_tables.MAX_DEPTH - 1, kind)
    assert field_tables.decode(field_tables.encode_as_given(deepest)) == deepest
    assert field_tables.encode_value(deepest)
    for encode in (field_tables.encode_as_given, field_tables.encode_value):
        with pytest.raises(ValueError, match="nested more than 32 deep"):
            encode(nested(field_tables.MAX_DEPTH, kind))


@pytest.mark.parametrize("kind", ["dict", "list"])
def test_nesting_is_limited_in_what_is_read(kind: str) -> None:
    """Bytes that are nested deeper than a table can be are no table."""
    value = b"V"
    for depth in range(1, field_tables.MAX_DEPTH + 1):
        encoded = counted(b"\1a" + value)
        if depth < field_tables.MAX_DEPTH:
            assert field_tables.fields(encoded) == [("a", value)]
        value = b"F" + counted(b"\1a" + value) if kind == "dict" else b"A" + counted(value)
    assert field_tables.fields(encoded)
    with pytest.raises(ValueError, match="33 deep"):
        field_tables.fields(counted(b"\1a" + value))


def counted(content: bytes) -> bytes:
    """Return it with the count of its bytes before it."""
    return len(content).to_bytes(4, "big") + content


def test_a_count_has_four_bytes() -> None:
    """A string that is said to have 16 MiB more than there are is damage."""
    with pytest.raises(ValueError, match=r"no value of type b'S' can be at 6, before 12, 1 deep"):
        field_tables.fields(counted(b"\1aS\1\0\0\1x"))


def test_no_bytes_have_no_fields() -> None:
    """An empty table takes no bytes; one that has a count of nothing is empty too."""
    assert field_tables.fields(b"") == field_tables.fields(b"\0\0\0\0") == []
    assert field_tables.decode(b"\0\0\0\0") == {}


SEVEN = (7).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (7, SEVEN),
        (0, bytes(8)),
        (253_402_300_799, (253_402_300_799).to_bytes(8, "big")),
        (time.gmtime(7), SEVEN),
        (dt.datetime(1970, 1, 1, 0, 0, 7), SEVEN),  # noqa: DTZ001 - in UTC if it has no zone
        (dt.datetime(1970, 1, 1, 0, 0, 7, 999_999, tzinfo=dt.UTC), SEVEN),
        (dt.datetime(1970, 1, 1, 1, 0, 7, tzinfo=dt.timezone(dt.timedelta(hours=1))), SEVEN),
    ],
)
def test_a_time_is_seconds_in_eight_bytes(value: object, encoded: bytes) -> None:
    """A datetime, a struct_time or an integer; without a zone it is in UTC."""
    assert field_tables.encode_time(value) == encoded
    assert field_tables.encode_time(field_tables.time_of(encoded)) == encoded
    assert field_tables.time_of(encoded).tzinfo is dt.UTC


@pytest.mark.parametrize("value", [True, False, 1.5, "7", None, (1, 2)])
def test_what_is_no_time(value: object) -> None:
    """The error says what is one."""
    with pytest.raises(TypeError, match="a datetime, a struct_time or an integer of seconds is needed"):
        field_tables.encode_time(value)


@pytest.mark.parametrize(
    "value",
    [
        -1,
        253_402_300_800,
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
        time.struct_time((1969, 12, 31, 23, 59, 59, 2, 365, 0)),
    ],
)
def test_a_time_before_1970_or_after_9999(value: object) -> None:
    """It has no form."""
    with pytest.raises(TypeError, match="a time from 1970 to 9999 is allowed"):
        field_tables.encode_time(value)


def test_a_struct_time_means_the_seconds_that_the_standard_library_says() -> None:
    """In every month of leap years and of other years, and with a leap second."""
    for seconds in range(0, 5 * 10**9, 12_345_678):
        assert field_tables.encode_time(time.gmtime(seconds)) == seconds.to_bytes(8, "big")
    leap = time.struct_time((2016, 12, 31, 23, 59, 60, 5, 366, 0))
    assert field_tables.encode_time(leap) == calendar.timegm(leap).to_bytes(8, "big")


def test_a_struct_time_in_a_table_is_a_time() -> None:
    """It is a tuple, but no list, in headers too."""
    for encode in (field_tables.encode, field_tables.encode_as_given):
        assert field_tables.decode(encode({"a": time.gmtime(7)})) == {"a": field_tables.time_of(SEVEN)}


def test_times_and_bytes_are_read_anew_wherever_they_are() -> None:
    """Late times stay seconds, and bytes are bytes, in lists and tables beside other values."""
    late = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
    table = {"a": [1, "x", late, [late, {"b": late, "c": b"\1"}], b"\2"], "d": {"e": b"\3", "f": late, "g": 1.5}}
    back = field_tables.decode(field_tables.encode(table))
    assert back == table
    assert [type(one) for one in (back["a"][4], back["a"][3][1]["c"], back["d"]["e"])] == [bytes] * 3


def test_late_times_without_bytes_and_bytes_without_times() -> None:
    """Each is read anew alone, too."""
    late = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
    assert field_tables.decode(field_tables.encode({"a": [late]})) == {"a": [late]}
    (back,) = field_tables.decode(field_tables.encode({"a": [b"1"]}))["a"]
    assert (back, type(back)) == (b"1", bytes)


@pytest.mark.parametrize("name", [1, b"a", None])
def test_a_name_is_a_string(name: Any) -> None:  # noqa: ANN401
    """The error shows the name."""
    with pytest.raises(TypeError) as refusal:
        field_tables.encode({name: 1})
    assert f"name {name!r} in a table: a string is needed" in str(refusal.value)


def test_a_name_takes_at_most_128_bytes() -> None:
    """Counted in UTF-8."""
    longest = "é" * 64
    assert field_tables.fields(field_tables.encode({longest: True})) == [(longest, b"t\1")]
    with pytest.raises(ValueError, match=r"name 'é+x' in a table: at most 128 bytes of UTF-8 are allowed"):
        field_tables.encode({longest + "x": True})
