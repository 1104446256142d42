# SPDX-License-Identifier: Apache-2.0
"""Walks all pages of a store that lead to its values, in a process of its own.

LMDB trusts its pages: on a damaged one it may end the process. So a writer lets another process look first. The walk
also counts the entries: a damaged page may hide some, of which a reader would not know.

    python -m shmbroker.storage.verify FOLDER
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from shmbroker.exceptions import StoreError
from shmbroker.storage import database, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_DAMAGED = 3
_OFTEN = 1024  # entries


def verified(folder: Path) -> None:
    """Verifies a store, in another process.

    Raises:
        StoreError: the store is damaged.
    """
    command = [sys.executable, "-m", "shmbroker.storage.verify", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if done.returncode != 0:
        raise StoreError(text=why(folder, done.returncode, done.stderr))


def why(folder: Path, status: int, said: str) -> str:
    """What is wrong with a store.

    Args:
        folder: the store.
        status: how the program ended, not with 0.
        said: what it wrote to its standard error.
    """
    last = (said.strip().splitlines() or [f"LMDB ended with status {status}"])[-1]
    return last if str(folder) in last else f"the store in {str(folder)!r} is damaged: {last}"


def walk(found: database.Database, proceed: Callable[[], object] = lambda: None) -> None:
    """Walks all keys of a store.

    Args:
        found: the store.
        proceed: called now and then; it may raise.

    Raises:
        StoreError: a page is damaged.
    """
    with found.read() as transaction:
        for name, one in found.names.items():
            count = 0
            bodies = found.names[b"bodies"] if name == b"heads" else None
            with transaction.cursor(db=one) as cursor:
                for key, value in cursor:
                    count += 1
                    if count % _OFTEN == 0:
                        proceed()
                    if bodies is not None:
                        row = rows.row_of(rows.opened(bytes(key), value, "the heads"))
                        length = len(transaction.get(bytes(key), b"", db=bodies))
                        if length != rows.SEAL + row.bodies_length:
                            raise StoreError(text=f"the bodies of a row have {length} bytes")
            expected = transaction.stat(one)["entries"]
            if count != expected:
                raise StoreError(text=f"{count} of {expected} entries of {name.decode()!r} are there")


def main(arguments: list[str]) -> int:
    """Verifies a store in this process, unless that process ends which wants to know."""
    parent = os.getppid()

    def proceed() -> None:
        if os.getppid() != parent:
            sys.exit(_DAMAGED)

    try:
        with database.Database(arguments[0]) as found:
            walk(found, proceed)
    except StoreError as error:
        sys.stderr.write(f"{error.text}\n")
        return _DAMAGED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
