# SPDX-License-Identifier: Apache-2.0
"""Waits until the database of a running broker has everything, so that a copy of it has, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker._storekeeper import admission
from shmbroker.storage import settling

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
