# SPDX-License-Identifier: Apache-2.0
"""What the core writes for a message: a fixed front of 64 bytes, then the names of exchange and key, properties, body.

The body follows up to 4 KiB; a longer one stays where it is.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

SIZE = 64
INLINE = 4096
BUFFER = SIZE + 65536 + INLINE
_FRONT = struct.Struct("<QQQQQQIIHBBHBB")
_NOWHERE = bytes(8)


class Front(NamedTuple):
    """The fixed front, field by field."""

    tag: int
    sequence: int
    body_length: int
    body_address: int
    timestamp_ns: int
    expires_ns: int
    properties_length: int
    key_length: int
    delivery_count: int
    redelivered: int
    priority: int
    subscription: int
    exchange_length: int
    settled: int

    @property
    def key_start(self) -> int:
        """Where the key begins."""
        return SIZE + self.exchange_length


def front(record: bytes) -> Front:
    """The front of a record."""
    return Front._make(_FRONT.unpack_from(record))


def is_inline(record: bytes) -> bool:
    """Does the body follow in the record?"""
    return record[24:32] == _NOWHERE
