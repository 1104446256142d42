# SPDX-License-Identifier: Apache-2.0
"""A channel of the core without the layers above it."""

# ruff: noqa: SLF001 - below any policy: the core's part of connections and messages
# ruff: noqa: FBT003 - the core's functions take their arguments by position
from __future__ import annotations

from typing import TYPE_CHECKING

from scenario_support.inside import core_of, session_of
from shmbroker._core import native, record
from shmbroker._core.channel import BY_GET, CoreChannel
from shmbroker.message import FRESH, OPEN, Message, MessageBatch

if TYPE_CHECKING:
    import shmbroker


class Channel:
    """What a layer above makes of a core channel, without any policy: the source of its messages."""

    def __init__(self, connection: shmbroker.Connection, user: int = 1) -> None:
        session_of(connection).start_io()
        self.core = CoreChannel(core_of(connection), user)
        self.core_connection = self._core_connection = self.core.connection
        self.receiver = self._taker = native.Receiver(self.core.address, native.OF_CHANNEL, Message, MessageBatch)

    def _settle_record(self, data: bytes, disposition: int) -> int:
        """Settles the delivery of a record."""
        return self.core.settle_tag(record.header(data).tag, False, disposition)

    def _queue_name(self, subscription: int) -> str:
        """The name of its queue."""
        return self.core.queues[subscription].name if subscription != BY_GET else "by get"

    def _next_delivery_tag(self) -> int:
        """Never asked: deliveries have tags."""
        raise AssertionError

    def consume(self, queue: shmbroker.Queue, *, prefetch: int = 0, priority: int = 0, flags: int = 0) -> int:
        """Starts a consumer."""
        return self.core.consume(core_of(queue), prefetch, priority, flags)

    def next(self) -> Message | None:
        """The next delivery that is there."""
        message = self.receiver.take(self, False)
        while message is None and self.receiver.status != native.EMPTY:
            self.core.failed(self.receiver.status)
            message = self.receiver.take(self, False)
        if message is not None and message._state == FRESH:
            message._state = OPEN
        return message

    def get(self, queue: shmbroker.Queue, *, auto_ack: bool = False) -> Message | int:
        """A basic get: a status when there is nothing."""
        message = self.receiver.get(self, core_of(queue).address, auto_ack)
        if isinstance(message, Message) and not auto_ack:
            message._state = OPEN
        return message

    def drain(self) -> list[Message]:
        """Whatever is there."""
        return list(iter(self.next, None))

    def texts(self) -> list[str]:
        """The bodies of whatever is there."""
        return [bytes(message).decode() for message in self.drain()]


def put(queue: shmbroker.Queue, *texts: object) -> None:
    """Puts a message for each."""
    for text in texts:
        queue.put(str(text).encode())
