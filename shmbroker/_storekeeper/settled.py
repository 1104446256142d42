# SPDX-License-Identifier: Apache-2.0
"""Waits until the database of a running broker has everything, so that a copy of it has, too."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._storekeeper import admission
from shmbroker.storage import settling
from shmbroker.storage.database import DATA

if TYPE_CHECKING:
    from shmbroker._core.attachment import Attachment


def await_settled(attached: Attachment, folder: str, until: int) -> None:
    """Waits until the database has all changes that were made before this call.

    Args:
        attached: the broker, which has been restored.
        folder: the folder of its store.
        until: the deadline, in nanoseconds of the monotonic clock.

    Raises:
        Timeout: it does not in time: the store cannot be written, or the storekeeper is stopped.
        OSError: the folder cannot be written.
    """
    began = time.monotonic()
    try:
        _await_settled(attached, folder, until)
    except exceptions.Timeout as error:
        raise exceptions.Timeout(_why(attached, folder, time.monotonic() - began)) from error


def _why(attached: Attachment, folder: str, seconds: float) -> str:
    found = attached.statistics().store
    pid = 0 if found is None else found.storekeeper_pid
    what = f"has not brought everything into the database {str(Path(folder, DATA))!r} in {seconds:.1f} seconds"
    keeper = f"process {pid} is its storekeeper, and {what}" if pid else f"it {what}: no storekeeper runs"
    full = "The disk is full. " if found is not None and found.is_full else ""
    command = f"`shmbroker --broker {attached.name} status`"
    return f"broker {attached.name!r}: {keeper}. {full}{command} shows the storekeeper, its turns and its disk"


def _await_settled(attached: Attachment, folder: str, until: int) -> None:
    admission.sync(attached, until)  # the log has them
    settling.ask(folder)
    try:
        while True:
            admission.sync(attached, until)
            if not settling.is_asked(folder):
                break
        # The storekeeper commits between taking the request and its next turn.
        admission.sync(attached, until)
    except BaseException:
        settling.take(folder)
        raise
