# SPDX-License-Identifier: Apache-2.0
"""Staged messages that one transaction publishes: held by the connection, and read in place."""

from __future__ import annotations

import contextlib
import queue as standard_queue
from typing import TYPE_CHECKING, NamedTuple, Self

from shmbroker import exceptions
from shmbroker._core import record
from shmbroker._core.transaction import Publication, Settlement
from shmbroker._session.queues import core_of
from shmbroker.staging.deferred_options import RestoredOptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from shmbroker._core.queue import CoreQueue
    from shmbroker.message import Message, MessageBatch
    from shmbroker.queue import Queue
    from shmbroker.staging.staged_attempt import StagedAttempt

_STEP = 1024  # the most messages to take from a queue in one call; what exceeds the part's limits is requeued


class Limits(NamedTuple):
    """The limits of what one transaction publishes.

    Attributes:
        messages: the most messages.
        size: the most bytes of bodies.
    """

    messages: int
    size: int

    def hold(self, messages: int, size: int) -> bool:
        """Whether a number of messages and of bytes is within the limits."""
        return messages <= self.messages and size <= self.size

    def within(self, target: Queue) -> Limits:
        """Returns these limits; for a target that blocks when full, lowered to what it can hold when it is empty."""
        settings = target.settings
        if settings.overflow != "block":
            return self
        return Limits(
            min(self.messages, settings.max_length) if settings.max_length > 0 else self.messages,
            min(self.size, settings.max_bytes) if settings.max_bytes > 0 else self.size,
        )


class PartTransaction:
    """A part of a batch, taken out of its attempts. The end of the ``with`` block requeues it unless it was published.

    Args:
        target: the queue to publish to.
        limits: the limits of the part; a part of one message is allowed whatever its size.

    Attributes:
        publications: for each message, what puts it into the target.
        settlements: for each message, what removes it from the queue of its attempt.
    """

    def __init__(self, target: Queue, limits: Limits) -> None:
        self._limits = limits
        self._restored = RestoredOptions(core_of(target).message_ttl())
        self._to: Sequence[CoreQueue] = (core_of(target),)
        self._taken: list[MessageBatch] = []
        self._first: tuple[StagedAttempt, int] | None = None
        self._size = 0
        self._full = False
        self.publications: list[Publication] = []
        self.settlements: list[Settlement] = []

    def take(self, source: StagedAttempt) -> None:
        """Takes the remaining messages of an attempt, up to the limits.

        Raises:
            NotStaged: the attempt has changed since it was completed, for example its messages are missing.
        """
        left = source.left()
        if self._first is None:
            self._first = source, source.acked()
        while left and not self._full:
            try:
                batch = source.queue.get_many(min(left, _STEP), timeout=0)
            except (standard_queue.Empty, exceptions.NotFound):
                source.missing("another client has its messages")
            self._taken.append(batch)
            for message in batch:
                left -= self._add(core_of(source.queue), message)

    def _add(self, source: CoreQueue, message: Message) -> bool:
        size, count = len(message), len(self.publications)
        if count and (count >= self._limits.messages or self._size + size > self._limits.size):
            self._full = True
        if self._full:
            message.give_back()
            return False
        data = message._record  # noqa: SLF001 - options and tag as the core wrote them
        header = record.header(data)
        self.publications.append(Publication(message.body, self._to, self._restored.of(data, header)))
        self.settlements.append(Settlement(source, header.tag))
        self._size += size
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.publications.clear()  # ends the views of bodies
        with contextlib.suppress(exceptions.NotFound, exceptions.MessageSettled):  # the stage was dropped
            if self._first is not None and self._first[0].acked() == self._first[1]:
                for batch in self._taken:
                    batch.give_back()
