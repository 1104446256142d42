# SPDX-License-Identifier: Apache-2.0
"""Loading: messages that have left the memory come back, read from the store by the process that needs them."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import native, paging, syncing
from shmbroker._core.connection import CoreConnection
from shmbroker._core.patience import Patience
from shmbroker._core.queue import CoreQueue
from shmbroker._process import locks
from shmbroker._storekeeper import records
from shmbroker._storekeeper.verification import fault_in
from shmbroker.storage import rows
from shmbroker.storage.database import DATA, LOCK, Database
from shmbroker.storage.reading import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker._core.attachment import Attachment

NAME = "loader"
LEAVES, SIZE = 8, 1 << 20
"""How many leaves of up to 64 messages a call loads at most, and how many bytes of bodies; one leaf in any case."""
_OTHERS_FIRST_NS = 4_000_000_000  # a call leaves the reserve of memory to the housekeeper for so long


class Loader:
    """Loads messages of the queues of a broker, for the calls of this process. Any thread.

    Args:
        opened: opens the store for reading, or returns the one that this process has open.
        keeps: whether this process is the storekeeper, which reads the store before its pages are verified.
    """

    def __init__(self, opened: Callable[[], Database], *, keeps: bool = False) -> None:
        self._opened, self._keeps = opened, keeps
        self._database: Database | None = None
        self._lock = locks.lock()
        self._numbers: dict[tuple[str, int, int], int] = {}  # of queues in the store
        self._loads = False  # whether the holder of the lock is in `load`
        self._unneeded = False  # whether the store is to be closed as soon as no thread loads

    def close(self) -> None:
        """Closes the store; a later call opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
            self._numbers.clear()

    def let_go(self) -> None:
        """Closes the store now, or when the call that loads from it ends. Waits for no lock.

        The garbage collector may call it, also within :meth:`load`, and within a function that holds the lock of
        attachments, for which a thread in :meth:`load` may wait.
        """
        self._unneeded = True
        while self._unneeded and self._lock.acquire(blocking=False):  # again: it may have been set meanwhile
            try:
                if self._loads:
                    return  # this thread is in `load`, whose end closes the store
                self._unneeded = False
                self._close()
            finally:
                self._lock.release()

    def load(self, attached: Attachment, slot: int, sequence: int) -> None:
        """Lets the leaf of a sequence number come back, and some that follow it.

        Raises:
            StoreError: the store cannot be read, or is damaged.
            OutOfMemory: there is no memory for the leaf, and none came free in time.
        """
        try:
            self._load_for(attached, slot, sequence)
        finally:
            if self._unneeded:
                self.let_go()

    def _load_for(self, attached: Attachment, slot: int, sequence: int) -> None:
        with self._lock, self._loading(), contextlib.suppress(exceptions.NotFound):  # the queue was deleted meanwhile
            connection = CoreConnection(attached.path, NAME)
            try:
                facts = connection.queue_facts(slot)
                if facts is not None:
                    queue = CoreQueue(connection, facts.name, slot)
                    try:
                        self._load(queue, sequence, others_wait=facts.scheduled > 0)
                        syncing.ask(connection)  # the storekeeper then loads what comes next
                    finally:
                        queue.leave()
            finally:
                connection.close()

    @contextlib.contextmanager
    def _loading(self) -> Iterator[None]:
        before, self._loads, self._unneeded = self._loads, True, False
        try:
            yield
        finally:
            self._loads = before

    def _reads(self, attached: Attachment) -> bool:
        """Whether this process reads the store itself."""
        if self._keeps or (attached.is_verified() and self._database is not None):
            return True
        folder = attached.data_dir or ""
        files = (os.path.join(folder, DATA), os.R_OK), (os.path.join(folder, LOCK), os.R_OK | os.W_OK)  # noqa: PTH118
        return attached.is_verified() and all(os.access(path, mode) for path, mode in files)

    def _wish(self, queue: CoreQueue, sequence: int) -> None:
        """Lets the storekeeper load the leaf."""
        attached, first = queue.connection.attachment, rows.leaf_of(sequence)
        patience = Patience(queue.connection)
        while paging.absent(queue, first, first + rows.LEAF) is not None:
            if attached.is_damaged():
                raise fault_in(attached.data_dir or "")
            paging.wish(queue, first)
            if patience.rest():
                continue
            if patience.answered:
                raise _full(queue)
            text = f"the storekeeper has not loaded messages of {queue.what}, which are in the store"
            raise exceptions.Timeout(text)

    def _load(self, queue: CoreQueue, sequence: int, *, others_wait: bool) -> None:
        """Loads. `others_wait`: there may be dead messages, and the housekeeper needs memory to carry them out."""
        if not self._reads(queue.connection.attachment):
            self._wish(queue, sequence)
            return
        patience, first = Patience(queue.connection), rows.leaf_of(sequence)
        until = time.monotonic_ns() + _OTHERS_FIRST_NS if others_wait else 0
        while self.come_back(queue, first, LEAVES, SIZE, if_spare=time.monotonic_ns() < until) == native.NO_MEMORY:
            paging.wish(queue, first)  # the storekeeper then lets others leave, also below its marks
            if not patience.rest():
                raise _full(queue)

    def come_back(
        self,
        queue: CoreQueue,
        sequence: int,
        leaves: int,
        size: int,
        *,
        most: int | None = None,
        if_spare: bool = False,
    ) -> int:
        """Lets leaves come back that are not in the memory, from a sequence number on.

        Args:
            queue: the queue.
            sequence: the first sequence number of a leaf.
            leaves: up to so many leaves behind it are looked at.
            size: the bytes of bodies, after which no other leaf is loaded.
            most: the most bytes of bodies of the first leaf; ``None`` = it is loaded in any case.
            if_spare: leave the reserve of memory to the calls that make room.

        Returns:
            NO_MEMORY if there is no memory for the first of them, or if it has more than `most`; else OK.

        Raises:
            StoreError: the store cannot be read, or is damaged.
        """
        end = sequence + leaves * rows.LEAF
        missing = []
        at = sequence
        while (found := paging.absent(queue, at, end)) is not None:
            missing.append(found)
            at = rows.leaf_of(found.sequence) + rows.LEAF
        if not missing:
            return native.OK
        database = self._store()
        number = self._number(database, queue)
        loaded = 0
        with database.read() as transaction:  # after the links were read (I129 of sb_paged.h)
            reader = Reader(database, transaction)
            for leaf in missing:
                stored = [paging.Stored(*row) for row in reader.whole_leaf(number, rows.leaf_of(leaf.sequence))]
                added = sum(len(row.bodies) for row in stored)
                if loaded and loaded + added > size:
                    break
                if not loaded and most is not None and added > most:
                    return native.NO_MEMORY
                if _one_back(queue, leaf, stored, if_spare=if_spare) == native.NO_MEMORY:
                    return native.OK if loaded else native.NO_MEMORY
                loaded += added + 1
        return native.OK

    def _store(self) -> Database:
        if self._database is not None and self._database.is_replaced():
            self._database.close()
            self._database = None
            self._numbers.clear()
        if self._database is None:
            self._database = self._opened()
        return self._database

    def _number(self, database: Database, queue: CoreQueue) -> int:
        instance = queue.connection.attachment.facts().instance
        place = queue.name, queue.incarnation, instance
        if place not in self._numbers:
            with database.read() as transaction:
                found = Reader(database, transaction).queues()
            stored = {number: records.decode(record) for number, record in found.items()}
            self._numbers = {(one.name, one.incarnation, one.instance): number for number, one in stored.items()}
        if place not in self._numbers:
            text = f"the store in {str(database.folder)!r} has no {queue.what}, whose messages are not in the memory"
            raise exceptions.StoreError(text=text)
        return self._numbers[place]


_loaders: dict[str, Loader] = {}
_loaders_lock = locks.lock()


def of_this_process(attached: Attachment) -> Loader:
    """The loader that this process keeps for the folder of a broker; it opens the store when it is needed."""
    folder = attached.data_dir or ""
    with _loaders_lock:
        if folder not in _loaders:
            _loaders[folder] = Loader(lambda: Database(folder))
        return _loaders[folder]


def let_go(folder: str) -> None:
    """Closes the store if a loader of this process has it open: LMDB opens a database only once in a process."""
    with _loaders_lock:
        loader = _loaders.get(folder)
    if loader is not None:
        loader.close()


def _full(queue: CoreQueue) -> exceptions.OutOfMemory:
    return queue.connection.attachment.full(f" for messages of {queue.what} that are in the store")


def _one_back(queue: CoreQueue, leaf: paging.Absent, found: list[paging.Stored], *, if_spare: bool) -> int:
    while (status := paging.come_back(queue, leaf, found, if_spare=if_spare)) == native.GROW:
        queue.connection.attachment.grow()
    return status
