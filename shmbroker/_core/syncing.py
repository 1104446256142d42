# SPDX-License-Identifier: Apache-2.0
"""Waits until the changes of this process are in the store of the broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import native

if TYPE_CHECKING:
    from shmbroker._core.connection import CoreConnection

slow = native.slow
_LOOK_NS = 300_000_000  # the longest time until a wait notices that there is no storekeeper


def ask(connection: CoreConnection) -> int:
    """Asks for a turn of the storekeeper that has all changes which this process has made; returns its number."""
    with connection.call():
        return int(slow.sb_store_ask(connection.handle))


def wait(connection: CoreConnection, turn: int, until: int) -> None:
    """Waits until a turn of the storekeeper is done, so that its changes are in the store, and synced.

    If there is no storekeeper, starts one.

    Raises:
        Timeout: the turn is not done in time, or the broker was stopped, so that no storekeeper runs.
        ConnectionClosedByBroker: the broker is purged meanwhile.
        ConnectionClosed: another thread closes the connection meanwhile.
    """
    attached = connection.attachment
    while True:
        look = min(until, time.monotonic_ns() + _LOOK_NS)
        with connection.call():
            status = slow.sb_store_await(connection.handle, turn, look)
        if status == native.OK:
            return
        if status not in {native.TIMEOUT, native.INTERRUPTED}:  # signal handlers run between the calls
            native.raise_for(status)
        with connection.call():  # another thread may have closed the connection meanwhile
            missing = attached.storekeeper_missing()
            if status == native.TIMEOUT and (look == until or (missing and attached.facts().stopped)):
                raise exceptions.Timeout(_why(connection, missing=missing))
        if missing:
            connection.on_storekeeper_missing()


def _why(connection: CoreConnection, *, missing: bool) -> str:
    attached = connection.attachment
    text = "the storekeeper has not synced the changes in time; what was put is in its queue"
    if missing and attached.facts().stopped:
        return f"{text}. Broker {attached.name!r} is stopped: run `shmbroker serve {attached.name}`"
    if missing:
        return f"{text}. No storekeeper runs"
    return f"{text}. Process {slow.sb_store_keeper(attached.handle)} is the storekeeper"
