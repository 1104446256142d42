# SPDX-License-Identifier: Apache-2.0
"""The verification of a store that is too large to be walked before its broker begins.

Another process walks the pages while the broker works. Until it has come to the end, only the storekeeper reads the
store: if a damaged page ends it, the next storekeeper takes its place, and no client ends.

    the storekeeper is killed -> the walk ends; the next storekeeper begins another one
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from shmbroker._housekeeper import launch
from shmbroker.exceptions import StoreError
from shmbroker.storage import verifying
from shmbroker.storage.database import DATA

if TYPE_CHECKING:
    from shmbroker._core.attachment import Attachment

SMALL = 128 << 20
"""A store of at most so many bytes is walked before its broker begins: it takes a tenth of a second."""
_FAULT = "damage"  # a file of the folder: what is damaged, and where
_NICE = 10
_PROGRAM = ("shmbroker.storage", "verify")


def is_small(folder: Path) -> bool:
    """Whether the store in a folder is small."""
    return (folder / DATA).stat().st_size <= SMALL


def fault_in(folder: str | os.PathLike[str]) -> StoreError:
    """The error of a store that was found to be damaged while its broker ran."""
    try:
        text = (Path(folder) / _FAULT).read_text(encoding="utf-8")
    except OSError:
        text = f"the store in {os.fspath(folder)!r} is damaged"
    return StoreError(text=text)


def forget_fault(folder: Path) -> None:
    """A broker begins from the store: what was damaged may have been mended."""
    (folder / _FAULT).unlink(missing_ok=True)


class Verification:
    """Verifies the store of a broker beside its storekeeper, which calls :meth:`look` now and then.

    Args:
        attached: the attachment of the storekeeper.
        folder: the folder of the store.
    """

    def __init__(self, attached: Attachment, folder: Path) -> None:
        self._attached, self._folder = attached, folder
        self._child: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Starts the walk, unless the store was verified, or found to be damaged.

        Raises:
            StoreError: no process can be started.
        """
        if self._attached.is_verified() or self._attached.is_damaged():
            return
        try:
            line = launch.command(str(self._folder), automatic=False, program=_PROGRAM)
            self._child = subprocess.Popen(  # noqa: S603 - our own module
                line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        except (launch.CannotStartError, OSError) as error:
            raise StoreError(text=f"the store in {str(self._folder)!r} cannot be verified: {error}") from error
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._child.pid, _NICE)

    def look(self) -> None:
        """Admits the readers of the store if the walk has come to its end.

        Raises:
            StoreError: the store is damaged.
        """
        if self._child is not None and (status := self._child.poll()) is not None:
            child, self._child = self._child, None
            with child:
                said = child.stderr.read() if child.stderr is not None else ""
            if status == 0:
                self._attached.set_restored(verified=True)
            else:
                text = verifying.why(self._folder, status, said)
                (self._folder / _FAULT).write_text(text, encoding="utf-8")
                self._attached.set_damaged()
        if self._attached.is_damaged():
            raise fault_in(self._folder)

    def close(self) -> None:
        """Ends the walk."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            with child:
                child.wait()
