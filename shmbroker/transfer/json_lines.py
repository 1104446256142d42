# SPDX-License-Identifier: Apache-2.0
"""Messages as JSON lines: an object for each message. Only ``body``, or ``body_base64``, must be there."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from shmbroker._dataclasses import replace
from shmbroker.properties import NAMES, NO_PROPERTIES, BasicProperties
from shmbroker.transfer import values
from shmbroker.transfer.exported import READY, Exported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_PLAIN = tuple(name for name in NAMES if name not in {"headers", "timestamp"})
_TIMES = {"timestamp": "timestamp_ns", "expires_at": "expires_ns", "due_at": "due_ns"}
_AT_ONCE = 1 << 16
_MOST_SHOWN = 60


def write(stream: BinaryIO, messages: Iterable[Exported]) -> None:
    """Writes messages."""
    lines: list[bytes] = []
    size = 0
    for message in messages:
        lines.append(line_of(message))
        size += len(lines[-1])
        if size >= _AT_ONCE:
            stream.write(b"".join(lines))
            lines, size = [], 0
    stream.write(b"".join(lines))


def line_of(message: Exported) -> bytes:
    """Returns the line of a message."""
    properties = message.properties
    plain = {name: found for name in _PLAIN if (found := getattr(properties, name)) is not None}
    if properties.timestamp is not None:
        plain["timestamp"] = values.seconds_text(properties.timestamp)
    headers = properties.headers
    facts: dict[str, Any] = {
        "sequence": message.sequence,
        "state": message.state,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "priority": message.priority,
        "properties": plain,
        "headers": None if headers is None else {name: values.to_json(one) for name, one in headers.items()},
    }
    for name, field in _TIMES.items():
        nanoseconds = getattr(message, field)
        facts[name] = values.time_text(nanoseconds) if nanoseconds else None
    if message.expires_ns is None:
        del facts["expires_at"]
    facts["delivery_count"], facts["redelivered"] = message.delivery_count, message.redelivered
    try:
        facts["body"] = message.body.decode()
    except UnicodeDecodeError:
        facts["body_base64"] = base64.b64encode(message.body).decode("ascii")
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def read(stream: BinaryIO) -> Iterator[Exported]:
    """Yields the messages of a stream; empty lines are passed over.

    Raises:
        ValueError: a line is no message; the text says which line, and what is allowed.
    """
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            yield message_of(json.loads(line, parse_constant=_no_constant))
        except (ValueError, RecursionError) as error:
            msg = f"line {number}: {error}"
            raise ValueError(msg) from error


def _no_constant(text: str) -> NoReturn:
    msg = f"{text} is no JSON: {{'$float': ...}} is allowed"
    raise ValueError(msg)


def message_of(facts: object) -> Exported:
    """Returns the message that an object of JSON describes.

    Raises:
        ValueError: it describes none.
    """
    if not isinstance(facts, dict):
        _refuse("a message", facts, "an object")
    unknown = facts.keys() - _FIELDS.keys()
    if unknown:
        _refuse("a message with the fields", ", ".join(sorted(unknown)), ", ".join(_FIELDS))
    found = {name: _FIELDS[name](name, value) for name, value in facts.items()}
    if ("body" in found) == ("body_base64" in found):
        msg = "a message has either 'body' or 'body_base64'"
        raise ValueError(msg)
    body = found["body"] if "body" in found else found["body_base64"]
    properties = found.get("properties", NO_PROPERTIES)
    if found.get("headers") is not None:
        properties = replace(properties, headers=found["headers"])
    expires = found["expires_at"] or 0 if "expires_at" in found else None
    priority = found.get("priority")
    return Exported(
        body,
        properties,
        exchange=found.get("exchange") or "",
        routing_key=found.get("routing_key"),
        priority=priority if priority is not None else properties.priority or 0,
        sequence=found.get("sequence"),
        state=found.get("state") or READY,
        timestamp_ns=found.get("timestamp"),
        expires_ns=expires,
        due_ns=found.get("due_at"),
        delivery_count=found.get("delivery_count"),
        redelivered=bool(found.get("redelivered")),
    )


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    shown = repr(value)
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
    msg = f"{name}: {shown}: {allowed} is allowed"
    raise ValueError(msg)


def _text(name: str, value: object) -> str | None:
    return value if value is None or isinstance(value, str) else _refuse(name, value, "a text or null")


def _number(name: str, value: object) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if value is None or is_number else _refuse(name, value, "an integer >= 0 or null")  # type: ignore[return-value]


def _switch(name: str, value: object) -> bool | None:
    return value if value is None or isinstance(value, bool) else _refuse(name, value, "true, false or null")


def _time(name: str, value: object) -> int | None:
    text = _text(name, value)
    return None if text is None else values.ns_of(text)


def _body(name: str, value: object) -> bytes:
    if not isinstance(value, str):
        _refuse(name, value, "a text")
    return value.encode("utf-8", "strict")


def _base64(name: str, value: object) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    _refuse(name, value, "a text in base64")


def _headers(name: str, value: object) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        _refuse(name, value, "an object or null")
    return {key: values.from_json(one) for key, one in value.items()}


def _properties(name: str, value: object) -> BasicProperties:
    if value is None:
        return NO_PROPERTIES
    if not isinstance(value, dict):
        _refuse(name, value, "an object or null")
    given = dict(value)
    unknown = given.keys() - {*_PLAIN, "timestamp"}
    if unknown:
        _refuse(name, ", ".join(sorted(unknown)), ", ".join((*_PLAIN, "timestamp")))
    time = _time(f"{name}.timestamp", given.pop("timestamp", None))
    if time is not None:
        given["timestamp"] = values.from_json({"$time": values.time_text(time)})
    return BasicProperties(**given)


_FIELDS: dict[str, Callable[[str, Any], Any]] = {
    "sequence": _number,
    "state": _text,
    "exchange": _text,
    "routing_key": _text,
    "priority": _number,
    "properties": _properties,
    "headers": _headers,
    "timestamp": _time,
    "expires_at": _time,
    "due_at": _time,
    "delivery_count": _number,
    "redelivered": _switch,
    "body": _body,
    "body_base64": _base64,
}
