# SPDX-License-Identifier: Apache-2.0
"""The request that the storekeeper brings into the database what only the log has, although the broker is busy.

Only the storekeeper can read the log: SQLite locks it (``locking_mode = exclusive``). So a process that wants to copy
the database of a running broker makes a file in its folder. The storekeeper takes the file before a turn, and commits.

    the requester is killed   -> the storekeeper takes the file nevertheless, and commits once more than needed
    the storekeeper is killed -> the next one commits as it begins, and takes the file if it is still there
"""

from __future__ import annotations

import os

_REQUEST = "settle"


def _file_of(folder: str | os.PathLike[str]) -> str:
    return os.path.join(folder, _REQUEST)  # noqa: PTH118 - once in each turn: pathlib is slow


def ask(folder: str | os.PathLike[str]) -> None:
    """Asks the storekeeper of the store in a folder to commit."""
    os.close(os.open(_file_of(folder), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def is_asked(folder: str | os.PathLike[str]) -> bool:
    """Whether a request waits to be taken."""
    return os.access(_file_of(folder), os.F_OK)


def take(folder: str | os.PathLike[str]) -> bool:
    """Takes the request; returns whether there was one."""
    if not is_asked(folder):
        return False
    try:
        os.unlink(_file_of(folder))  # noqa: PTH108 - as above
    except OSError:
        return False  # another process took it, or the requester gives up in time
    return True
