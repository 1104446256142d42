# SPDX-License-Identifier: Apache-2.0
"""The log of a store: what the last turns changed, synced before the changes are in the database.

LMDB syncs twice for a commit, SQLite's write-ahead log once. So a small turn goes into this log, and the database gets
the changes of many turns in one commit. The log is a ring of rows in an SQLite file: a row is overwritten when the
database has what it says, so nothing needs to be removed.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from shmbroker.exceptions import StoreError
from shmbroker.storage import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = "log.sqlite"
"""The file of the log."""
ROWS = 64
"""A log keeps at most as many turns that the database does not have."""
# A row is about as long as a message: most rows fit into one page of this size. A short ring of pages that are written
# again and again does not change the length of the file, which would cost the disk another write.
_SETTINGS = (
    "page_size = 8192",
    "locking_mode = exclusive",  # the writer's place (place.py) admits one process; SQLite needs no shared memory then
    "journal_mode = wal",
    "wal_autocheckpoint = 100",
)


class Log:
    """The log of the store in a folder. One process has it open, and one thread uses it.

    Args:
        folder: the ``data_dir`` of the broker.
        syncs: whether a turn is synced.

    Raises:
        StoreError: the log is damaged, or cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str], *, syncs: bool = True) -> None:
        self._path = Path(folder) / LOG
        with self._errors():
            # SQLite would make a file that other users can read.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(self._path, isolation_level=None)
        try:
            with self._errors():
                for setting in (*_SETTINGS, f"synchronous = {'full' if syncs else 'off'}"):
                    self._connection.execute(f"PRAGMA {setting}").close()
                self._connection.execute("CREATE TABLE IF NOT EXISTS turns (place INTEGER PRIMARY KEY, number, what)")
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise StoreError(text=f"the log {str(self._path)!r}: {reason}") from error

    def append(self, number: int, what: bytes | bytearray) -> None:
        """Notes what a turn changes, and syncs it.

        Args:
            number: the number of the turn, one more than that of the last one. The turn that is :data:`ROWS` earlier is
                in the database.
            what: the changes.

        Raises:
            StoreError: the disk is full or fails. The log may have the turn, or not.
        """
        with self._errors():
            sealed = rows.sealed(rows.key(0, number), what)
            self._connection.execute("INSERT OR REPLACE INTO turns VALUES (?, ?, ?)", (number % ROWS, number, sealed))

    def after(self, number: int) -> list[tuple[int, bytes]]:
        """The turns after one that the database has, in their order: the number of each, and what it changes.

        Raises:
            StoreError: the log is damaged, or a turn is missing.
        """
        with self._errors():
            query = "SELECT number, what FROM turns WHERE number > ? ORDER BY number"
            found = self._connection.execute(query, (number,)).fetchall()
        turns = []
        for at, (one, sealed) in enumerate(found, number + 1):
            if one != at or not isinstance(sealed, bytes):
                raise StoreError(text=f"the log {str(self._path)!r} is damaged: turn {at} is missing")
            turns.append((at, bytes(rows.opened(rows.key(0, at), sealed, "the log"))))
        return turns

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()
