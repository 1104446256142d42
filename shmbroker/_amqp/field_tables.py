# SPDX-License-Identifier: Apache-2.0
"""AMQP tables, such as the arguments of a binding: one encoding for one content.

:func:`encode` gives the same bytes for tables with the same names and values, whatever the order of the names. So two
tables can be compared by their encoded forms. Each value has pamqp's form, with these exceptions. Floats take eight
bytes: pamqp writes four, which changes the number. ``bytes`` values are encoded, which pamqp refuses, and decoded as
``bytes``, not as ``bytearray``. Times after 2106 are decoded as seconds: pamqp takes them for milliseconds. The
encoding of a time has whole seconds.

:func:`encode` sorts the names by their length, then by their bytes. It encodes an empty table as no bytes, and refuses
a value whose decoded form has another encoding. :func:`encode_as_given` keeps the order of the names, encodes an empty
table as four bytes, encodes tuples as lists, and checks no decoded form.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
import time
from typing import TYPE_CHECKING, Any

from shmbroker._amqp import wire

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ENCODED = 60_000
MAX_DEPTH = 32
MAX_NAME = 128
"""The most bytes of a name: pamqp's encoder would truncate longer names."""

_EPOCH = dt.date(1970, 1, 1).toordinal()
_MAX_SECONDS = 253_402_300_799  # the end of the year 9999
_DOUBLE = struct.Struct(">cd")
# The size of the values of each type, by its type letter. Values of the types in _COUNTED begin with their size.
_SIZES = {b"t": 1, b"b": 1, b"s": 2, b"u": 2, b"I": 4, b"i": 4, b"l": 8, b"d": 8, b"D": 5, b"T": 8, b"V": 0}
_COUNTED = (b"S", b"x", b"A", b"F")
_Types = tuple[type[list[Any]] | type[tuple[Any, ...]], ...]
# The types that are encoded as lists. _STRICT is for `encode`, which refuses a tuple: it would be decoded as a list.
# _TRANSMITTED is for the headers of a message and for single values.
_STRICT: _Types = (list,)
_TRANSMITTED: _Types = (list, tuple)


def encode(table: Mapping[str, Any] | None, what: str = "arguments") -> bytes:
    """Encodes a table.

    Args:
        table: names to values: str, int, float, bool, None, bytes, Decimal, datetime, and lists and dicts of these.
        what: the name of the table in error texts.

    Raises:
        TypeError: the table is no dict, a name is no string, or a value has no AMQP form, or only one that is decoded
            as another value. (The fraction of a second of a time is dropped without an error.)
        ValueError: the table takes more than 60,000 bytes, is nested more than 32 deep, or a name takes more than 128
            bytes.
    """
    if table is not None and not isinstance(table, dict):
        msg = f"{what}={table!r}: a dict is needed"
        raise TypeError(msg)
    if not table:
        return b""
    encoded = _table(table, 0)
    if len(encoded) > MAX_ENCODED:
        msg = f"{what} take {len(encoded)} bytes encoded: at most {MAX_ENCODED} are allowed"
        raise ValueError(msg)
    if _table(_decoded(encoded), 0) != encoded:
        msg = f"{what}={table!r}: a value would be decoded as a different one"
        raise TypeError(msg)
    return encoded


def encode_as_given(table: Mapping[str, Any]) -> bytes:
    """Encodes a table, such as the headers of a message, in its given order.

    Tables that differ only in the order of their names give different bytes.

    Raises:
        TypeError: a name is no string, or a value has no AMQP form.
        ValueError: the table is nested more than 32 deep, or a name takes more than 128 bytes.
    """
    return _table(dict(table), 0, as_given=True, arrays=_TRANSMITTED)


def encode_value(value: object) -> bytes:
    """Encodes one value, with its type letter in front. The order of the names in a dict does not change the bytes.

    A tuple is encoded as a list, at any depth, as :func:`encode_as_given` does.

    Equal values may give different bytes: those of different types, 0.0 and -0.0, and ``Decimal("1.0")`` and
    ``Decimal("1.00")``.

    Raises:
        TypeError: the value has no AMQP form.
        ValueError: the value is nested more than 32 deep, or has a name of more than 128 bytes.

    >>> [encode_value(1) == encode_value(other) for other in (1, True, 1.0, "1")]
    [True, False, False, False]
    """
    return _value(value, 0, arrays=_TRANSMITTED)


def decode(encoded: bytes) -> dict[str, Any]:
    """Decodes a table.

    Raises:
        ValueError: the bytes do not have the form of an encoded table, or a time in them is outside the calendar.
    """
    if not encoded:
        return {}
    fields(encoded)
    try:
        return _decoded(encoded)
    except (ArithmeticError, OSError, ValueError) as error:  # a time outside the calendar
        msg = f"{len(encoded)} bytes are not a table: {error}"
        raise ValueError(msg) from error


def fields(encoded: bytes) -> list[tuple[str, bytes]]:
    """Lists the names in an encoded table, each with the bytes of its value; faster than decoding.

    Raises:
        ValueError: the bytes, or a table or list nested in them, do not have the form of an encoded table.

    >>> fields(encode({"a": 1})) == [("a", encode_value(1))]
    True
    """
    return _fields(encoded, 0, len(encoded), 0) if encoded else []


def _fields(encoded: bytes, at: int, end: int, depth: int) -> list[tuple[str, bytes]]:
    at = _content(encoded, at, end)
    found = []
    while at < end:
        start = at + 1 + encoded[at]
        after = _after(encoded, start, end, depth + 1)
        found.append((encoded[at + 1 : start].decode(), encoded[start:after]))
        at = after
    return found


def _content(encoded: bytes, at: int, end: int) -> int:
    """Returns the position of the content of a table or list: it follows the length, which is four bytes at ``at``.

    Raises:
        ValueError: the content does not end at ``end``.
    """
    if at + 4 + int.from_bytes(encoded[at : at + 4], "big") != end:
        msg = f"a table of {len(encoded)} bytes: what is at {at} does not end at {end}"
        raise ValueError(msg)
    return at + 4


def _after(encoded: bytes, at: int, end: int, depth: int) -> int:
    """Returns the position after a value."""
    kind = encoded[at : at + 1]
    if kind in _COUNTED:
        after = at + 5 + int.from_bytes(encoded[at + 1 : at + 5], "big")
    else:
        after = at + 1 + _SIZES.get(kind, end)
    if after > end or depth > MAX_DEPTH:
        msg = f"a table of {len(encoded)} bytes: no value of type {kind!r} can be at {at}, before {end}, {depth} deep"
        raise ValueError(msg)
    if kind == b"F":
        _fields(encoded, at + 1, after, depth)
    elif kind == b"A":
        at = _content(encoded, at + 1, after)
        while at < after:
            at = _after(encoded, at, after, depth + 1)
    return after


def _decoded(encoded: bytes) -> dict[str, Any]:
    table: dict[str, Any] = wire.decoder().field_table(encoded)[1]
    if b"T" in encoded:
        table = with_times(table, encoded)
    return with_bytes(table) if b"x" in encoded else table


def encode_time(value: object) -> bytes:
    """Encodes a time as AMQP does: POSIX seconds in eight bytes.

    Args:
        value: a ``datetime`` (in UTC if it has no zone), a ``time.struct_time`` in UTC, or seconds as an ``int``.

    Raises:
        TypeError: the value is none of these, or lies before 1970 or after 9999.
    """
    if isinstance(value, dt.datetime):
        aware = value if value.utcoffset() is not None else value.replace(tzinfo=dt.UTC)
        seconds = math.floor(aware.timestamp())
    elif isinstance(value, time.struct_time):
        seconds = _seconds_of(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        seconds = value
    else:
        msg = f"{value!r}: a datetime, a struct_time or an integer of seconds is needed"
        raise TypeError(msg)
    if not 0 <= seconds <= _MAX_SECONDS:
        msg = f"{value!r}: a time from 1970 to 9999 is allowed"
        raise TypeError(msg)  # as for every value without an AMQP form
    return seconds.to_bytes(8, "big")


def _seconds_of(value: time.struct_time) -> int:
    """Converts a time in UTC to POSIX seconds, as `calendar.timegm` does. That module is slow to import."""
    days = dt.date(value.tm_year, value.tm_mon, 1).toordinal() - _EPOCH + value.tm_mday - 1
    return ((days * 24 + value.tm_hour) * 60 + value.tm_min) * 60 + value.tm_sec


def time_of(encoded: bytes) -> dt.datetime:
    """Decodes the time of :func:`encode_time`, in UTC."""
    return dt.datetime.fromtimestamp(int.from_bytes(encoded, "big"), tz=dt.UTC)


def with_times(table: dict[str, Any], encoded: bytes) -> dict[str, Any]:
    """Decodes the times of a table anew after pamqp has decoded it: pamqp takes times after 2106 for milliseconds."""
    return {name: _with_times(table[name], value) for name, value in fields(encoded)}


def _with_times(value: Any, encoded: bytes) -> Any:  # noqa: ANN401 - any value of a table
    kind, content = encoded[:1], encoded[1:]
    if kind == b"T":
        return time_of(content)
    if kind == b"F":
        return with_times(value, content)
    if kind != b"A":
        return value
    found, at = [], 4
    for one in value:
        after = _after(content, at, len(content), 0)
        found.append(_with_times(one, content[at:after]))
        at = after
    return found


def with_bytes(value: Any) -> Any:  # noqa: ANN401 - any value of a table
    """Replaces pamqp's bytearrays by bytes: the application put bytes, and a bytearray has no hash."""
    if isinstance(value, dict):
        return {name: with_bytes(one) for name, one in value.items()}
    if isinstance(value, list):
        return [with_bytes(one) for one in value]
    return bytes(value) if isinstance(value, bytearray) else value


def _table(table: dict[str, Any], depth: int, *, as_given: bool = False, arrays: _Types = _STRICT) -> bytes:
    fields = [(_name(name), name) for name in table]
    if not as_given:
        fields.sort()
    values = (name + _value(table[key], depth + 1, as_given=as_given, arrays=arrays) for name, key in fields)
    return _counted(b"".join(values))


def _name(name: object) -> bytes:
    if not isinstance(name, str):
        msg = f"name {name!r} in a table: a string is needed"
        raise TypeError(msg)
    encoded = name.encode()
    if len(encoded) > MAX_NAME:
        msg = f"name {name!r} in a table: at most {MAX_NAME} bytes of UTF-8 are allowed"
        raise ValueError(msg)
    return bytes((len(encoded),)) + encoded


def _value(value: object, depth: int, *, as_given: bool = False, arrays: _Types = _STRICT) -> bytes:
    if depth > MAX_DEPTH:
        msg = f"a table is nested more than {MAX_DEPTH} deep"
        raise ValueError(msg)
    if isinstance(value, str):
        return b"S" + _counted(value.encode())
    if isinstance(value, dict):
        return b"F" + _table(value, depth, as_given=as_given, arrays=arrays)
    if isinstance(value, arrays) and not isinstance(value, time.struct_time):
        values = (_value(one, depth + 1, as_given=as_given, arrays=arrays) for one in value)
        return b"A" + _counted(b"".join(values))
    if isinstance(value, (bytes, bytearray)):
        return b"x" + _counted(value)
    return _DOUBLE.pack(b"d", value) if isinstance(value, float) else _other(value)


def _other(value: object) -> bytes:
    if not isinstance(value, int) and isinstance(value, (dt.datetime, time.struct_time)):
        return b"T" + encode_time(value)
    try:
        encoded: bytes = wire.encoder().encode_table_value(value)  # raises TypeError by itself
    except struct.error as error:
        msg = f"{value!r} in a table: {error}"
        raise TypeError(msg) from error
    return encoded


def _counted(content: bytes | bytearray) -> bytes:
    return len(content).to_bytes(4, "big") + content
