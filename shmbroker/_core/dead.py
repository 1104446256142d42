# SPDX-License-Identifier: Apache-2.0
"""The dead messages of a queue: those that wait to be published to its dead-letter exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker._core import native, record

if TYPE_CHECKING:
    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue

ffi, slow = native.ffi, native.slow
CARRIED_OUT: int = slow.SB_CARRIED_OUT
GIVEN_UP: int = slow.SB_GIVEN_UP
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
