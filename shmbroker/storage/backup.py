# SPDX-License-Identifier: Apache-2.0
"""Backups of a store: a folder that a broker can begin from, with a note that says what it has.

A backup has ``data.mdb``, an empty ``log.sqlite``, and ``backup.json`` with the length and the checksum of the database
file. It is made beside its place and renamed, so it is whole or not there.

    a backup is killed  -> `BACKUP.partial`, which the next backup to that place begins anew
    a restore is killed -> a folder without a database: a broker would find an empty store, a restore begins anew
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import xxhash

from shmbroker._dataclasses import dataclass
from shmbroker.exceptions import StoreError
from shmbroker.storage import copying, folders, verifying
from shmbroker.storage.database import DATA, FORMAT, Database
from shmbroker.storage.log import LOG, Log
from shmbroker.storage.place import Place
from shmbroker.storage.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shmbroker.storage.copying import Progress

    Check = Callable[[Path], tuple[int, int]]
    """Examines a store; returns how many queues and messages it has; raises a StoreError if it is damaged."""

NOTE = "backup.json"
"""The file of a backup that says what it has."""
_NOTE_FORMAT = 1
_AT_ONCE = 1 << 20
_BESIDE = ("-wal", "-shm", "-journal")  # files of SQLite


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup has.

    Attributes:
        broker: the name of the broker; ``None``: the broker did not run.
        created_at: the time at which it began, in POSIX seconds.
        size: the length of its database file, in bytes.
        checksum: the XXH3 checksum of the database file, of 128 bits.
        queues: how many queues it has.
        messages: how many messages it has.
    """

    broker: str | None
    created_at: float
    size: int
    checksum: str
    queues: int
    messages: int


def make(folder: Path, target: Path, broker: str | None, check: Check, progress: Progress | None = None) -> Backup:
    """Makes a backup of a store.

    Args:
        folder: the store. If it belongs to a broker that runs, its database is settled; if not, the caller has the
            writer's place, and the turns that only the log has come into the backup, too.
        target: the backup, a new or empty folder.
        broker: the name of the broker that runs; ``None``: no broker runs.
        check: examines the backup.
        progress: called with the number of bytes copied so far, and that of all bytes.

    Raises:
        StoreError: the store is damaged; or there is something at the target.
        OSError: the target cannot be written.
    """
    began = time.time()
    with folders.appearing(target) as partial:
        copying.copy(folder, partial / DATA, progress)
        if broker is None:
            _copy_log(folder, partial)
        else:
            Log(partial).close()
        with Database(partial, owner="a backup") as database, contextlib.closing(Writer(database)):
            pass  # it repeats the turns of the log
        queues, messages = check(partial)
        _leave_only(partial, DATA, LOG)
        length, checksum = (partial / DATA).stat().st_size, _checksum(partial / DATA)
        made = Backup(broker, began, length, checksum, queues, messages)
        kept = {name: getattr(made, name) for name in Backup.__dataclass_fields__}
        text = json.dumps({"backup": _NOTE_FORMAT, "store_format": FORMAT, **kept}, indent=2)
        (partial / NOTE).write_text(f"{text}\n", encoding="utf-8")
    return made


def _copy_log(folder: Path, partial: Path) -> None:
    for name in (LOG, *(LOG + suffix for suffix in _BESIDE)):
        if (folder / name).exists():
            shutil.copyfile(folder / name, partial / name)


def _leave_only(folder: Path, *names: str) -> None:
    for one in folder.iterdir():
        if one.name not in names:
            one.unlink()


def _checksum(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while found := file.read(_AT_ONCE):
            digest.update(found)
    return digest.hexdigest()


def about(backup: Path) -> Backup:
    """Reads what a backup has.

    Raises:
        StoreError: the folder is no backup, or one of another version.
    """
    try:
        found: dict[str, Any] = json.loads((backup / NOTE).read_text(encoding="utf-8"))
        form, store = found.pop("backup"), found.pop("store_format")
        if (form, store) == (_NOTE_FORMAT, FORMAT):
            return Backup(**found)
    except FileNotFoundError:
        raise StoreError(text=f"{str(backup)!r} is no backup: it has no file {NOTE!r}") from None
    except NotADirectoryError:
        raise StoreError(text=f"{str(backup)!r} is no backup: it is no folder") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(text=f"{str(backup)!r} is no backup: {NOTE!r} cannot be read: {error!r}") from error
    text = f"the backup {str(backup)!r} has format {form}, of a store of format {store}"
    raise StoreError(text=f"{text}; this version reads {_NOTE_FORMAT} and {FORMAT}")


def restore(backup: Path, folder: Path, progress: Progress | None = None) -> Backup:
    """Makes a store of a backup, which stays as it is.

    Args:
        backup: the backup.
        folder: the folder of the store. It is made if it does not exist.
        progress: called with the number of bytes copied so far, and that of all bytes.

    Raises:
        StoreError: the backup is none, or is damaged; the folder has a store, or is in use.
        OSError: the folder cannot be written.
    """
    found = about(backup)
    made = not folder.exists()
    if made and not folder.parent.is_dir():
        raise StoreError(text=f"{str(folder.parent)!r} is no folder, so {folder.name!r} cannot be made there")
    if made:
        folder.mkdir(0o700)
    try:
        place = Place(folder, "a restore")
        try:
            _refuse_a_store(folder)
            _restore(found, backup, folder, progress)
        finally:
            place.leave()
    except BaseException:
        if made:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return found


def _refuse_a_store(folder: Path) -> None:
    text = f"the folder {str(folder)!r} has a store already: another folder is allowed"
    if (folder / DATA).exists():
        raise StoreError(text=text)
    if (folder / LOG).exists():
        with contextlib.closing(Log(folder)) as log:
            if log.after(0):
                raise StoreError(text=text)


def _restore(found: Backup, backup: Path, folder: Path, progress: Progress | None) -> None:
    partial = folder / "restore.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(0o700)
    try:
        _copy(found, backup / DATA, partial / DATA, progress or (lambda _done, _total: None))
        verifying.verified(partial)
        Log(folder).close()  # first: a database without its log would be refused, a log without a database is no store
        folders.sync(folder / LOG)
        folders.sync(folder)
        (partial / DATA).replace(folder / DATA)
        folders.sync(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _copy(found: Backup, source: Path, target: Path, progress: Progress) -> None:
    """Copies a database file, and compares it with what the backup says."""
    digest, done = xxhash.xxh3_128(), 0
    damaged = f"the backup {str(source.parent)!r} is damaged, or was changed: {DATA!r}"
    if not source.is_file():
        raise StoreError(text=f"{damaged} is missing")
    with source.open("rb") as reader, target.open("xb", buffering=0) as writer:
        while part := reader.read(_AT_ONCE):
            copying.write_all(writer, part)
            digest.update(part)
            done += len(part)
            progress(min(done, found.size), found.size)
        os.fsync(writer.fileno())
    target.chmod(0o600)
    if done != found.size:
        raise StoreError(text=f"{damaged} has {done} bytes, not {found.size}")
    if digest.hexdigest() != found.checksum:
        raise StoreError(text=f"{damaged} has the checksum {digest.hexdigest()}, not {found.checksum}")
