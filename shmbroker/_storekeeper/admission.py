# SPDX-License-Identifier: Apache-2.0
"""Waits of a client of a broker with a store: until its queues are there again, or changes are in the store."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import native, syncing
from shmbroker._core.connection import CoreConnection
from shmbroker._storekeeper.launch import ensure_storekeeper
from shmbroker.storage.place import is_gone, is_in_use

if TYPE_CHECKING:
    from shmbroker._core.attachment import Attachment

_LOOK_SECONDS = 0.005
_ENSURE_NS = 200_000_000


def loads_from_its_store(attached: Attachment) -> None:
    """Lets calls of this process load messages of stored queues that are not in the memory."""
    if attached.load is None and attached.data_dir is not None:
        attached.load = _load


def _load(attached: Attachment, slot: int, sequence: int) -> None:
    # Late, since it imports LMDB. Most processes never need it.
    from shmbroker._storekeeper import loading  # noqa: PLC0415 - see above

    loader = loading.of_this_process(attached)
    attached.on_detached = loader.let_go
    loader.load(attached, slot, sequence)


def is_abandoned(attached: Attachment) -> bool:
    """Whether the process that was restoring the broker has ended before it admitted clients."""
    folder = attached.data_dir
    return folder is not None and attached.is_restoring() and not is_in_use(folder)


def await_restored(attached: Attachment, until: int) -> None:
    """Waits until the broker admits clients.

    Raises:
        Timeout: it does not in time.
        ConnectionClosedByBroker: it was given up, because it could not be restored.
    """
    while attached.is_restoring():
        if attached.removed:
            native.raise_for(native.STOPPING)
        if time.monotonic_ns() > until:
            text = f"broker {attached.name!r} is being restored from {attached.data_dir!r}"
            raise exceptions.Timeout(text)
        time.sleep(_LOOK_SECONDS)


def refuse_a_lost_store(attached: Attachment) -> None:
    """Refuses to wait for a store whose folder is gone: no storekeeper can write it.

    Raises:
        StoreError: it is gone.
    """
    folder = attached.data_dir
    if folder is not None and is_gone(folder):
        text = (
            f"the store of broker {attached.name!r} in {folder!r} is gone, so nothing more is written. The memory has "
            f"its messages until `shmbroker --broker {attached.name} stop --purge`"
        )
        raise exceptions.StoreError(text=text)


def sync(attached: Attachment, until: int) -> None:
    """Waits until all changes that were made before this call are in the store; starts a storekeeper if there is none.

    Raises:
        Timeout: they are not in time: the store cannot be written, or the storekeeper is stopped.
        StoreError: the store is gone, and no process writes it.
    """
    connection = CoreConnection(attached.path, "sync")
    connection.on_storekeeper_missing = functools.partial(ensure_storekeeper, attached.name, once=True)
    try:
        turn = syncing.ask(connection)
        if attached.storekeeper_missing():
            refuse_a_lost_store(attached)
            connection.on_storekeeper_missing()
        while True:
            look = min(until, time.monotonic_ns() + _ENSURE_NS)
            try:
                syncing.wait(connection, turn, look)
            except exceptions.Timeout:
                if look == until:
                    raise
                if attached.storekeeper_missing():
                    refuse_a_lost_store(attached)
                    connection.on_storekeeper_missing()
            else:
                return
    finally:
        connection.close()
