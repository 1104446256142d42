# SPDX-License-Identifier: Apache-2.0
"""Queue settings: one table, one validator."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

OVERFLOWS = ("block", "drop", "drop-head")
"""What happens to a message for which a queue has no room, in the order of their numbers in the core."""

UNBOUNDED = -1
_SIZE = re.compile(r"\s*(\d+)\s*([kKmMgG]?)(?:i?[bB])?\s*\Z")
_FACTOR = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MAX_COUNT = 1 << 56


@dataclasses.dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue.

    Args:
        ring_size: keep the newest so many pending messages; -1 or >= 1.
        max_length: at most so many ready messages; -1 or >= 1.
        max_bytes: at most so many bytes of ready bodies; -1 or >= 1.
        overflow: "block", "drop" (the new message) or "drop-head" (the oldest).
    """

    ring_size: int = UNBOUNDED
    max_length: int = UNBOUNDED
    max_bytes: int = UNBOUNDED
    overflow: str = "block"


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
    return parse_size(value, name) if isinstance(value, str) else _count(name, value)


def _overflow(name: str, value: object) -> str:
    if isinstance(value, str) and value in OVERFLOWS:
        return value
    msg = f"{name}={value!r}: one of {', '.join(OVERFLOWS)} is allowed"
    raise ValueError(msg)


_VALIDATORS = {"ring_size": _count, "max_length": _count, "max_bytes": _bytes, "overflow": _overflow}


def validate(given: dict[str, Any]) -> dict[str, Any]:
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
