# SPDX-License-Identifier: Apache-2.0
"""Beginning a broker from its store, before it admits clients.

The process that makes the broker reads nothing of the store: LMDB trusts its pages, and may end a process that meets a
damaged one. The storekeeper makes the queues again, then goes on as the storekeeper.

    the maker is killed         -> the storekeeper goes on
    the storekeeper is killed   -> the maker removes the memory, and raises an error
    both are                    -> the broker is abandoned: whoever wants it removes the memory, and begins again
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._storekeeper import launch
from shmbroker.storage.place import awaited

if TYPE_CHECKING:
    import subprocess

    from shmbroker._core.attachment import Attachment
    from shmbroker.storage.place import Place

RESTORE = "--restore="
"""Tells a storekeeper to make the queues again: the descriptors of its place and of a pipe for its report follow."""
RESTORED = "restored"
NO_MEMORY = "no memory:"
_LOOK_SECONDS = 0.1
_MOST = 1 << 16  # bytes of a report


def owner_of(name: str) -> str:
    """What another process is told that wants the store of a broker."""
    return f"broker {name!r}"


def place_in(name: str, folder: str) -> Place:
    """Takes the place of the writer of a store, for a storekeeper that is to be started.

    It is taken before the broker is made: a storekeeper that was started for an earlier broker of that name then finds
    the place taken.

    Raises:
        StoreError: the folder is missing, cannot be written, or is in use.
    """
    return awaited(folder, owner_of(name))


def restore(place: Place, attached: Attachment) -> None:
    """Lets a storekeeper make the queues and the topology of the store again, and admit clients.

    Args:
        place: the place of the writer of the store, which the storekeeper inherits.
        attached: the broker, whose memory the caller has made.

    Raises:
        StoreError: the store is damaged, of another format, or cannot be written.
        OutOfMemory: the memory of the broker is too small for the messages.
        BrokerError: no storekeeper can be started.
    """
    reads, writes = os.pipe()
    try:
        try:
            option = f"{RESTORE}{place.descriptor},{writes}"
            child = launch.start(attached.name, option, inherits=(place.descriptor, writes))
        finally:
            os.close(writes)
        said = _reported(reads, child)
    finally:
        os.close(reads)
    if said == RESTORED:
        return
    status = child.wait()
    if said.startswith(NO_MEMORY):
        raise exceptions.OutOfMemory(said.removeprefix(NO_MEMORY))
    if said:
        raise exceptions.StoreError(text=said)
    how = f"status {status}"
    with contextlib.suppress(ValueError):
        how = signal.Signals(-status).name
    text = (
        f"the store in {attached.data_dir!r} is damaged, or was not read to its end: the storekeeper ended with {how}"
    )
    raise exceptions.StoreError(text=text)


def _reported(reads: int, child: subprocess.Popen[bytes]) -> str:
    """What the storekeeper reports; empty: it has ended without a report.

    The end of the pipe says nothing: a program that this one has forked meanwhile may have it open as well.
    """
    said, ended = b"", False
    while not said.endswith(b"\n"):
        if select.select([reads], [], [], 0 if ended else _LOOK_SECONDS)[0]:
            part = os.read(reads, _MOST)
            if not part:
                break
            said += part
        elif ended:
            break
        else:
            ended = child.poll() is not None
    return said.decode(errors="replace").rstrip("\n")
