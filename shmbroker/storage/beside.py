# SPDX-License-Identifier: Apache-2.0
"""Readers of a store beside its writer, and the replacement of the database, which waits for none of them.

A reader holds a shared lock on ``data.mdb``, the replacement an exclusive one. LMDB's lock file belongs to one database
file: a reader of the old file and a writer of the new one must not share it. The writer's place (:mod:`.place`) keeps
writers away from the replacement.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from shmbroker.exceptions import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def reading(path: Path) -> int:
    """Locks a database file for a reader; returns the descriptor, whose close unlocks it; -1: there is no such file."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return -1  # LMDB says what is wrong with it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if _is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was replaced meanwhile


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))  # noqa: PTH116 - beside fstat
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[None]:
    """Keeps readers of a database file away for the length of a block, which puts another file in its place.

    Raises:
        StoreError: a process reads the file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = f"the store in {str(path.parent)!r} is being read by another process, such as a backup"
            raise StoreError(text=text) from None
        yield
    finally:
        os.close(descriptor)
