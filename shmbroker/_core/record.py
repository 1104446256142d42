# SPDX-License-Identifier: Apache-2.0
"""The record that the core writes for a message: a header of 64 bytes, exchange name, routing key, properties, body.

The record of a taken message contains a body of up to 4 KiB; a longer one stays in the shared memory. The record of a
browse contains a body of any length. The record of `browse_place` contains no body. The header is decoded without cffi,
which is faster; a test compares its format with the core's struct.

This module has no ``from __future__ import annotations``. It would make each annotation a string, and a named tuple
compiles each string, which makes the import slower.
"""

import struct
from typing import NamedTuple

SIZE = 64
_HEADER = struct.Struct("<QQQQQQIIHBBHBB")
_ADDRESS = slice(24, 32)
_NOWHERE = bytes(8)
# Bits of `marks`.
REDELIVERED = 1
GROUP_FIRST = 2


class Header(NamedTuple):
    """The fields of the header of a record."""

    tag: int
    sequence: int
    body_length: int
    body_address: int
    timestamp_ns: int
    expires_ns: int
    properties_length: int
    key_length: int
    delivery_count: int
    marks: int
    priority: int
    subscription: int
    exchange_length: int
    settled: int

    @property
    def key_start(self) -> int:
        """The offset of the routing key."""
        return SIZE + self.exchange_length


def header(record: bytes) -> Header:
    """Decodes the header of a record."""
    return Header._make(_HEADER.unpack_from(record))


def is_inline(record: bytes) -> bool:
    """Whether the record contains the body. Not for a record of `browse_place`, which has no body and the address 0."""
    return record[_ADDRESS] == _NOWHERE
