# SPDX-License-Identifier: Apache-2.0
"""The messages of a stored queue, one by one.

This module has no ``from __future__ import annotations``: see :mod:`shmbroker._core.facts`.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from shmbroker.exceptions import StoreError
from shmbroker.storage import rows
from shmbroker.storage.reading import Reader

ENTRY = struct.Struct("<QQQQQIIIHHBBBBI")
FIELDS = (
    "body_length", "expires_ns", "due_ns", "timestamp_ns", "origin", "key_length", "properties_length", "group_hash",
    "exchange_length", "delivery_count", "index", "priority", "flags", "marks", "reserved",
)  # fmt: skip
"""The fields of the fixed part of a message's head, as ``sb_row_entry`` has them."""
REDELIVERED = 1
WHY = 4
"""The bits of the marks from this one on are the reason why a message is dead."""
REJECTED = 2
"""The flag of a message that its queue had no room for: it is dead from the start."""


class StoredMessage(NamedTuple):
    """A message of the store. The times are nanoseconds since 1970.

    Attributes:
        sequence: its position in the queue.
        exchange: the exchange that it was published to.
        routing_key: its routing key; empty: it has none.
        properties: its encoded properties.
        priority: its priority.
        timestamp_ns: the time of its put.
        expires_ns: the time at which it expires; 0 = never.
        due_ns: the time at which it becomes ready; 0: it is.
        delivery_count: how often it was delivered.
        redelivered: whether it was delivered before.
        dead: whether it waits to go to the dead-letter exchange.
        body: its body, valid as long as the transaction.
    """

    sequence: int
    exchange: bytes
    routing_key: bytes
    properties: bytes
    priority: int
    timestamp_ns: int
    expires_ns: int
    due_ns: int
    delivery_count: int
    redelivered: bool
    dead: bool
    body: memoryview


def messages_of(reader: Reader, queue: int) -> Iterator[StoredMessage]:
    """Yields the messages of a queue, by ascending sequence number.

    Args:
        reader: reads the store.
        queue: the number of the queue in the store.

    Raises:
        StoreError: a value is damaged, or missing.
    """
    for tail in reader.tails(queue):
        lane = tail >> rows.LANE_SHIFT << rows.LANE_SHIFT
        for heads, bodies, ended in reader.in_order(queue, lane):
            first = rows.row_of(heads).first
            for message in rows.messages_of(heads):
                if not ended >> message.place & 1:
                    yield _message(first + message.place, heads, bodies, message)


def _message(sequence: int, heads: rows.Bytes, bodies: memoryview, message: rows.Message) -> StoredMessage:
    fields = dict(zip(FIELDS, ENTRY.unpack_from(heads, message.head), strict=True))
    start = message.head + rows.ENTRY
    key = start + fields["exchange_length"]
    properties = key + fields["key_length"]
    end = properties + fields["properties_length"]
    body = bodies[message.body : message.body + message.body_length]
    if end > len(heads) or len(body) != message.body_length:
        raise StoreError(text=f"the store is damaged: the message {sequence} is cut short")
    return StoredMessage(
        sequence,
        bytes(heads[start:key]),
        bytes(heads[key:properties]),
        bytes(heads[properties:end]),
        fields["priority"],
        fields["timestamp_ns"],
        fields["expires_ns"],
        fields["due_ns"],
        fields["delivery_count"],
        bool(fields["marks"] & REDELIVERED),
        bool(fields["marks"] >> WHY or fields["flags"] & REJECTED),
        body,
    )
