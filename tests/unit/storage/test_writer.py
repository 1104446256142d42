# SPDX-License-Identifier: Apache-2.0
"""The writer of a store: when the log and the database have a turn, and what follows one that was killed."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import lmdb
import pytest

from shmbroker import exceptions
from shmbroker.storage import rows
from shmbroker.storage.database import DATA, Database
from shmbroker.storage.log import LOG, ROWS, Log
from shmbroker.storage.reading import Reader
from shmbroker.storage.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shmbroker.storage.batch import Batch


class Open:
    """A store that is open for writing.

    Attributes:
        database: the database of the store.
        writer: its writer.
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = Database(folder, owner="a test")
        self.writer = Writer(self.database)

    def put(self, *numbers: int, length: int = 7) -> None:
        """A turn that writes records of queues."""
        with self.writer.turn() as batch:
            for number in numbers:
                batch.put_queue(number, b"r" * length)

    def queues(self) -> list[int]:
        """The queues that the database has."""
        with self.database.read() as transaction:
            return list(Reader(self.database, transaction).queues())

    def close(self) -> None:
        """Closes the store."""
        self.writer.close()
        self.database.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Open]:
    """An empty store."""
    with contextlib.closing(Open(tmp_path)) as made:
        yield made


def after_power_loss(folder: Path, copy: Path) -> list[int]:
    """The queues that another machine finds that gets the files as they are now."""
    shutil.copytree(folder, copy)
    with contextlib.closing(Open(copy)) as found:
        return found.queues()


def test_a_turn_is_kept_when_it_ends(store: Open, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The log has it, so a loss of power loses nothing; the database has it later."""
    for number in (1, 2, 3):
        store.put(number)
        copy = tmp_path_factory.mktemp("copy") / "store"
        assert after_power_loss(store.folder, copy) == list(range(1, number + 1))
    assert store.queues() == []
    store.writer.settle()
    assert store.queues() == [1, 2, 3]


def test_a_turn_that_fails_changes_nothing(store: Open, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Turns before it stay, and so do those after it."""
    store.put(1)

    def fail(batch: Batch) -> None:
        batch.put_queue(2, b"record")
        assert batch.members(1, 0) == (0, 0)  # the transaction has the turn from now on
        raise KeyError

    with pytest.raises(KeyError), store.writer.turn() as batch:
        fail(batch)
    assert after_power_loss(store.folder, tmp_path_factory.mktemp("copy") / "store") == [1]
    store.put(3)
    store.writer.settle()
    assert store.queues() == [1, 3]


def test_a_turn_sees_those_before_it(store: Open) -> None:
    """Also those that only the log has."""
    heads = (
        rows.SEAL * b"\0" + bytes([rows.FORMAT, 0, 1, 0]) + bytes(4) + bytes(8) + (5).to_bytes(8, "little") + bytes(16)
    )
    with store.writer.turn() as batch:
        batch.put_row(1, 64, memoryview(bytearray(heads)), memoryview(bytearray(rows.SEAL)))
        assert batch.members(1, 64) == (5, 0)
    with store.writer.turn() as batch:
        assert batch.members(1, 64) == (5, 0)
        batch.end_span(1, 64, 64)
        assert batch.members(1, 64) == (0, 0)
    with store.writer.turn() as batch:
        assert batch.members(1, 64) == (0, 0)


def test_the_database_gets_many_turns_at_once(store: Open) -> None:
    """Before the log has no place for another one."""
    for number in range(1, ROWS + 1):
        store.put(number)
        assert store.queues() == []
    store.put(ROWS + 1)
    assert store.queues() == list(range(1, ROWS + 1))


def test_the_log_keeps_a_bounded_number_of_bytes(store: Open) -> None:
    """The database gets them, and the log begins again."""
    for number in range(1, 25):
        store.put(number, length=200_000)
    assert len(store.queues()) == 21  # 21 turns have more than 4 MiB


def test_a_large_turn_goes_into_the_database(store: Open, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With those before it, at once; the log is not written."""
    store.put(1)
    store.put(2, 3, length=200_000)
    assert store.queues() == [1, 2, 3]
    store.put(4)
    assert after_power_loss(store.folder, tmp_path_factory.mktemp("copy") / "store") == [1, 2, 3, 4]


def test_a_turn_without_changes_is_no_turn(store: Open) -> None:
    """Nothing is written, and nothing is synced."""
    store.put(1)
    before = (store.folder / f"{LOG}-wal").read_bytes()
    with store.writer.turn():
        pass
    assert (store.folder / f"{LOG}-wal").read_bytes() == before


def test_a_full_disk_loses_no_turn(store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log cannot be written: the turn fails, and the next ones do, until there is room."""
    store.put(1)

    def full(*_: object) -> None:
        raise exceptions.StoreError(text="database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Log, "append", full)
        for _ in range(2):
            with pytest.raises(exceptions.StoreError, match="disk is full"):
                store.put(2)
    store.put(3)
    store.writer.settle()
    assert store.queues() == [1, 3]


def test_a_commit_that_fails_is_repeated(store: Open) -> None:
    """The database has no room: the log keeps the turns, and the database has them when it has room again."""
    size = store.database.environment.info()["map_size"]
    for number in range(1, 10):
        store.put(number, length=150_000)
    store.writer.close()
    store.database.environment.set_mapsize(1 << 20)
    with pytest.raises(exceptions.StoreError) as refused:
        store.writer = Writer(store.database)
    assert isinstance(refused.value.__cause__, lmdb.MapFullError)
    store.database.environment.set_mapsize(size)
    store.writer = Writer(store.database)
    assert store.queues() == list(range(1, 10))


@pytest.mark.parametrize("removed", [LOG, DATA])
def test_a_store_of_which_a_part_is_missing_is_refused(tmp_path: Path, removed: str) -> None:
    """It does not begin without the turns that only the log has, nor with those turns alone."""
    with contextlib.closing(Open(tmp_path)) as store:
        store.put(1)
    for path in tmp_path.glob(f"{removed}*"):
        path.unlink()
    with (
        Database(tmp_path, owner="a test") as database,
        pytest.raises(exceptions.StoreError, match=f"{DATA} and {LOG} belong together, and one was removed"),
    ):
        Writer(database)


def test_a_change_of_a_later_version_is_refused(tmp_path: Path) -> None:
    """It is not passed over."""
    with contextlib.closing(Open(tmp_path)) as store:
        store.put(1)
    with contextlib.closing(Log(tmp_path)) as log:
        log.append(2, b"\xff" * 64)
    with Database(tmp_path, owner="a test") as database, pytest.raises(exceptions.StoreError, match="does not know"):
        Writer(database)
