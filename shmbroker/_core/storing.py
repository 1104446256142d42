# SPDX-License-Identifier: Apache-2.0
"""The storekeeper's functions of the core, and those that make a queue again from the store.

Sequence numbers name messages here, as in the store: they stay the same when a queue is made again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker._core import native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue

ffi, slow = native.ffi, native.slow
_MOST_LANES = 256
_CHANGES = 1024
_WORK = 64
_HEADS, _BODIES = 64 << 10, 256 << 10  # bytes of the buffers at first; they grow with the messages
_ROW = 64  # messages
_IDS = 1024
_ID = struct.Struct("=16sQ")  # as sb_store_id: the hash, and the number


Place = tuple[int, int]
"""A queue: its slot, and its incarnation."""


class Look(NamedTuple):
    """What there is to store.

    Attributes:
        work: the queues that have something to store.
        queues: a number that is another one if other stored queues exist.
    """

    work: list[Place]
    queues: int


class Lane(NamedTuple):
    """The state of a lane.

    Attributes:
        stored: what was appended before it is in the store, or has ended.
        tail: the next message gets it.
        head: a hint: what lies before it was taken.
    """

    stored: int
    tail: int
    head: int


class Change(NamedTuple):
    """What changed in a span of sequence numbers.

    Attributes:
        first: the first sequence number.
        span: how many there are.
        whole: whether all messages there have ended; the masks are 0 then.
        ended: bit i is set if the message with the sequence number ``first`` + i has ended.
        live: bit i is set if that message is there, and no commit is about to bring it.
        returned: bit i is set if that is so, and it has a delivery count or a state.
    """

    first: int
    span: int
    whole: bool
    ended: int
    live: int
    returned: int


DURABLE, TRANSIENT, ALL = slow.SB_STORE_DURABLE, slow.SB_STORE_TRANSIENT, slow.SB_STORE_ALL
"""Which messages a row gets: those that survive the loss of the memory, those that do not, or both."""


class Gathered(NamedTuple):
    """A row that was gathered.

    Attributes:
        first: the sequence number at which it begins.
        messages: how many it has; 0: there is no row.
        behind: the sequence number to continue at.
        heads: room for a checksum, then the heads. Valid until the next call.
        bodies: room for a checksum, then the bodies. Valid until the next call.
        staged: sequence numbers of messages of a commit that is not carried out.
        transient: bit i is set if the message with the sequence number ``first`` + i is there, and does not survive,
            whether the row has it or not.
        damaged: how many messages were left out, since they are damaged.
        ids: the hashes of the duplicate ids of its messages, if the queue remembers ids.
    """

    first: int
    messages: int
    behind: int
    heads: memoryview
    bodies: memoryview
    staged: tuple[int, ...]
    transient: int
    damaged: int
    ids: tuple[bytes, ...]


class IdNumbers(NamedTuple):
    """Which duplicate ids a queue remembers: those with a number above `forgotten`. A later id has a higher number.

    Attributes:
        latest: the number of the latest id.
        forgotten: the number of the latest one that is forgotten.
    """

    latest: int
    forgotten: int


class CoreStorekeeper:
    """The storekeeper of a broker in the core; one thread uses it.

    Args:
        connection: its connection, which the caller closes after the last call.
        room: the bytes that each of the two buffers of a row keeps free at its beginning.
    """

    def __init__(self, connection: CoreConnection, room: int) -> None:
        self._connection = connection
        self._handle = connection.handle
        self._room = room
        self._lanes: Any = ffi.new("sb_store_lane[]", _MOST_LANES)
        self._changes: Any = ffi.new("sb_store_change[]", _CHANGES)
        self._most_changes = _CHANGES
        self._work: Any = ffi.new("sb_store_work[]", _WORK)
        self._most_work = _WORK
        self._all: Any = ffi.new("uint64_t *")
        self._count: Any = ffi.new("uint32_t *")
        self._sequence: Any = ffi.new("uint64_t *")
        self._row: Any = ffi.new("sb_store_row *")
        self._row_ids: Any = ffi.new("sb_store_id[]", _ROW)
        self._row.ids = self._row_ids
        self._ids: Any = ffi.new("sb_store_id[]", _IDS)
        self._most_ids = _IDS
        self._numbers: Any = ffi.new("uint64_t[2]")
        self._heads, self._bodies = bytearray(room + _HEADS), bytearray(room + _BODIES)

    # ---- its place, and its turns ----

    def begin(self) -> bool:
        """Becomes the storekeeper, unless there is another one."""
        return bool(slow.sb_store_begin(self._handle) == native.OK)

    def end(self) -> None:
        """Ends the service of a storekeeper."""
        slow.sb_store_end(self._handle)

    def turn_begin(self) -> int:
        """Begins a turn, which has all changes made before this call; returns its number."""
        return int(slow.sb_store_turn_begin(self._handle))

    def turn_end(self, turn: int) -> None:
        """Tells the connections that wait for the turn that it is synced."""
        slow.sb_store_turn_end(self._handle, turn)

    def commits(self) -> int:
        """How many commits of several stored messages have begun to be carried out."""
        return int(slow.sb_store_commits(self._handle))

    def await_commits(self) -> int:
        """As :meth:`commits`, after a wait until none is being carried out; at most 20 ms, if a process is stopped."""
        return int(slow.sb_store_await_commits(self._handle))

    def hold_commits(self, *, held: bool) -> None:
        """Whether such commits wait before they are decided; at most 20 ms."""
        slow.sb_store_hold_commits(self._handle, held)

    def set_full(self, *, full: bool) -> None:
        """Tells the broker whether the disk of the store is full: stored queues take no message then."""
        slow.sb_store_set_full(self._handle, full)

    def report(self, sync_ns: int, messages: int) -> None:
        """Notes how long the sync of a turn took, and how many messages it had."""
        slow.sb_store_report(self._handle, sync_ns, messages)

    def rest(self, until: int) -> int:
        """Waits until a connection asks for a turn; returns a status, STOPPING if the broker is stopped or purged."""
        return int(slow.sb_store_rest(self._handle, until))

    # ---- what there is to store ----

    def look(self) -> Look:
        """Finds the queues that have something to store."""
        while (count := slow.sb_store_look(self._handle, self._work, self._most_work, self._all)) > self._most_work:
            self._most_work = 2 * count
            self._work = ffi.new("sb_store_work[]", self._most_work)
        return Look([(self._work[at].slot, self._work[at].incarnation) for at in range(count)], self._all[0])

    def lanes(self, queue: CoreQueue) -> list[Lane]:
        """The lanes of a queue, by ascending number."""
        count = slow.sb_store_lanes(queue.handle, self._lanes, _MOST_LANES)
        found = [self._lanes[at] for at in range(count)]
        return [Lane(one.stored, one.tail, one.head) for one in found]

    def advance(self, queue: CoreQueue, sequence: int) -> None:
        """Notes that what was appended to a lane before a sequence number is in the store, and synced."""
        slow.sb_store_advance(queue.handle, sequence)

    def changes(self, queue: CoreQueue, lane: int, *, everything: bool) -> tuple[list[Change], bool]:
        """Collects what changed in a lane since the last call.

        Args:
            queue: the queue.
            lane: any sequence number of the lane.
            everything: whether everything counts as changed.

        Returns:
            The changes, and whether these are all.
        """
        complete = bool(
            slow.sb_store_changes(queue.handle, lane, everything, self._changes, self._most_changes, self._count)
        )
        found = [self._changes[at] for at in range(self._count[0])]
        return [
            Change(one.first, one.span, bool(one.whole), one.ended, one.live, one.returned) for one in found
        ], complete

    def more_changes(self) -> None:
        """Makes room for twice as many changes, for a call that wants all of them."""
        self._most_changes *= 2
        self._changes = ffi.new("sb_store_change[]", self._most_changes)

    def gather(self, queue: CoreQueue, sequence: int, end: int, which: int = DURABLE) -> Gathered:
        """Copies messages from a sequence number on into a row, of one leaf at most.

        Args:
            queue: the queue.
            sequence: the first sequence number.
            end: the last one, exclusive.
            which: DURABLE, ALL or TRANSIENT. With TRANSIENT, leaves without such messages are passed.

        Raises:
            CorruptSegment: the ring of the queue is damaged.
        """
        self._sequence[0] = sequence
        row = self._row
        row.which = which
        while True:
            with ffi.from_buffer(self._heads) as heads, ffi.from_buffer(self._bodies) as bodies:
                row.heads, row.heads_size = heads + self._room, len(self._heads) - self._room
                row.bodies, row.bodies_size = bodies + self._room, len(self._bodies) - self._room
                status = slow.sb_store_gather(queue.handle, self._sequence, end, row)
            if status != native.FULL:
                break
            if row.heads_size > len(self._heads) - self._room:
                self._heads = bytearray(self._room + row.heads_size)
            if row.bodies_size > len(self._bodies) - self._room:
                self._bodies = bytearray(self._room + row.bodies_size)
        if status != native.OK:
            native.raise_for(status, f"queue {queue.name!r}")
        return Gathered(
            int(row.first),
            row.count,
            int(self._sequence[0]),
            memoryview(self._heads)[: self._room + row.heads_length],
            memoryview(self._bodies)[: self._room + row.bodies_length],
            tuple(row.first + at for at in range(_ROW) if row.staged >> at & 1),
            int(row.transient),
            row.damaged,
            tuple(found for found, _ in _unpacked(self._row_ids, row.id_count)) if row.id_count else (),
        )

    # ---- duplicate ids ----

    def id_numbers(self, queue: CoreQueue) -> IdNumbers | None:
        """Which duplicate ids a queue remembers; ``None``: it has never had one."""
        some = slow.sb_store_id_numbers(queue.handle, self._numbers, self._numbers + 1)
        return IdNumbers(self._numbers[0], self._numbers[1]) if some else None

    def ids(self, queue: CoreQueue, start: int) -> list[tuple[bytes, int]]:
        """The ids that a queue remembers, as a hash and a number, and those that are claimed, with the number 0.

        Args:
            queue: the queue.
            start: the lowest number. An id that is not listed gets a number that is at least the latest one before this
                call.
        """
        while (count := slow.sb_store_ids(queue.handle, start, self._ids, self._most_ids)) > self._most_ids:
            self._most_ids = 2 * count
            self._ids = ffi.new("sb_store_id[]", self._most_ids)
        return _unpacked(self._ids, count)

    def id_number(self, queue: CoreQueue, found: bytes) -> int | None:
        """The number of an id.

        Args:
            queue: the queue.
            found: the hash of the id.

        Returns:
            Its number; 0 if the commit that brings it is decided, and it has none yet; ``None`` if the queue does not
            know it.
        """
        one = _packed([(found, 0)])
        return int(one[0].number) if slow.sb_store_knows(queue.handle, one) else None


def _unpacked(ids: Any, count: int) -> list[tuple[bytes, int]]:  # noqa: ANN401 - cffi has no types
    return list(_ID.iter_unpack(ffi.buffer(ids, count * _ID.size)))


def _packed(ids: list[tuple[bytes, int]]) -> Any:  # noqa: ANN401 - cffi has no types
    made = ffi.new("sb_store_id[]", len(ids))
    ffi.buffer(made)[:] = b"".join(_ID.pack(*one) for one in ids)
    return made


def is_stored(queue: CoreQueue) -> bool:
    """Whether the storekeeper writes the messages of the queue into the store."""
    return bool(slow.sb_queue_is_stored(queue.handle))


def resume(queue: CoreQueue, sequence: int) -> None:
    """Begins a lane of a queue that is made again, at a sequence number; a lower one has no message."""
    _growing(queue, slow.sb_store_resume, sequence)


def skip(queue: CoreQueue, sequence: int) -> None:
    """Ends all positions of a lane up to a sequence number, exclusive."""
    _growing(queue, slow.sb_store_skip, sequence)


def restore(queue: CoreQueue, heads: bytes | bytearray | memoryview, bodies: memoryview, ended: int) -> None:
    """Puts the messages of a row of the store into a queue that is made again.

    Args:
        queue: the queue; all earlier rows were restored.
        heads: the heads of the row.
        bodies: the bodies of the row.
        ended: bit i is set if the message with the row's sequence number + i has ended.

    Raises:
        OutOfMemory: the broker has no room for the messages.
        CorruptSegment: the row contradicts itself, or the rows before it.
    """
    done = ffi.new("uint32_t *")
    with ffi.from_buffer(heads) as first, ffi.from_buffer(bodies) as second:
        row = ffi.new("sb_stored_row *", (first, second, len(heads), len(bodies), ended))
        _growing(queue, slow.sb_store_restore, row, done)


def restore_absent(queue: CoreQueue, leaves: Sequence[tuple[int, int, int]]) -> None:
    """Restores leaves without their messages, which come back when they are needed.

    Args:
        queue: the queue; all earlier leaves were restored.
        leaves: of each leaf its first sequence number, how many messages the store has of it, and the bytes of their
            bodies. All 64 numbers of each were used, and no message has a timer.
    """
    done = ffi.new("uint32_t *")
    _growing(queue, slow.sb_store_restore_absent, ffi.new("sb_absent_leaf[]", leaves), len(leaves), done)


def restore_ids(queue: CoreQueue, ids: list[tuple[bytes, int]]) -> None:
    """Gives a queue that is made again the duplicate ids that it remembered.

    Args:
        queue: the queue.
        ids: the hash and the number of each, by ascending number.
    """
    done = ffi.new("uint32_t *")
    _growing(queue, slow.sb_store_restore_ids, _packed(ids), len(ids), done)


def resumed(queue: CoreQueue) -> None:
    """Ends the restoring of a queue: it can be used."""
    slow.sb_store_resumed(queue.handle)


def _growing(queue: CoreQueue, function: Any, *given: object) -> None:  # noqa: ANN401 - cffi has no types
    status = queue.connection.growing(function, queue.handle, *given)
    if status != native.OK:
        native.raise_for(status, f"queue {queue.name!r}")
