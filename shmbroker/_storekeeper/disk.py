# SPDX-License-Identifier: Apache-2.0
"""What the storekeeper does about a disk that gets full.

While the disk has less room than the reserve should have, and than a turn needs, the broker counts it as full: stored
queues take no message then (``sb_limits.h``), and what consumers remove makes room. A turn that finds no room
nevertheless, because other programs use the disk, gets the reserve.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shmbroker.storage import reserve

if TYPE_CHECKING:
    from shmbroker._core.storing import CoreStorekeeper
    from shmbroker.exceptions import StoreError
    from shmbroker.storage.database import Database

_LOOK_SECONDS = 0.01  # between two looks at a disk that has room
_ROWS = 2  # a turn that writes gets the reserve if its messages have half of it: the rest is for those that remove
_AGAIN = 4  # the disk counts as full until it has a quarter of the reserve more than is needed


class Disk:
    """The disk of a store, as the storekeeper sees it. One thread uses it.

    Args:
        core: the storekeeper in the core.
        database: the store, open for writing.
    """

    def __init__(self, core: CoreStorekeeper, database: Database) -> None:
        self._core = core
        self._reserve = reserve.Reserve(database)
        self._again = 0.0
        self.is_full = False

    def begin(self) -> None:
        """Takes the reserve, and tells the broker whether the disk is full. The storekeeper before may have said so."""
        self._reserve.take()
        self._core.set_full(full=self.is_full)
        self.look(0, 0)

    def look(self, rows: int, logged: int) -> None:
        """Tells the broker whether the disk is full.

        Args:
            rows: the bytes of the messages that the last turn wrote: the next one may have as many.
            logged: the bytes that the log has, and the database does not have yet.
        """
        now = time.monotonic()
        if not self.is_full and now < self._again and rows == 0:
            return
        self._again = now + _LOOK_SECONDS
        wanted = self._reserve.wanted
        needed = wanted + rows + logged + (wanted // _AGAIN if self.is_full else 0)
        full = self._reserve.room(2 * needed) < needed
        if not full and self._reserve.size < wanted:
            self._reserve.take()
        self._say(full=full)

    def is_short(self, error: StoreError) -> bool:
        """Whether the store could not be written because its disk has no room."""
        return reserve.is_full(error, self._reserve.folder)

    def gives_way(self, rows: int) -> bool:
        """Gives the reserve up; returns whether there was one, so that there is room now.

        Args:
            rows: the bytes of messages that were to be written. They may be too many: then the reserve stays, until
                consumers have taken enough of them.
        """
        if rows <= self._reserve.size // _ROWS and self._reserve.give_up():
            return True
        return self.has_no_room()

    def has_no_room(self) -> bool:
        """Tells the broker that the disk is full; returns False."""
        self._say(full=True)
        return False

    def _say(self, *, full: bool) -> None:
        if full != self.is_full:
            self.is_full = full
            self._core.set_full(full=full)
