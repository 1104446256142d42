# SPDX-License-Identifier: Apache-2.0
"""Beginning a broker from its store, before it admits clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shmbroker._storekeeper.loading import let_go
from shmbroker._storekeeper.process import opened
from shmbroker._storekeeper.storekeeper import Storekeeper
from shmbroker.storage import verify
from shmbroker.storage.database import DATA

if TYPE_CHECKING:
    from shmbroker._core.attachment import Attachment
    from shmbroker.storage.database import Database


def store_of(name: str, folder: str) -> Database:
    """Verifies the store of a broker that is to be made, and opens it.

    It is opened before the broker is made: a storekeeper that was started for an earlier broker of that name then finds
    the place taken.

    Raises:
        StoreError: the store is damaged, of another format, in use, or cannot be written.
    """
    if (Path(folder) / DATA).exists():
        verify.verified(Path(folder))
    let_go(folder)  # this process may have read from the store, as a client of an earlier broker
    return opened(name, folder)


def restore(database: Database, attached: Attachment) -> None:
    """Makes the queues and the topology of the store again, then admits clients. The caller has made the broker.

    Raises:
        StoreError: the store is damaged, or cannot be written.
        OutOfMemory: the memory of the broker is too small for the messages.
    """
    with Storekeeper(attached.path, database) as keeper:
        keeper.begin()
        keeper.restore()
        keeper.turn()  # the records name the queues of this memory
    attached.set_restored()
