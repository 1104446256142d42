# SPDX-License-Identifier: Apache-2.0
"""The duplicate ids of a stored queue, as the storekeeper follows them: which of them a turn brings into the store.

An id and its message come into the store in the same turn. Two rules see to that:

- A turn lists the ids that are known, and only then gathers messages. The message of each of these ids is in the turn,
  or in an earlier one, or has ended (I132 of ``sb_duplicates.h``).
- A turn also writes the id of each message that it gathers, if the queue knows it.

An id that became known after the list, and whose message is not in the turn, is left to a later turn: until then the
disk has neither, and the producer may repeat the put.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmbroker._core.queue import CoreQueue
    from shmbroker._core.storing import CoreStorekeeper
    from shmbroker.storage.batch import Batch


class Remembering:
    """The duplicate ids of a queue. An id is a hash; its number is its age.

    Args:
        core: the storekeeper in the core.
        queue: the queue.
        number: the number of the queue in the store.
    """

    def __init__(self, core: CoreStorekeeper, queue: CoreQueue, number: int) -> None:
        self._core, self._queue, self._number = core, queue, number
        # After the last turn: the number at which the next list begins; what it will list, although the store has it;
        # the claims that were seen, with the number that the store has of each, or 0; and what the store has forgotten.
        self._start = 0
        self._written: dict[bytes, int] = {}
        self._claimed: dict[bytes, int] = {}
        self._forgotten = 0
        self._incomplete = False  # a message that ended before it was gathered may have an id that no list had
        self._open(afresh=False)

    def _open(self, *, afresh: bool) -> None:
        self._afresh = afresh
        self._latest = self._start
        self._known: dict[bytes, int] = {}
        self._claims: dict[bytes, int] = {}
        self._came: set[bytes] = set()
        self._left_out = False

    @property
    def has_some(self) -> bool:
        """Whether the store may have ids of the queue."""
        return self._start > 0

    @property
    def needs_turn(self) -> bool:
        """Whether the next turn has to look at the ids, even if the queue has nothing else to store."""
        return self._incomplete or bool(self._claimed)

    def begin(self, *, everything: bool) -> None:
        """Lists the ids that the store lacks. A step of a turn before messages are gathered.

        Args:
            everything: whether the store may have other ids than the last turn says.
        """
        if everything:
            self._start, self._written, self._claimed, self._forgotten = 0, {}, {}, 0
        self._open(afresh=everything)
        numbers = self._core.id_numbers(self._queue)
        if numbers is None:
            return
        self._latest = numbers.latest
        for found, number in self._core.ids(self._queue, self._start):
            if number:
                self._known[found] = number
            else:
                self._claims[found] = self._claimed.get(found, 0)
        for found in self._claimed.keys() - self._claims.keys():  # their numbers may be lower than the list's first one
            self._know(found)

    def _know(self, found: bytes) -> int | None:
        number = self._core.id_number(self._queue, found)
        if number:
            self._known[found] = number
        return number

    def came(self, ids: Iterable[bytes]) -> None:
        """Notes the ids of messages that this turn writes."""
        self._came.update(ids)

    def ended(self) -> None:
        """Notes that a message ended before it was gathered: its id may have become known after the list."""
        self._left_out = True

    def write(self, batch: Batch) -> None:
        """Brings the ids into the batch. The last step of a turn before the sync."""
        without_number = [found for found in self._came - self._known.keys() if self._know(found) == 0]
        numbers = self._core.id_numbers(self._queue)  # last: an id without a number is younger than all that have one
        if numbers is None and not self._afresh:
            self._left_out = False
            return
        forgotten = 0 if numbers is None else numbers.forgotten
        for found in without_number:  # the turn after the one in which it gets its number moves it
            self._claims[found] = self._known[found] = numbers.latest if numbers is not None else 0
        there = dict(batch.ids(self._number)) if self._afresh else self._written
        added = [one for one in self._known.items() if one[1] > forgotten and there.get(one[0]) != one[1]]
        removed = self._stale(there.items()) if self._afresh else self._moved()
        if added or removed or forgotten != self._forgotten:
            batch.set_ids(self._number, forgotten, added, removed)
        self._forgotten = forgotten

    def _stale(self, there: Iterable[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        """What the store has, and the queue does not know. An id that is claimed and stored keeps its number."""
        stale = []
        for found, number in there:
            if found in self._claims and found not in self._known:
                self._claims[found] = number
            elif self._known.get(found) != number:
                stale.append((found, number))
        return stale

    def _moved(self) -> list[tuple[bytes, int]]:
        """The numbers under which the store has ids that have got another number."""
        before = self._claimed.items()
        return [one for one in before if one[1] and one[1] not in (self._claims.get(one[0]), self._known.get(one[0]))]

    def synced(self) -> None:
        """Notes what the store has now. The last step of a turn, after the sync."""
        self._start, self._claimed, self._incomplete = self._latest, self._claims, self._left_out
        self._written = {found: number for found, number in self._known.items() if number >= self._start}
