# SPDX-License-Identifier: Apache-2.0
"""Expiries: when messages expire that have left the memory.

A message in the memory has a timer of the housekeeper's. One that has left it has none: the storekeeper lets its leaf
come back when it has expired. For that it knows one time for each 8,192 successive sequence numbers of a queue, so it
needs little memory, however long the queue is. Nobody else has these times. A storekeeper that begins looks into the
store.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from shmbroker._core import paging
from shmbroker.storage import leaves, rows
from shmbroker.storage.reading import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmbroker._storekeeper.following import Following
    from shmbroker.storage.database import Database

_VALUES = 64  # so many values of the store are read in one call, to learn which sequence numbers expire
_SHARE = 3  # a look into the store is followed by a pause that is so many times longer
_RETRY_NS = 500_000_000  # if there was no memory


class _Group(NamedTuple):
    following: Following
    first: int


class Expiries:
    """The times of one broker. One thread uses it.

    Args:
        database: the store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unread: deque[tuple[Following, int]] = deque()
        self._noted: set[Following] = set()  # the queues of which there are times
        self._times: dict[_Group, int] = {}  # in nanoseconds of the monotonic clock; 0 = not known
        self._next: list[tuple[int, int, _Group]] = []  # a heap; an entry counts if its time is that in `_times`
        self._count = 0
        self._pause_until = 0

    def read(self, one: Following) -> None:
        """Looks up in later calls of :meth:`due` what of a queue expires. The store has it of before."""
        self._unread.append((one, 0))

    def left(self, one: Following, expiring: Iterable[paging.Expiring]) -> None:
        """Notes leaves of a queue that have left the memory."""
        for leaf in expiring:
            self._note(_Group(one, leaf.sequence // leaves.GROUP * leaves.GROUP), leaf.expires_ns)

    def again(self, one: Following, sequence: int) -> None:
        """Notes that a leaf that :meth:`due` has found did not come back, for want of memory."""
        at = time.monotonic_ns() + _RETRY_NS
        self._note(_Group(one, sequence // leaves.GROUP * leaves.GROUP), at)

    def forget(self, one: Following) -> None:
        """Forgets a queue that is gone."""
        self._unread = deque(entry for entry in self._unread if entry[0] is not one)
        if one in self._noted:
            self._noted.remove(one)
            self._times = {group: at for group, at in self._times.items() if group.following is not one}
            self._next = [entry for entry in self._next if entry[2].following is not one]
            heapq.heapify(self._next)

    def due(self) -> tuple[Following, list[int]] | None:
        """The leaves of some successive sequence numbers with messages that have expired and are not in the memory.

        Returns:
            The queue, and the first sequence number of each leaf; ``None``: none is known now.

        Raises:
            StoreError: the store cannot be read, or is damaged.
        """
        began = time.monotonic_ns()
        if began < self._pause_until:
            return None
        found = None
        self._read_some()
        while found is None and self._next and self._next[0][0] <= began:
            at, _, group = heapq.heappop(self._next)
            if self._times.get(group) != at:
                continue
            del self._times[group]
            if missing := _missing(group):
                found = group.following, self._expired(group, missing)
        now = time.monotonic_ns()
        self._pause_until = now + _SHARE * (now - began)
        return found

    def _note(self, group: _Group, at: int) -> None:
        if group in self._times and self._times[group] <= at:
            return
        self._times[group] = at
        self._noted.add(group.following)
        self._count += 1
        heapq.heappush(self._next, (at, self._count, group))

    def _read_some(self) -> None:
        if not self._unread:
            return
        one, sequence = self._unread.popleft()
        with self._database.read() as transaction:
            starts, behind = Reader(self._database, transaction).expiring(one.number, sequence, _VALUES)
        for start in starts:
            self._note(_Group(one, start), 0)
        if behind is not None:
            self._unread.appendleft((one, behind))

    def _expired(self, group: _Group, missing: list[int]) -> list[int]:
        """Those of the leaves that have a message which has expired. Notes when the next one of the others does."""
        now, wall = time.monotonic_ns(), time.time_ns()
        found, later = [], []
        with self._database.read() as transaction:
            reader = Reader(self._database, transaction)
            for leaf in missing:
                times = reader.expiries(group.following.number, leaf)
                if any(at <= wall for at in times):
                    found.append(leaf)
                later += [at for at in times if at > wall]
        if later:
            self._note(group, now + min(later) - wall)
        return found


def _missing(group: _Group) -> list[int]:
    """The leaves that are not in the memory: the first sequence number of each."""
    found, at, end = [], group.first, group.first + leaves.GROUP
    while (leaf := paging.absent(group.following.queue, at, end)) is not None:
        found.append(rows.leaf_of(leaf.sequence))
        at = found[-1] + rows.LEAF
    return found
