# SPDX-License-Identifier: Apache-2.0
"""Bodies that tell which message they are, and whether they are whole.

A message is a number of 48 bits: 18 of its producer, enough for some hours, and 30 of the producer's count. Its body is
eight bytes, the number and a checksum, repeated up to a size that follows from the checksum.
"""

from __future__ import annotations

import binascii

UNIT = 8
COUNT_BITS = 30
SIZES = (  # up to which thousandth, how long: every size class has its share
    (350, UNIT),
    (500, 104),
    (600, 304),
    (750, 1024),
    (850, 5_000),
    (930, 20_000),
    (985, 64 * 1024),
    (996, 300_000),
    (1000, 1024 * 1024),
)


class TornError(Exception):
    """A body that is not what anybody put."""


def message_of(producer: int, count: int) -> int:
    """The number of a producer's message."""
    return producer << COUNT_BITS | count


def producer_of(message: int) -> int:
    """Who put it."""
    return message >> COUNT_BITS


def body_of(message: int) -> bytes:
    """The whole body of a message."""
    number = message.to_bytes(UNIT - 2)
    checksum = binascii.crc_hqx(number, 0)
    size = next(size for below, size in SIZES if checksum % 1000 < below)
    return (number + checksum.to_bytes(2)) * (size // UNIT)


def message_in(body: bytes) -> int:
    """Which message a body is of.

    Raises:
        TornError: it is none, or not the whole of it.
    """
    message = int.from_bytes(body[: UNIT - 2])
    if body != body_of(message):
        text = f"{len(body)} bytes that begin with {body[: 2 * UNIT].hex()}"
        raise TornError(text)
    return message
