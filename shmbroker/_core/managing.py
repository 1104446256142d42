# SPDX-License-Identifier: Apache-2.0
"""What an administrator does with chosen messages of a queue: moves, ends, delivers, looks at, takes.

A call of the core deals with a limited number of messages, one at a time. Between the calls signals are handled, so
that an interrupt leaves each message where it was, or where it goes to.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker import exceptions
from shmbroker._core import native, record
from shmbroker._core.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker._core.queue import CoreQueue

ffi, slow = native.ffi, native.slow
MOVE: int = slow.SB_MANAGE_MOVE
REMOVE: int = slow.SB_MANAGE_REMOVE
EXPIRE: int = slow.SB_MANAGE_EXPIRE
DELIVER: int = slow.SB_MANAGE_DELIVER
_LIMIT: int = slow.SB_MANAGE_LIMIT
TRANSFER: int = slow.SB_TRANSFER
READY: int = slow.SB_STATE_READY
_allocate = ffi.new_allocator(should_clear_after_alloc=False)
STATES: dict[str, int] = {
    "ready": READY,
    "scheduled": slow.SB_STATE_SCHEDULED,
    "delivering": slow.SB_STATE_DELIVERING,
    "dead": slow.SB_STATE_DEAD,
}
ALL = ((0, native.FOR_EVER),)
_DID: dict[int, str] = {
    MOVE: "moved",
    REMOVE: "removed",
    EXPIRE: "ended",
    DELIVER: "delivered",
    _LIMIT: "limited",
}
_AT_ONCE = 1024  # messages of a call
_PAGES_AT_ONCE = 64 << 10  # messages of a call that moves them page by page


class Chosen(NamedTuple):
    """Which messages of a queue are meant.

    Attributes:
        selector: a compiled selector; ``b""`` selects all.
        spans: ranges of sequence numbers, ascending: the first one of each, and the one behind the last.
        limit: the most messages.
        progress: called with the number of messages dealt with, after every thousand or so.
        scheduled: to REMOVE or EXPIRE: the scheduled messages, not the ready ones.
    """

    selector: bytes = b""
    spans: tuple[tuple[int, int], ...] = ALL
    limit: int = native.FOR_EVER
    progress: Callable[[int], object] | None = None
    scheduled: bool = False


class Seen(NamedTuple):
    """A message that a browser saw.

    Attributes:
        record: a private copy of its record.
        state: one of the keys of :data:`STATES`.
        due_ns: when a scheduled message becomes ready, in nanoseconds of the monotonic clock.
        connection: the number of the connection that holds a message that is being delivered.
    """

    record: bytes
    state: str
    due_ns: int
    connection: int


_NAMES = {number: name for name, number in STATES.items()}


def manage(  # noqa: PLR0917 - what the core's struct has
    queue: CoreQueue,
    action: int,
    chosen: Chosen,
    target: CoreQueue | None = None,
    max_bytes: int = native.FOR_EVER,
    life_ns: int = 0,
) -> tuple[int, bool]:
    """Does something with messages; returns with how many, and whether it ended since the target is full.

    Args:
        queue: the queue.
        action: MOVE, REMOVE, EXPIRE, or DELIVER, which is for scheduled messages.
        chosen: which messages.
        target: where to MOVE them.
        max_bytes: to MOVE: the bytes of bodies; the last message may exceed them.
        life_ns: the longest life of a message, from its publish, for :func:`shorten_lives`.

    Raises:
        NotFound: a queue was deleted.
        NeverFits: a body can never fit the target.
        OutOfMemory: the broker has no memory to deal with a message, and none came free in time; the error says with
            how many messages the call has dealt.
        CorruptSegment: a message, or a property that the selector reads, is damaged.
    """
    memory = ffi.new("char[]", slow.SB_MAX_PREFIX)
    program = ffi.from_buffer("char[]", chosen.selector)
    work = ffi.new(
        "sb_manage *",
        {
            "action": action,
            "selector": program,
            "selector_length": len(chosen.selector),
            "target": ffi.NULL if target is None else target.handle,
            "bytes": max_bytes,
            "life_ns": life_ns,
            "scheduled": chosen.scheduled,
            "memory": memory,
        },
    )
    with Patience(queue.connection, _DID[action]).told() as patience:
        is_full = _manage(queue, work, chosen, target, patience)
    return patience.done, is_full


def _manage(queue: CoreQueue, work: Any, chosen: Chosen, target: CoreQueue | None, patience: Patience) -> bool:  # noqa: ANN401
    """Does the work in steps; returns whether it ended since the target is full."""
    status = ffi.new("sb_status *")
    for start, end in chosen.spans:
        work.position, work.end, more = start, end, True
        while more and patience.done < chosen.limit and work.bytes > 0:
            room = work.limit = min(_AT_ONCE, chosen.limit - patience.done)
            with queue.connection.call():
                done = int(slow.sb_queue_manage(queue.handle, work, status))
            if done:
                patience.worked(done)
            if chosen.progress is not None:
                chosen.progress(patience.done)
            if status[0] == native.FULL:
                return True
            if status[0] == native.OK:
                more = work.limit == 0 and room > 0
            else:
                _failed(queue, int(status[0]), target, patience)
    return False


def shorten_lives(queue: CoreQueue, before: float | None, after: float | None) -> None:
    """Ends the ready messages that are older than a new limit of their life, and lets younger ones end at that time.

    Args:
        queue: the queue.
        before: its ``message_ttl`` so far, in seconds; ``None``: no limit.
        after: its ``message_ttl`` from now on. If it is longer, nothing happens. The same again completes a call that
            was interrupted.
    """
    if after is not None and (before is None or after <= before):
        manage(queue, _LIMIT, Chosen(), life_ns=int(after * native.NANOSECONDS))


def evict(queue: CoreQueue, most: int) -> tuple[int, int]:
    """Evicts up to so many messages that exceed the limits of a queue.

    Returns:
        How many it evicted, and a status. OK, with fewer than `most`: the limits hold. GROW: the next one is not in the
        memory.
    """
    removed = ffi.new("uint64_t *")
    with queue.connection.call():
        status = int(slow.sb_queue_trim(queue.handle, most, removed))
    return int(removed[0]), status


def trim(queue: CoreQueue) -> int:
    """Evicts what exceeds the limits of a queue that evicts; returns how many messages.

    Raises:
        NotFound: the queue was deleted.
        OutOfMemory: there is no memory for messages that are in the store, and have to come back first.
        StoreError: the store cannot be read, or is damaged.
    """
    with Patience(queue.connection, "evicted").told() as patience:
        while True:
            evicted, status = evict(queue, _AT_ONCE)
            if evicted:
                patience.worked(evicted)
            if status != native.OK:
                _failed(queue, status, None, patience)
            elif evicted < _AT_ONCE:
                return patience.done


def move_one(queue: CoreQueue, target: CoreQueue, sequence: int) -> tuple[int, bool]:
    """Moves one message; returns 1, or 0 if it was not ready any more, and whether the target is full."""
    return manage(queue, MOVE, Chosen(spans=((sequence, sequence + 1),), limit=1), target)


def move_oldest(
    queue: CoreQueue,
    target: CoreQueue,
    limit: int,
    max_bytes: int,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Moves the oldest ready messages, a page of them at a time where that is possible; returns their number.

    Arguments and errors are those of :func:`manage`.
    """
    left, at_once = ffi.new("uint64_t *", max_bytes), native.FOR_EVER
    if progress is not None:
        limit, at_once = min(limit, max(0, queue.length())), _PAGES_AT_ONCE
    with Patience(queue.connection, _DID[MOVE]).told() as patience:
        while patience.done < limit and left[0] > 0:
            room = min(at_once, limit - patience.done)
            count, status = queue.move(target, room, left)
            if count:
                patience.worked(count)
            if progress is not None:
                progress(patience.done)
            if status == native.FULL or (status == native.OK and count < room):
                break
            if status != native.OK:
                _failed(queue, status, target, patience)
    return patience.done


def _failed(queue: CoreQueue, status: int, target: CoreQueue | None, patience: Patience) -> None:
    """Makes it possible to call again, else raises."""
    if status == native.GROW:
        queue.connection.attachment.grow()
    elif status == native.NO_MEMORY:
        patience.no_memory()
    elif status == native.TOO_LARGE and target is not None:
        settings, _ = target.settings()
        text = f"{target.what}: a body of {queue.what} can never fit max_bytes={settings.max_bytes}"
        raise exceptions.NeverFits(text)
    else:
        native.raise_for(status, (target if target is not None and target.is_deleted() else queue).what)


def browse(queue: CoreQueue, states: int, chosen: Chosen, *, body: bool = True) -> Iterator[Seen]:
    """Yields private copies of messages in any of some states, in the order of their sequence numbers.

    Args:
        queue: the queue.
        states: bits of :data:`STATES`.
        chosen: which messages; the progress is not told.
        body: whether to copy the bodies.

    Raises:
        NotFound: the queue was deleted.
        CorruptSegment: a message, or a property that the selector reads, is damaged.
    """
    left, memory = chosen.limit, _Memory()
    for start, end in chosen.spans:
        memory.position[0] = start
        while left > 0:
            seen = _next(queue, states, chosen.selector, end, memory, body=body)
            if seen is None:
                break
            left -= 1
            yield seen


class _Memory:
    """What the calls of a browse write to."""

    def __init__(self) -> None:
        self.position, self.where = ffi.new("uint64_t *"), ffi.new("sb_whereabouts *")
        self.size = native.RECORD_BYTES
        self.record = _allocate("char[]", self.size)

    def grow(self) -> None:
        """Makes room for the record that had none; the core has written its size."""
        self.size = int.from_bytes(bytes(ffi.buffer(self.record, 8)), "little")
        self.record = _allocate("char[]", self.size)


def _next(queue: CoreQueue, states: int, selector: bytes, end: int, memory: _Memory, *, body: bool) -> Seen | None:
    program, where = ffi.from_buffer("char[]", selector), memory.where
    while True:
        with queue.connection.call():
            length = slow.sb_queue_browse_states(
                queue.handle,
                memory.position,
                end,
                states,
                program,
                len(selector),
                body,
                memory.record,
                memory.size,
                where,
            )
        if length >= 0:
            data = bytes(ffi.buffer(memory.record, length))
            return Seen(data, _NAMES[where.state], int(where.due_ns), int(where.connection))
        if -length == native.EMPTY:
            return None
        if -length == native.GROW:
            queue.connection.attachment.grow()
        elif -length == native.FULL:
            memory.grow()
        else:
            native.raise_for(int(-length), queue.what)


class Held(NamedTuple):
    """A ready message that the connection has taken out of its queue.

    Attributes:
        record: its record.
        header: the header of the record.
    """

    record: bytes
    header: record.Header

    @property
    def exchange(self) -> bytes:
        """The exchange that it was published to."""
        return self.record[record.SIZE : self.header.key_start]

    @property
    def routing_key(self) -> bytes:
        """Its routing key."""
        start = self.header.key_start
        return self.record[start : start + self.header.key_length]

    @property
    def properties(self) -> bytes:
        """Its encoded properties."""
        start = self.header.key_start + self.header.key_length
        return self.record[start : start + self.header.properties_length]

    def body(self, queue: CoreQueue) -> Any:  # noqa: ANN401 - bytes-like
        """Returns its body; a view that is valid as long as the message is held, or a copy."""
        return queue.connection.held_body(self.record, self.header)


class Taken:
    """Ready messages that the connection takes out of a queue, to commit their ends or to give them back.

    An interrupt loses none of them: the core notes each one here in the call that takes it.
    """

    def __init__(self, queue: CoreQueue) -> None:
        self._queue = queue
        self._notes: list[tuple[Any, list[int | None]]] = []
        """For each message the memory of its record, and the results of the calls that take it and put it back."""
        self.statuses: list[int] = []
        """The statuses of the commit that is to end the messages, see `_core.transaction.commit`."""

    def take(self, sequence: int) -> Held | None:
        """Takes a message; ``None``: it is not ready any more.

        Raises:
            NotFound: the queue was deleted.
            OutOfMemory: the broker has no memory to hold the message.
            CorruptSegment: the message is damaged, and was dropped.
        """
        queue, buffer = self._queue, _allocate("char[]", native.RECORD_BYTES)
        lengths: list[int | None] = []
        self._notes.append((buffer, lengths))
        length = -native.GROW
        while length == -native.GROW:
            with queue.connection.call():
                # One call of C takes the message and stores the result: a signal handler runs before it or after it.
                lengths.extend(itertools.starmap(slow.sb_queue_take, [(queue.handle, sequence, buffer)]))
            length = int(lengths[-1] or 0)
            if length == -native.GROW:
                queue.connection.attachment.grow()
        if length >= 0:
            data = bytes(ffi.buffer(buffer, length))
            return Held(data, record.header(data))
        if -length != native.EMPTY:
            native.raise_for(-length, queue.what)
        return None

    def end(self) -> None:
        """Gives the messages back to their places, unless the commit has ended them. Safe to call again."""
        while self._notes:
            buffer, lengths = self._notes[-1]
            if lengths and lengths[-1] is not None and lengths[-1] >= 0 and native.OK not in self.statuses:
                self._queue.connection.end(functools.partial(self._put_back, buffer, lengths), self._queue.handle)
            self._notes.pop()
        self.statuses = []

    @staticmethod
    def _put_back(buffer: Any, lengths: list[int | None], handle: Any) -> None:  # noqa: ANN401 - cffi has no types
        # One call of C puts it back and stores None, so that it is not put back twice.
        lengths.extend(itertools.starmap(slow.sb_queue_put_back, [(handle, buffer)]))
