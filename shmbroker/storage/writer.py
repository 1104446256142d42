# SPDX-License-Identifier: Apache-2.0
"""Writes the turns of the storekeeper into a store, so that each of them is synced when it ends.

The changes of a turn go into a transaction of the database that stays open, and into the log, which is synced. The
transaction is committed after some turns, when the broker is quiet, or at once if a turn is large. The database then
says up to which turn it has everything. A writer that begins repeats what the log has behind that.

    killed in a turn                -> neither the log nor the database has the turn: nobody was told that it ended
    killed after the log was synced -> the log has the turn: the next writer repeats it
    killed in a commit              -> the database is as before: the next writer repeats all turns of the log
    killed after a commit           -> the log has turns that the database has, too: the next writer leaves them alone
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shmbroker.exceptions import StoreError
from shmbroker.storage.batch import Batch, apply
from shmbroker.storage.database import DATA
from shmbroker.storage.log import LOG, ROWS, Log
from shmbroker.storage.reserve import is_full

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lmdb

    from shmbroker.storage.database import Database

_APPLIED = b"applied"  # the last turn of the log that the database has; none: the store has had no writer
_NUMBER_BYTES = 8
_MOST_LOGGED = 4 << 20  # bytes


class Writer:
    """The writer of a store. One thread uses it.

    Args:
        database: the store, opened for writing; the caller closes it after the writer.

    Raises:
        StoreError: the store is damaged, or cannot be written.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._transaction: lmdb.Transaction | None = None
        self._number = self._applied = 0  # the last turn in the log, and the last one of these that the database has
        self._pending: bytes | bytearray = b""  # what the log has of the last turn, and the transaction has not
        self.logged = 0  # bytes in the log that the database does not have
        self.rows = 0  # bytes of messages in the last turn
        applied = self._noted()
        if applied is not None and not (database.folder / LOG).exists():
            raise _parted(database)
        self._log = Log(database.folder, syncs=database.syncs)
        try:
            if applied is None and self._log.after(0):
                raise _parted(database)  # noqa: TRY301
            self._applied = applied or 0
            with database.errors():
                self._commit()
        except BaseException:
            self.close()
            raise

    def _noted(self) -> int | None:
        with self._database.read() as transaction:
            found = transaction.get(_APPLIED, db=self._database.names[b"info"])
            return None if found is None else int.from_bytes(found, "little")

    @contextlib.contextmanager
    def turn(self) -> Iterator[Batch]:
        """A batch whose changes are synced when the block ends, or undone if it raises.

        Raises:
            StoreError: the disk is full or fails, or the store is damaged; nothing was changed.
        """
        self.rows = 0
        with self._undone_if_it_fails():
            if self._number - self._applied == ROWS or self.logged > _MOST_LOGGED:
                self._commit()
            batch = Batch(self._database, self._begun())
            try:
                yield batch
            finally:
                self.rows = batch.rows
            batch.finish()
            if batch.changes is None:
                self._commit()
            elif batch.changes:
                self._append(batch, batch.changes)

    def catch_up(self) -> None:
        """Brings the last turn, which the log has, into the open transaction. Nobody waits for that.

        Raises:
            StoreError: the database is damaged; the log keeps the turn.
        """
        with self._undone_if_it_fails():
            self._apply_pending()

    def _apply_pending(self) -> None:
        pending, self._pending = self._pending, b""
        if pending and self._transaction is not None:
            apply(self._database, self._transaction, pending)

    def settle(self) -> None:
        """Commits what the database does not have yet. Its turns are synced already.

        Raises:
            StoreError: the database cannot be written; the log keeps the turns.
        """
        with self._undone_if_it_fails():
            if self._number > self._applied:
                self._commit()

    def pass_on(self) -> None:
        """Commits even if nothing has changed. LMDB writes into the pages that a commit frees after one more commit.

        Raises:
            StoreError: the database cannot be written; the log keeps the turns.
        """
        with self._undone_if_it_fails():
            self._commit()

    @contextlib.contextmanager
    def _undone_if_it_fails(self) -> Iterator[None]:
        """Gives the open transaction up if the block raises: the next one repeats the turns that the log has."""
        with self._database.errors():
            try:
                yield
            except BaseException:
                self._undo()
                raise

    def _begun(self) -> lmdb.Transaction:
        """The transaction that is open. A new one repeats the turns that the database does not have."""
        self._apply_pending()
        if self._transaction is None:
            self._transaction = self._database.environment.begin(write=True, buffers=True)
            self._number, self.logged = self._applied, 0
            for number, changes in self._log.after(self._applied):
                apply(self._database, self._transaction, changes)
                self._number, self.logged = number, self.logged + len(changes)
        return self._transaction

    def _append(self, batch: Batch, changes: bytearray) -> None:
        try:
            self._log.append(self._number + 1, changes)
        except StoreError as error:
            if not is_full(error, self._database.folder):
                raise
            # The database may have free pages. The log may have the turn nevertheless: its number counts as used.
            batch.apply()
            self._number += 1
            self._commit()
            return
        self._number += 1
        self.logged += len(changes)
        self._pending = b"" if batch.applied else changes

    def _commit(self) -> None:
        transaction, self._transaction = self._begun(), None
        noted = self._number.to_bytes(_NUMBER_BYTES, "little")
        transaction.put(_APPLIED, noted, db=self._database.names[b"info"])
        transaction.commit()
        self._database.lengthen()
        self._applied, self.logged = self._number, 0

    def _undo(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.abort()

    def close(self) -> None:
        """Closes the log. What the database does not have is in the log, for the next writer."""
        self._undo()
        self._log.close()


def _parted(database: Database) -> StoreError:
    text = f"the store in {str(database.folder)!r} is damaged: {DATA} and {LOG} belong together, and one was removed"
    return StoreError(text=text)
