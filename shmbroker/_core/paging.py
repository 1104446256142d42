# SPDX-License-Identifier: Apache-2.0
"""Messages that are in the store, and not in the memory: the functions of the core (``sb_departure.h``).

They leave the memory and come back by leaves, of up to 64 successive sequence numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shmbroker._core import native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmbroker._core.attachment import Attachment
    from shmbroker._core.queue import CoreQueue

ffi, slow = native.ffi, native.slow

Bytes = bytes | bytearray | memoryview


class Absent(NamedTuple):
    """A leaf that is not in the memory.

    Attributes:
        sequence: its first sequence number.
        link: what the memory says of it; the leaf comes back only if that has not changed.
    """

    sequence: int
    link: int


class Expiring(NamedTuple):
    """A leaf that has left the memory, with messages that expire.

    Attributes:
        sequence: its first sequence number.
        expires_ns: when the first of its messages expires, in nanoseconds of the monotonic clock.
    """

    sequence: int
    expires_ns: int


class Left(NamedTuple):
    """What has left the memory.

    Attributes:
        leaves: how many leaves.
        expiring: those of them that have messages which expire. Only the caller knows their timers now.
    """

    leaves: int
    expiring: list[Expiring]


class Stored(NamedTuple):
    """A row of the store.

    Attributes:
        heads: the heads of its messages.
        bodies: their bodies.
        ended: bit i is set if the message with the row's sequence number + i has ended.
    """

    heads: Bytes
    bodies: Bytes
    ended: int


def largest(queue: CoreQueue) -> int:
    """The most bytes of bodies of a leaf that leaves the memory."""
    return queue.connection.attachment.facts().memory_limit // int(slow.SB_LEAF_SHARE)


def may_leave(queue: CoreQueue) -> bool:
    """Whether messages of the queue may leave the memory."""
    return bool(slow.sb_store_may_leave(queue.handle))


def leave(queue: CoreQueue, end: int, ahead: int, most: int) -> Left:
    """Lets leaves of a lane leave the memory, the newest ones first. Only for the storekeeper, after a commit.

    Args:
        queue: the queue.
        end: a sequence number of the lane. No leaf leaves that ends behind it; the store has all messages before it.
        ahead: the first so many messages after the head stay.
        most: how many leaves may leave.

    Returns:
        What has left.
    """
    expiring, count = ffi.new("sb_expiring[]", most), ffi.new("uint32_t *")
    left = int(slow.sb_store_leave(queue.handle, end, ahead, most, expiring, count))
    return Left(left, [Expiring(int(one.sequence), int(one.expires_ns)) for one in expiring[0 : count[0]]])


def absent(queue: CoreQueue, sequence: int, end: int) -> Absent | None:
    """The first leaf that is not in the memory, from a sequence number on and before another one.

    Raises:
        CorruptSegment: the ring of the queue is damaged.
    """
    at, link = ffi.new("uint64_t *", sequence), ffi.new("uint64_t *")
    status = slow.sb_store_absent(queue.handle, at, end, link)
    if status == native.OK:
        return Absent(int(at[0]), int(link[0]))
    if status != native.EMPTY:
        native.raise_for(status, queue.what)
    return None


def wish(queue: CoreQueue, sequence: int) -> None:
    """Asks the storekeeper to load the leaf of a sequence number in its next turn. Repeat it until it is there."""
    slow.sb_store_wish(queue.handle, sequence)


def wishes(attached: Attachment) -> int:
    """A number that is another one when a process wished for messages."""
    return int(slow.sb_store_wishes(attached.handle))


def take_wish(queue: CoreQueue) -> int | None:
    """The sequence number of a message that a process wished for; ``None``: none of this queue."""
    sequence = ffi.new("uint64_t *")
    return int(sequence[0]) if slow.sb_store_take_wish(queue.handle, sequence) else None


def come_back(queue: CoreQueue, leaf: Absent, rows: Sequence[Stored], *, if_spare: bool = False) -> int:
    """Makes a leaf again; returns a status: OK, DONE (another process was faster), GROW or NO_MEMORY.

    Args:
        queue: the queue.
        leaf: the leaf.
        rows: all rows of the leaf, which were read after :func:`absent` has found it.
        if_spare: leave the reserve of memory to the calls that make room.

    Raises:
        CorruptSegment: the rows contradict each other.
    """
    kept = [(ffi.from_buffer(row.heads), ffi.from_buffer(row.bodies)) for row in rows]
    given = [
        (heads, bodies, len(heads), len(bodies), row.ended) for (heads, bodies), row in zip(kept, rows, strict=True)
    ]
    call = slow.sb_store_come_back_if_spare if if_spare else slow.sb_store_come_back
    status = int(call(queue.handle, leaf.sequence, leaf.link, ffi.new("sb_stored_row[]", given), len(rows)))
    if status not in {native.OK, native.GROW, native.NO_MEMORY, native.DONE}:
        native.raise_for(status, f"{queue.what}, at {leaf.sequence}")
    return status
