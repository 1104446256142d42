# SPDX-License-Identifier: Apache-2.0
"""The environment of a store: opening it, and the reasons for which it is refused."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import lmdb

from shmbroker.exceptions import StoreError
from shmbroker.storage import beside, rows
from shmbroker.storage.place import Place
from shmbroker.storage.verifying import verified

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

FORMAT = 5
"""The format of the store: what the databases are named, and what their values mean."""
NAMES = (
    *rows.DURABLE, *rows.TRANSIENT, b"leaves", b"queues", b"tails", b"topology", b"info", b"ids",
)  # fmt: skip
_MAP = 1 << 40  # bytes of address space; the file grows only as it is written
_LEAST_MAP = 1 << 28
_READERS = 1024
_META_PAGES = 2
_BLOCK = 512  # the unit of `st_blocks`
DATA = "data.mdb"
"""The file of the store, as LMDB names it."""
LOCK = "lock.mdb"
"""The file of its readers, as LMDB names it."""
_FORMAT_KEY, _ID_KEY = b"format", b"id"
_ID_BYTES = 8


class Database:
    """The LMDB environment of a store, open in this process.

    Args:
        folder: the ``data_dir`` of the broker.
        owner: what another writer is told, such as ``broker 'orders'``; ``None``: this process only reads.
        place: the place of the writer, if this process has it already; it is left when the database is closed.
        syncs: whether a commit is synced. If not, a loss of the machine may damage the store.
        walks: whether the caller only walks the pages, and may be ended by a file that is cut short.

    Raises:
        StoreError: the folder is missing or cannot be written; another process writes the store; the store is none, is
            damaged, or has another format.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        owner: str | None = None,
        place: Place | None = None,
        syncs: bool = True,
        walks: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self._path = self.folder / DATA
        self.syncs = syncs
        self._place = place
        self._reading = -1
        self._pid = os.getpid()
        writes = owner is not None or place is not None
        if not self.folder.is_dir():
            raise StoreError(text=f"data_dir={str(self.folder)!r} is no folder")
        try:
            if writes:
                self._place = place or Place(self.folder, owner or "")
                if not self._path.exists():
                    self._make()
            else:
                self._reading = beside.reading(self._path)
            self.environment = self._open(self._path, writes=writes, syncs=self.syncs)
            if self.lacks() and not walks:
                self._refuse_if_cut_short(writes=writes)
            self.names = self._prepare()
        except BaseException:
            self._leave()
            raise

    def _make(self) -> None:
        """Makes the file of the store. It gets its name when the disk has all of it, so there is never a part of it."""
        new = self.folder / f"{DATA}.new"
        lock = self.folder / f"{DATA}.new-lock"  # as LMDB names it
        try:
            for left in (new, lock):  # by a writer that was killed, or lost power
                left.unlink(missing_ok=True)
            environment = self._open(new, writes=True, syncs=True)
            with contextlib.closing(environment), self.errors(), environment.begin(write=True) as transaction:
                names = {name: environment.open_db(name, transaction) for name in NAMES}
                transaction.put(_FORMAT_KEY, str(FORMAT).encode(), db=names[b"info"])
            lock.unlink()
            new.rename(self._path)
            self._sync_folder()
        except OSError as error:
            raise StoreError(text=f"data_dir={str(self.folder)!r}: {error.strerror}") from error

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _open(self, path: Path, *, writes: bool, syncs: bool) -> lmdb.Environment:
        size = _MAP
        while True:
            try:
                with self.errors():
                    return lmdb.open(
                        str(self.folder if path == self._path else path),
                        map_size=size,
                        subdir=path == self._path,
                        max_dbs=len(NAMES),
                        max_readers=_READERS,
                        mode=0o600,
                        create=False,
                        readonly=not writes,
                        readahead=False,
                        sync=syncs,
                    )
            except StoreError as error:
                limited = isinstance(error.__cause__, lmdb.MemoryError) or "Cannot allocate" in str(error)
                if not limited or size <= _LEAST_MAP:
                    raise
                size //= 4

    def _prepare(self) -> dict[bytes, Any]:
        """Opens the databases, and compares the format."""
        with self.errors():
            info = self.environment.open_db(b"info", create=False)
            with self.environment.begin() as transaction:
                found = transaction.get(_FORMAT_KEY, db=info)
        if found != str(FORMAT).encode():
            text = f"the store in {str(self.folder)!r} has format {found!r}, this version reads {FORMAT}"
            raise StoreError(text=text)
        with self.errors():
            return {name: self.environment.open_db(name, create=False) for name in NAMES}

    def identify(self) -> int:
        """Returns the id of the store, a random number of 63 bits; the first writer makes it.

        Raises:
            StoreError: the id cannot be read or written.
        """
        info = self.names[b"info"]
        with self.read() as transaction:
            found = transaction.get(_ID_KEY, db=info)
            if found is not None:
                return int.from_bytes(found)
        made = int.from_bytes(os.urandom(_ID_BYTES)) >> 1 or 1
        with self.errors(), self.environment.begin(write=True) as transaction:
            transaction.put(_ID_KEY, made.to_bytes(_ID_BYTES), db=info)
        return made

    def lacks(self) -> int:
        """How many bytes the file is shorter than its pages. A process that reads one of these is ended by SIGBUS.

        LMDB does not write pages at the end of the file that are free again when a transaction ends.
        """
        found = self.environment.info()["last_pgno"] + 1
        return max(0, found * int(self.environment.stat()["psize"]) - self.size())

    def lengthen(self) -> None:
        """Gives the file the length that its pages have, if it ends with free ones. The disk needs no room for that."""
        if lacks := self.lacks():
            with contextlib.suppress(OSError):
                os.truncate(self._path, self.size() + lacks)

    def _refuse_if_cut_short(self, *, writes: bool) -> None:
        lacks, size = self.lacks(), self.size()
        try:
            verified(self.folder)
        except StoreError as error:
            text = (
                f"the store in {str(self.folder)!r} is damaged: {DATA} is cut short, to {size} of {size + lacks} bytes"
            )
            raise StoreError(text=text) from error
        if writes:
            self.lengthen()

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turns errors of LMDB into StoreError."""
        try:
            yield
        except lmdb.Error as error:
            found = os.statvfs(self.folder)
            text = f"the store in {str(self.folder)!r}: {error}"
            if found.f_bavail == 0:
                text += "; the disk is full"
            raise StoreError(text=text) from error

    @contextlib.contextmanager
    def read(self) -> Iterator[lmdb.Transaction]:
        """A transaction that sees the store as it is now. Its values are views, valid until the block ends.

        Raises:
            StoreError: the store is damaged.
        """
        with self.errors(), self.environment.begin(buffers=True) as transaction:
            yield transaction

    def size(self) -> int:
        """The length of the file of the database, in bytes."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def free(self) -> int:
        """The bytes of the file that no value of the database uses: later commits write there.

        Raises:
            StoreError: the database is damaged.
        """
        with self.read() as transaction:
            stats = [self.environment.stat(), *(transaction.stat(one) for one in self.names.values())]
        used = sum(one["branch_pages"] + one["leaf_pages"] + one["overflow_pages"] for one in stats) + _META_PAGES
        written = min(self.size(), self._path.stat().st_blocks * _BLOCK)
        return max(0, written - used * int(stats[0]["psize"]))

    def forget_dead_readers(self) -> None:
        """Frees the places of readers that were killed: pages that such a reader saw would never be used again."""
        with self.errors():
            self.environment.reader_check()

    def is_replaced(self) -> bool:
        """Whether a reader has to open the store anew: it is a forked process, or the file is another one by now."""
        if self._pid != os.getpid():
            return True
        if self._reading < 0:
            return False
        try:
            now = self._path.stat()
        except OSError:
            return True
        mine = os.fstat(self._reading)
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def close(self) -> None:
        """Closes the environment. A forked process closes nothing: the environment is its parent's."""
        if self._pid == os.getpid():
            self.environment.close()
            self._leave()

    def _leave(self) -> None:
        if self._place is not None:
            self._place.leave()
        if self._reading >= 0:
            os.close(self._reading)
            self._reading = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Database {str(self.folder)!r}>"
