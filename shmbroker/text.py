# SPDX-License-Identifier: Apache-2.0
"""Text: the room it takes where names and keys are stored."""

from __future__ import annotations


def size_in_utf8(text: str) -> int | None:
    """How many bytes that is; ``None``: half of a surrogate pair stands in it, which cannot be written."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None
