# SPDX-License-Identifier: Apache-2.0
"""Bodies that say which message they are. A body follows from producer and number, so each byte can be checked."""

from __future__ import annotations

import random

PRIORITIES = 4
_LENGTHS = (0, 20, 200, 200, 900, 3_000)
_LARGE = 14_000


Identity = tuple[str, int]
"""Which message it is: the producer, and the number that it gave."""


def body_of(producer: str, number: int, *, large: bool = False) -> bytes:
    """The body of a message."""
    chance = random.Random(f"{producer} {number}")
    filler = chance.randbytes(_LARGE if large else chance.choice(_LENGTHS))
    return f"{producer} {number} {'large' if large else 'small'} ".encode() + filler


def priority_of(number: int) -> int:
    """The priority of a message in a queue with priorities."""
    return number * 7 // 3 % PRIORITIES


def identity_of(body: bytes) -> Identity:
    """Which message a body is of.

    Raises:
        ValueError: it is not the body of a message that was put.
    """
    try:
        producer, number, size, _ = bytes(body).split(b" ", 3)
        found = producer.decode(), int(number)
    except ValueError as error:
        msg = f"a body that nobody put: {bytes(body[:60])!r}"
        raise ValueError(msg) from error
    if body_of(*found, large=size == b"large") != body:
        msg = f"the body of {found} is damaged"
        raise ValueError(msg)
    return found
