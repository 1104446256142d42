# SPDX-License-Identifier: Apache-2.0
"""Checks of numbers that an application passes, with one wording of their errors.

``True`` and ``False`` count as no numbers, although ``bool`` is a subclass of ``int``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeGuard

_SHORTEST = 1e-9


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is an integer or a float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def integer(name: str, value: object, low: int, high: int | None = None, *, none: str = "") -> int:
    """Checks an integer and returns it.

    Args:
        name: the name of the argument, for the error.
        value: the argument.
        low: the lowest value that is allowed.
        high: the highest one; ``None`` = no limit.
        none: what ``None`` means, such as ``"for no limit"``. Only the error's text uses it, if it is not empty: the
            caller handles a permitted ``None`` itself.

    Raises:
        ValueError: the argument is no integer, or out of range.
    """
    if is_integer(value) and low <= value and (high is None or value <= high):
        return value
    allowed = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
    msg = f"{name}={value!r}: {allowed}{f', or None {none},' if none else ''} is allowed"
    raise ValueError(msg)


def seconds(name: str, value: object, most: int, *, zero: bool) -> float:
    """Checks a time in seconds and returns it.

    Args:
        name: the name of the argument, for the error.
        value: the argument.
        most: the longest time that is allowed.
        zero: whether 0 is allowed.

    Raises:
        ValueError: the argument is no number, or out of range.
    """
    if is_number(value) and (0 if zero else _SHORTEST) <= value <= most:
        return float(value)
    msg = f"{name}={value!r}: {'0 to' if zero else 'more than 0 and at most'} {most} seconds are allowed"
    raise ValueError(msg)
