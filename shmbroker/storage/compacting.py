# SPDX-License-Identifier: Apache-2.0
"""Writes the database of a store anew, without its free pages. No broker uses the store meanwhile.

    killed before the rename -> the store is as it was; `compact.partial` is left, which the next compaction removes
    killed after it          -> the store is compact

The log stays as it is: the copy notes the same turn as the last one that it has.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from shmbroker.exceptions import StoreError
from shmbroker.storage import beside, copying, folders
from shmbroker.storage.database import DATA
from shmbroker.storage.place import Place

if TYPE_CHECKING:
    from pathlib import Path

    from shmbroker.storage.backup import Check
    from shmbroker.storage.copying import Progress

_PARTIAL = "compact.partial"


def compact(folder: Path, check: Check, progress: Progress | None = None) -> tuple[int, int]:
    """Compacts the database of a store; returns its length in bytes before and after.

    Args:
        folder: the store.
        check: examines the new database.
        progress: called with the number of bytes written so far, and that of all bytes.

    Raises:
        StoreError: the folder has no store; the store is in use, or damaged. It is as it was.
        OSError: the folder cannot be written. The store is as it was.
    """
    data, partial = folder / DATA, folder / _PARTIAL
    if not folder.is_dir():
        raise StoreError(text=f"data_dir={str(folder)!r} is no folder")
    if not data.is_file():
        raise StoreError(text=f"data_dir={str(folder)!r} has no store: there is no file {DATA!r}")
    place = Place(folder, "a compaction")
    try:
        before = data.stat().st_size
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(0o700)
        try:
            copying.copy(folder, partial / DATA, progress)
            check(partial)
            with beside.replacing(data):
                (partial / DATA).replace(data)
                folders.sync(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return before, data.stat().st_size
    finally:
        place.leave()
