# SPDX-License-Identifier: Apache-2.0
"""Waiting for the end of a broker's processes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import native, segments
from shmbroker._core.connection import CoreConnection
from shmbroker._core.settings import decoded_settings
from shmbroker._storekeeper import admission
from shmbroker._storekeeper.launch import await_children
from shmbroker.storage.place import is_gone, is_in_use

if TYPE_CHECKING:
    from shmbroker._core.attachment import Attachment
    from shmbroker._core.facts import BrokerFacts
    from shmbroker.statistics import ConnectionInfo

PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.002
_CHILD_SECONDS = 5.0  # for a storekeeper that was only starting


def keepers_of(attached: Attachment) -> list[ConnectionInfo]:
    """The connections that the housekeeper's program opened for its work: one, or none."""
    pid = attached.facts().housekeeper_pid
    return [info for info in attached.connections() if info.pid == pid and info.name in segments.HOUSEKEEPERS]


def await_end(attached: Attachment, keepers: list[ConnectionInfo]) -> None:
    """Waits until the housekeeper has ended, or until another call starts the broker again.

    Args:
        attached: the attachment of the broker.
        keepers: the housekeeper's connections, which it closes after it gave up its place. A connection whose process
            was killed meanwhile stays until a client reaps it: the call does not wait for that.
    """
    until = native.deadline(PATIENCE_SECONDS)
    while not attached.housekeeper_missing() or _are_open(attached, keepers):
        facts = attached.facts()
        if is_started_again(facts):
            return
        if time.monotonic_ns() > until:
            raise still_there(attached, facts.housekeeper_pid or keepers[0].pid)
        time.sleep(LOOK_SECONDS)


def settle(attached: Attachment, *, purge: bool) -> str:
    """Lets the store get everything that the memory has.

    Args:
        attached: the broker.
        purge: whether its memory is removed next: then it does not matter that the store is gone, or damaged.

    Returns:
        What is lost when the memory is removed; empty: nothing.

    Raises:
        Timeout: the store cannot be written now.
        StoreError: without ``purge``: the store is gone, and no process writes it.
    """
    folder = attached.data_dir
    if folder is None or attached.is_restoring():
        return ""
    if not (purge and _is_lost(attached, folder)):
        try:
            admission.sync(attached, native.deadline(PATIENCE_SECONDS))
        except exceptions.StoreError:
            if not purge:
                raise
    return _loss(attached, folder) if purge and _is_lost(attached, folder) else ""


def _is_lost(attached: Attachment, folder: str) -> bool:
    return is_gone(folder) or attached.is_damaged()


def _loss(attached: Attachment, folder: str) -> str:
    connection = CoreConnection(attached.path, "stop")
    try:
        found = [facts for slot in connection.queue_slots() if (facts := connection.queue_facts(slot)) is not None]
    finally:
        connection.close()
    stored = [facts for facts in found if decoded_settings(facts)[0].durable and not facts.owner]
    count = sum(facts.ready + facts.delivering + facts.scheduled for facts in stored)
    what = f"{count} messages in {len(stored)} durable queues"
    if is_gone(folder):
        return f"the store of broker {attached.name!r} in {folder!r} is gone: {what} are lost"
    text = f"the store of broker {attached.name!r} in {folder!r} is damaged"
    return f"{text}: what it does not have of {what} is lost"


def await_storekeeper_end(attached: Attachment) -> None:
    """Waits until the storekeeper has taken its last turn and ended, or until another call starts the broker again."""
    until = native.deadline(PATIENCE_SECONDS)
    folder = attached.data_dir
    if folder is None:
        return
    await_children(attached.name, _CHILD_SECONDS)
    while (attached.storekeeper_serves() or is_in_use(folder)) and not is_started_again(attached.facts()):
        if time.monotonic_ns() > until:
            text = f"the storekeeper of broker {attached.name!r} was told to end, and has not ended within 30 seconds"
            raise exceptions.Timeout(text)
        time.sleep(LOOK_SECONDS)


def _are_open(attached: Attachment, keepers: list[ConnectionInfo]) -> bool:
    """Whether one of these connections is still open, and its process still runs."""
    listed = {(info.id, info.pid, info.created_at) for info in attached.connections()} if keepers else set()
    return any((info.id, info.pid, info.created_at) in listed and _runs(info.pid) for info in keepers)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of another user
        pass
    return True


def is_started_again(facts: BrokerFacts) -> bool:
    """Whether another call has started the broker since it was stopped. A purged broker cannot be started again."""
    return not facts.stopped and not facts.closing


def still_there(attached: Attachment, pid: int) -> exceptions.Timeout:
    """The error of a call that waited for the end of the housekeeper, process ``pid``, in vain."""
    text = (
        f"the housekeeper of broker {attached.name!r}, process {pid}, was told to end, "
        f"and has not ended within {PATIENCE_SECONDS:.0f} seconds: that process may be stopped"
    )
    return exceptions.Timeout(text)


def is_automatic(attached: Attachment, pid: int) -> bool:
    """Whether a client started the housekeeper ``pid`` automatically. Also true if it has ended in the meantime."""
    listed = {(info.pid, info.name) for info in attached.connections()}
    return (pid, segments.AUTOMATIC) in listed or attached.facts().housekeeper_pid != pid
