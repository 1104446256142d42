# SPDX-License-Identifier: Apache-2.0
"""Deletes the queues that a publish or a consume made, when nothing needs them any more.

A queue *rests* while it has no consumer, no call that waits for a message, no message in any state, and no binding. The
housekeeper deletes an auto-created queue when it has rested for ``auto_delete_queues_delay`` without a break, if it was
used: if it ever had a message or a consumer. The address settings are looked up each time, so a change is in effect at
the next look.

The housekeeper counts the time from its own first look at the resting queue, so a queue is never deleted early. A new
housekeeper begins to count anew. The deletion itself is conditional: if a message or a consumer comes after the last
look, the queue stays.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._core.inspection import incarnation_of
from shmbroker._core.journal import topology_lock, unbound
from shmbroker._topology.address_rows import AUTO_DELETE, AUTO_DELETE_DELAY, AUTO_DELETE_UNUSED
from shmbroker._topology.binding import ToQueue
from shmbroker._topology.shared import exchanges_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.facts import QueueFacts
    from shmbroker._core.queue import CoreQueue

LOOKS = 256
"""The most queues that one call of `AutoDelete.run` looks at: the housekeeper has other work, too."""


class _Rest(NamedTuple):
    """A rest of a queue, as the housekeeper has seen it.

    Attributes:
        marks: how many messages came, and when the last consumer left. Any use of the queue changes one of them.
        since: the monotonic time of the first look, in nanoseconds.
    """

    marks: tuple[int, int]
    since: int


class AutoDelete:
    """The auto-created queues that one housekeeper watches."""

    def __init__(self, connection: CoreConnection) -> None:
        self._connection = connection
        self._queues: list[CoreQueue] = []
        self._rests: dict[int, _Rest] = {}
        self._next = 0

    def watch(self, queues: Iterable[CoreQueue]) -> None:
        """Replaces the queues to watch; those that were not auto-created are left out."""
        self._queues = [queue for queue in queues if queue.auto_created]
        incarnations = {queue.incarnation for queue in self._queues}
        self._rests = {of: rest for of, rest in self._rests.items() if of in incarnations}

    def run(self) -> None:
        """Looks at the next queues, and deletes those that are not needed any more.

        Does nothing about a queue while another process holds the topology lock: a later call looks again.
        """
        count = len(self._queues)
        first, self._next = self._next, (self._next + LOOKS) % max(count, 1) if count > LOOKS else 0
        for queue in itertools.islice(itertools.cycle(self._queues), first, first + min(count, LOOKS)):
            # A damaged journal is not reported here: the doctor reports it.
            with contextlib.suppress(
                exceptions.NotFound, exceptions.Timeout, exceptions.OutOfMemory, exceptions.CorruptSegment
            ):
                if self._is_over(queue):
                    self._delete(queue)

    def _is_over(self, queue: CoreQueue) -> bool:
        """Looks at a queue, notes whether it rests, and returns whether it has rested for long enough."""
        facts, now = queue.facts(), time.monotonic_ns()
        settings = exchanges_of(self._connection).addresses(self._connection).explain(queue.name)
        delay: float | None = settings[AUTO_DELETE_DELAY].value
        if not _rests(facts) or not settings[AUTO_DELETE].value or delay is None:
            self._rests.pop(queue.incarnation, None)
            return False
        if not settings[AUTO_DELETE_UNUSED].value and not _was_used(facts):
            return False
        marks = (facts.added, facts.used_ns)
        rest = self._rests.get(queue.incarnation)
        if rest is None or rest.marks != marks:
            rest = self._rests[queue.incarnation] = _Rest(marks, now)
        return now - rest.since >= delay * native.NANOSECONDS

    def _delete(self, queue: CoreQueue) -> None:
        connection = self._connection
        with topology_lock(connection, 0, queue.what):  # so that no binding is made meanwhile
            facts = queue.facts()
            topology = exchanges_of(connection).refresh(connection)
            if not _rests(facts) or topology.bindings_to(ToQueue(queue.name, incarnation_of(facts))):
                self._rests.pop(queue.incarnation, None)
                return
            if queue.delete_idle(0):
                unbound(connection)


def _rests(facts: QueueFacts) -> bool:
    users = max(0, facts.consumers) + max(0, facts.interested) + max(0, facts.notified)
    return users + facts.ready + facts.scheduled + facts.delivering == 0


def _was_used(facts: QueueFacts) -> bool:
    return facts.added > 0 or facts.had_consumer != 0
