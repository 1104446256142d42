# SPDX-License-Identifier: Apache-2.0
"""The marker of a publication: the one message of a queue. Who holds it may publish; it says what was published.

A transaction that publishes settles it and puts the next one, so that both happen or neither does. If its holder is
killed, it is in its queue again, or the next one is, when his reaper has carried his transaction out or undone it.
"""

from __future__ import annotations

import contextlib
import queue as standard_queue
import time
from typing import TYPE_CHECKING

from shmbroker import exceptions, internal
from shmbroker._core import library
from shmbroker._core.commit import Publication, Settlement, commit_waiting
from shmbroker.staging import names
from shmbroker.staging.kept import tag_of
from shmbroker.staging.state import State, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shmbroker.connection import Connection
    from shmbroker.message import Message
    from shmbroker.queue import Queue

_LOOK = 0.002  # seconds: how often to try to found again what somebody else is founding


class Held:
    """A marker that is held.

    Attributes:
        state: what it says.
    """

    def __init__(self, queue: Queue, message: Message) -> None:
        self._queue, self._message = queue, message
        self._added = queue.statistics().added
        self.state = decode(bytes(message))

    def replace(
        self,
        state: State,
        until: int,
        publications: Sequence[Publication] = (),
        settlements: Sequence[Settlement] = (),
    ) -> State:
        """Puts the next marker, and publishes and settles what is given: all of that, or nothing.

        Raises:
            queue.Full: no room in time.
            OutOfMemory: no memory in time, or a body can never fit.
            MessageSettled: one of the messages is not there any more.
        """
        marker = Publication(state.encode(), (self._queue.core,))
        mine = Settlement(self._queue.core, tag_of(self._message))
        commit_waiting(self._queue.core_connection, [*publications, marker], [*settlements, mine], until)
        return state

    def give_back(self) -> None:
        """Unless it was replaced, also if whoever did so was interrupted before he knew."""
        with contextlib.suppress(exceptions.NotFound):  # forgotten
            if self._queue.statistics().added == self._added:
                self._message.give_back()


class Marker:
    """The marker of a publication."""

    def __init__(self, connection: Connection, publication: str) -> None:
        self._connection, self._publication = connection, publication
        self._name = names.marker_name(publication)

    @contextlib.contextmanager
    def held(self, until: int, make_room: Callable[[], object] | None = None) -> Iterator[Held]:
        """Takes it, waiting until then; it goes back if it was not settled.

        Args:
            until: the deadline.
            make_room: called if there is no memory for the first one; nothing was begun, nor is while it runs.

        Raises:
            Timeout: somebody else holds it.
            OutOfMemory: there is none for the first one, in time.
        """
        held = Held(*self._take(until, make_room))
        try:
            yield held
        finally:
            held.give_back()

    def _take(self, until: int, make_room: Callable[[], object] | None) -> tuple[Queue, Message]:
        while True:
            queue = self._founded(until, make_room)
            with contextlib.suppress(exceptions.NotFound):  # it was forgotten meanwhile
                try:
                    return queue, queue.get(timeout=_seconds_to(until))
                except standard_queue.Empty:
                    text = (
                        f"publication {self._publication!r}: somebody else is publishing, or has taken the message out "
                        f"of queue {self._name!r}"
                    )
                    raise exceptions.Timeout(text) from None

    def _founded(self, until: int, make_room: Callable[[], object] | None) -> Queue:
        """The queue, in which the first marker has been put."""
        with contextlib.suppress(exceptions.NotFound):
            queue = self._connection.queue(self._name, passive=True)
            if queue.statistics().added:
                return queue
        return self._found(until, make_room)

    def _found(self, until: int, make_room: Callable[[], object] | None) -> Queue:
        """One at a time: an exclusive queue goes when all that its dead owner did was carried out or undone."""
        name = names.founding_name(self._publication)
        while not names.declare(self._connection, name, exclusive=True):
            if time.monotonic_ns() >= until:
                text = f"publication {self._publication!r}: somebody else is making its marker"
                raise exceptions.Timeout(text)
            time.sleep(_LOOK)
        founding = self._connection.queue(name, passive=True)
        try:
            queue = internal.make(self._connection, self._name)
            if not queue.statistics().added:
                _put_first(queue, until, make_room)
        finally:
            founding.delete()
        return queue


def _put_first(queue: Queue, until: int, make_room: Callable[[], object] | None) -> None:
    if make_room is not None:
        try:
            return queue.put(State().encode(), timeout=0)
        except exceptions.OutOfMemory:
            make_room()
    return queue.put(State().encode(), timeout=_seconds_to(until))


def _seconds_to(until: int) -> float | None:
    if until >= library.FOR_EVER:
        return None
    return max(0.0, (until - time.monotonic_ns()) / library.NANOSECONDS)
