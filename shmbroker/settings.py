# SPDX-License-Identifier: Apache-2.0
"""Queue settings: one table, one validator, for keywords, for ``x-`` arguments and for the command line."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from shmbroker import exceptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OVERFLOWS = ("block", "drop", "drop-head")
"""What happens to a message for which a queue has no room, in the order of their numbers in the core."""

UNBOUNDED = -1
_SIZE = re.compile(r"\s*(\d+)\s*([kKmMgG]?)(?:i?[bB])?\s*\Z")
_FACTOR = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MAX_COUNT = 1 << 56
_MAX_MILLISECONDS = 315_360_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue.

    Args:
        ring_size: keep the newest so many pending messages; -1 or >= 1.
        max_length: at most so many ready messages; -1 or >= 1.
        max_bytes: at most so many bytes of ready bodies; -1 or >= 1.
        overflow: "block", "drop" (the new message) or "drop-head" (the oldest).
        message_ttl: upper bound of a message's life, in seconds; ``None`` = for ever.
        expires: the queue is deleted when it was unused for so many seconds; ``None`` = never.
        durable: kept as an attribute that declarations compare.
        exclusive: only the connection that declares it uses it, and it ends with that connection.
        auto_delete: it ends with its last consumer.
        single_active_consumer: one consumer gets everything; the next one takes over when that one is gone.
    """

    ring_size: int = UNBOUNDED
    max_length: int = UNBOUNDED
    max_bytes: int = UNBOUNDED
    overflow: str = "block"
    message_ttl: float | None = None
    expires: float | None = None
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    single_active_consumer: bool = False


def parse_size(value: object, name: str = "memory") -> int:
    """Bytes of a number or of a string such as ``"256M"``.

    Raises:
        ValueError: it is neither.

    >>> parse_size("64K")
    65536
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.match(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        msg = f"{name}={value!r}: a positive number of bytes or a string such as '256M' is allowed"
        raise ValueError(msg)
    return int(match[1]) * _FACTOR[match[2].lower()]


def _count(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and (value == UNBOUNDED or 1 <= value < _MAX_COUNT):
        return value
    msg = f"{name}={value!r}: -1 (no limit) or an integer >= 1 is allowed"
    raise ValueError(msg)


def _bytes(name: str, value: object) -> int:
    return _count(name, parse_size(value, name) if isinstance(value, str) else value)


def _overflow(name: str, value: object) -> str:
    if isinstance(value, str) and value in OVERFLOWS:
        return value
    msg = f"{name}={value!r}: one of {', '.join(OVERFLOWS)} is allowed"
    raise ValueError(msg)


def _seconds(name: str, value: object, least: float) -> float | None:
    if value is None:
        return None
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    if fits and least <= value <= _MAX_MILLISECONDS / 1000:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    msg = f"{name}={value!r}: {least:g} to {_MAX_MILLISECONDS // 1000} seconds, or None, are allowed"
    raise ValueError(msg)


def _message_ttl(name: str, value: object) -> float | None:
    return _seconds(name, value, 0)


def _expires(name: str, value: object) -> float | None:
    return _seconds(name, value, 0.001)


def _switch(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    msg = f"{name}={value!r}: True or False is allowed"
    raise ValueError(msg)


_VALIDATORS: dict[str, Callable[[str, object], Any]] = {
    "ring_size": _count,
    "max_length": _count,
    "max_bytes": _bytes,
    "overflow": _overflow,
    "message_ttl": _message_ttl,
    "expires": _expires,
    "durable": _switch,
    "exclusive": _switch,
    "auto_delete": _switch,
    "single_active_consumer": _switch,
}
FIXED = frozenset({"durable", "exclusive", "auto_delete", "single_active_consumer"})
"""Settings that a queue has for its whole life."""


def validate(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings, checked.

    Raises:
        TypeError: there is no setting of that name.
        ValueError: a value is not allowed; the text names the setting, the value and what is allowed.
    """
    checked = {}
    for name, value in given.items():
        validator = _VALIDATORS.get(name)
        if validator is None:
            msg = f"no queue setting {name!r}; there are {', '.join(_VALIDATORS)}"
            raise TypeError(msg)
        checked[name] = validator(name, value)
    return checked


# ---- the arguments of queue_declare ----

ARGUMENTS = {
    "ring_size": "x-ring-size",
    "max_length": "x-max-length",
    "max_bytes": "x-max-length-bytes",
    "overflow": "x-overflow",
    "message_ttl": "x-message-ttl",
    "expires": "x-expires",
    "single_active_consumer": "x-single-active-consumer",
}
_SETTING_OF = {argument: setting for setting, argument in ARGUMENTS.items()}
_IN_MILLISECONDS = {"message_ttl", "expires"}
_LATER = frozenset({
    "x-max-priority", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-delivery-limit", "x-redelivery-delay",
    "x-redelivery-multiplier", "x-max-redelivery-delay", "x-last-value-key", "x-non-destructive", "x-message-groups",
    "x-group-buckets", "x-max-consumers", "x-consumers-before-dispatch", "x-delay-before-dispatch",
})  # fmt: skip


def argument_of(setting: str) -> str:
    """How ``queue_declare`` calls a setting: its ``x-`` argument, or its own parameter."""
    return ARGUMENTS.get(setting, setting)


def from_arguments(queue: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that ``x-`` arguments ask for, checked. Arguments that nobody knows are ignored, as AMQP has it.

    Raises:
        PreconditionFailed: a value is not allowed, or the argument is of a feature that does not exist yet.
    """
    given = {}
    for argument, value in arguments.items():
        setting = _SETTING_OF.get(argument)
        if setting is not None:
            given[setting] = _from_argument(queue, setting, argument, value)
        elif argument in _LATER:
            raise _invalid(queue, argument, "{not_supported_yet}")
    return given


def _from_argument(queue: str, setting: str, argument: str, value: object) -> Any:  # noqa: ANN401
    if setting == "overflow":
        if not isinstance(value, str) or value not in OVERFLOWS:
            raise _invalid(queue, argument, f'{{invalid_overflow,<<"{value}">>}}')
        return value
    if setting == "single_active_consumer":
        if not isinstance(value, bool):
            raise invalid_type(queue, argument, value)
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        raise no_integer(queue, argument, value)
    if value < 0 and not (setting not in _IN_MILLISECONDS and value == UNBOUNDED):
        raise _invalid(queue, argument, f"{{value_negative,{value}}}")
    if value == 0 and setting != "message_ttl":
        raise _invalid(queue, argument, f"{{value_zero,{value}}}")
    if value > (_MAX_MILLISECONDS if setting in _IN_MILLISECONDS else _MAX_COUNT - 1):
        raise _invalid(queue, argument, f"{{value_too_large,{value}}}")
    return value / 1000 if setting in _IN_MILLISECONDS else value


def _amqp_type(value: object) -> str:
    names = {bool: "bool", int: "long", float: "double", str: "longstr", bytes: "binary", dict: "table", list: "array"}
    return "void" if value is None else names.get(type(value), type(value).__name__)


def _invalid(queue: str, argument: str, why: str) -> exceptions.PreconditionFailed:
    text = f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{queue}' in vhost '/': {why}"
    return exceptions.PreconditionFailed(406, text)


def invalid_type(queue: str, argument: str, value: object) -> exceptions.PreconditionFailed:
    """The error of an argument whose value has a type that it cannot have."""
    return _invalid(queue, argument, f"{{unacceptable_type,{_amqp_type(value)}}}")


def no_integer(queue: str, argument: str, value: object) -> exceptions.PreconditionFailed:
    """The error of an argument that has to be an integer, and is none."""
    return _invalid(queue, argument, f'"expected integer, got {_amqp_type(value)}"')


def inequivalent(queue: str, setting: str, received: object, current: object) -> exceptions.PreconditionFailed:
    """The error of a declaration that wants something else than there is."""
    argument = argument_of(setting)
    if setting in FIXED - {"single_active_consumer"}:
        words = f"received '{_word(received)}' but current is '{_word(current)}'"
    else:
        words = f"received {_described(setting, received)} but current is {_described(setting, current)}"
    text = f"PRECONDITION_FAILED - inequivalent arg '{argument}' for queue '{queue}' in vhost '/': {words}"
    return exceptions.PreconditionFailed(406, text)


def _word(value: object) -> str:
    return str(value).lower()


def _described(setting: str, value: object) -> str:
    if value is None or (value == UNBOUNDED and not isinstance(value, bool)):
        return "none"
    if setting in _IN_MILLISECONDS and isinstance(value, (int, float)):
        value = round(value * 1000)
    return f"'{_word(value) if isinstance(value, bool) else value}'"
