# SPDX-License-Identifier: Apache-2.0
"""The environment of a store: what is refused, and with which words."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from shmbroker import exceptions
from shmbroker.storage import rows
from shmbroker.storage.database import DATA, Database
from shmbroker.storage.reading import Reader
from shmbroker.storage.writer import Writer

DAMAGE = Path(__file__).with_name("damage.py")


def empty_row(first: int) -> bytes:
    """Return the heads of a row without messages."""
    return struct.pack("<HHIQQQQ", rows.FORMAT, 0, 0, first, 0, 0, 0)


def test_a_store_is_made_once(tmp_path: Path) -> None:
    """A writer makes it; a reader finds what was written."""
    with Database(tmp_path, owner="broker 'b'") as made, contextlib.closing(Writer(made)) as writer:
        with writer.turn() as batch:
            batch.put_queue(1, b"record")
        writer.settle()
    with Database(tmp_path) as read, read.read() as transaction:
        assert Reader(read, transaction).queues() == {1: b"record"}


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """A store is never made in a folder that is not there: it may be a disk that is not mounted."""
    with pytest.raises(exceptions.StoreError, match=r"data_dir='.*/missing' is no folder"):
        Database(tmp_path / "missing", owner="broker 'b'")


def test_a_reader_makes_no_store(tmp_path: Path) -> None:
    """A folder without a store is refused."""
    with pytest.raises(exceptions.StoreError, match="No such file"):
        Database(tmp_path)


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    """Another writer is told who writes it; after the first one's end there is a place."""
    with (
        Database(tmp_path, owner="broker 'one'"),
        pytest.raises(exceptions.StoreError, match=r"in use by broker 'one', process \d+"),
    ):
        Database(tmp_path, owner="broker 'two'")
    Database(tmp_path, owner="broker 'two'").close()


def test_a_store_that_was_half_made_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that ends while it makes the store leaves none: no reader finds a part of it."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            Database(tmp_path, owner="broker 'b'")
    with pytest.raises(exceptions.StoreError, match="No such file"):
        Database(tmp_path)
    (tmp_path / "data.mdb.new").write_bytes(b"\0" * 8192)  # as after a loss of power
    with Database(tmp_path, owner="broker 'b'") as made, made.read() as transaction:
        assert Reader(made, transaction).queues() == {}
    assert {path.name for path in tmp_path.iterdir()} == {"data.mdb", "lock.mdb", "owner"}


def test_a_store_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """The error names the folder, and the reason."""
    (tmp_path / "data.mdb.new").mkdir()
    with pytest.raises(exceptions.StoreError, match=rf"data_dir='{tmp_path}': Is a directory"):
        Database(tmp_path, owner="broker 'b'")


@pytest.mark.parametrize("content", [b"\x00" * 8192, b"no store" * 1024, b"short"], ids=["zeros", "text", "short"])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """Something else lies where the store would be."""
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(exceptions.StoreError, match=str(tmp_path)):
        Database(tmp_path, owner="broker 'b'")
    assert (tmp_path / "data.mdb").read_bytes() == content


@pytest.mark.parametrize("form", [b"4", b"6"])
def test_another_format_is_refused(tmp_path: Path, form: bytes) -> None:
    """A store of an earlier version, which lacks a database, or of a later one is not touched."""
    with Database(tmp_path, owner="broker 'b'") as made, made.environment.begin(write=True) as transaction:
        transaction.put(b"format", form, db=made.names[b"info"])
        transaction.drop(made.names[b"ids"])
    for owner in ("broker 'b'", None):
        with pytest.raises(exceptions.StoreError, match=f"has format {form!r}, this version reads 5"):
            Database(tmp_path, owner=owner)


def test_a_store_without_room_is_refused(tmp_path: Path) -> None:
    """A transaction that finds no room changes nothing, and says where."""
    with Database(tmp_path, owner="broker 'b'") as made:
        writer = Writer(made)
        made.environment.set_mapsize(1 << 20)

        def fill() -> None:
            with writer.turn() as batch:
                batch.put_queue(1, b"record")
                for number in range(100):
                    heads = bytearray(rows.SEAL) + empty_row(number * rows.LEAF)
                    batch.put_row(2, number * rows.LEAF, memoryview(heads), memoryview(bytearray(100_000)))

        with pytest.raises(exceptions.StoreError, match=str(tmp_path)) as refused:
            fill()
        assert isinstance(refused.value.__cause__, lmdb.MapFullError)
        writer.settle()
        with made.read() as transaction:
            assert Reader(made, transaction).queues() == {}
        writer.close()


def test_a_value_under_another_key_is_refused() -> None:
    """The checksum of a value covers its key."""
    value = rows.sealed(rows.key(1, 64), b"payload")
    assert rows.opened(rows.key(1, 64), value, "a value") == b"payload"
    for wrong in (rows.key(1, 65), rows.key(2, 64)):
        with pytest.raises(exceptions.StoreError, match="the store is damaged: a value of queue"):
            rows.opened(wrong, value, "a value")
    for cut in (value[:-1], value[:5], b""):
        with pytest.raises(exceptions.StoreError, match="damaged"):
            rows.opened(rows.key(1, 64), cut, "a value")


@pytest.mark.parametrize("part", ["all", "pages"])
def test_a_flipped_bit_gives_an_error_or_the_right_message(tmp_path: Path, part: str) -> None:
    """Wherever it is: no crash, and no wrong message. In a process of its own, since a crash would end it."""
    command = [sys.executable, str(DAMAGE), str(tmp_path), "40", part]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]


# ---- a file that is cut short ----


def filled(folder: Path) -> int:
    """Make a store with records of 1000 queues; return the length of its file."""
    with Database(folder, owner="a test") as made, contextlib.closing(Writer(made)) as writer:
        with writer.turn() as batch:
            for number in range(1000):
                batch.put_queue(number, b"r" * 1000)
        writer.settle()
    return (folder / DATA).stat().st_size


@pytest.mark.parametrize("owner", [None, "a test"])
@pytest.mark.parametrize("part", [0.01, 0.5, 0.95])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, owner: str | None, part: float) -> None:
    """A process that reads the missing pages would be ended by SIGBUS."""
    size = filled(tmp_path)
    left = max(int(size * part), 3 * 4096)
    os.truncate(tmp_path / DATA, left)
    with pytest.raises(exceptions.StoreError, match=f"{DATA} is cut short, to {left} of {size} bytes"):
        Database(tmp_path, owner=owner)


def test_a_file_may_end_with_free_pages(tmp_path: Path) -> None:
    """LMDB does not write them. A reader finds everything, and a writer makes the file as long as its pages say."""
    size = filled(tmp_path)
    with Database(tmp_path, owner="a test") as made, contextlib.closing(Writer(made)) as writer:
        with writer.turn() as batch:  # large: it is committed
            for number in range(2000, 3000):
                batch.put_queue(number, b"r" * 1000)
            for number in range(2000, 3000):
                batch.remove_queue(number)
        assert made.lacks() == 0
        pages = made.environment.info()["last_pgno"] + 1
    assert pages * 4096 > size
    with Database(tmp_path) as read, read.read() as transaction:
        assert len(Reader(read, transaction).queues()) == 1000
    os.truncate(tmp_path / DATA, (pages - 1) * 4096)  # as LMDB leaves it
    with Database(tmp_path) as read:
        assert read.lacks() == 4096
    with Database(tmp_path, owner="a test") as made:
        assert made.lacks() == 0
