# SPDX-License-Identifier: Apache-2.0
"""The program of a storekeeper: takes turns until the broker is stopped, or has no client left."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import attachment, native, segments
from shmbroker._storekeeper import beginning, launch, verification
from shmbroker._storekeeper.storekeeper import Storekeeper
from shmbroker.storage import verify
from shmbroker.storage.database import Database
from shmbroker.storage.place import Place, awaited

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.attachment import Attachment

BUSY_SECONDS = 0.05  # until the next turn, if the last one had something to write, and nobody asks for one
LOADING_SECONDS = 0.001  # the same, if it loaded messages that consumers need next
REST_SECONDS = 0.5  # the same, if it had nothing to write
LINGER_SECONDS = 10.0  # without a client


class EndFlag:
    """A flag that a signal handler sets: it needs no lock."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self, *_: object) -> None:
        """Tells the storekeeper to end."""
        self.is_set = True


def opened(name: str, folder: str, is_needless: Callable[[], bool] = lambda: False, *, syncs: bool = True) -> Database:
    """Opens the store for writing; waits for a predecessor that is ending, unless the wait is needless meanwhile.

    Raises:
        StoreError: the store cannot be opened.
    """
    return Database(folder, place=awaited(folder, beginning.owner_of(name), is_needless), syncs=syncs)


def run(keeper: Storekeeper, ended: EndFlag) -> None:
    """Takes turns until the flag is set, the broker is stopped, purged or gone, or no client is left; at least one."""
    lonely_since = time.monotonic()
    keeper.verification.begin()
    said, quiet, asked = "", False, False
    while not ended.is_set:
        wrote, loads = 0, False
        try:
            keeper.verification.look()
            asked = keeper.takes_request_to_settle() or asked
            if asked or (quiet and not keeper.is_disk_full):
                keeper.settle()
                asked = False  # if it raises, no turn begins before it succeeds: the process that asked waits for one
            wrote = keeper.turn()
            loads = keeper.make_room()
            said = ""
        except exceptions.StoreError as error:
            if error.text != said:
                said = error.text
                sys.stderr.write(f"{said}; those that wait for the store go on waiting\n")
                sys.stderr.flush()
        seconds = LOADING_SECONDS if loads else BUSY_SECONDS if wrote or keeper.passed else REST_SECONDS
        status = keeper.rest(time.monotonic_ns() + int(seconds * native.NANOSECONDS), patient=bool(said))
        if status == native.STOPPING:
            break
        quiet = status == native.TIMEOUT
        if quiet and keeper.is_forsaken():
            return
        if not keeper.is_alone():
            lonely_since = time.monotonic()
        elif time.monotonic() - lonely_since > LINGER_SECONDS:
            break
    # What came since the last turn. After a purge there is no memory to read it from.
    with contextlib.suppress(exceptions.StoreError, exceptions.ConnectionClosedByBroker):
        keeper.turn()


def _restored(found: Attachment, ended: EndFlag, place: int, report: int) -> int:
    """Makes the queues of the store again, and serves."""
    os.set_inheritable(report, False)  # noqa: FBT003 - it takes no keyword
    with os.fdopen(report, "w", encoding="utf-8") as told, contextlib.ExitStack() as stack:
        folder = Path(found.data_dir or "")
        try:
            kept = Place(folder, beginning.owner_of(found.name), place)
            database = stack.enter_context(Database(folder, place=kept, syncs=found.sync != segments.SYNCS[-1]))
            verification.forget_fault(folder)
            small = verification.is_small(folder)
            if small:
                verify.walk(database)
            keeper = stack.enter_context(Storekeeper(found.path, database))
            keeper.begin()
            keeper.restore()
            keeper.turn()  # the records name the queues of this memory
            keeper.settle()  # for those who read the database
            found.set_restored(verified=small)
            told.write(f"{beginning.RESTORED}\n")
        except exceptions.OutOfMemory as error:
            told.write(f"{beginning.NO_MEMORY}{error}\n")
            return 1
        except exceptions.BrokerError as error:
            where = "" if str(folder) in error.text else f"the store in {str(folder)!r}: "
            told.write(f"{where}{error.text}\n")
            return 1
        told.close()
        run(keeper, ended)
    return 0


def _served(found: Attachment, ended: EndFlag, *, even_if_stopped: bool) -> int:
    def is_needless() -> bool:
        return found.removed or (bool(found.facts().stopped) and not even_if_stopped)

    folder = found.data_dir
    if folder is None or found.is_restoring() or is_needless():
        return 1
    with (
        opened(found.name, folder, is_needless, syncs=found.sync != segments.SYNCS[-1]) as database,
        Storekeeper(found.path, database) as keeper,
    ):
        if not keeper.begin():
            return 1
        run(keeper, ended)
    return 0


def main(arguments: list[str]) -> int:
    """``python -m shmbroker._storekeeper.process NAME``: 0 after it has served, 1 if it could not."""
    ended = EndFlag()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ended.set)
    path = segments.path_of(arguments[0])
    try:
        with attachment.attached_to(path) as found:
            for one in arguments:
                if one.startswith(beginning.RESTORE):
                    place, report = map(int, one.removeprefix(beginning.RESTORE).split(","))
                    return _restored(found, ended, place, report)
            return _served(found, ended, even_if_stopped=launch.ONCE in arguments)
    except exceptions.BrokerError as error:
        purged = isinstance(error, (exceptions.BrokerNotFound, exceptions.ConnectionClosedByBroker))
        if not purged and "is in use by" not in error.text:
            sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
