# SPDX-License-Identifier: Apache-2.0
"""The marker of a publication (:mod:`shmbroker.staging`): the only message of a queue.

It says what was published; its holder may publish.

A transaction that publishes a whole batch also settles the marker and puts the next one, so that both happen or neither
does. If the holder is killed, the marker or its successor is in the queue once the reaper has carried out or undone the
transaction.
"""

from __future__ import annotations

import contextlib
import queue as standard_queue
import time
import uuid
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._core.transaction import Publication
from shmbroker._session.queues import core_of
from shmbroker._session.session import Session, session_of
from shmbroker._system_queues import queues
from shmbroker.connection import Connection
from shmbroker.staging import names
from shmbroker.staging.fresh import commit, taken
from shmbroker.staging.publication import PublicationState, decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shmbroker.message import Message
    from shmbroker.queue import Queue
    from shmbroker.staging.names import Batch

_PATIENCE = 1.0  # seconds that a writer waits for the marker, which lists dropped jobs; then it assumes no drop
_LOOK = 0.002  # seconds between attempts to get the lock for making the marker


class Held:
    """A marker that this process holds: it has taken the message, and not settled it.

    The message is FRESH: the core returns it to its queue when Python frees the message object. This `Held` has the
    only lasting reference to that object. So an interrupt anywhere between the take and the end of the hold returns the
    marker.

    Attributes:
        state: the state of the publication that the marker contains.
    """

    def __init__(self, queue: Queue, message: Message) -> None:
        self._queue, self._message = queue, message
        self.state = decode(bytes(message))

    def replace(
        self,
        state: PublicationState,
        until: int,
        publications: Sequence[Publication] = (),
        messages: Sequence[Message] = (),
        *,
        memory_until: int | None = None,
    ) -> PublicationState:
        """Replaces the marker by the next one, in one transaction that also puts the given bodies.

        Args:
            state: The state of the next marker.
            until: The deadline of the wait for room in queues.
            publications: The bodies that the transaction puts, each with its queues (`_core.transaction.Publication`).
            messages: The FRESH messages that the transaction acknowledges.
            memory_until: The deadline of the wait for memory; None: ``until``.

        Returns:
            ``state``.

        Raises:
            queue.Full: there is no room in time.
            OutOfMemory: there is no memory in time, or a body can never fit.
            MessageSettled: this connection no longer holds the marker, or a message that the transaction settles.
        """
        marker = Publication(state.encode(), (core_of(self._queue),))
        core = session_of(self._queue).core
        commit(core, [*publications, marker], [*messages, self._message], until, memory_until)
        return state

    def give_back(self) -> None:
        """Requeues the marker, unless :meth:`replace` has put the next one.

        The state of the message tells whether :meth:`replace` has done so, whatever interrupted that method. The
        queue's count of added messages does not tell it: the previous publisher's commit makes this marker ready, and
        counts it only afterwards. So the count may rise while this process holds the marker.
        """
        del self._message  # returns a FRESH message, in one step that no interrupt splits


class Marker:
    """The marker of a publication. It lies in the store of the broker, if there is one."""

    def __init__(self, connection: Connection, publication: str) -> None:
        self._connection, self._publication = connection, publication
        self._name = names.marker_name(publication)

    @contextlib.contextmanager
    def held(self, until: int) -> Iterator[Held]:
        """Takes the marker for a block, waiting until ``until``; requeues it after the block, unless it was replaced.

        Raises:
            Timeout: another publisher holds the marker.
        """
        held = Held(*self._take(until))
        try:
            yield held
        finally:
            held.give_back()

    def synced(self, until: int) -> None:
        """Waits until the marker, and all that was published before, is in the store, if the broker has one.

        Raises:
            Timeout: it is not in time. What was published is published nevertheless, as long as the memory exists.
        """
        queue = self._opened()
        if queue is not None:
            core_of(queue).await_store(until)

    def is_dropped(self, batch: Batch) -> bool:
        """Whether a job was dropped. ``False`` for a batch with a number, which can be published after a drop.

        ``False`` also means unknown: another publisher held the marker for a second.
        """
        if isinstance(batch, uuid.UUID):
            with contextlib.suppress(exceptions.Timeout), self.held(native.deadline(_PATIENCE)) as held:
                return batch in held.state.dropped
        return False

    def found(self, until: int) -> None:
        """Makes the marker if it does not exist.

        Writers call this before they stage messages. Staged messages can fill the memory, so that a marker could not be
        made any more; but dropping these messages needs the marker.

        Raises:
            OutOfMemory: there is no memory in time.
            Timeout: another process was making the marker all the time.
        """
        if self._opened() is None:
            self._found(until)

    def _take(self, until: int) -> tuple[Queue, Message]:
        """Takes the marker, and leaves it FRESH."""
        while True:
            queue = self._founded(until)
            with contextlib.suppress(exceptions.NotFound):  # the publication was forgotten in between
                try:
                    return queue, taken(queue, _seconds_to(until))
                except standard_queue.Empty:
                    text = (
                        f"publication {self._publication!r}: another client is publishing, or has taken the message "
                        f"out of queue {self._name!r}"
                    )
                    raise exceptions.Timeout(text) from None

    def _founded(self, until: int) -> Queue:
        """Returns the queue of the marker; makes the queue and the first marker if they do not exist."""
        queue = self._opened()
        if queue is None:
            self._found(until)
            queue = self._connection.queue(self._name, passive=True)
        return queue

    def _opened(self) -> Queue | None:
        """Opens the queue of the marker; ``None``: there is no queue, or no process has put a marker into it."""
        with contextlib.suppress(exceptions.NotFound):
            queue = self._connection.queue(self._name, passive=True)
            if queue.statistics().added:
                return queue
        return None

    def _found(self, until: int) -> None:
        """Makes the queue and the first marker, unless another process does it first.

        An exclusive queue serves as the lock. Its owner is a connection that only this call uses. The lock ends with
        that connection: this call closes it, whatever error or interrupt ends the call, and the reaper ends it if the
        process dies. So no end of the lock waits: deleting the queue would need the broker's topology lock.
        """
        name, session = names.founding_name(self._publication), session_of(self._connection)
        path, seconds = session.core.attachment.path, session.operation_timeout
        own = Connection(Session(path, name=name, operation_timeout=seconds))
        try:
            while not names.declare(own, name, exclusive=True):
                if time.monotonic_ns() >= until:
                    text = f"publication {self._publication!r}: another client is making its marker"
                    raise exceptions.Timeout(text)
                with contextlib.suppress(exceptions.NotFound, exceptions.ResourceLocked, exceptions.OutOfMemory):
                    # If the owner was killed before it opened the queue, this has the core end the queue (I73 of
                    # sb_lifetime.h).
                    own.queue(name, passive=True)
                time.sleep(_LOOK)
            own.queue(name, passive=True)
            queue = queues.ensure(session_of(own), self._name, durable=True)
            if not queue.statistics().added:
                queue.put(PublicationState().encode(), timeout=_seconds_to(until))
        finally:
            try:
                own.close()
            except BaseException:  # a signal handler raised, perhaps before the close had ended the lock
                own.close()
                raise


def forget_gone(connection: Connection) -> int:
    """Deletes each marker that is for one target only, if that target was deleted: its state has no use any more.

    It does not delete a marker that another publisher holds.

    Returns:
        The number of markers deleted.
    """
    there, gone = _targets(connection), 0
    for name in filter(names.is_marker, connection.queue_names(all=True)):
        with contextlib.suppress(exceptions.NotFound, exceptions.Timeout, exceptions.OutOfMemory, standard_queue.Empty):
            queue = connection.queue(name, passive=True)
            looked_at = next(iter(queue.browse()), None)
            if looked_at is None or decode(bytes(looked_at)).target in {0, *there}:
                continue
            held = Held(queue, taken(queue, 0))
            try:
                if held.state.target not in {0, *_targets(connection)}:  # anew: the target may be newer than `there`
                    queue.delete()
                    gone += 1
            finally:
                held.give_back()
    return gone


def _targets(connection: Connection) -> set[int]:
    return set(session_of(connection).core.queue_births().values())


def _seconds_to(until: int) -> float | None:
    if until >= native.FOR_EVER:
        return None
    return max(0.0, (until - time.monotonic_ns()) / native.NANOSECONDS)
