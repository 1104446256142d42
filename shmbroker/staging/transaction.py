# SPDX-License-Identifier: Apache-2.0
"""Staged messages that one transaction publishes: held by the connection, and read in place."""

from __future__ import annotations

import queue as standard_queue
from typing import TYPE_CHECKING, NamedTuple, Self

from shmbroker import exceptions
from shmbroker._core import record
from shmbroker._core.transaction import Publication
from shmbroker._session.queues import core_of
from shmbroker.staging.deferred_options import RestoredOptions
from shmbroker.staging.fresh import taken

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from shmbroker._core.queue import CoreQueue
    from shmbroker.message import Message
    from shmbroker.queue import Queue
    from shmbroker.staging.staged_attempt import StagedAttempt


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
        messages: the messages, in the state FRESH (:mod:`shmbroker.staging.fresh`) until a transaction settles them.
            Nothing else refers to them: when this list drops one that is FRESH, the core requeues it.
    """

    def __init__(self, target: Queue, limits: Limits) -> None:
        self._limits = limits
        self._restored = RestoredOptions()
        self._to: Sequence[CoreQueue] = (core_of(target),)
        self._size = 0
        self._full = False
        self.publications: list[Publication] = []
        self.messages: list[Message] = []

    def take(self, source: StagedAttempt) -> None:
        """Takes the remaining messages of an attempt, up to the limits.

        Raises:
            NotStaged: the attempt has changed since it was completed, for example its messages are missing.
        """
        left = source.left()
        while left and not self._full:
            try:
                self.messages.append(taken(source.queue, 0))
            except (standard_queue.Empty, exceptions.NotFound):
                source.missing("another client has its messages")
            self._add_last()
            left -= 1

    def _add_last(self) -> None:
        """Adds the publication of the message taken last; requeues the message instead if it exceeds the limits."""
        data = self.messages[-1]._record  # noqa: SLF001 - options as the core wrote them
        header = record.header(data)
        count, size = len(self.publications), self._size + header.body_length
        self._full = count > 0 and not self._limits.hold(count + 1, size)
        if self._full:
            self.messages.pop()
        else:
            self.publications.append(Publication(self.messages[-1].body, self._to, self._restored.of(data, header)))
            self._size = size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.publications.clear()  # ends the views of bodies
        self.messages.clear()  # Python frees the messages; the core requeues those that are FRESH
