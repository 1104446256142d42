# SPDX-License-Identifier: Apache-2.0
"""A disk that loses power: which files a folder may have afterwards.

What a sync of a file found is there. Of later writes each sector of 512 bytes may be there or not, whatever its
neighbours and whatever the order of the writes; a sector that was written several times may have any of its contents.
The length of a file is that of any change since the sync. What lies between may be zeros or chance. A file that was
made, renamed or removed since the last sync of the folder may have its old name, its new one, or none.

This is less than what Linux' file systems promise, and all that POSIX does; that a sector is written as a whole is what
both SQLite and LMDB rely on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tests.power_loss.journal import CREATED, EMPTIED, FOLDER, SYNCED, Kind, Record

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

SECTOR = 512
LOCKS = {"lock.mdb", "data.mdb.new-lock"}
"""LMDB maps these files, and makes them anew when it begins, so they may have any content."""
KEPT, DROPPED = "kept", "dropped"
STYLES = (KEPT, DROPPED, "random", "random", "torn", "last only", "all but one")


class UnsupportedError(Exception):
    """Raised for an operation on files that the model does not have."""


class _Choice(Protocol):
    def __call__(self, versions: list[tuple[int, bytes]]) -> bytes | None: ...


class Content:
    """The content of a file: as processes see it, as it is on the disk, and what may be there of each sector.

    Attributes:
        cached: what processes see.
        unsynced: which operations the disk may lack.
    """

    def __init__(self, durable: bytes = b"") -> None:
        self.cached = bytearray(durable)
        self.unsynced: list[int] = []
        self._durable = bytearray(durable)
        self._length = len(durable)  # on the disk
        self._lengths: list[int] = []  # which it may have as well
        self._versions: dict[int, list[tuple[int, bytes]]] = {}  # by sector: what may be there, and since when

    def _note(self, operation: int, first: int, behind: int, *, synced: bool) -> None:
        for sector in range(first // SECTOR, -(-behind // SECTOR)):
            at = sector * SECTOR
            content = bytes(self.cached[at : at + SECTOR]).ljust(SECTOR, b"\0")
            if synced:
                self._store(sector, content)
                self._versions.pop(sector, None)
            else:
                self._versions.setdefault(sector, []).append((operation, content))
        if not synced:
            self.unsynced.append(operation)

    def _store(self, sector: int, content: bytes) -> None:
        at = sector * SECTOR
        if len(self._durable) < at + SECTOR:
            self._durable.extend(bytes(at + SECTOR - len(self._durable)))
        self._durable[at : at + SECTOR] = content

    def write(self, operation: int, offset: int, content: bytes, *, synced: bool) -> None:
        """Writes bytes; if synced, the disk has them, and all else that these sectors have."""
        behind = offset + len(content)
        if behind > len(self.cached):
            self.cached.extend(bytes(behind - len(self.cached)))
            self._lengths.append(behind)
        self.cached[offset:behind] = content
        self._note(operation, offset, behind, synced=synced)
        if synced:
            self._length = max(self._length, behind)

    def resize(self, operation: int, length: int) -> None:
        """Cuts the file, or makes it longer by zeros."""
        before = len(self.cached)
        if length < before:
            self.cached[length:] = bytes(before - length)
            self._note(operation, length, before, synced=False)
            del self.cached[length:]
        else:
            self.cached.extend(bytes(length - before))
            self.unsynced.append(operation)
        self._lengths.append(length)

    def sync(self) -> None:
        """The disk has what processes see."""
        for sector, versions in self._versions.items():
            self._store(sector, versions[-1][1])
        self._versions.clear()
        self._length = len(self.cached)
        self._lengths.clear()
        self.unsynced.clear()

    def _synced(self) -> bytes:
        return bytes(self._durable[: self._length]).ljust(self._length, b"\0")

    def after_loss(self, chance: random.Random, style: str) -> bytes:
        """A content that the disk may have."""
        if style == KEPT:
            return bytes(self.cached)
        if style == DROPPED or not self.unsynced:
            return self._synced()
        length = chance.choice([self._length, *self._lengths])
        found = bytearray(self._synced())
        if length > self._length:
            more = length - self._length
            found.extend(chance.randbytes(more) if chance.random() < 0.3 else bytes(more))
        choose = self._chooser(chance, style)
        for sector, versions in self._versions.items():
            chosen = choose(versions)
            at = sector * SECTOR
            if chosen is not None and at < length:
                if len(found) < at + SECTOR:
                    found.extend(bytes(at + SECTOR - len(found)))
                found[at : at + SECTOR] = chosen
        return bytes(found[:length])

    def _chooser(self, chance: random.Random, style: str) -> _Choice:
        """How the content of a sector is chosen; ``None``: it is as at the last sync."""
        place = chance.choice(self.unsynced)
        share = chance.choice((0.1, 0.5, 0.9))

        def at_random(versions: list[tuple[int, bytes]]) -> bytes | None:
            return chance.choice(versions)[1] if chance.random() < share else None

        def torn(versions: list[tuple[int, bytes]]) -> bytes | None:
            """All that is older than one operation, and of that one a part."""
            there = [one for operation, one in versions if operation < place]
            there += [one for operation, one in versions if operation == place and chance.random() < share]
            return there[-1] if there else None

        def last_only(versions: list[tuple[int, bytes]]) -> bytes | None:
            """All of one operation and later ones, nothing of those before."""
            return versions[-1][1] if versions[-1][0] >= place else None

        def all_but_one(versions: list[tuple[int, bytes]]) -> bytes | None:
            """The operations but one."""
            there = [one for operation, one in versions if operation != place]
            return there[-1] if there else None

        found: dict[str, _Choice] = {"random": at_random, "torn": torn, "last only": last_only}
        return found.get(style, all_but_one)


Names = dict[str, Content]


class Disk:
    """A folder of files, and what the disk may have of it.

    Args:
        folder: what the disk has at the beginning; ``None``: nothing.
        unsynced: names of files whose syncs are left out, as by a program that forgets them; `.` is the folder.

    Attributes:
        names: the files, as processes see the folder.
    """

    def __init__(self, folder: Path | None = None, unsynced: frozenset[str] = frozenset()) -> None:
        there = {} if folder is None else {path.name: Content(path.read_bytes()) for path in folder.iterdir()}
        self.names: Names = dict(there)
        self._durable: Names = dict(there)
        self._changes: list[Callable[[Names], object]] = []  # of names, since the last sync of the folder
        self._openings: dict[int, str] = {}
        self._opened: dict[int, Content] = {}
        self._unsynced = unsynced
        self._operation = 0

    def apply(self, record: Record) -> None:
        """Carries out an operation.

        Raises:
            UnsupportedError: the model does not have it.
        """
        self._operation += 1
        apply = {
            Kind.OPEN: self._open,
            Kind.WRITE: self._write,
            Kind.TRUNCATE: self._truncate,
            Kind.ALLOCATE: self._allocate,
            Kind.SYNC: self._sync,
            Kind.RENAME: self._rename,
            Kind.UNLINK: self._unlink,
            Kind.MAP: self._map,
        }.get(record.kind, self._refuse)
        apply(record)

    def _refuse(self, record: Record) -> None:
        raise UnsupportedError(record)

    def _rename_all(self, change: Callable[[Names], object]) -> None:
        change(self.names)
        self._changes.append(change)

    def _open(self, record: Record) -> None:
        name = record.content.decode()
        self._openings[record.file] = name
        if name == FOLDER:
            return
        if record.value & CREATED:
            made = Content()
            self._rename_all(lambda names: names.__setitem__(name, made))
        self._opened[record.file] = self.names[name]
        if record.value & EMPTIED:
            self._opened[record.file].resize(self._operation, 0)

    def _write(self, record: Record) -> None:
        synced = bool(record.value & SYNCED) and self._openings[record.file] not in self._unsynced
        self._opened[record.file].write(self._operation, record.offset, record.content, synced=synced)

    def _truncate(self, record: Record) -> None:
        self._opened[record.file].resize(self._operation, record.offset)

    def _allocate(self, record: Record) -> None:
        content = self._opened[record.file]
        content.resize(self._operation, max(len(content.cached), record.offset + record.value))

    def _sync(self, record: Record) -> None:
        name = self._openings[record.file]
        if name in self._unsynced:
            return
        if name == FOLDER:
            self._durable = dict(self.names)
            self._changes.clear()
        else:
            self._opened[record.file].sync()

    def _unlink(self, record: Record) -> None:
        name = record.content.decode()
        self._rename_all(lambda names: names.pop(name, None))

    def _rename(self, record: Record) -> None:
        old, new = record.content.decode().split("\0")

        def change(names: Names) -> None:
            if old in names:
                names[new] = names.pop(old)

        self._rename_all(change)

    def _map(self, record: Record) -> None:
        if self._openings[record.file] not in LOCKS:
            raise UnsupportedError(record)

    def after_loss(self, chance: random.Random, style: str | None = None) -> dict[str, bytes]:
        """Files that the folder may have.

        Args:
            chance: chooses.
            style: one of STYLES for all files; ``None``: another one for each.
        """
        found = {}
        for name, content in self._names_after(chance, style or chance.choice(STYLES)).items():
            if name in LOCKS:
                length = len(content.cached)
                choice = chance.randrange(3)
                if choice:
                    found[name] = bytes(length) if choice == 1 else chance.randbytes(length)
            else:
                found[name] = content.after_loss(chance, style or chance.choice(STYLES))
        return found

    def _names_after(self, chance: random.Random, style: str) -> Names:
        names = dict(self._durable)
        if style == DROPPED:
            return names
        until = chance.randrange(len(self._changes) + 1) if style == "torn" else len(self._changes)
        for change in self._changes[:until]:
            if style in {KEPT, "torn"} or chance.random() < 0.5:
                change(names)
        return names
