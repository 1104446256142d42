# SPDX-License-Identifier: Apache-2.0
"""Times, and the values of headers, in JSON: each value comes back with its type.

Strings, integers, booleans, null, finite floats, lists and objects are as in JSON. Other values are objects with one
name: ``{"$bytes": "AAE="}``, ``{"$decimal": "1.50"}``, ``{"$time": "2026-01-01T00:00:00Z"}``, ``{"$float": "nan"}``. A
NaN with other bits than Python's has these in hexadecimal. An object with a name that begins with ``$`` is ``{"$table":
{...}}``.

>>> to_json({"a": [1, 1.0, b"x"]})
{'a': [1, 1.0, {'$bytes': 'eA=='}]}
>>> from_json({"a": {"$bytes": "eA=="}})
{'a': b'x'}
>>> ns_of(time_text(1_500_000_000_000_000_001))
1500000000000000001
"""

from __future__ import annotations

import base64
import calendar
import datetime as dt
import math
import re
import struct
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_NANOSECONDS = 10**9
_FLOATS = ("nan", "inf", "-inf")
_DOUBLE = struct.Struct(">d")
_MARK = "$"
_TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9:]{5})\Z")
_DEEPEST = 40  # AMQP tables have 32 levels


def to_json(value: Any) -> Any:  # noqa: ANN401, PLR0911 - any value of a table; each type has its form
    """Turns a value of an AMQP table into one that JSON has."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": _float_text(value)}
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, dt.datetime):
        return {"$time": seconds_text(value)}
    if isinstance(value, (list, tuple)):
        return [to_json(one) for one in value]
    if isinstance(value, dict):
        table = {name: to_json(one) for name, one in value.items()}
        return {"$table": table} if any(name.startswith(_MARK) for name in table) else table
    msg = f"{type(value).__name__}: no value of an AMQP table"
    raise TypeError(msg)


def from_json(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - any value of a table
    """Turns what :func:`to_json` returned back.

    Raises:
        ValueError: a value with a mark is none that :func:`to_json` returns.
    """
    if depth > _DEEPEST:
        msg = f"a table is nested more than {_DEEPEST} deep"
        raise ValueError(msg)
    if isinstance(value, list):
        return [from_json(one, depth + 1) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, one),) = value.items()
        if name == "$table" and isinstance(one, dict):
            return {inner: from_json(found, depth + 1) for inner, found in one.items()}
        if name in _DECODERS:
            return _marked(name, one)
    return {name: from_json(one, depth + 1) for name, one in value.items()}


def _marked(name: str, value: object) -> Any:  # noqa: ANN401 - any value of a table
    try:
        if isinstance(value, str):
            return _DECODERS[name](value)
    except (ValueError, InvalidOperation):
        pass
    msg = f"{{{name!r}: {value!r}}} is no value: {_ALLOWED[name]} is allowed"
    raise ValueError(msg)


def _float_text(value: float) -> str:
    bits = _DOUBLE.pack(value)
    return str(value) if _DOUBLE.pack(float(str(value))) == bits else bits.hex()


def _float(text: str) -> float:
    if text in _FLOATS:
        return float(text)
    (value,) = _DOUBLE.unpack(bytes.fromhex(text if len(text) == 2 * _DOUBLE.size else "-"))
    return float(value)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _datetime(text: str) -> dt.datetime:
    return dt.datetime.fromtimestamp(ns_of(text) // _NANOSECONDS, dt.UTC)


_DECODERS: dict[str, Callable[[str], Any]] = {
    "$bytes": _bytes,
    "$decimal": Decimal,
    "$time": _datetime,
    "$float": _float,
}
_ALLOWED = {
    "$bytes": "a text in base64",
    "$decimal": "the text of a decimal number",
    "$time": "a text such as '2026-01-01T00:00:00Z'",
    "$float": "'nan', 'inf', '-inf' or 16 hexadecimal digits",
}


def seconds_text(time: dt.datetime) -> str:
    """Returns a time in whole seconds as a text."""
    return time.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def time_text(nanoseconds: int) -> str:
    """Returns a time, in nanoseconds since 1970, as a text."""
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return f"{seconds_text(dt.datetime.fromtimestamp(seconds, dt.UTC))[:-1]}.{rest:09}Z"


def ns_of(text: str) -> int:
    """Returns a time in nanoseconds since 1970.

    Raises:
        ValueError: the text has another form.
    """
    found = _TIME.match(text)
    if found is None:
        msg = f"{text!r} is no time: a text such as '2026-01-01T00:00:00.000000000Z' is allowed"
        raise ValueError(msg)
    whole, fraction, zone = found.groups()
    seconds = calendar.timegm(dt.datetime.fromisoformat(whole + zone).utctimetuple())
    return seconds * _NANOSECONDS + int((fraction or "0").ljust(9, "0"))
