# SPDX-License-Identifier: Apache-2.0
"""Walks all pages of a store that lead to its values, in a process of its own.

LMDB trusts its pages: on a damaged one it may end the process. So a writer lets another process look first. The walk
also counts the entries: a damaged page may hide some, of which a reader would not know.

    python -m shmbroker.storage.verify FOLDER
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from shmbroker.exceptions import StoreError
from shmbroker.storage import database, rows

if TYPE_CHECKING:
    from collections.abc import Callable

_DAMAGED = 3
_OFTEN = 1024  # entries
_BODIES = {names.heads: names.bodies for names in (rows.DURABLE, rows.TRANSIENT)}


def walk(found: database.Database, proceed: Callable[[], object] = lambda: None, *, touches: bool = False) -> None:
    """Walks all keys of a store.

    Args:
        found: the store.
        proceed: called now and then; it may raise.
        touches: whether the ends of the bodies are read as well: the file is shorter than its pages.

    Raises:
        StoreError: a page is damaged.
    """
    with found.read() as transaction:
        for name, one in found.names.items():
            count = 0
            bodies = found.names[_BODIES[name]] if name in _BODIES else None
            with transaction.cursor(db=one) as cursor:
                for key, value in cursor:
                    count += 1
                    if count % _OFTEN == 0:
                        proceed()
                    if bodies is not None:
                        row = rows.row_of(rows.opened(bytes(key), value, "the heads"))
                        body = transaction.get(bytes(key), b"", db=bodies)
                        length = len(body)
                        if touches and length:
                            body[-1]
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
        with database.Database(arguments[0], walks=True) as found:
            walk(found, proceed, touches=found.lacks() > 0)
    except StoreError as error:
        sys.stderr.write(f"{error.text}\n")
        return _DAMAGED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
