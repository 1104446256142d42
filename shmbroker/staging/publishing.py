# SPDX-License-Identifier: Apache-2.0
"""Publishing of a batch by the holder of the marker: in one step, or in parts, one after the other."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shmbroker import body_references, exceptions
from shmbroker._core import native
from shmbroker._session.queues import core_of
from shmbroker._session.session import session_of
from shmbroker.staging.fresh import commit
from shmbroker.staging.staged_attempt import StagedAttempt
from shmbroker.staging.transaction import Limits, PartTransaction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker.connection import Connection
    from shmbroker.queue import Queue
    from shmbroker.staging.marker import Held
    from shmbroker.staging.publication import Begun, PublicationState

_PATIENCE = 1.0  # seconds to wait for memory for a publish in one step; without memory, the batch is moved


class Publisher:
    """Publishes batches of one publication.

    Args:
        connection: the connection that opens the queues, and holds the messages in progress.
        publication: the name of the publication.
        limits: the limits of one transaction: of publishing in one step, and of each part published as copies.
        until: the deadline of the waits for room and for memory.
    """

    def __init__(self, connection: Connection, publication: str, limits: Limits, until: int) -> None:
        self._connection, self._publication = connection, publication
        self._limits, self._until = limits, until

    def _sources(self, begun: Begun) -> list[StagedAttempt]:
        return [StagedAttempt(self._connection, self._publication, one) for one in begun.receipts if one.count]

    # ---- in one step ----

    def publish_or_begin(self, held: Held, wanted: Begun, target: Queue | None) -> tuple[PublicationState, int]:
        """Publishes a batch in one step; begins it if it is too large for that, or has no memory for the copies.

        Returns the new state and the number of messages published, which is 0 for a batch that was only begun.

        Args:
            held: the held marker.
            wanted: the batch to publish.
            target: the queue to publish to; ``None``: the queue that the batch names.

        Raises:
            NotStaged: an attempt is gone, or differs from its receipt.
            NotFound: there is no such target.
            queue.Full: the target has no room in time, or can never hold a body.
        """
        if target is None:
            target = self._connection.queue(wanted.to, passive=True)
        sources = self._sources(wanted)
        for source in sources:
            source.check()
        if self._limits.within(target).hold(wanted.count, wanted.bytes):
            with contextlib.suppress(exceptions.OutOfMemory):  # no memory for copies: go on below
                return self._publish(held, wanted, target, sources)
        self._check_bodies(sources, target)
        for source in sources:
            source.keep()
        return held.replace(held.state.beginning(wanted), self._until), 0

    def _check_bodies(self, sources: list[StagedAttempt], target: Queue) -> None:
        """Raises queue.Full if the target can never hold a body of the batch.

        Without this check, the batch would be begun and never finished, and would block all later batches of the
        publication.
        """
        settings = target.settings
        if settings.max_bytes >= 0 and settings.overflow != "drop-head":
            places = (place for source in sources for _, place in body_references.of_queue(source.queue))
            longest = max((place.length for place in places), default=0)
            if longest > settings.max_bytes:
                core_of(target).put_failed(native.TOO_LARGE, longest, self._until)

    def _publish(
        self, held: Held, wanted: Begun, target: Queue, sources: list[StagedAttempt]
    ) -> tuple[PublicationState, int]:
        with PartTransaction(target, self._limits) as part, self._staged():
            for source in sources:
                part.take(source)
            state = held.state.published(wanted.batch)
            memory_until = min(self._until, native.deadline(_PATIENCE))
            replaced = held.replace(state, self._until, part.publications, part.messages, memory_until=memory_until)
            return replaced, len(part.messages)

    @contextlib.contextmanager
    def _staged(self) -> Iterator[None]:
        try:
            yield
        except exceptions.MessageSettled:
            text = f"what was staged of {self._publication!r} was dropped while it was being published"
            raise exceptions.NotStaged(text=text) from None

    # ---- one after the other ----

    def finish(self, held: Held, begun: Begun, target: Queue | None) -> tuple[PublicationState, int]:
        """Moves the rest of a batch that any publisher began. Returns the state, and the number of messages moved.

        Raises:
            NotStaged: an attempt is gone.
            NotFound: the target is gone.
            queue.Full: the target has no room in time. The messages moved so far stay there.
        """
        # A given target is the queue that `begun.to` names. `Stage._target` checks that: if the marker's state is for
        # another target, it replaces the state by an empty one, and an empty state has no begun batch.
        if target is None:
            target = self._connection.queue(begun.to, passive=True)
        count = sum(self._empty(source, target) for source in self._sources(begun))
        return held.replace(held.state.published(begun.batch), self._until), count

    def _empty(self, source: StagedAttempt, target: Queue) -> int:
        """Moves the remaining messages of an attempt to the target; returns their number.

        If their time to live or delay must be set, or the target changes times to live, or drops new messages when it
        is full, this method publishes copies instead of moving the messages.
        """
        anew = source.receipt.timed or core_of(target).changes_lives() or target.settings.overflow == "drop"
        step = self._publish_part if anew else self._move
        count = 0
        while left := source.left():
            count += step(source, target, left)
        return count

    def _publish_part(self, source: StagedAttempt, target: Queue, _left: int) -> int:
        with PartTransaction(target, self._limits.within(target)) as part, self._staged():
            part.take(source)
            commit(session_of(self._connection).core, part.publications, part.messages, self._until)
            return len(part.messages)

    def _move(self, source: StagedAttempt, target: Queue, left: int) -> int:
        moved = source.queue.move(target, limit=left)
        if moved < left:
            self._wait_for_room(source, target)
        return moved

    def _wait_for_room(self, source: StagedAttempt, target: Queue) -> None:
        """Waits until the target has room for the next message, which stays in its queue meanwhile."""
        place = next((place for _, place in body_references.of_queue(source.queue)), None)
        if place is not None:
            core_of(target).put_failed(native.FULL, place.length, self._until)
