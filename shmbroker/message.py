# SPDX-License-Identifier: Apache-2.0
"""Messages, as they are handed to the application."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, overload

from shmbroker import properties as basic
from shmbroker._core import library, record

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from shmbroker._core.connection import CoreConnection

ACK, REQUEUE, REJECT, UNDELIVER = library.ACK, library.REQUEUE, library.REJECT, library.UNDELIVER
OPEN, SETTLED, _BROWSED, FRESH = library.STATES


class Source(Protocol):
    """Where a message came from, and goes when it is settled: the private side of a queue, consumer or channel."""

    _settle_record: Callable[[bytes, int], int]
    _core_connection: CoreConnection
    _taker: library.Taker

    def _queue_name(self, subscription: int) -> str: ...

    def _next_delivery_tag(self) -> int: ...


class Message(library.Record):
    """A message that was taken from a queue; settle it once with :meth:`ack`, :meth:`nack` or :meth:`reject`.

    ``with message:`` acknowledges at the end, or returns it to its place when the block raises.
    A body up to 4 KiB is a private copy; a longer one is read in place, and its slot is freed when it is settled and
    the last view of it is gone.
    """

    __slots__ = ()
    # What the compiled base keeps for us.
    _source: Source
    _record: bytes
    _state: int
    _view: memoryview | None
    _front: record.Front | None
    _tag: int

    # ---- settling ----

    def nack(self, requeue: bool = True) -> None:  # noqa: FBT001, FBT002 - the names and order are the contract
        """Returns the message to its place in the queue, or drops it.

        Args:
            requeue: back to its place, marked redelivered; ``False`` is :meth:`reject`.
        """
        self._end(REQUEUE if requeue else REJECT)

    def reject(self) -> None:
        """Drops the message."""
        self._end(REJECT)

    @property
    def settled(self) -> bool:
        """Whether the message was acknowledged, rejected or returned."""
        return self._state == SETTLED

    def give_back(self) -> None:
        """Returns the message as if it had not been taken: it does not count as delivered. Ignored if it is settled."""
        if self._state in {OPEN, FRESH}:
            self._state = OPEN
            self._end(UNDELIVER)

    def _was_settled(self) -> None:
        """Notes that a commit settled it."""
        self._state = SETTLED
        self._view = None

    def _end(self, how: int) -> None:
        if self._state:
            library.raise_for(library.SETTLED)
        self._state = SETTLED
        status = self._source._settle_record(self._record, how)  # noqa: SLF001
        if status:
            self._failed(status)
        self._view = None  # views that the application kept keep the slot

    def _failed(self, status: int) -> NoReturn:
        if status != library.SETTLED:
            self._state = OPEN  # nothing happened: the connection is closed, or its parent's
        library.raise_for(status, "the connection")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._state:
            self._end(ACK if kind is None else REQUEUE)

    def _gone(self) -> NoReturn:
        library.raise_for(library.SETTLED)

    def __bool__(self) -> bool:
        return True

    # ---- facts ----

    @property
    def _fields(self) -> record.Front:
        if self._front is None:
            self._front = record.front(self._record)
        return self._front

    @property
    def key(self) -> str | None:
        """The key given to ``put``."""
        front = self._fields
        start = front.key_start
        return self._record[start : start + front.key_length].decode() if front.key_length else None

    @property
    def properties(self) -> basic.BasicProperties:
        """The AMQP properties."""
        front = self._fields
        start = front.key_start + front.key_length
        return basic.decode(self._record[start : start + front.properties_length])

    @property
    def headers(self) -> dict[str, Any]:
        """The headers, empty when there are none."""
        return self.properties.headers or {}

    @property
    def priority(self) -> int:
        """The priority given to ``put``, 0 without."""
        return self._fields.priority

    @property
    def delivery_tag(self) -> int:
        """A number of this delivery, unique in its queue handle or consumer."""
        if self._tag == 0:
            self._tag = self._source._next_delivery_tag()  # noqa: SLF001
        return self._tag

    @property
    def redelivered(self) -> bool:
        """Was it delivered before, to anybody?"""
        return bool(self._fields.redelivered)

    @property
    def delivery_count(self) -> int:
        """Deliveries that were not cleanly returned, this one included."""
        return self._fields.delivery_count

    @property
    def sequence(self) -> int:
        """Its place in the queue; never changes."""
        return self._fields.sequence

    @property
    def exchange(self) -> str:
        """The exchange it was published to; empty: the default one, or straight to the queue."""
        return self._record[record.SIZE : self._fields.key_start].decode()

    @property
    def routing_key(self) -> str:
        """The routing key it was published with."""
        return self.key or ("" if self._fields.exchange_length else self.queue)

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._source._queue_name(self._fields.subscription)  # noqa: SLF001

    @property
    def timestamp(self) -> float:
        """When it was published, in POSIX seconds (to a few milliseconds)."""
        return self._fields.timestamp_ns / library.NANOSECONDS

    @property
    def expires_at(self) -> float | None:
        """When it expires, in POSIX seconds; ``None`` = never."""
        expires = self._fields.expires_ns
        return time.time() + (expires - time.monotonic_ns()) / library.NANOSECONDS if expires else None

    def __repr__(self) -> str:
        state = "settled" if self._state == SETTLED else "browsed" if self._state == _BROWSED else "unsettled"
        return f"<Message {self.sequence} of {self.queue!r}, {len(self)} bytes, {state}>"


def browsed(source: Source, data: bytes) -> Message:
    """A private copy of a message that stays in its queue."""
    return source._taker.message(source, data, _BROWSED)  # noqa: SLF001


class MessageBatch(library.Batch, Sequence[Message]):
    """Messages that were taken together; made one by one when asked for.

    :meth:`ack` and :meth:`nack` settle those that were not settled on their own, in one call.
    """

    __slots__ = ()
    # What the compiled base keeps for us.
    _source: Source
    _made: dict[int, Message] | None
    _state: int
    _auto_acked: bool
    _long_bodies: int

    def _hold_views(self) -> None:
        """Makes the messages that were settled when they were taken and are read in place: their views have to end."""
        for at in range(len(self) if self._long_bodies else 0):
            if not record.is_inline(self._record(at)):
                self[at]

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            msg = f"batch index {index} out of range: it holds {len(self)} messages"
            raise IndexError(msg)
        if self._made is None:
            self._made = {}
        made = self._made.get(at)
        if made is None:
            data = self._record(at)
            state = SETTLED if self._auto_acked else OPEN
            made = self._source._taker.message(self._source, data, state)  # noqa: SLF001
            if self._auto_acked and not record.is_inline(data):
                made._auto_acknowledged()  # noqa: SLF001
            self._made[at] = made
        return made

    def __iter__(self) -> Iterator[Message]:
        return (self[i] for i in range(len(self)))

    def nack(self, requeue: bool = True) -> None:  # noqa: FBT001, FBT002
        """Returns them to their places, or drops them."""
        self._end(REQUEUE if requeue else REJECT)

    def give_back(self) -> None:
        """Returns the messages as if they had not been taken: they do not count as delivered. Ignored if settled."""
        if self._state != SETTLED:
            self._end(UNDELIVER)

    def _end(self, how: int) -> None:
        if self._state == SETTLED:
            library.raise_for(library.SETTLED)
        self._state = SETTLED
        made = self._made or {}
        for message in made.values():
            if not message._state:  # noqa: SLF001
                message._end(how)  # noqa: SLF001
        with self._source._core_connection.call():  # noqa: SLF001
            status = self._settle(how, frozenset(made))
        if status:
            self._failed(status)

    def _failed(self, status: int) -> NoReturn:
        library.raise_for(status, f"queue {self._source._queue_name(0)!r}")  # noqa: SLF001

    def __repr__(self) -> str:
        return f"<MessageBatch of {len(self)}{', settled' if self._state == SETTLED else ''}>"
