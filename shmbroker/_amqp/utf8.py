# SPDX-License-Identifier: Apache-2.0
"""The size of text in UTF-8, and the rule for the names of queues."""

from __future__ import annotations

SHORT_STRING = 255
"""The most bytes of a short string of AMQP: names, keys, and most properties are such strings."""


def size_in_utf8(text: str) -> int | None:
    """Returns the size of a text in UTF-8; ``None``: it contains half of a surrogate pair, which cannot be encoded."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def check_queue_name(name: object) -> str:
    """Checks the name of a queue: 1 to 255 bytes of UTF-8 without NUL.

    Raises:
        TypeError: the name is no string.
        ValueError: the name breaks the rule.
    """
    if not isinstance(name, str):
        msg = f"queue name {name!r}: a string is needed"
        raise TypeError(msg)
    if not 1 <= (size_in_utf8(name) or 0) <= SHORT_STRING or "\0" in name:
        msg = f"queue name {name!r}: 1 to {SHORT_STRING} bytes of UTF-8 without NUL are allowed"
        raise ValueError(msg)
    return name
