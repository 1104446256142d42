# SPDX-License-Identifier: Apache-2.0
"""What an administrator does with the messages of a queue, without being their consumer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, overload

from shmbroker import _republishing
from shmbroker._choosing import at_most, chosen
from shmbroker._core import managing, native, selecting
from shmbroker._dataclasses import dataclass
from shmbroker._selectors.compiler import compile_name, compile_selector
from shmbroker.message import Message, MessageBatch, browsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from shmbroker._core.queue import CoreQueue
    from shmbroker._session.session import Session

    Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Retried:
    """The result of ``Queue.retry``.

    Attributes:
        retried: how many messages are back in the queues that they died in.
        stayed: how many stayed where they were, intact.
        reasons: for each reason for which messages stayed, how many did.
    """

    retried: int
    stayed: int
    reasons: Mapping[str, int]


class QueuedMessage(Message):
    """A private copy of a message that ``Queue.browse`` found in another state than ready.

    Attributes:
        state: ``"scheduled"``, ``"delivering"`` or ``"dead"``.
        due_at: when a scheduled message becomes ready, in POSIX seconds; else ``None``.
        held_by: the ``id`` of the connection that holds a message that is being delivered, as
            ``connections()`` of a connection has it; else ``None``.
    """

    __slots__ = ("due_at", "held_by", "state")

    state: str
    due_at: float | None
    held_by: int | None


class ManagedQueue(native.QueueCalls):
    """The part of a queue's handle that looks at messages, moves them and ends them.

    Each method with ``ids`` takes sequence numbers of messages, as :attr:`Message.sequence` of a browsed message has
    them. They identify a message as long as it is in the queue; a message that has left it meanwhile is passed over.
    ``progress`` is called with the number of messages dealt with, after every thousand or so. An interrupt, or a kill
    of the process, leaves each message in one place: as it was, or dealt with.

    In a broker with a store, a call that finds no memory waits until messages that are stored have left it. It raises
    :exc:`OutOfMemory` when none came free for five seconds; the error says with how many messages it has dealt.
    """

    __slots__ = ()
    if TYPE_CHECKING:
        name: str
        _session: Session
        _core: CoreQueue
        _settle_record: Callable[[bytes, int], int]

        def _queue_name(self, subscription: int) -> str: ...
        def _next_delivery_tag(self) -> int: ...

    # ---- looking ----

    @overload
    def browse(
        self,
        selector: str | None = None,
        *,
        state: Literal["scheduled", "delivering", "dead"],
        ids: Iterable[int] | None = None,
        limit: int | None = None,
    ) -> Iterator[QueuedMessage]: ...
    @overload
    def browse(
        self,
        selector: str | None = None,
        *,
        state: str = "ready",
        ids: Iterable[int] | None = None,
        limit: int | None = None,
    ) -> Iterator[Message]: ...
    def browse(
        self,
        selector: str | None = None,
        *,
        state: str = "ready",
        ids: Iterable[int] | None = None,
        limit: int | None = None,
    ) -> Iterator[Any]:
        """Yields private copies of messages, the oldest first, without taking them.

        Args:
            selector: a condition over the properties and headers of a message, such as ``"region = 'eu' AND
                JMSPriority > 4"``; only the messages for which it is true are copied. ``None`` = all messages.
            state: ``"ready"``; or ``"scheduled"``: those that become ready later; ``"delivering"``: those that
                consumers have and have not settled; ``"dead"``: those that wait to go to the dead-letter exchange. A
                message in one of the latter three states is a :class:`QueuedMessage`.
            ids: the sequence numbers of the messages; ``None`` = all.
            limit: the most messages; ``None`` = all.

        Raises:
            TypeError: the selector is no string, or an id is no integer.
            ValueError: the state, the limit or an id is not allowed.
            InvalidSelector: the selector is no condition in the language of selectors.
            CorruptSegment: a message, or a property that the selector reads, is damaged.
        """
        if not isinstance(state, str) or state not in managing.STATES:
            allowed = ", ".join(repr(name) for name in managing.STATES)
            msg = f"state={state!r}: one of {allowed} is allowed"
            raise ValueError(msg)
        which = chosen(self._core, selector, ids, limit)
        return self._browse(which.selector) if state == "ready" and which[1:] == _ALL else self._seen(state, which)

    def _browse(self, program: bytes) -> Iterator[Message]:
        position = 0
        while (found := self._core.browse(position, program)) is not None:
            data, position = found
            yield browsed(self, data)

    def _seen(self, state: str, which: managing.Chosen) -> Iterator[Message]:
        kind = Message if state == "ready" else QueuedMessage
        taker = native.Receiver(self._core.address, native.OF_QUEUE, kind, MessageBatch)
        for seen in managing.browse(self._core, managing.STATES[state], which):
            message = taker.message(self, seen.record, native.STATES[2])
            if isinstance(message, QueuedMessage):
                due = (seen.due_ns - time.monotonic_ns()) / native.NANOSECONDS
                message.state = seen.state
                message.due_at = time.time() + due if seen.due_ns else None
                message.held_by = seen.connection or None
            yield message

    @overload
    def count(self, *, selector: str | None = None, group_by: None = None) -> int: ...
    @overload
    def count(self, *, selector: str | None = None, group_by: str) -> dict[Any, int]: ...
    def count(self, *, selector: str | None = None, group_by: str | None = None) -> int | dict[Any, int]:
        """Counts the ready messages without taking or copying them.

        Args:
            selector: a condition, as of :meth:`browse`; only the messages for which it is true count. ``None`` = all
                messages.
            group_by: the name of a property or header, as a selector has it. ``None`` = one number for all.

        Returns:
            The number of messages; with ``group_by`` the number for each value of the property or header, the most
            frequent value first. A message without it counts under ``None``, and so does one whose value is a list or a
            table. As in every dict, 1, 1.0 and ``True`` are one value.

        Raises:
            TypeError: the selector or the name is no string.
            InvalidSelector: the selector is no condition in the language of selectors, or the name is no name in it.
            CorruptSegment: a message, or a property that the selector or the group reads, is damaged.
        """
        program = b"" if selector is None else compile_selector(selector)
        if group_by is None:
            return selecting.count(self._core, program)
        return selecting.count_by(self._core, program, compile_name(group_by, "group_by"))

    # ---- moving ----

    def move(
        self,
        to: ManagedQueue | str,
        *,
        selector: str | None = None,
        ids: Iterable[int] | None = None,
        limit: int | None = None,
        max_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Moves ready messages to another queue of this broker, the oldest first; returns how many it moved.

        Stops early, without an error, when the other queue is full. A message keeps the time at which it expires: the
        other queue's ``message_ttl`` is for messages that are put.

        Args:
            to: the other queue, or its name.
            selector: a condition, as of :meth:`browse`; only the messages for which it is true are moved. ``None`` =
                all messages.
            ids: the sequence numbers of the messages; ``None`` = all.
            limit: the most messages to move; ``None`` = all that are ready now.
            max_bytes: the last message moved is the one with which the bodies reach this size; ``None`` = no limit.
            progress: called with the number of messages moved so far, now and then.

        Raises:
            NotFound: this queue, or the other one, was deleted.
            NeverFits: a body can never fit the other queue; the messages before it are moved.
            NotAllowed: a message that was published to more than eight queues was moved 23 times, in all of them.
            OutOfMemory: the broker has no memory to move a message; the messages before it are moved.
            InvalidSelector: the selector is no condition in the language of selectors.
            CorruptSegment: a message, or a property that the selector reads, is damaged; the messages before it are
                moved.
        """
        which = chosen(self._core, selector, ids, limit, progress)
        target, size = self._target(to, "moved"), at_most(max_bytes, "max_bytes")
        if which[:2] == _ALL_NOW:
            return managing.move_oldest(self._core, target, which.limit, size, progress)
        return managing.manage(self._core, managing.MOVE, which, target, size)[0]

    def _target(self, to: object, verb: str) -> CoreQueue:
        """Returns another queue, opened by this connection."""
        name = to.name if isinstance(to, ManagedQueue) else to
        if not isinstance(name, str):
            msg = f"to={to!r}: a queue, or the name of one, is needed"
            raise TypeError(msg)
        if name == self.name:
            msg = f"queue {self.name!r} cannot be {verb} to itself"
            raise ValueError(msg)
        if isinstance(to, ManagedQueue) and to._core_connection is self._core_connection:  # noqa: SLF001 - of this class
            return to._core  # noqa: SLF001 - of this class
        return self._session.queues.existing(name)

    def copy(
        self,
        to: ManagedQueue | str,
        *,
        selector: str | None = None,
        ids: Iterable[int] | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Puts copies of ready messages into another queue of this broker, the oldest first; returns how many.

        The messages stay as they are. A copy has the body, the properties, the exchange and the routing key of its
        message, its priority, and what is left of its life, if the other queue's ``message_ttl`` is not shorter. Its
        timestamp is that of the copy. Stops early, without an error, when the other queue is full or rejects a copy.

        Args:
            to: the other queue, or its name.
            selector: a condition, as of :meth:`browse`. ``None`` = all messages.
            ids: the sequence numbers of the messages; ``None`` = all.
            limit: the most copies; ``None`` = of all that are ready now.
            progress: called with the number of copies so far, now and then.

        Raises:
            NotFound: this queue, or the other one, was deleted.
            NeverFits: a body can never fit the other queue; the messages before it are copied.
            OutOfMemory: the broker has no memory for a copy; the messages before it are copied.
            InvalidSelector: the selector is no condition in the language of selectors.
            CorruptSegment: a message, or a property that the selector reads, is damaged; the messages before it are
                copied.
        """
        which = chosen(self._core, selector, ids, limit, progress)
        return _republishing.copy(self._core, self._target(to, "copied"), which)

    def retry(
        self,
        *,
        selector: str | None = None,
        ids: Iterable[int] | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> Retried:
        """Moves dead letters of this queue back to the queues that they died in.

        Each goes to the queue of its latest death, which is the first entry of its header ``x-death``, and keeps its
        headers. A message stays in this queue, intact, if that queue does not exist any more or is full, or if no
        header says where it died.

        Args:
            selector: a condition, as of :meth:`browse`. ``None`` = all messages.
            ids: the sequence numbers of the messages; ``None`` = all.
            limit: the most messages to move; ``None`` = all that are ready now.
            progress: called with the number of messages moved so far, now and then.

        Raises:
            NotFound: this queue was deleted.
            OutOfMemory: the broker has no memory to move a message; the messages before it are moved.
            InvalidSelector: the selector is no condition in the language of selectors.
            CorruptSegment: a message, or a property that the selector reads, is damaged; the messages before it are
                moved.
        """
        which = chosen(self._core, selector, ids, limit, progress)
        returning = _republishing.Returning(self._core, self._session.queues.routed)
        returning.run(which)
        return Retried(returning.moved, sum(returning.stayed.values()), returning.stayed)

    # ---- ending and changing ----

    def purge(
        self,
        *,
        state: str = "ready",
        selector: str | None = None,
        ids: Iterable[int] | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Removes the ready messages, or the scheduled ones, and returns their number; delivered messages stay.

        Args:
            state: ``"ready"``, or ``"scheduled"``: those that become ready later.
            selector: a condition, as of :meth:`browse`; only the messages for which it is true are removed. ``None`` =
                all messages.
            ids: the sequence numbers of the messages; ``None`` = all.
            limit: the most messages to remove, the oldest first; ``None`` = all that are ready now.
            progress: called with the number of messages removed so far, now and then.

        Raises:
            TypeError: the selector is no string, or an id is no integer.
            InvalidSelector: the selector is no condition in the language of selectors.
            CorruptSegment: a message, or a property that the selector reads, is damaged; the messages before it are
                removed.
        """
        which = self._in_state(state, chosen(self._core, selector, ids, limit, progress))
        if which == managing.Chosen():
            return self._core.purge()
        return managing.manage(self._core, managing.REMOVE, which)[0]

    @staticmethod
    def _in_state(state: str, which: managing.Chosen) -> managing.Chosen:
        """Returns which messages a call is for that ends ready or scheduled ones."""
        if not isinstance(state, str) or state not in {"ready", "scheduled"}:
            msg = f"state={state!r}: 'ready' or 'scheduled' is allowed"
            raise ValueError(msg)
        return which._replace(scheduled=state == "scheduled")

    def expire(
        self,
        *,
        state: str = "ready",
        selector: str | None = None,
        ids: Iterable[int] | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Ends ready messages, or scheduled ones, as if their time were over; returns their number.

        They go to the dead-letter exchange if the queue has one, else they end, and count as ``expired``.

        Args:
            state: ``"ready"``, or ``"scheduled"``: those that become ready later.
            selector: a condition, as of :meth:`browse`. ``None`` = all messages.
            ids: the sequence numbers of the messages; ``None`` = all.
            limit: the most messages, the oldest first; ``None`` = all that are ready now.
            progress: called with the number of messages so far, now and then.

        Raises:
            InvalidSelector: the selector is no condition in the language of selectors.
            CorruptSegment: a message, or a property that the selector reads, is damaged; the messages before it have
                ended.
        """
        which = self._in_state(state, chosen(self._core, selector, ids, limit, progress))
        return managing.manage(self._core, managing.EXPIRE, which)[0]

    def change_priority(
        self,
        priority: int,
        *,
        selector: str | None = None,
        ids: Iterable[int] | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Gives ready messages of a queue with ``max_priority`` another priority; returns how many changed.

        A message comes behind those that have the priority already. Messages that change in one call keep their order,
        higher former priorities first. A changed message has another sequence number and timestamp, and its deliveries
        are counted anew. It counts as ``moved`` and ``added``.

        Args:
            priority: the priority, 0 to ``max_priority``.
            selector: a condition, as of :meth:`browse`. ``None`` = all messages.
            ids: the sequence numbers of the messages; ``None`` = all.
            limit: the most messages that change; ``None`` = all that are ready now.
            progress: called with the number of messages changed so far, now and then.

        Raises:
            ValueError: the queue has no such priority.
            OutOfMemory: the broker has no memory for a message; the messages before it have changed.
            InvalidSelector: the selector is no condition in the language of selectors.
            CorruptSegment: a message, or a property that the selector reads, is damaged; the messages before it have
                changed.
        """
        highest = self._core.settings()[0].max_priority
        if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= highest or not highest:
            allowed = f"0 to {highest} is allowed" if highest else "it has no max_priority"
            msg = f"priority={priority!r} of queue {self.name!r}: {allowed}"
            raise ValueError(msg)
        ranking = _republishing.Ranking(self._core, priority)
        ranking.run(chosen(self._core, selector, ids, limit, progress))
        return ranking.changed

    def deliver_scheduled(
        self,
        *,
        selector: str | None = None,
        ids: Iterable[int] | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Makes scheduled messages ready now; returns how many.

        These are messages with a delay, and those that wait for their redelivery. Each takes the place in the queue
        that it was put at, so they are delivered in the order in which they were put. The others stay scheduled.

        Args:
            selector: a condition, as of :meth:`browse`. ``None`` = all scheduled messages.
            ids: the sequence numbers of the messages, as ``browse(state="scheduled")`` shows them; ``None`` = all.
            limit: the most messages, the oldest first; ``None`` = all.
            progress: called with the number of messages so far, now and then.

        Raises:
            InvalidSelector: the selector is no condition in the language of selectors.
            CorruptSegment: a message, or a property that the selector reads, is damaged; the messages before it are
                ready.
        """
        return managing.manage(self._core, managing.DELIVER, chosen(self._core, selector, ids, limit, progress))[0]


_ALL = managing.Chosen()[1:]
_ALL_NOW = managing.Chosen()[:2]
