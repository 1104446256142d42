# SPDX-License-Identifier: Apache-2.0
"""Waits of publishers while the disk of the store is full."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import native, segments

if TYPE_CHECKING:
    from shmbroker._core.connection import CoreConnection

slow = native.slow
_LOOK_NS = 300_000_000  # the longest time until a wait notices that there is no storekeeper, which would end it


def await_room(connection: CoreConnection, what: str, until: int) -> None:
    """Waits until the disk of the store has room, so that the caller can put again.

    Args:
        connection: the connection of the caller.
        what: the queue, for the error.
        until: the deadline, in nanoseconds of the monotonic clock.

    Raises:
        StoreRefused: the broker refuses messages while the disk is full.
        StoreFull: the disk had no room in time.
        ConnectionClosedByBroker: the broker is purged meanwhile.
    """
    attached = connection.attachment
    refuses = attached.store_full_policy == segments.ON_FULL[1]
    if refuses and attached.store_is_full():
        raise exceptions.StoreRefused(_how_full(connection, what))
    look = min(until, time.monotonic_ns() + _LOOK_NS)
    status = slow.sb_store_await_room(connection.handle, look)
    if status == native.TIMEOUT and look == until:
        raise exceptions.StoreFull(_how_full(connection, what))
    if status == native.TIMEOUT and attached.storekeeper_missing():
        connection.on_storekeeper_missing()
    elif status not in {native.OK, native.TIMEOUT, native.INTERRUPTED}:  # the caller tries again
        native.raise_for(status, what)


def _how_full(connection: CoreConnection, what: str) -> str:
    attached = connection.attachment
    folder = attached.data_dir or ""
    text = f"{what} takes no message: the disk of the store of broker {attached.name!r}, {folder!r}, is full"
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return f"{text} ({error.strerror})"
    free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    return f"{text}: {free} of {size} bytes are free, which are kept for turns that remove messages"
