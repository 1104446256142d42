# SPDX-License-Identifier: Apache-2.0
"""The place of the writer of a store: a file of its folder that the writer locks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING

from shmbroker.exceptions import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

_OWNER = "owner"
_PATIENCE_SECONDS = 5.0  # how long a storekeeper waits for the store of a predecessor that is ending
_ASK_SECONDS = 0.01
_DATA = "data.mdb"


def _file_of(folder: str | os.PathLike[str]) -> str:
    return os.path.join(folder, _OWNER)  # noqa: PTH118 - no pathlib: it is slow to import


class Place:
    """The place of the process that writes the store in a folder, from its making until :meth:`leave`.

    Args:
        folder: the folder.
        owner: what another process is told that wants the place.
        inherited: the descriptor of a place that the parent of this process has taken for it; -1: there is none.

    Raises:
        StoreError: another process writes the store, or the folder cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str], owner: str, inherited: int = -1) -> None:
        self._descriptor = inherited
        if inherited >= 0:
            os.set_inheritable(inherited, False)  # noqa: FBT003 - it takes no keyword
            self._note(owner)
            return
        try:
            self._descriptor = os.open(_file_of(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = os.pread(self._descriptor, 200, 0).decode(errors="replace")
            self.leave()
            raise StoreError(text=f"the store in {os.fspath(folder)!r} is in use by {found}") from None
        except OSError as error:
            self.leave()
            raise StoreError(text=f"data_dir={os.fspath(folder)!r}: {error.strerror}") from error
        self._note(owner)

    def _note(self, owner: str) -> None:
        os.ftruncate(self._descriptor, 0)
        with contextlib.suppress(OSError):  # the disk is full: the place counts without the text
            os.pwrite(self._descriptor, f"{owner}, process {os.getpid()}".encode(), 0)

    @property
    def descriptor(self) -> int:
        """The open file, which a child may inherit: the place is then that of both processes."""
        return self._descriptor

    def leave(self) -> None:
        """Gives up the place."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_gone(folder: str | os.PathLike[str]) -> bool:
    """Whether the folder of a store, or the database in it, is not there any more."""
    return not os.path.exists(os.path.join(folder, _DATA))  # noqa: PTH110, PTH118 - no pathlib: it is slow to import


def awaited(folder: str | os.PathLike[str], owner: str, is_needless: Callable[[], bool] = lambda: False) -> Place:
    """Takes the place; waits for a predecessor that is ending, unless the wait is needless meanwhile.

    Raises:
        StoreError: the folder is missing, cannot be written, or is in use.
    """
    if not os.path.isdir(folder):  # noqa: PTH112 - no pathlib: it is slow to import
        raise StoreError(text=f"data_dir={os.fspath(folder)!r} is no folder")
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return Place(folder, owner)
        except StoreError as error:
            if "is in use by" not in error.text or time.monotonic() > until or is_needless():
                raise
        time.sleep(_ASK_SECONDS)


def is_in_use(folder: str | os.PathLike[str]) -> bool:
    """Whether a process writes the store in a folder."""
    try:
        descriptor = os.open(_file_of(folder), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
