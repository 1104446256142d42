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
_IN_PARTS: int = slow.SB_IN_PARTS


class DeadMessage(NamedTuple):
    """A dead message that the connection has taken.

    Attributes:
        record: its record, which :meth:`Dead.give_back` needs.
        header: the header of the record.
        why: the number of the reason, from 1.
        exchange: the exchange that the message was published to.
        routing_key: its routing key.
        properties: its encoded properties.
        inline: its body, if the record has it.
    """

    record: Any
    header: record.Header
    why: int
    exchange: str
    routing_key: str
    properties: bytes
    inline: bytes


class Dead:
    """Takes dead messages for the housekeeper. For one thread at a time."""

    def __init__(self, connection: CoreConnection) -> None:
        self._connection = connection
        self._buffer, self._why = ffi.new("char[]", _ROOM), ffi.new("uint32_t *")

    def take(self, queue: CoreQueue, position: int) -> DeadMessage | None:
        """Takes the dead message at a position; ``None``: there is none, or no memory to hold it."""
        length = slow.sb_dead_take(queue.handle, position, self._buffer, self._why)
        if length < 0:
            return None
        taken = bytes(ffi.buffer(self._buffer, length))
        header = record.header(taken)
        key, properties = header.key_start, header.key_start + header.key_length
        end = properties + header.properties_length
        return DeadMessage(
            self._buffer,
            header,
            int(self._why[0]),
            taken[record.SIZE : key].decode(),
            taken[key:properties].decode(),
            taken[properties:end],
            taken[end:],
        )

    def body(self, message: DeadMessage) -> Any:  # noqa: ANN401 - bytes-like
        """Returns the body of a message; a view that is valid as long as the message is held, or a copy."""
        header = message.header
        if header.body_address == 0:
            return message.inline
        if header.body_address == _IN_PARTS:
            return self._connection.copy_body(header.tag, header.sequence, header.body_address)
        return ffi.buffer(ffi.cast("char *", header.body_address), header.body_length)

    @staticmethod
    def give_back(queue: CoreQueue, message: DeadMessage) -> None:
        """Gives back a dead message that cannot be carried out now. It waits as before."""
        slow.sb_dead_return(queue.handle, message.record, message.why)
