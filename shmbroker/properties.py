# SPDX-License-Identifier: Apache-2.0
"""The message properties of AMQP 0-9-1, and their encoding.

Shared memory holds them as the last part of an AMQP content header: the property flags, then the values. So a socket
front end can forward them unchanged. pamqp decodes them, except bytes and times. This module encodes them itself,
because pamqp writes floats in four bytes.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from shmbroker._amqp import field_tables, wire
from shmbroker._core import native
from shmbroker._dataclasses import dataclass
from shmbroker.exceptions import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_ENCODED = 60_000
_MAX_SHORT = 255
_MAX_DIGITS = len(str(native.LONGEST_EXPIRATION_MS))


@dataclass(frozen=True, slots=True, init=False)
class BasicProperties(native.Properties):
    """The fourteen properties of AMQP 0-9-1's basic class; ``None`` = not set.

    A message with ``delivery_mode=1`` is transient: it ends with the memory of its broker, also in a stored queue, and
    no publisher waits until it is on the disk.

    The publisher gives ``timestamp`` as a ``datetime`` (in UTC if it has no zone), a ``time.struct_time`` in UTC, or
    POSIX seconds as an ``int``. The consumer gets a ``datetime`` in UTC, in whole seconds.
    """

    # The base class keeps the values, and its constructor takes them: that of a dataclass takes longer than ten puts.

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, Any] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: Any = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


_OCTETS = tuple(bytes((value,)) for value in range(256))
NAMES = BasicProperties.__match_args__
NO_PROPERTIES = BasicProperties()
_TRANSIENT = 1


def is_transient(properties: object) -> bool:
    """Whether a message with these properties is lost with the memory, in a stored queue as well.

    That is so if ``delivery_mode`` is 1. ``sb_properties_are_transient`` of the core decides in the same way.
    """
    return isinstance(properties, BasicProperties) and properties.delivery_mode == _TRANSIENT


def encode(properties: BasicProperties, most: int = _MAX_ENCODED) -> bytes:
    """Encodes properties as the last part of an AMQP content header.

    Args:
        properties: the properties.
        most: the most bytes that they may take. Publishers get less than the memory format allows, so the broker can
            add headers.

    Raises:
        TypeError: a value has no AMQP form, or a header's name is no string.
        ValueError: the properties take more than ``most`` bytes, a header's name more than 128, or a short string more
            than 255; or a text cannot be written in UTF-8, or the headers are nested more than 32 deep.
    """
    flags, parts = 0, [b""]
    for value, (flag, name, encoder) in zip(_values(properties), _FIELDS, strict=True):
        if value is not None:
            flags |= flag
            parts.append(encoder(name, value))
    parts[0] = flags.to_bytes(2, "big")
    encoded = b"".join(parts)
    if len(encoded) > most:
        msg = f"properties take {len(encoded)} bytes encoded: at most {most} are allowed"
        raise ValueError(msg)
    return encoded


LIFE_NOW = 1e-9
"""The time to live, in seconds, of a message that only a consumer gets that waits for it: the shortest one."""


def seconds_of(expiration: object) -> float:
    """Returns the time to live that ``expiration`` states, in seconds. It is above 0, because 0 would mean for ever.

    Raises:
        PreconditionFailed: the expiration is no number of milliseconds, or more than ten years. The texts have the form
            of RabbitMQ's, with the reason ``no_integer`` for each text that is no number.
    """
    if not isinstance(expiration, str) or not expiration.isascii() or not expiration.isdigit():
        raise PreconditionFailed(406, f"PRECONDITION_FAILED - invalid expiration '{expiration}': no_integer")
    if len(expiration) > _MAX_DIGITS or int(expiration) > native.LONGEST_EXPIRATION_MS:
        shown = expiration if len(expiration) <= _MAX_DIGITS else f"{expiration[:_MAX_DIGITS]}..."
        text = f"PRECONDITION_FAILED - invalid expiration '{shown}': {{value_too_big,{shown}}}"
        raise PreconditionFailed(406, text)
    return int(expiration) / 1000 or LIFE_NOW


def _short(name: str, value: object) -> bytes:
    if not isinstance(value, str):
        msg = f"properties cannot be encoded: {name}={value!r}: a string is needed"
        raise TypeError(msg)
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        msg = f"properties cannot be encoded: {name}={value!r}: text that can be written in UTF-8 is allowed"
        raise ValueError(msg) from None
    if len(encoded) > _MAX_SHORT:
        msg = f"properties cannot be encoded: {name} takes {len(encoded)} bytes: at most {_MAX_SHORT} are allowed"
        raise ValueError(msg)
    return _OCTETS[len(encoded)] + encoded


def _octet(name: str, value: object) -> bytes:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_SHORT:
        msg = f"properties cannot be encoded: {name}={value!r}: an integer from 0 to {_MAX_SHORT} is needed"
        raise TypeError(msg)
    return _OCTETS[value]


def _headers(name: str, value: object) -> bytes:
    if not isinstance(value, dict):
        msg = f"properties cannot be encoded: {name}={value!r}: a dict is needed"
        raise TypeError(msg)
    try:
        return field_tables.encode_as_given(value)
    except UnicodeEncodeError as error:
        msg = f"properties cannot be encoded: header {error.object!r}: text that can be written in UTF-8 is allowed"
        raise ValueError(msg) from None
    except (TypeError, ValueError) as error:
        msg = f"properties cannot be encoded: headers: {error}"
        raise type(error)(msg) from error


def _time(name: str, value: object) -> bytes:
    try:
        return field_tables.encode_time(value)
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"properties cannot be encoded: {name}={value!r}: {error}"
        raise TypeError(msg) from error


_ENCODERS: dict[str, Callable[[str, object], bytes]] = {
    "headers": _headers,
    "delivery_mode": _octet,
    "priority": _octet,
    "timestamp": _time,
}
_FIELDS = tuple((1 << 15 - index, name, _ENCODERS.get(name, _short)) for index, name in enumerate(NAMES))
_values = operator.attrgetter(*NAMES)


def decode(payload: bytes) -> BasicProperties:
    """Decodes what :func:`encode` returned."""
    if not payload:
        return NO_PROPERTIES
    found = wire.commands().Basic.Properties()
    flags = int.from_bytes(payload[:2], "big")
    found.unmarshal(flags, payload[2:])
    given = {name: getattr(found, _WIRE.get(name, name)) for at, name in enumerate(NAMES) if flags & 1 << 15 - at}
    if "headers" in given and b"x" in payload:
        given["headers"] = field_tables.with_bytes(given["headers"])
    if b"T" in payload or "timestamp" in given:
        given.update(_times(payload, flags, given))
    return BasicProperties(**given)


def _times(payload: bytes, flags: int, given: dict[str, Any]) -> dict[str, Any]:
    """Decodes the timestamp and the headers with times again, because pamqp reads times after 2106 as milliseconds."""
    found: dict[str, Any] = {}
    at = 2
    for index, name in enumerate(NAMES):
        if not flags & 1 << 15 - index:
            continue
        if name == "headers":
            end = at + 4 + int.from_bytes(payload[at : at + 4], "big")
            found[name] = field_tables.with_times(given[name], payload[at:end])
            at = end
        elif name == "timestamp":
            found[name] = field_tables.time_of(payload[at : at + 8])
            break
        else:
            at += 1 if _ENCODERS.get(name) is _octet else 1 + payload[at]
    return found


_WIRE = {"type": "message_type"}
