# SPDX-License-Identifier: Apache-2.0
"""Examines a store in a process of its own, which a damaged page may end: pages, checksums, records, and the log.

python -m shmbroker._storekeeper.examination FOLDER
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker._storekeeper import records
from shmbroker._topology import records as topology
from shmbroker.exceptions import CorruptSegment, StoreError
from shmbroker.storage import copying
from shmbroker.storage.database import Database
from shmbroker.storage.examining import Examination
from shmbroker.storage.log import LOG, Log

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[int, int], object]

_APPLIED = b"applied"


class Examined(NamedTuple):
    """What an examination of a store found.

    Attributes:
        problems: what is wrong, in words; empty: nothing.
        queues: how many queues the store has.
        messages: how many messages it has.
        applied: the last turn of the log that the database has; ``None``: the store has had no writer.
    """

    problems: list[str]
    queues: int = 0
    messages: int = 0
    applied: int | None = None


def examine(folder: Path, progress: Progress | None = None) -> Examined:
    """Examines the database of a store, which a broker may be using.

    Args:
        folder: the store.
        progress: called with the number of entries read so far, and that of all.
    """
    command = [sys.executable, "-m", "shmbroker._storekeeper.examination", str(folder)]
    # In a process group of its own: an interrupt from the terminal is for this process only, which ends the other one.
    with subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    ) as child:
        found: dict[str, Any] = {}
        try:
            for line in child.stdout or ():
                said = json.loads(line)
                if "done" not in said:
                    found = said
                elif progress is not None:
                    progress(said["done"], said["total"])
            complaint = child.stderr.read() if child.stderr is not None else ""
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0 or not found:
        return Examined([copying.failed(folder, child.returncode, complaint).text])
    return Examined(**found)


def checked(folder: Path, progress: Progress | None = None) -> tuple[int, int]:
    """Examines a store; returns how many queues and messages it has.

    Raises:
        StoreError: something is wrong with it.
    """
    found = examine(folder, progress)
    if found.problems:
        raise StoreError(text=f"the store in {str(folder)!r} is damaged: {'; '.join(found.problems)}")
    return found.queues, found.messages


def fault_of_log(folder: Path, applied: int | None) -> str:
    """What is wrong with the log of a store that no broker uses; empty: nothing.

    A copy of the log is read: SQLite would change the log itself.

    Args:
        folder: the store.
        applied: the last turn that the database has, see :class:`Examined`.
    """
    there = (folder / LOG).exists()
    if applied is not None and not there:
        return f"the log {LOG!r} is missing"
    if not there:
        return ""
    with tempfile.TemporaryDirectory(prefix="shmbroker-") as copied:
        for name in (LOG, f"{LOG}-wal"):
            if (folder / name).exists():
                shutil.copyfile(folder / name, Path(copied) / name)
        try:
            with contextlib.closing(Log(copied)) as log:
                turns = log.after(applied or 0)
        except StoreError as error:
            return error.text.replace(copied, str(folder))
    return "the log belongs to another database" if applied is None and turns else ""


def _faults_of_records(found: Examination) -> list[str]:
    """What is wrong with the records of queues, exchanges, bindings and address settings."""
    problems, names = [], dict[str, int]()
    for number, encoded in found.queues.items():
        try:
            name = records.decode(encoded).name
        except StoreError as error:
            problems.append(f"queue {number}: {error.text}")
            continue
        if name in names:
            problems.append(f"the queues {names[name]} and {number} are both named {name!r}")
        names[name] = number
    try:
        list(topology.decode(b"".join(found.topology)))
    except CorruptSegment as error:
        problems.append(f"the records of the topology: {error.text}")
    return problems


def main(folder: str) -> int:
    """Examines a store; prints lines of JSON: how far it has come, and at last what it found."""

    def say(**facts: object) -> None:
        sys.stdout.write(f"{json.dumps(facts)}\n")
        sys.stdout.flush()

    try:
        with Database(folder) as database:
            examination = Examination(database, lambda done, total: say(done=done, total=total))
            examination.run()
            with database.read() as transaction:
                noted = transaction.get(_APPLIED, db=database.names[b"info"])
                applied = None if noted is None else int.from_bytes(noted, "little")
    except StoreError as error:
        sys.stderr.write(f"{error.text}\n")
        return 1
    problems = examination.problems + _faults_of_records(examination)
    say(problems=problems, queues=len(examination.queues), messages=examination.messages, applied=applied)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
