# SPDX-License-Identifier: Apache-2.0
"""Literals in selectors: numbers, strings, and the patterns of LIKE."""

from __future__ import annotations

import math

from shmbroker._core.opcodes import PATTERN_ANY, PATTERN_BYTES, PATTERN_CHARACTER
from shmbroker._selectors.program import Operand, Place, Problem, number

_MOST = 1 << 63  # only behind a minus sign


def number_of(place: Place, text: str) -> Operand:
    """Returns the operand of a number, as Java writes it: decimal or hexadecimal, with a suffix L, D or F.

    Raises:
        Problem: an integer needs more than 64 bits, a double is out of range, the suffix is that of another type, or an
            integer has a leading zero: Java takes such a number for an octal one.
    """
    lower = text.lower()
    if lower.startswith("0x"):
        return number(place, _integer(place, text, int(lower.rstrip("l"), 16)))
    digits, suffix = (lower[:-1], lower[-1]) if lower[-1] in "ldf" else (lower, "")
    whole = digits.isdigit()
    if suffix == "l" and not whole:
        raise Problem(place, f"{text}: the suffix L is allowed behind an integer")
    if not whole or suffix in {"d", "f"}:
        value = float(digits)
        if math.isinf(value):
            raise Problem(place, f"{text}: a number up to 1.7976931348623157e308 is allowed")
        return number(place, value)
    if len(digits) > 1 and digits.startswith("0"):
        raise Problem(place, f"{text}: an integer without leading zeros is allowed")
    # Python refuses to convert thousands of digits.
    return number(place, _integer(place, text, int(digits) if len(digits) <= len(str(_MOST)) else _MOST + 1))


def _integer(place: Place, text: str, value: int) -> int:
    if value > _MOST:
        shown = text if len(text) <= 40 else f"{text[:40]}..."  # noqa: PLR2004 - what a line of an error has room for
        raise Problem(place, f"{shown}: an integer from {-_MOST} to {_MOST - 1} is allowed")
    return value


def unquoted(text: str) -> str:
    """Returns the content of a literal or a name in quotes; a quote in it is doubled."""
    quote = text[0]
    return text[1:-1].replace(quote + quote, quote)


def pattern_of(place: Place, text: str, escape: str | None, escape_place: Place) -> bytes:
    """Returns the pattern of LIKE in the core's form.

    Args:
        place: where the pattern begins.
        text: the pattern: ``%`` is any number of characters, ``_`` is one.
        escape: the character behind which ``%``, ``_`` and itself have no such meaning; ``None``: there is none.
        escape_place: where the escape character begins.

    Raises:
        Problem: the escape character is not one character, or stands before another character or at the end, or the
            pattern is too long.
    """
    if escape is not None and len(escape) != 1:
        raise Problem(escape_place, f"ESCAPE {escape!r}: one character is allowed")
    parts, characters = [], iter(text)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if escaped not in {"%", "_", escape}:
                what = f"{escape}{escaped}"
                raise Problem(place, f"{what!r} in a pattern: %, _ or {escape} is allowed behind the escape character")
            parts.append(escaped.encode())
        else:
            parts.append({"%": PATTERN_ANY, "_": PATTERN_CHARACTER}.get(character) or character.encode())
    found = b"".join(parts)
    if len(found) > PATTERN_BYTES:
        raise Problem(place, f"a pattern of {len(found)} bytes: at most {PATTERN_BYTES} are allowed")
    return found
