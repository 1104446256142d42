# SPDX-License-Identifier: Apache-2.0
"""The reserve of a store: room on its disk that is kept for turns that remove messages.

LMDB writes over no page that is in use: a commit that removes messages takes free pages before it gives others back.
On a disk without a free block, consuming would free nothing. So a file of the folder takes room while the disk has
some. It is emptied when the store cannot be written, and takes room again when there is enough.

The file of LMDB never gets shorter. What was removed becomes free pages in it, which are room for what comes next.

    killed while it takes room -> a shorter reserve, which the next storekeeper completes
    killed after it was emptied -> no reserve; the next storekeeper takes one if the disk has room
"""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import TYPE_CHECKING

import lmdb

if TYPE_CHECKING:
    from pathlib import Path

    from shmbroker.exceptions import StoreError
    from shmbroker.storage.database import Database

FILE = "reserve"
"""The file that takes the room."""
_LEAST = 8 << 20  # bytes: more than the log has, and than the pages that lead to what a turn removes
_PER_BYTE = 512  # LMDB notes 8 bytes for each page of 4096 that becomes free
_PART_OF_DISK = 4  # the reserve has a quarter of a small disk
_BLOCK = 512  # the unit of `st_blocks`
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: StoreError, folder: Path) -> bool:
    """Whether the store in a folder could not be written because its disk has no room."""
    cause = error.__cause__
    if isinstance(cause, OSError):
        return cause.errno in _FULL
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    if isinstance(cause, (lmdb.DiskError, lmdb.MapFullError)):
        return True
    if not isinstance(cause, lmdb.Error):
        return False
    if os.strerror(errno.EIO) in str(cause):  # what LMDB says after the disk took a part of its pages
        return os.statvfs(folder).f_bavail == 0
    return any(os.strerror(number) in str(cause) for number in _FULL)


class Reserve:
    """The reserve of a store. The writer of the store uses it.

    Args:
        database: the store, open for writing.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.folder = database.folder
        self._path = self.folder / FILE
        self.size = self._taken()

    def _taken(self) -> int:
        try:
            found = self._path.stat()
        except OSError:
            return 0
        return min(found.st_size, found.st_blocks * _BLOCK)

    @property
    def wanted(self) -> int:
        """The bytes that the reserve should have."""
        found = os.statvfs(self._database.folder)
        return min(_LEAST + self._database.size() // _PER_BYTE, found.f_blocks * found.f_frsize // _PART_OF_DISK)

    def room(self, enough: int) -> int:
        """The bytes that the store can get: on the disk, in the reserve, and in pages that are free.

        Args:
            enough: if the disk and the reserve have so much, the pages are not counted.
        """
        found = os.statvfs(self._database.folder)
        room = found.f_bavail * found.f_frsize + self.size
        return room if room >= enough else room + self._database.free()

    def take(self) -> None:
        """Takes the room that is missing, as far as the disk has it."""
        try:
            found = os.statvfs(self._database.folder)
            size = min(self.wanted, self.size + found.f_bavail * found.f_frsize)
            if size > self.size:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    os.posix_fallocate(descriptor, 0, size)
                finally:
                    os.close(descriptor)
        except OSError:
            pass  # another program took the room, or the folder is gone: the next turn looks again
        self.size = self._taken()

    def give_up(self) -> bool:
        """Gives the room back to the disk; returns whether there was some."""
        had, self.size = self.size, 0
        try:
            os.truncate(self._path, 0)
        except OSError:
            return False
        return had > 0
