# SPDX-License-Identifier: Apache-2.0
"""Headers in the columns of a table: a text for each value, with a defined form for each type of AMQP.

A text header is that text, and a header without a value is null. All other values are JSON. Numbers and truth values
are JSON's own, arrays and tables are lists and objects of such values. A value without a JSON form is an object with
one field, whose name is the type. A table that would look like such an object is the value of a field ``table``.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import functools
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_BYTES, _DECIMAL, _TIMESTAMP, _TABLE = _TYPES = ("bytes", "decimal", "timestamp", "table")


def written(value: object) -> str | None:
    r"""Encodes a header for a table; :func:`header_value` decodes the result, unless the header is a text or None.

    >>> written("text"), written(None), written(5), written([True, "x"])
    ('text', None, '5', '[true, "x"]')
    >>> written(b"\xff"), written(decimal.Decimal("1.50")), written({"bytes": 5})
    ('{"bytes": "/w=="}', '{"decimal": "1.50"}', '{"table": {"bytes": 5}}')
    """
    return value if isinstance(value, str | None) else json.dumps(_plain(value))


def _plain(value: object) -> object:
    found = value
    match value:
        case bytes():
            found = {_BYTES: base64.b64encode(value).decode()}
        case decimal.Decimal():
            found = {_DECIMAL: str(value)}
        case dt.datetime():
            found = {_TIMESTAMP: value.isoformat()}
        case list():
            found = [_plain(one) for one in value]
        case dict():
            table = {name: _plain(one) for name, one in value.items()}
            found = {_TABLE: table} if len(table) == 1 and not table.keys().isdisjoint(_TYPES) else table
    return found


def header_value(text: str) -> Any:  # noqa: ANN401 - any type of AMQP
    r"""Decodes a header that is no text, from the column ``headers`` of a table.

    The form does not distinguish a text header, such as ``"5"``, from the number 5: the caller must know that the
    header is no text.

    Args:
        text: the text in a row.

    Raises:
        ValueError: the text is not the JSON form of a number, truth value, array, table, decimal, timestamp or bytes.

    >>> header_value("5"), header_value('{"bytes": "/w=="}'), header_value('{"table": {"bytes": 5}}')
    (5, b'\xff', {'bytes': 5})
    """
    try:
        plain = json.loads(text)
        if plain is not None and not isinstance(plain, str):
            return _value(plain)
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError):  # the last one: nested too deep
        pass
    msg = f"header {text!r}: the JSON of a number, truth value, array, table, decimal, timestamp or bytes is needed"
    raise ValueError(msg)


def _value(plain: Any) -> Any:  # noqa: ANN401
    if isinstance(plain, list):
        return [_value(one) for one in plain]
    if not isinstance(plain, dict):
        return plain
    kind = next(iter(plain)) if len(plain) == 1 else ""
    if kind in _READ:
        if not isinstance(plain[kind], str):
            raise TypeError(kind)  # Decimal would take a number, which may be another value than the one written
        return _READ[kind](plain[kind])
    return _table(plain[kind] if kind == _TABLE else plain)


def _table(plain: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(one) for name, one in plain.items()}


_READ: dict[str, Callable[[str], Any]] = {
    _BYTES: functools.partial(base64.b64decode, validate=True),
    _DECIMAL: decimal.Decimal,
    _TIMESTAMP: dt.datetime.fromisoformat,
}
