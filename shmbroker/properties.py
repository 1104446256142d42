# SPDX-License-Identifier: Apache-2.0
"""Message properties, as AMQP 0-9-1 has them, and their encoding.

In shared memory they are the payload of an AMQP content header (property flags, then the values), so that a socket
front end can forward them unchanged. Encoding and decoding is pamqp's.
"""

from __future__ import annotations

import dataclasses
from typing import Any

_MAX_ENCODED = 60_000
_MAX_HEADER_NAME = 128


@dataclasses.dataclass(frozen=True, slots=True)
class BasicProperties:
    """The fourteen properties of AMQP 0-9-1's basic class; ``None`` = not set."""

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


NAMES = tuple(field.name for field in dataclasses.fields(BasicProperties))
NO_PROPERTIES = BasicProperties()


def encode(properties: BasicProperties) -> bytes:
    """The AMQP content-header payload of some properties.

    Raises:
        TypeError: a value has no AMQP form, or a header's name is no string.
        ValueError: they take more than 60,000 bytes, or a header's name more than 128.
    """
    from pamqp import commands  # noqa: PLC0415 - only messages with properties pay for it

    given = {name: value for name in NAMES if (value := getattr(properties, name)) is not None}
    _check_names(properties.headers)
    try:
        cluster_id = given.pop("cluster_id", None)  # which the encoder would refuse: it is deprecated
        wire = commands.Basic.Properties(**{_WIRE.get(name, name): value for name, value in given.items()})
        wire.cluster_id = cluster_id
        encoded: bytes = wire.marshal()
    except (TypeError, ValueError) as error:
        msg = f"properties cannot be encoded: {error}"
        raise TypeError(msg) from error
    if len(encoded) > _MAX_ENCODED:
        msg = f"properties take {len(encoded)} bytes encoded: at most {_MAX_ENCODED} are allowed"
        raise ValueError(msg)
    return encoded


def _check_names(table: object) -> None:
    """The names of headers, and of tables in them: the encoder would cut long ones short."""
    if isinstance(table, (list, tuple)):
        for value in table:
            _check_names(value)
    elif isinstance(table, dict):
        for name, value in table.items():
            if not isinstance(name, str):
                msg = f"header name {name!r}: a string is needed"
                raise TypeError(msg)
            if len(name.encode()) > _MAX_HEADER_NAME:
                msg = f"header name {name!r}: at most {_MAX_HEADER_NAME} bytes of UTF-8 are allowed"
                raise ValueError(msg)
            _check_names(value)


def decode(payload: bytes) -> BasicProperties:
    """The properties of a content-header payload."""
    if not payload:
        return NO_PROPERTIES
    from pamqp import commands  # noqa: PLC0415

    wire = commands.Basic.Properties()
    flags = int.from_bytes(payload[:2], "big")
    wire.unmarshal(flags, payload[2:])
    return BasicProperties(**{name: getattr(wire, _WIRE.get(name, name)) for name in NAMES})


_WIRE = {"type": "message_type"}
