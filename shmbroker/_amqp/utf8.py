# SPDX-License-Identifier: Apache-2.0
"""Text: the room it takes where names and keys are stored, and the names that queues may have."""

from __future__ import annotations


def size_in_utf8(text: str) -> int | None:
    """How many bytes that is; ``None``: half of a surrogate pair stands in it, which cannot be written."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def check_queue_name(name: object) -> str:
    """A queue's name: 1 to 255 bytes of UTF-8 without NUL.

    Raises:
        TypeError: it is no string.
        ValueError: it breaks the rule.
    """
    if not isinstance(name, str):
        msg = f"queue name {name!r}: a string is needed"
        raise TypeError(msg)
    if not 1 <= (size_in_utf8(name) or 0) <= 255 or "\0" in name:  # noqa: PLR2004
        msg = f"queue name {name!r}: 1 to 255 bytes of UTF-8 without NUL are allowed"
        raise ValueError(msg)
    return name
