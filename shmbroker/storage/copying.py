# SPDX-License-Identifier: Apache-2.0
"""Copies the database of a store as it is at one moment, without its free pages, beside a writer.

LMDB trusts its pages: on a damaged one it may end the process. So another process runs LMDB's copy, and hands the bytes
over by a pipe. This one writes them, so it knows how far the copy has come, and an interrupt ends it.

    python -m shmbroker.storage.copying FOLDER
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from shmbroker.exceptions import StoreError
from shmbroker.storage import database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Progress = Callable[[int, int], object]

_LENGTH = struct.Struct("<Q")
_AT_ONCE = 1 << 20
_METAS = 2  # pages that each database file has
_ENDS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)  # the signals that damage does not bring


def copy(folder: Path, target: Path, progress: Progress | None = None) -> None:
    """Copies ``data.mdb`` of a store into a new file, which is synced.

    Args:
        folder: the store; a process may be writing it.
        target: the new file.
        progress: called with the number of bytes copied so far, and that of all bytes.

    Raises:
        StoreError: the store is missing or damaged.
        OSError: the file cannot be written.
    """
    command = [sys.executable, "-m", "shmbroker.storage.copying", str(folder)]
    # In a process group of its own: an interrupt from the terminal is for this process only, which ends the other one.
    with subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
    ) as child:
        try:
            _write(child.stdout, target, progress or (lambda _done, _total: None))
            said = child.stderr.read().decode(errors="replace") if child.stderr is not None else ""
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        raise failed(folder, child.returncode, said)


def failed(folder: Path, status: int, said: str) -> StoreError:
    """The error of a process that looked at a store and failed.

    Args:
        folder: the store.
        status: how the process ended.
        said: what it wrote to the standard error.
    """
    if -status in _ENDS:
        return StoreError(text=f"the process that read the store in {str(folder)!r} was ended by signal {-status}")
    last = (said.strip().splitlines() or [f"LMDB ended with status {status}"])[-1]
    where = "" if str(folder) in last else f"the store in {str(folder)!r} is damaged: "
    return StoreError(text=f"{where}{last}")


def _write(source: Any, target: Path, progress: Progress) -> None:  # noqa: ANN401 - the pipe of a child, which it has
    # Unbuffered: an error of a full disk is raised here, not as the file is closed.
    with open(target, "xb", buffering=0, opener=_private) as file:
        head = source.read(_LENGTH.size)
        total = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
        done = 0
        progress(0, total)
        while found := source.read(_AT_ONCE):
            write_all(file, found)
            done += len(found)
            progress(min(done, total), total)
        os.fsync(file.fileno())


def write_all(file: BinaryIO | Any, data: bytes) -> None:  # noqa: ANN401 - an unbuffered file, too
    """Writes all bytes to an unbuffered file; the error of a full disk names the file."""
    view = memoryview(data)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        error.filename = error.filename or file.name
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def length_of(found: database.Database) -> int:
    """The length in bytes that a copy has now."""
    with found.read() as transaction:
        trees = [found.environment.stat(), *(transaction.stat(one) for one in found.names.values())]
    pages = sum(one["branch_pages"] + one["leaf_pages"] + one["overflow_pages"] for one in trees)
    return int((pages + _METAS) * trees[0]["psize"])


def main(folder: str) -> int:
    """Copies a store to the standard output: the length, then the database file."""
    try:
        with database.Database(folder) as found, found.errors():
            os.write(1, _LENGTH.pack(length_of(found)))
            found.environment.copyfd(1, compact=True)
    except StoreError as error:
        sys.stderr.write(f"{error.text}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
