# SPDX-License-Identifier: Apache-2.0
"""The transient messages of a stored queue: those with ``delivery_mode=1``.

No turn has to bring them into the store. They are written only when the memory gets short, into tables of their own,
so that their leaves can leave it. A start from the disk drops these tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker._core import storing
from shmbroker.storage import rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmbroker._core.queue import CoreQueue
    from shmbroker._core.storing import CoreStorekeeper, Lane
    from shmbroker.storage.batch import Batch

MOST = 16 << 20
"""So many bytes of them are written in a turn: durable messages of the next one are waited for."""


class Transients:
    """Which transient messages of a queue the store lacks: those from a sequence number of each lane on.

    A storekeeper that begins, or whose turn has failed, looks at all messages, and so finds those that the store lacks.

    Args:
        core: the storekeeper in the core.
        queue: the queue.
        number: the number of the queue in the store.
    """

    def __init__(self, core: CoreStorekeeper, queue: CoreQueue, number: int) -> None:
        self._core, self._queue, self._number = core, queue, number
        self._lacking: dict[int, int] = {}  # by lane; a lane that is not here lacks none

    @property
    def some_lack(self) -> bool:
        """Whether the store lacks some."""
        return bool(self._lacking)

    def lacks(self, sequence: int) -> None:
        """Notes that the store lacks the message with a sequence number."""
        lane = sequence >> rows.LANE_SHIFT
        self._lacking[lane] = min(sequence, self._lacking.get(lane, sequence))

    def lacks_one_before(self, sequence: int) -> None:
        """The same of a message that may lie before others of its leaf that the store has: these are written anew."""
        if sequence < self._lacking.get(sequence >> rows.LANE_SHIFT, rows.BEHIND_ALL):
            self.lacks(rows.leaf_of(sequence))

    def behind(self, lane: Lane) -> int:
        """The sequence number up to which the store has all messages of a lane, with the transient ones."""
        return min(lane.stored, self._lacking.get(lane.stored >> rows.LANE_SHIFT, lane.stored))

    def write(self, batch: Batch, reached: Mapping[int, int], most: int = MOST) -> int:
        """Writes those that the store lacks; returns how many.

        Args:
            batch: the batch of the turn. If the turn fails, the next one looks at everything.
            reached: by lane, up to where the turn has gathered the other messages.
            most: bytes of bodies, after which the rest is left to the next turn.
        """
        count = size = 0
        for lane, first in list(self._lacking.items()):
            at, end = first, reached.get(lane, 0)
            while at < end and size < most:
                row = self._core.gather(self._queue, at, end, storing.TRANSIENT)
                if row.messages:
                    behind_leaf = rows.leaf_of(row.first) + rows.LEAF
                    batch.end_transient(self._number, row.first, behind_leaf - row.first)
                    batch.put_row(self._number, row.first, row.heads, row.bodies, transient=True)
                    count, size = count + row.messages, size + len(row.bodies)
                at = row.behind
            if at < end:
                self._lacking[lane] = at
            else:
                del self._lacking[lane]
        return count
