# SPDX-License-Identifier: Apache-2.0
"""Folders that appear whole or not at all, and the sync of what is in a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from typing import TYPE_CHECKING

from shmbroker.exceptions import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SUFFIX = ".partial"


def sync(path: Path) -> None:
    """Brings a file, or the names in a folder, onto the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_new(path: Path) -> None:
    """Checks that a folder can be made at a path.

    Raises:
        StoreError: there is something that is no empty folder, or nothing that it could be made in.
    """
    if not path.parent.is_dir():
        raise StoreError(text=f"{str(path.parent)!r} is no folder, so {path.name!r} cannot be made there")
    if path.exists() and not path.is_dir():
        raise StoreError(text=f"{str(path)!r} is no folder: the path of a new or empty folder is allowed")
    if path.is_dir() and any(path.iterdir()):
        raise StoreError(text=f"the folder {str(path)!r} is not empty: the path of a new or empty folder is allowed")


@contextlib.contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Yields an empty folder beside a path, which it is renamed to, and synced, when the block ends.

    If the block raises, nothing is left. A killed process leaves the folder ``PATH.partial``; the next one that makes a
    folder at that path begins it anew.

    Raises:
        StoreError: there is something at the path, or another process makes a folder there.
    """
    check_new(path)
    partial = path.with_name(path.name + _SUFFIX)
    descriptor = _own(partial)
    try:
        try:
            _clear(partial)
            yield partial
            for one in partial.iterdir():
                sync(one)
            sync(partial)
            _rename(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        sync(path.parent)
    finally:
        os.close(descriptor)


def _own(partial: Path) -> int:
    """Makes the folder, and locks it; returns the descriptor, whose close unlocks it."""
    while True:
        partial.mkdir(0o700, exist_ok=True)
        try:
            descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another process has just renamed it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if partial.exists() and os.path.samestat(os.fstat(descriptor), partial.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise StoreError(text=f"another process is writing {str(partial)!r}") from None
        os.close(descriptor)


def _clear(folder: Path) -> None:
    for one in folder.iterdir():
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        else:
            one.unlink()


def _rename(partial: Path, path: Path) -> None:
    try:
        partial.rename(path)  # it replaces an empty folder
    except OSError as error:
        text = f"the folder {str(path)!r} cannot be made: {error.strerror}"
        raise StoreError(text=text) from error
