# SPDX-License-Identifier: Apache-2.0
"""The stores of brokers on disk: backups, compaction, and examination.

>>> import tempfile, shmbroker
>>> from pathlib import Path
>>> from shmbroker import stores
>>> with tempfile.TemporaryDirectory() as folder:
...     data_dir, backup, other = Path(folder, "orders"), Path(folder, "backup"), Path(folder, "again")
...     data_dir.mkdir()
...     with shmbroker.Broker("doctest-stores", data_dir=data_dir) as broker, broker.connect() as connection:
...         connection.queue("jobs", durable=True).put(b"one")
...         stores.backup(backup, broker="doctest-stores").messages
...         broker.stop(purge=True)
...     stores.restore(backup, other).queues
...     stores.examine(data_dir=other)
1
1
[]
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._broker.making import check_name
from shmbroker._core import native, segments
from shmbroker._core.attachment import attached_to
from shmbroker._dataclasses import dataclass
from shmbroker._storekeeper import admission, examination, settled, users
from shmbroker.storage import backup as backups
from shmbroker.storage import compacting
from shmbroker.storage.backup import Backup
from shmbroker.storage.database import DATA
from shmbroker.storage.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker._core.attachment import Attachment

    Progress = Callable[[str, int, int], object]
    """Gets what is done, "copied" or "checked"; how much of it is done, in bytes or entries; and how much there is."""

__all__ = ["Backup", "Compacted", "backup", "compact", "examine", "restore"]

_COPIED, _CHECKED = "copied", "checked"
_SYNC_SECONDS = 60.0
_LOOK_SECONDS = 10.0  # how long an examination waits for a storekeeper that may be stopped


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of :func:`compact`.

    Attributes:
        before: the bytes that the database took.
        after: the bytes that it takes now.
    """

    before: int
    after: int


def backup(
    target: str | os.PathLike[str],
    *,
    broker: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    timeout: float | None = _SYNC_SECONDS,
    progress: Progress | None = None,
) -> Backup:
    """Makes a backup of a store, beside live traffic if the broker runs.

    The backup has everything that was in the store when the call began: each message that was confirmed before, each
    acknowledgement that was made before. It may have some of what came during the call. It is the state of one moment:
    a transaction is in it as a whole, or not at all. Its checksums are compared before the call returns.

    Args:
        target: the folder of the backup, which does not exist yet, or is empty. A broker can begin from it, too.
        broker: the name of a broker that exists.
        data_dir: the folder of a store that no process uses. Exactly one of this and ``broker`` is given.
        timeout: seconds to wait until the storekeeper of the broker has written what came before; ``None`` = for ever.
        progress: called with what is being done and how far it has come.

    Raises:
        BrokerNotFound: there is no such broker.
        StoreError: the broker has no store; the store is damaged, or in use; there is something at the target.
        Timeout: the storekeeper has not written everything in time.
        OSError: the target cannot be written.
    """
    path = Path(os.path.abspath(target))  # noqa: PTH100 - `resolve` would follow a link
    copied, check = _steps(progress)
    with _source(broker, data_dir) as (attached, folder):
        if attached is None:
            with contextlib.closing(_Held(folder, "a backup")):
                return backups.make(folder, path, None, check, copied)
        settled.await_settled(attached, str(folder), native.deadline(timeout))
        return backups.make(folder, path, attached.name, check, copied)


def restore(
    backup: str | os.PathLike[str],
    data_dir: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
) -> Backup:
    """Makes a store of a backup, for a broker of any name. The backup stays as it is.

    Args:
        backup: the folder that :func:`backup` made.
        data_dir: the folder of the store. It is made if it does not exist.
        progress: called with what is being done and how far it has come.

    Raises:
        StoreError: the backup is none, or is damaged; the folder has a store, is in use, or is that of a broker that
            exists.
        OSError: the folder cannot be written.
    """
    folder = Path(data_dir).resolve()
    for name in users.brokers_of(folder):
        text = (
            f"the folder {str(folder)!r} is that of broker {name!r}, which exists: `shmbroker stop --purge` removes it"
        )
        raise exceptions.StoreError(text=text)
    copied, _ = _steps(progress)
    return backups.restore(Path(backup).resolve(), folder, copied)


def compact(data_dir: str | os.PathLike[str], *, progress: Progress | None = None) -> Compacted:
    """Writes the database of a store anew, without the pages that are free. No process uses the store meanwhile.

    Whenever the process or the machine is lost, the store is whole: as it was, or compact.

    Args:
        data_dir: the folder of the store.
        progress: called with what is being done and how far it has come.

    Raises:
        StoreError: the folder has no store; the store is in use, or damaged. It is as it was.
        OSError: the folder cannot be written. The store is as it was.
    """
    folder = Path(data_dir).resolve()
    users.refuse_a_broker(folder)
    copied, check = _steps(progress)
    return Compacted(*compacting.compact(folder, check, copied))


def examine(
    *,
    broker: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Reads all that a store has, and describes each defect. Empty = healthy, or the broker has no store.

    All checksums are compared. The log of a broker that runs is not read: only its storekeeper can. Instead it is asked
    for a turn.

    Args:
        broker: the name of a broker that exists.
        data_dir: the folder of a store that no process uses. Exactly one of this and ``broker`` is given.
        progress: called with what is being done and how far it has come.

    Raises:
        BrokerNotFound: there is no such broker.
        StoreError: the folder has no store, or the store is in use.
    """
    checked = _told(progress, _CHECKED)
    try:
        with _source(broker, data_dir) as (attached, folder):
            if attached is not None:
                return _fault_of_turns(attached) + examination.examine(folder, checked).problems
            with contextlib.closing(_Held(folder, "an examination")):
                found = examination.examine(folder, checked)
                fault = examination.fault_of_log(folder, found.applied) if not found.problems else ""
                return found.problems + ([fault] if fault else [])
    except _NoStoreError:
        return []


def _fault_of_turns(attached: Attachment) -> list[str]:
    """Whether the storekeeper of a broker writes."""
    if attached.facts().stopped:
        return []
    try:
        admission.sync(attached, native.deadline(_LOOK_SECONDS))
    except exceptions.Timeout as error:
        return [str(error)]
    return []


class _NoStoreError(exceptions.StoreError):
    """The broker exists, and has no store."""


class _Held:
    """The writer's place of a store that no broker uses."""

    def __init__(self, folder: Path, owner: str) -> None:
        users.refuse_a_broker(folder)
        if not folder.is_dir():
            raise exceptions.StoreError(text=f"data_dir={str(folder)!r} is no folder")
        if not (folder / DATA).exists():
            raise exceptions.StoreError(text=f"data_dir={str(folder)!r} has no store: there is no file {DATA!r}")
        self._place = Place(folder, owner)

    def close(self) -> None:
        self._place.leave()


@contextlib.contextmanager
def _source(broker: str | None, data_dir: str | os.PathLike[str] | None) -> Iterator[tuple[Attachment | None, Path]]:
    """Yields the broker, if one was named, and the folder of the store."""
    if (broker is None) == (data_dir is None):
        msg = f"broker={broker!r}, data_dir={data_dir!r}: exactly one of them is allowed"
        raise ValueError(msg)
    if data_dir is not None:
        yield None, Path(data_dir).resolve()
        return
    name = check_name(broker)
    with attached_to(segments.path_of(name)) as attached:
        folder = attached.data_dir
        if folder is None:
            raise _NoStoreError(text=f"broker {name!r} has no store: it was made without data_dir")
        admission.await_restored(attached, native.deadline(_SYNC_SECONDS))
        yield attached, Path(folder)


def _told(progress: Progress | None, step: str) -> Callable[[int, int], object] | None:
    return None if progress is None else lambda done, total: progress(step, done, total)


def _steps(progress: Progress | None) -> tuple[Callable[[int, int], object] | None, backups.Check]:
    """What is told of the copy, and what examines it."""
    return _told(progress, _COPIED), lambda folder: examination.checked(folder, _told(progress, _CHECKED))
