# SPDX-License-Identifier: Apache-2.0
"""The model of a disk that loses power: what it may have of each sequence of writes and syncs, and what it may not."""

from __future__ import annotations

import random

import pytest

from tests.power_loss.disk import DROPPED, KEPT, SECTOR, Disk, UnsupportedError
from tests.power_loss.journal import CREATED, FOLDER, SYNCED, Kind, Record

OLD, NEW, NEWER = (bytes([value]) * SECTOR for value in (1, 2, 3))


def opened(name: str, file: int, *, value: int = 0) -> Record:
    """An opening."""
    return Record(Kind.OPEN, file, 0, value, name.encode())


def written(file: int, sector: int, content: bytes, *, synced: bool = False) -> Record:
    """A write of whole sectors."""
    return Record(Kind.WRITE, file, sector * SECTOR, SYNCED if synced else 0, content)


def synced(file: int) -> Record:
    """A sync that has ended."""
    return Record(Kind.SYNC, file, 0, 0, b"")


def disk_of(*records: Record, unsynced: frozenset[str] = frozenset()) -> Disk:
    """A disk after operations; the file f, opened as 1, has two old sectors, and the folder, opened as 2, knows it."""
    disk = Disk(unsynced=unsynced)
    before = [opened("f", 1, value=CREATED), written(1, 0, OLD * 2), synced(1), opened(FOLDER, 2), synced(2)]
    for record in [*before, *records]:
        disk.apply(record)
    return disk


def contents(disk: Disk, name: str = "f", style: str | None = None) -> set[bytes | None]:
    """What the file may have, of 400 losses; ``None``: it may be missing."""
    return {disk.after_loss(random.Random(seed), style).get(name) for seed in range(400)}


def test_what_was_synced_is_there() -> None:
    """No choice is left."""
    assert contents(disk_of(written(1, 0, NEW), synced(1))) == {NEW + OLD}


def test_each_sector_may_be_old_or_new() -> None:
    """A write is torn at sectors, in any order; a sector that was written twice may have either content."""
    disk = disk_of(written(1, 0, NEW + NEW), written(1, 1, NEWER))
    assert contents(disk) == {first + second for first in (OLD, NEW) for second in (OLD, NEW, NEWER)}
    assert contents(disk, style=DROPPED) == {OLD + OLD}
    assert contents(disk, style=KEPT) == {NEW + NEWER}


def test_a_write_through_a_synced_opening_is_there() -> None:
    """Only that write: those before it to other sectors may be missing."""
    disk = disk_of(written(1, 0, NEW), opened("f", 3, value=SYNCED), written(3, 1, NEW, synced=True))
    assert contents(disk) == {OLD + NEW, NEW + NEW}


def test_a_file_may_have_any_of_its_lengths() -> None:
    """What was added may be there, be zeros or chance, or not be there at all."""
    disk = disk_of(written(1, 2, NEW))
    lengths = {len(found or b"") for found in contents(disk)}
    assert lengths == {2 * SECTOR, 3 * SECTOR}
    ends = {found[2 * SECTOR :] for found in contents(disk) if found}
    assert {b"", NEW, bytes(SECTOR)} < ends
    cut = disk_of(Record(Kind.TRUNCATE, 1, SECTOR, 0, b""))
    assert contents(cut) >= {OLD, OLD + OLD}
    assert contents(disk_of(Record(Kind.TRUNCATE, 1, SECTOR, 0, b""), synced(1))) == {OLD}


def test_a_file_that_was_made_needs_a_sync_of_the_folder() -> None:
    """A sync of the file is not enough; its removal may be undone."""
    made = [opened("g", 3, value=CREATED), written(3, 0, NEW), synced(3)]
    assert contents(disk_of(*made), "g") == {None, NEW}
    assert contents(disk_of(*made, synced(2)), "g") == {NEW}
    removed = Record(Kind.UNLINK, 0, 0, 0, b"f")
    assert contents(disk_of(removed)) == {None, OLD + OLD}
    assert contents(disk_of(removed, synced(2))) == {None}


def test_a_file_that_is_renamed_has_one_of_its_names() -> None:
    """It replaces another one as a whole."""
    made = [opened("g", 3, value=CREATED), written(3, 0, NEW), synced(3), synced(2)]
    disk = disk_of(*made, Record(Kind.RENAME, 0, 0, 0, b"g\0f"))
    found = [disk.after_loss(random.Random(seed)) for seed in range(400)]
    assert {tuple(sorted(one.items())) for one in found} == {(("f", OLD + OLD), ("g", NEW)), (("f", NEW),)}


def test_syncs_can_be_left_out() -> None:
    """As by a program that forgets them."""
    disk = disk_of(written(1, 0, NEW), synced(1), unsynced=frozenset({"f"}))
    assert contents(disk, style=DROPPED) == {b""}


def test_an_operation_that_the_model_does_not_have_is_refused() -> None:
    """What is written through memory is not seen, so it must not be: but for a file that LMDB makes anew."""
    with pytest.raises(UnsupportedError):
        disk_of(Record(Kind.MAP, 1, 0, 0, b""))
    with pytest.raises(UnsupportedError):
        disk_of(Record(Kind.UNKNOWN, 1, 0, 0, b""))
    disk_of(opened("lock.mdb", 3, value=CREATED), Record(Kind.MAP, 3, 0, 0, b""))
