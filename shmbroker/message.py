# SPDX-License-Identifier: Apache-2.0
"""Messages and batches of messages that the application takes from queues."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, overload

from shmbroker import properties as basic
from shmbroker._core import native, record

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from shmbroker._core.connection import CoreConnection

ACK, REQUEUE, REJECT, UNDELIVER = native.ACK, native.REQUEUE, native.REJECT, native.UNDELIVER
OPEN, SETTLED, _BROWSED, FRESH = native.STATES


class Source(Protocol):
    """What a message needs of the queue, consumer or channel that it was taken from, for instance to be settled."""

    _settle_record: Callable[[bytes, int], int]
    _core_connection: CoreConnection
    _taker: native.Receiver

    def _queue_name(self, subscription: int) -> str: ...

    def _next_delivery_tag(self) -> int: ...


def untracked(kind: type[Message]) -> type[Message]:
    """Returns a copy of a subclass of `native.Record` whose objects the cyclic garbage collector does not track.

    The collector tracks the objects of each class that a class statement makes, which costs a tenth of a get and an
    ack. A message needs no collector: what it refers to cannot refer to it.
    """
    copy = native.untracked_type(f"{kind.__module__}.{kind.__qualname__}")
    for name, value in vars(kind).items():
        setattr(copy, name, value)
    return copy


@untracked
class Message(native.Record):
    """A message that was taken from a queue; settle it once with :meth:`ack`, :meth:`nack` or :meth:`reject`.

    ``with message:`` acknowledges the message at the end of the block, or returns it to its place when the block
    raises. A body of up to 4 KiB is a private copy, as is a longer one that had no room in one piece. Any other body is
    read in place: its slot is freed when the message is settled and the last view of the body is gone.
    """

    __slots__ = ()
    # The fields that the compiled base stores.
    _source: Source
    _record: bytes
    _state: int
    _view: memoryview | None
    _record_header: record.Header | None
    _tag: int

    # ---- settling ----

    def nack(self, requeue: bool = True) -> None:  # noqa: FBT001, FBT002 - the names and order are the contract
        """Returns the message to its place in the queue, or drops it.

        Args:
            requeue: return it to its place, marked redelivered; ``False``: drop it, as :meth:`reject` does.
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
        """Undoes the delivery: :attr:`delivery_count` does not count it.

        If a consumer took the message, and has not ended, it gives the message again, as its next one. Otherwise the
        message returns to its place. Ignored if the message is settled, or was browsed.
        """
        if self._state in {OPEN, FRESH}:
            self._settle(UNDELIVER)

    def _was_settled(self) -> None:
        """Marks the message as settled; called when a commit has settled it."""
        self._state = SETTLED
        self._view = None

    def _end(self, disposition: int) -> None:
        if self._state:
            native.raise_for(native.SETTLED)
        self._settle(disposition)

    def _settle(self, disposition: int) -> None:
        call, arguments = self._settling(disposition)
        # No other call separates the mark from the call of the core: a signal handler that raises runs before both, or
        # after both.
        self._state = SETTLED
        status = call(*arguments)
        if status:
            self._failed(status)
        self._view = None  # views that the application holds keep the slot

    def _settling(self, disposition: int) -> tuple[Callable[..., int], tuple[object, ...]]:
        """Returns the compiled function that settles the message, and its arguments; it returns a status."""
        return self._source._settle_record, (self._record, disposition)  # noqa: SLF001

    def _failed(self, status: int) -> NoReturn:
        if status != native.SETTLED:
            self._state = OPEN  # nothing was settled: the connection is closed, or belongs to the parent process
        native.raise_for(status, "the connection")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._state:
            self._end(ACK if kind is None else REQUEUE)

    def _gone(self) -> NoReturn:
        native.raise_for(native.SETTLED)

    def __bool__(self) -> bool:
        return True

    # ---- facts ----

    @property
    def _fields(self) -> record.Header:
        if self._record_header is None:
            self._record_header = record.header(self._record)
        return self._record_header

    @property
    def key(self) -> str | None:
        """The key given to ``put``, or the routing key of a publish; ``None``: there was none, or it was empty."""
        header = self._fields
        start = header.key_start
        return self._record[start : start + header.key_length].decode() if header.key_length else None

    @property
    def properties(self) -> basic.BasicProperties:
        """The AMQP properties."""
        header = self._fields
        start = header.key_start + header.key_length
        return basic.decode(self._record[start : start + header.properties_length])

    @property
    def headers(self) -> dict[str, Any]:
        """The AMQP headers; empty if there are none."""
        return self.properties.headers or {}

    @property
    def priority(self) -> int:
        """The priority that the put or the AMQP properties gave; 0 if neither gave one."""
        return self._fields.priority

    @property
    def delivery_tag(self) -> int:
        """The number of this delivery, unique among the deliveries of one queue handle or one consumer."""
        if self._tag == 0:
            self._tag = self._source._next_delivery_tag()  # noqa: SLF001
        return self._tag

    @property
    def redelivered(self) -> bool:
        """Whether the message was delivered before, to any consumer."""
        return bool(self._fields.marks & record.REDELIVERED)

    @property
    def group_first(self) -> bool:
        """Whether this is the first message of its group that its consumer got since the group came to it.

        In a queue with ``message_groups``. So a consumer can prepare for a group, for example read its state, when the
        group comes to it: at the start, after a hand-over, after the group was closed, or when its earlier consumer
        died. A first message that is returned is the first one again. With shared groups, a group comes to a consumer
        anew each time that the consumer held no message of it. A message that was browsed, or that has no group, is
        no first one.
        """
        return bool(self._fields.marks & record.GROUP_FIRST)

    @property
    def delivery_count(self) -> int:
        """The number of deliveries of the message, including this one.

        A delivery does not count if it ended with :meth:`give_back`, or with the close of its consumer or connection.
        A delivery that a channel made does count if the close of the channel or of its connection ended it.
        """
        return self._fields.delivery_count

    @property
    def sequence(self) -> int:
        """The position of the message in its queue. A requeue does not change it."""
        return self._fields.sequence

    @property
    def exchange(self) -> str:
        """The exchange the message was published to; empty for the default exchange, and for a message that was put."""
        return self._record[record.SIZE : self._fields.key_start].decode()

    @property
    def routing_key(self) -> str:
        """The routing key the message was published with; after a put without a key, the name of :attr:`queue`."""
        return self.key or ("" if self._fields.exchange_length else self.queue)

    @property
    def queue(self) -> str:
        """The name of the queue the message was taken from."""
        return self._source._queue_name(self._fields.subscription)  # noqa: SLF001

    @property
    def timestamp(self) -> float:
        """The time of the publish or put, in POSIX seconds, accurate to a few milliseconds."""
        return self._fields.timestamp_ns / native.NANOSECONDS

    @property
    def expires_at(self) -> float | None:
        """The time at which the message expires, in POSIX seconds; ``None`` = never."""
        expires = self._fields.expires_ns
        return time.time() + (expires - time.monotonic_ns()) / native.NANOSECONDS if expires else None

    def __repr__(self) -> str:
        state = "settled" if self._state == SETTLED else "browsed" if self._state == _BROWSED else "unsettled"
        return f"<Message {self.sequence} of {self.queue!r}, {len(self)} bytes, {state}>"


def browsed(source: Source, data: bytes) -> Message:
    """Makes a `Message` from a private copy (``data``) of a message that stays in its queue."""
    return source._taker.message(source, data, _BROWSED)  # noqa: SLF001


class MessageBatch(native.Batch, Sequence[Message]):
    """Messages that were taken together. Each :class:`Message` is made when it is first accessed.

    :meth:`ack` and :meth:`nack` settle all messages that were not settled individually. One call of the core settles
    those that were never accessed.
    """

    __slots__ = ()
    # The fields that the compiled base stores.
    _source: Source
    _made: dict[int, Message] | None
    _state: int
    _auto_acked: bool
    _views: dict[int, memoryview] | None  # of an auto-acked batch: only they keep the slots of its long bodies

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            msg = f"batch index {index} is out of range: the batch holds {len(self)} messages"
            raise IndexError(msg)
        if self._made is None:
            self._made = {}
        made = self._made.get(at)
        if made is None:
            data = self._record(at)
            state = SETTLED if self._auto_acked else OPEN
            made = self._source._taker.message(self._source, data, state)  # noqa: SLF001
            if self._views is not None and not record.is_inline(data):
                made._view = self._views[at]  # noqa: SLF001
            self._made[at] = made
        return made

    def __iter__(self) -> Iterator[Message]:
        return (self[i] for i in range(len(self)))

    def nack(self, requeue: bool = True) -> None:  # noqa: FBT001, FBT002
        """Returns the unsettled messages to their places; drops them if ``requeue`` is false."""
        self._end(REQUEUE if requeue else REJECT)

    def give_back(self) -> None:
        """Returns the messages to their places; their deliveries do not count. Ignored if the batch is settled."""
        if self._state != SETTLED:
            self._end(UNDELIVER)

    def _end(self, disposition: int) -> None:
        if self._state == SETTLED:
            native.raise_for(native.SETTLED)
        statuses: list[int] = []
        before, self._state = self._state, SETTLED
        try:
            made = self._made or {}
            for message in made.values():
                if not message._state:  # noqa: SLF001
                    message._end(disposition)  # noqa: SLF001
            with self._source._core_connection.call():  # noqa: SLF001
                # One call of C settles the messages and stores the status. A signal handler that raises runs before
                # this call or after it.
                statuses.extend(itertools.starmap(self._settle, [(disposition, frozenset(made))]))
        finally:
            if native.OK not in statuses:
                self._state = before  # the caller can settle the rest
        if statuses[0]:
            self._failed(statuses[0])

    def _failed(self, status: int) -> NoReturn:
        native.raise_for(status, f"queue {self._source._queue_name(0)!r}")  # noqa: SLF001

    def __repr__(self) -> str:
        return f"<MessageBatch of {len(self)}{', settled' if self._state == SETTLED else ''}>"
