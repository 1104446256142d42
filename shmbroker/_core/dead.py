# SPDX-License-Identifier: Apache-2.0
"""The dead messages of a queue: those that wait to be published to its dead-letter exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker._core import native, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue

ffi, slow = native.ffi, native.slow
CARRIED_OUT: int = slow.SB_CARRIED_OUT
GIVEN_UP: int = slow.SB_GIVEN_UP
MOST: int = slow.SB_DEAD_MOST
"""The most messages of a batch."""
_HELD, _DONE, _APART = slow.SB_DEAD_HELD, slow.SB_DEAD_DONE, slow.SB_DEAD_APART
_KEY_BYTES = 16  # of the two numbers that stand for what the messages of a kind have in common
_ROOM = record.SIZE + slow.SB_MAX_PREFIX + slow.SB_INLINE_BODY


class DeadMessage(NamedTuple):
    """A dead message that the connection has taken.

    Attributes:
        record: its record, which :meth:`Dead.give_back` needs.
        header: the header of the record.
        why: the number of the reason, from 1.
    """

    record: bytes
    header: record.Header
    why: int

    @property
    def head(self) -> bytes:
        """The exchange that it was published to, its routing key and its encoded properties, one after the other."""
        header = self.header
        return self.record[record.SIZE : header.key_start + header.key_length + header.properties_length]

    @property
    def exchange(self) -> str:
        """The exchange that it was published to."""
        return self.record[record.SIZE : self.header.key_start].decode()

    @property
    def routing_key(self) -> str:
        """Its routing key."""
        start = self.header.key_start
        return self.record[start : start + self.header.key_length].decode()

    @property
    def properties(self) -> bytes:
        """Its encoded properties."""
        start = self.header.key_start + self.header.key_length
        return self.record[start : start + self.header.properties_length]


class Dead:
    """Takes dead messages for the housekeeper. For one thread at a time."""

    def __init__(self, connection: CoreConnection) -> None:
        self._connection = connection
        self._buffer, self._why = ffi.new("char[]", _ROOM), ffi.new("uint32_t *")

    def take(self, queue: CoreQueue, position: int) -> DeadMessage | None:
        """Takes the dead message at a position; ``None``: there is none.

        Raises:
            OutOfMemory: there is no memory to hold it.
        """
        length = slow.sb_dead_take(queue.handle, position, self._buffer, self._why)
        while length == -native.GROW:
            self._connection.attachment.grow()
            length = slow.sb_dead_take(queue.handle, position, self._buffer, self._why)
        if length == -native.NO_MEMORY:
            native.raise_for(native.NO_MEMORY, f"queue {queue.name!r}")
        if length < 0:
            return None
        taken = bytes(ffi.buffer(self._buffer, length))
        return DeadMessage(taken, record.header(taken), int(self._why[0]))

    def body(self, message: DeadMessage) -> Any:  # noqa: ANN401 - bytes-like
        """Returns the body of a message; a view that is valid as long as the message is held, or a copy."""
        return self._connection.held_body(message.record, message.header)

    @staticmethod
    def give_back(queue: CoreQueue, message: DeadMessage) -> None:
        """Gives back a dead message that cannot be carried out now. It waits as before."""
        slow.sb_dead_return(queue.handle, message.record, message.why)


class Plan:
    """How the messages of one kind are carried out.

    Args:
        exchange: the dead-letter exchange.
        key: the routing key of the copies.
        headers: the headers that tell of the death, encoded as in a table.
        routes: the queues that the copies go to, in groups of which each is one publication; without any, the messages
            end, and go nowhere.
        drops_copies: whether the copies lack the header CC.
    """

    def __init__(
        self, exchange: bytes, key: bytes, headers: bytes, routes: Sequence[Sequence[CoreQueue]], *, drops_copies: bool
    ) -> None:
        texts = [ffi.from_buffer("char[]", text) for text in (exchange, key, headers)]
        parts = ffi.new("sb_dead_part[]", len(routes))
        self._kept: list[Any] = [texts, parts, routes]  # the handles of the targets must live as long as the plan
        for part, targets in zip(parts, routes, strict=True):
            part.targets = handles = ffi.new("sb_queue *[]", [queue.handle for queue in targets])
            part.target_count = len(targets)
            self._kept.append(handles)
        self.pointer = pointer = ffi.new("sb_dead_plan *")
        pointer.exchange, pointer.key, pointer.headers = texts
        pointer.exchange_length, pointer.key_length, pointer.headers_length = map(len, (exchange, key, headers))
        pointer.drops_copies = drops_copies
        pointer.part_count, pointer.parts = len(routes), parts


class Batch:
    """Dead messages of one queue that the housekeeper carries out together. One at a time, for one thread.

    Args:
        connection: the housekeeper's connection.
    """

    def __init__(self, connection: CoreConnection) -> None:
        self._connection = connection
        self._batch = ffi.new("sb_dead_batch *")
        self._plans = ffi.new("sb_dead_plan *[]", MOST)
        self._kept: list[Plan | None] = []
        self._buffer, self._why = ffi.new("char[]", _ROOM), ffi.new("uint32_t *")
        self._queue: Any = None

    def take(self, queue: CoreQueue, memory: Any, *, exact: bool) -> int:  # noqa: ANN401 - cffi has no types
        """Takes the first dead messages of a queue. The caller then calls :meth:`end`, whatever happens.

        Args:
            queue: the queue.
            memory: what the core remembers of the queue.
            exact: whether messages that differ in any property are of different kinds.

        Returns:
            A status. Unless it is OK, there are fewer messages in the batch than there could be, or none.
        """
        self._queue = queue
        status = slow.sb_dead_take_batch(queue.handle, memory, exact, self._batch)
        while status == native.GROW and not self._batch.count:
            self._connection.attachment.grow()
            status = slow.sb_dead_take_batch(queue.handle, memory, exact, self._batch)
        return int(status)

    def __len__(self) -> int:
        """Returns the number of messages, with those that are not held."""
        return int(self._batch.count)

    def kinds(self) -> list[bytes]:
        """Returns for each kind what stands for all that its messages have in common."""
        return [bytes(ffi.buffer(self._batch.kind + at, _KEY_BYTES)) for at in range(self._batch.kinds)]

    def kind_of(self, index: int) -> int:
        """Returns the number of the kind of a message that is held."""
        return int(self._batch.messages[index].kind)

    def first(self, kind: int) -> DeadMessage:
        """Returns a message of a kind, which must be held."""
        return self.message(int(self._batch.kind[kind].first))

    def held(self, kind: int) -> list[int]:
        """Returns the indexes of the messages of a kind that are still held."""
        messages = self._batch.messages
        return [at for at in range(len(self)) if messages[at].state == _HELD and messages[at].kind == kind]

    def apart(self) -> list[tuple[int, int]]:
        """Returns index and position of each message that must be taken by :meth:`Dead.take`."""
        if not self._batch.apart:
            return []
        messages = self._batch.messages
        return [(at, int(messages[at].position)) for at in range(len(self)) if messages[at].state == _APART]

    def message(self, index: int) -> DeadMessage:
        """Returns a message that is held."""
        length = slow.sb_dead_record(self._queue.handle, self._batch.messages + index, self._buffer, self._why)
        if length < 0:
            native.raise_for(-int(length), self._queue.what)
        taken = bytes(ffi.buffer(self._buffer, length))
        return DeadMessage(taken, record.header(taken), int(self._why[0]))

    def plan(self, kind: int, plan: Plan | None) -> None:
        """Says how the messages of a kind are carried out; ``None``: they are not."""
        while len(self._kept) <= kind:
            self._kept.append(None)
        self._kept[kind] = plan
        self._plans[kind] = ffi.NULL if plan is None else plan.pointer

    def carry_out(self, first: int, end: int) -> int:
        """Carries out, in one commit, messages that are held and whose kind has a plan; returns a status."""
        queue = self._queue.handle
        status = slow.sb_dead_carry_out(queue, self._batch, self._plans, first, end)
        while status == native.GROW:
            self._connection.attachment.grow()
            status = slow.sb_dead_carry_out(queue, self._batch, self._plans, first, end)
        return int(status)

    def done(self, index: int) -> None:
        """Says that a message was carried out otherwise."""
        self._batch.messages[index].state = _DONE

    def end(self, memory: Any) -> bool:  # noqa: ANN401 - as above
        """Gives back what is still held; returns whether something waits on. ``memory``: as for :meth:`take`."""
        waits = slow.sb_dead_end_batch(self._queue.handle, memory, self._batch)
        self._kept.clear()
        return bool(waits)
