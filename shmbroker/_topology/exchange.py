# SPDX-License-Identifier: Apache-2.0
"""Exchanges: their attributes, and the checks of operations on them. Rules and errors are RabbitMQ's."""

from __future__ import annotations

from typing import Any, NoReturn

from shmbroker._amqp import field_tables
from shmbroker._amqp.errors import amqp_error
from shmbroker._amqp.names import RESERVED
from shmbroker._amqp.utf8 import SHORT_STRING, size_in_utf8
from shmbroker._dataclasses import dataclass, field
from shmbroker.exceptions import AccessRefused, NotFound, PreconditionFailed

TYPES = ("direct", "fanout", "topic", "headers")
"""The types of exchange."""

DEFAULT = ""
ALTERNATE = "alternate-exchange"
MATCH = "x-match"
_MATCHES = ("all", "any", "all-with-x", "any-with-x")
_MAX_MANY_WORDS = 2
# RabbitMQ's names for the types of AMQP's fields.
_FIELD_TYPES = {
    b"t": "bool",
    b"b": "byte",
    b"s": "short",
    b"u": "unsignedshort",
    b"I": "signedint",
    b"i": "unsignedint",
    b"l": "long",
    b"d": "double",
    b"D": "decimal",
    b"S": "longstr",
    b"A": "array",
    b"T": "timestamp",
    b"F": "table",
    b"V": "void",
    b"x": "binary",
}


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange. Its attributes never change: to get other attributes, it must be deleted and declared again.

    Args:
        name: 1 to 255 bytes of UTF-8 without NUL; "" is the default exchange.
        type: one of `TYPES`.
        durable: whether the declaration asks that it outlive the broker's memory.
        auto_delete: whether it ends with the last binding from it.
        internal: whether clients cannot publish to it, so that it gets messages only from other exchanges.
        arguments: the arguments of the declaration.
    """

    name: str
    type: str = "direct"
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def alternate(self) -> str | None:
        """The name of the exchange that gets messages for which this one has no destination; ``None``: it has none."""
        found = self.arguments.get(ALTERNATE)
        return found if isinstance(found, str) else None

    @property
    def predeclared(self) -> bool:
        """Whether every broker always has this exchange."""
        return self.name in PREDECLARED


PREDECLARED = {
    name: Exchange(name, kind, durable=True)
    for name, kind in (
        (DEFAULT, "direct"),
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
        ("amq.topic", "topic"),
    )
}


def check_name(name: object) -> str:
    """Checks the name of an exchange: up to 255 bytes of UTF-8 without NUL.

    Raises:
        TypeError: the name is no string.
        ValueError: the name breaks the rule.
    """
    checked = _short_string(name, "exchange name")
    if "\0" in checked:
        msg = f"exchange name {name!r}: NUL is not allowed"
        raise ValueError(msg)
    return checked


def check_key(key: object) -> str:
    """Checks a routing key: up to 255 bytes of UTF-8.

    Raises:
        TypeError: the key is no string.
        ValueError: the key breaks the rule.
    """
    return _short_string(key, "routing key")


def _short_string(text: object, what: str) -> str:
    if not isinstance(text, str):
        msg = f"{what} {text!r}: a string is needed"
        raise TypeError(msg)
    size = size_in_utf8(text)
    if size is None or size > SHORT_STRING:
        msg = f"{what} {text!r}: up to {SHORT_STRING} bytes of UTF-8 are allowed"
        raise ValueError(msg)
    return text


def missing(name: str) -> NotFound:
    """The error of an exchange that does not exist."""
    return amqp_error(NotFound, f"no {_called(name)}")


def check_not_default(name: str) -> None:
    """Refuses an operation on the default exchange, which allows only publishing.

    Raises:
        AccessRefused: the name is that of the default exchange.
    """
    if name == DEFAULT:
        _refuse("operation not permitted on the default exchange")


def check_new(exchange: Exchange) -> None:
    """Checks that an exchange may be made.

    Raises:
        AccessRefused: the name is reserved.
        PreconditionFailed: the argument "alternate-exchange" is no string.
    """
    if exchange.name.startswith(RESERVED):
        _refuse(f"exchange name '{exchange.name}' contains reserved prefix '{RESERVED}*'")
    if ALTERNATE in exchange.arguments and exchange.alternate is None:
        kind = _field_type(exchange.arguments[ALTERNATE])
        _fail(f"invalid type '{kind}' for arg '{ALTERNATE}' in {_called(exchange.name)}")


def check_type(kind: str) -> None:
    """Checks that a type of exchange exists.

    Raises:
        PreconditionFailed: the type is unknown.
    """
    if kind not in TYPES:
        _fail(f"unknown exchange type '{kind}'")


def check_equivalent(current: Exchange, wanted: Exchange) -> None:
    """Checks that a declaration matches an existing exchange. Of the arguments, only the alternate exchange counts.

    Raises:
        PreconditionFailed: the existing exchange differs.
    """
    for name in ("type", "durable", "auto_delete", "internal"):
        received, found = getattr(wanted, name), getattr(current, name)
        if received != found:
            _differ(current, name, f"'{_term(received)}'", f"'{_term(found)}'")
    if _alternate(current) != _alternate(wanted):
        received, found = wanted.arguments.get(ALTERNATE), current.arguments.get(ALTERNATE)
        if received is None or found is None:
            _differ(current, ALTERNATE, _described(wanted), _described(current))
        _differ(current, ALTERNATE, f"'{_term(received)}'", f"'{_term(found)}'")


def check_deletion(name: str) -> None:
    """Checks that an exchange of this name may be deleted.

    Raises:
        AccessRefused: the name is that of the default exchange, or is reserved.
    """
    check_not_default(name)
    if name.startswith(RESERVED):
        _refuse(f"deletion of system {_called(name)} not allowed")


def check_unused(name: str, bindings: int) -> None:
    """Checks that no binding leads from an exchange; ``bindings`` is the number of those that do.

    Raises:
        PreconditionFailed: there are bindings from it.
    """
    if bindings:
        _fail(f"{_called(name)} in use")


def check_publish(exchange: Exchange) -> None:
    """Checks that clients may publish to an exchange.

    Raises:
        AccessRefused: the exchange is internal.
    """
    if exchange.internal:
        _refuse(f"cannot publish to internal {_called(exchange.name)}")


def check_binding(kind: str, routing_key: str, arguments: dict[str, Any]) -> None:
    """Checks that an exchange of type ``kind`` can have a binding with this routing key and these arguments.

    Raises:
        PreconditionFailed: the value of ``x-match`` is not allowed (headers), or the pattern has more than two ``#``
            words (topic), which is RabbitMQ's limit.
    """
    if kind == "topic":
        many = routing_key.split(".").count("#")
        if many > _MAX_MANY_WORDS:
            _fail(f"Topic binding key '{routing_key}' uses {many} '#' wildcards, at most {_MAX_MANY_WORDS} are allowed")
    elif kind == "headers" and arguments.get(MATCH, "all") not in _MATCHES:
        given = arguments[MATCH]
        if isinstance(given, str):
            _fail(f"Invalid {MATCH} field value {_term_of(given)}; expected all, any, all-with-x, or any-with-x")
        _fail(f"Invalid {MATCH} field type {_field_type(given)} (value {_term_of(given)}); expected longstr")


def _called(name: str) -> str:
    return f"exchange '{name}' in vhost '/'"


def _alternate(exchange: Exchange) -> bytes | None:
    return field_tables.encode_value(exchange.arguments[ALTERNATE]) if ALTERNATE in exchange.arguments else None


def _described(exchange: Exchange) -> str:
    if ALTERNATE not in exchange.arguments:
        return "none"
    value = exchange.arguments[ALTERNATE]
    return f"the value '{_term(value)}' of type '{_field_type(value)}'"


def _term(value: object) -> str:
    """Formats a value as RabbitMQ prints it between quotes: a string as it is, others as :func:`_term_of` does."""
    return value if isinstance(value, str) else _term_of(value)


def _term_of(value: object) -> str:
    """Formats a simple value as Erlang would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "undefined"
    return f'<<"{value}">>' if isinstance(value, str) else str(value)


def _field_type(value: object) -> str:
    return _FIELD_TYPES[field_tables.encode_value(value)[:1]]


def _differ(exchange: Exchange, argument: str, received: str, found: str) -> NoReturn:
    _fail(
        f"inequivalent arg '{argument}' for {_called(exchange.name)}: received {received} but current is {found}",
    )


def _refuse(text: str) -> NoReturn:
    raise amqp_error(AccessRefused, text)


def _fail(text: str) -> NoReturn:
    raise amqp_error(PreconditionFailed, text)
