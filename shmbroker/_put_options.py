# SPDX-License-Identifier: Apache-2.0
"""Validation and encoding of the arguments of a put: the body, and the options that are stored with the message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from shmbroker import properties as basic
from shmbroker._amqp.utf8 import SHORT_STRING
from shmbroker._checks import integer, is_integer, seconds
from shmbroker._core import native
from shmbroker._core.queue import NO_OPTIONS, PutOptions
from shmbroker._dataclasses import replace

if TYPE_CHECKING:
    from shmbroker._core.queue import PutFields
    from shmbroker.properties import BasicProperties

GROUP = "JMSXGroupID"
"""The header with the name of the message's group."""
DUPLICATE_ID = "x-duplicate-id"
"""The header with the id by which a queue knows that a message was put before."""
_MOST_ID = 255
_MAX_PRIORITY = 255
_MAX_SECONDS = 10**8


def body_of(body: object) -> tuple[Any, int]:
    """Returns a body in the form that the core accepts, and its length in bytes.

    Raises:
        TypeError: the body is not bytes-like.
    """
    if isinstance(body, bytes):
        return body, len(body)
    try:
        view = memoryview(body)  # type: ignore[arg-type]
    except TypeError:
        msg = f"a body is bytes-like, not {type(body).__name__}{': encode it' if isinstance(body, str) else ''}"
        raise TypeError(msg) from None
    if not view.contiguous:
        view = memoryview(view.tobytes())
    return view, view.nbytes


def check_size(size: object) -> int:
    """Checks the length of a body that the application writes in place, and returns it.

    Raises:
        ValueError: the length is no integer, is negative, or exceeds the limit of a body.
    """
    if not is_integer(size) or not 0 <= size <= native.MAX_BODY:
        msg = f"size={size!r}: 0 to {native.MAX_BODY} bytes are allowed"
        raise ValueError(msg)
    return size


class PutKeywords(TypedDict, total=False):
    """The keyword arguments that are options of a put; see ``Queue.put``."""

    priority: int | None
    ttl: float | None
    delay: float | None
    group: str | None
    duplicate_id: str | bytes | None
    key: str | None
    headers: dict[str, Any] | None
    properties: BasicProperties | None


_KEYWORDS = frozenset(PutKeywords.__annotations__)


def options_of(**given: Unpack[PutKeywords]) -> PutOptions:
    """Builds the core's options of a put; see ``Queue.put``. Raises what :func:`fields_of` raises."""
    if given and any(value is not None for value in given.values()):
        return PutOptions(*fields_of(given))
    return NO_OPTIONS


def is_awaited(given: PutKeywords) -> bool:
    """Whether a put with these options waits until a stored queue has the message in the store."""
    return not basic.is_transient(given.get("properties"))


def fields_of(given: PutKeywords) -> PutFields:
    """Checks and encodes the options of a put.

    Raises:
        TypeError: the key is no string, the properties are no BasicProperties, a keyword is unknown, or a property or a
            header cannot be encoded, see :func:`shmbroker.properties.encode`.
        ValueError: a number is out of range, the key is too long or cannot be encoded, or
            :func:`shmbroker.properties.encode` raises it.
        PreconditionFailed: the expiration property is no number of milliseconds, or too large.
    """
    if not _KEYWORDS.issuperset(given):
        unknown = next(name for name in given if name not in _KEYWORDS)
        allowed = ", ".join(("timeout", *PutKeywords.__annotations__))
        msg = f"a put has no keyword {unknown!r}: {allowed} are allowed"
        raise TypeError(msg)
    priority, ttl, delay = given.get("priority"), given.get("ttl"), given.get("delay")
    key, headers, properties = given.get("key"), given.get("headers"), given.get("properties")
    group, duplicate_id = given.get("group"), given.get("duplicate_id")
    if priority is not None:
        integer("priority", priority, 0, _MAX_PRIORITY)
    encoded_key = b"" if key is None else _key(key)
    if properties is not None and not isinstance(properties, basic.BasicProperties):
        msg = f"properties={properties!r}: BasicProperties are needed"
        raise TypeError(msg)
    ttl_seconds = 0 if ttl is None else seconds("ttl", ttl, _MAX_SECONDS, zero=False)
    delay_seconds = 0 if delay is None else seconds("delay", delay, _MAX_SECONDS, zero=True)
    if group is not None:
        headers = {**_headers(headers, properties), GROUP: _group(group)}
    if duplicate_id is not None:
        headers = {**_headers(headers, properties), DUPLICATE_ID: _duplicate_id(duplicate_id)}
    if headers is None and properties is None:
        return ttl_seconds, delay_seconds, priority or 0, encoded_key, b""
    if properties is None:
        merged = basic.BasicProperties(headers=headers, priority=priority)
    else:
        merged = _merged(properties, headers, priority)
    if ttl is None and merged.expiration is not None:
        ttl_seconds = basic.seconds_of(merged.expiration)
    return ttl_seconds, delay_seconds, merged.priority or 0, encoded_key, basic.encode(merged)


def _merged(given: BasicProperties, headers: dict[str, Any] | None, priority: int | None) -> BasicProperties:
    """Merges the keywords into the properties; a keyword takes precedence."""
    if headers is not None:
        given = replace(given, headers=headers)
    return given if priority is None else replace(given, priority=priority)


def _headers(headers: object, properties: BasicProperties | None) -> dict[str, Any]:
    """Returns the headers that the group, or the duplicate id, is added to."""
    if headers is None:
        headers = None if properties is None else properties.headers
    if headers is not None and not isinstance(headers, dict):
        msg = f"headers={headers!r}: a dict is needed"
        raise TypeError(msg)
    return headers or {}


def _group(group: object) -> str:
    if not isinstance(group, str):
        msg = f"group={group!r}: a string is needed"
        raise TypeError(msg)
    if not group:
        msg = "group='': a name of at least one character is allowed"
        raise ValueError(msg)
    return group


def _duplicate_id(given: object) -> str | bytes:
    if not isinstance(given, (str, bytes)):
        msg = f"duplicate_id={given!r}: a string or bytes are needed"
        raise TypeError(msg)
    try:
        size = len(given.encode()) if isinstance(given, str) else len(given)
    except UnicodeEncodeError:
        msg = f"duplicate_id={given!r}: text that can be written in UTF-8 is allowed"
        raise ValueError(msg) from None
    if not 1 <= size <= _MOST_ID:
        msg = f"duplicate_id of {size} bytes: 1 to {_MOST_ID} bytes are allowed"
        raise ValueError(msg)
    return given


def _key(key: object) -> bytes:
    if not isinstance(key, str):
        msg = f"key={key!r}: a string is needed"
        raise TypeError(msg)
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        msg = f"key={key!r}: text that can be written in UTF-8 is allowed"
        raise ValueError(msg) from None
    if len(encoded) > SHORT_STRING:
        msg = f"key of {len(encoded)} bytes: at most {SHORT_STRING} are allowed"
        raise ValueError(msg)
    return encoded
