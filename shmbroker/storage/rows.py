# SPDX-License-Identifier: Apache-2.0
"""Keys and values of the store: how they are encoded, and how damage is found.

A row has the messages of some successive sequence numbers of a queue, in the form of the core (``sb_row.h``). Its heads
and its bodies are two values with one key, so a reader that selects messages reads no bodies. LMDB has no checksums, so
each value begins with one. It covers the key, too: a value that a damaged page leads to under another key is refused.

This module has no ``from __future__ import annotations``: see :mod:`shmbroker._core.facts`.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import xxhash

from shmbroker.exceptions import StoreError

SEAL = 8
"""The length in bytes of the checksum at the beginning of a value."""
LEAF = 64
"""Rows cover sequence numbers of one leaf: so many, and the first one is a multiple of this."""
LANE_SHIFT = 52
"""A sequence number has the number of its lane above these bits: messages of one priority have one lane."""
BEHIND_ALL = 1 << 64
"""No sequence number is as high."""
_KEY = struct.Struct(">QQ")
_KEY_OF_ID = struct.Struct(">QQ16s")
_ID = struct.Struct("<16sQ")
_HEAD = struct.Struct("<HHIQQQQ")
_ENTRY = struct.Struct("<QQQQQIIIHHBBBBI")
_INDEX = 56  # the offset of the index in an entry
_WAITS, _EXPIRES = 1, 2  # bits of a row's flags
_WHY = 4  # the reason why a message is dead is above these bits of its marks
FORMAT = 2
HEAD = _HEAD.size
ENTRY = 64
"""The length in bytes of the fixed part of a message's head."""

Bytes = bytes | bytearray | memoryview


class RowNames(NamedTuple):
    """The names of tables that belong together: rows, and what has changed since they were written.

    Attributes:
        heads: the heads of the rows.
        bodies: their bodies.
        ended: which messages of a leaf have ended.
        returned: the state of each message that has changed.
    """

    heads: bytes
    bodies: bytes
    ended: bytes
    returned: bytes


DURABLE = RowNames(b"heads", b"bodies", b"ended", b"returned")
"""The messages that survive the loss of the memory."""
TRANSIENT = RowNames(b"transient_heads", b"transient_bodies", b"transient_ended", b"transient_returned")
"""Those that do not, as far as they had to leave the memory."""


class Row(NamedTuple):
    """The head of a row.

    Attributes:
        messages: how many it has.
        first: the sequence number that bit 0 of ``members`` stands for.
        members: bit i is set if the row has the message with the sequence number ``first`` + i.
        bodies_length: the bytes of all bodies.
        written_ns: the wall clock when the row was written.
        waits: whether a message of it is delayed, or waits as dead.
        expires: whether a message of it expires. A row of an earlier version has ``waits`` instead.
    """

    messages: int
    first: int
    members: int
    bodies_length: int
    written_ns: int
    waits: bool
    expires: bool


def key(queue: int, sequence: int) -> bytes:
    """The key of a row, or of what belongs to a sequence number. Keys sort by queue, then by sequence number."""
    return _KEY.pack(queue, sequence)


def sequence_in(found: Bytes) -> int:
    """The sequence number of a key."""
    return _parts(found)[1]


def queue_in(found: Bytes) -> int:
    """The queue of a key."""
    return _parts(found)[0]


def _parts(found: Bytes) -> tuple[int, int]:
    if len(found) not in {_KEY.size, _KEY_OF_ID.size}:
        raise StoreError(text=f"the store is damaged: a key has {len(found)} bytes, not {_KEY.size}")
    queue, sequence = _KEY.unpack_from(found)
    return queue, sequence


def key_of_id(queue: int, number: int, found: bytes) -> bytes:
    """The key of a duplicate id. Keys sort by queue, then by number, which is its age.

    Args:
        queue: the number of the queue in the store.
        number: the number of the id in its queue. Several ids may have the same.
        found: the hash of the id.
    """
    return _KEY_OF_ID.pack(queue, number, found)


def id_in(found: Bytes) -> tuple[bytes, int]:
    """The hash and the number of the id that a key names."""
    if len(found) != _KEY_OF_ID.size:
        raise StoreError(text=f"the store is damaged: the key of an id has {len(found)} bytes")
    _, number, hashed = _KEY_OF_ID.unpack(found)
    return hashed, number


def packed_ids(ids: Iterable[tuple[bytes, int]]) -> bytes:
    """Ids, each a hash and a number, as the log has them."""
    return b"".join(_ID.pack(*one) for one in ids)


def unpacked_ids(packed: Bytes) -> Iterator[tuple[bytes, int]]:
    """What :func:`packed_ids` has packed."""
    return _ID.iter_unpack(packed)


def leaf_of(sequence: int) -> int:
    """The first sequence number of the leaf that a sequence number is in."""
    return sequence & ~(LEAF - 1)


def behind_lane(sequence: int) -> int:
    """The first sequence number of the lane after that of a sequence number."""
    return ((sequence >> LANE_SHIFT) + 1) << LANE_SHIFT


def seal_of(found_key: bytes, payload: Bytes) -> bytes:
    """The checksum of a value."""
    digest = xxhash.xxh3_64(found_key)
    digest.update(payload)
    return digest.digest()


def sealed(found_key: bytes, payload: Bytes) -> bytes:
    """A value: the checksum, then the payload."""
    return b"".join((seal_of(found_key, payload), payload))


def opened(found_key: bytes, value: Bytes, what: str) -> memoryview:
    """The payload of a value, after its checksum was compared.

    Raises:
        StoreError: the value is damaged.
    """
    view = memoryview(value)
    if len(view) < SEAL or view[:SEAL] != seal_of(found_key, view[SEAL:]):
        text = f"the store is damaged: {what} of queue {queue_in(found_key)} at {sequence_in(found_key)}"
        raise StoreError(text=text)
    return view[SEAL:]


def row_of(heads: Bytes) -> Row:
    """The head of a row, of heads without their checksum.

    Raises:
        StoreError: this version does not know the row's format.
    """
    if len(heads) < _HEAD.size:
        raise StoreError(text=f"the store is damaged: a row of {len(heads)} bytes has no head")
    form, count, flags, first, members, bodies_length, written_ns = _HEAD.unpack_from(heads)
    if form != FORMAT:
        raise StoreError(text=f"a row of the store has format {form}, this version reads {FORMAT}")
    return Row(count, first, members, bodies_length, written_ns, bool(flags & _WAITS), bool(flags & _EXPIRES))


class Message(NamedTuple):
    """A message of a row: where it lies in the heads and the bodies.

    Attributes:
        place: its sequence number minus that of the row.
        head: where the fixed part of its head begins.
        names: the bytes of exchange, routing key and properties, which follow.
        body: where its body begins.
        body_length: the bytes of its body.
    """

    place: int
    head: int
    names: int
    body: int
    body_length: int


def messages_of(heads: Bytes) -> list[Message]:
    """The messages of a row, by ascending sequence number.

    Raises:
        StoreError: the heads contradict themselves.
    """
    found, at, body = [], HEAD, 0
    for _ in range(row_of(heads).messages):
        if at + ENTRY > len(heads):
            raise StoreError(text="the store is damaged: the heads of a row are cut short")
        fields = _ENTRY.unpack_from(heads, at)
        names = fields[5] + fields[6] + fields[8]
        found.append(Message(fields[10], at, names, body, fields[0]))
        at += ENTRY + names
        body += fields[0]
    return found


def waits(entry: Bytes) -> bool:
    """Whether a message is delayed, or waits as dead.

    Args:
        entry: the fixed part of its head.
    """
    _, _, due_ns, *_, marks, _ = _ENTRY.unpack(entry)
    return bool(due_ns or marks >> _WHY)


def expiry(entry: Bytes) -> int:
    """When a message expires, in nanoseconds of the wall clock; 0: never.

    Args:
        entry: the fixed part of its head.
    """
    return int(_ENTRY.unpack(entry)[1])


def with_state(heads: bytearray, message: Message, entry: bytes) -> None:
    """Gives a message of a row the state that it has got since the row was written.

    Args:
        heads: the heads of the row, which are changed.
        message: the message.
        entry: the fixed part of the message's head, with the state.
    """
    heads[message.head : message.head + ENTRY] = entry
    heads[message.head + _INDEX] = message.place


def single(heads: Bytes, message: Message) -> bytes:
    """The heads of a row that has only one of the messages of another row."""
    row = row_of(heads)
    flags = (_WAITS if row.waits else 0) | (_EXPIRES if row.expires else 0)
    head = _HEAD.pack(FORMAT, 1, flags, row.first + message.place, 1, message.body_length, row.written_ns)
    entry = bytearray(heads[message.head : message.head + ENTRY + message.names])
    entry[_INDEX] = 0
    return head + entry
