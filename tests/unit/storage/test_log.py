# SPDX-License-Identifier: Apache-2.0
"""The log of a store: what it keeps, and what it refuses."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from typing import TYPE_CHECKING

import pytest

from shmbroker import exceptions
from shmbroker.storage.log import LOG, ROWS, Log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def rows_of(folder: Path) -> Iterator[sqlite3.Connection]:
    """The file of the log, as another program opens it; changes are committed."""
    with contextlib.closing(sqlite3.connect(folder / LOG, isolation_level=None)) as connection:
        yield connection


def test_turns_come_back_in_their_order(tmp_path: Path) -> None:
    """Those after a turn that the database has, also after the log was closed."""
    with contextlib.closing(Log(tmp_path)) as log:
        for number in range(1, 6):
            log.append(number, f"turn {number}".encode())
        assert log.after(3) == [(4, b"turn 4"), (5, b"turn 5")]
    with contextlib.closing(Log(tmp_path)) as log:
        assert log.after(4) == [(5, b"turn 5")]
        assert log.after(5) == []


def test_a_log_is_a_ring(tmp_path: Path) -> None:
    """A turn takes the place of one that the database has: the file stops growing."""
    with contextlib.closing(Log(tmp_path)) as log:
        for number in range(1, 3 * ROWS + 1):
            log.append(number, bytes([number % 256]) * 1000)
        assert [number for number, _ in log.after(2 * ROWS)] == list(range(2 * ROWS + 1, 3 * ROWS + 1))
    with rows_of(tmp_path) as connection:
        assert connection.execute("SELECT count(*) FROM turns").fetchone() == (ROWS,)


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    """The files of the log have the messages of the broker."""
    with contextlib.closing(Log(tmp_path)) as log:
        log.append(1, b"secret")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob(f"{LOG}*")}
    assert modes == {LOG: 0o600, f"{LOG}-wal": 0o600}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DELETE FROM turns WHERE number = 2", "turn 2 is missing"),
        ("UPDATE turns SET number = 7 WHERE number = 3", "turn 3 is missing"),
        ("UPDATE turns SET what = x'00112233445566778899' WHERE number = 2", "damaged: the log"),
        ("UPDATE turns SET what = 'text' WHERE number = 2", "turn 2 is missing"),
        ("UPDATE turns SET what = x'00' WHERE number = 1", "damaged: the log"),
    ],
)
def test_a_damaged_turn_is_refused(tmp_path: Path, change: str, said: str) -> None:
    """A turn that is missing or has other bytes: what comes after it is not applied without it."""
    with contextlib.closing(Log(tmp_path)) as log:
        for number in (1, 2, 3):
            log.append(number, b"turn")
    with rows_of(tmp_path) as connection:
        connection.execute(change)
    with contextlib.closing(Log(tmp_path)) as log, pytest.raises(exceptions.StoreError, match=said):
        log.after(0)


@pytest.mark.parametrize("content", [b"no log" * 2000, b"\x01" * 8192], ids=["text", "bytes"])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """Something else lies where the log would be; it stays as it is."""
    (tmp_path / LOG).write_bytes(content)
    with pytest.raises(exceptions.StoreError, match=str(tmp_path / LOG)):
        Log(tmp_path)
    assert (tmp_path / LOG).read_bytes() == content


def test_a_log_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """The error names the file, and the reason."""
    (tmp_path / LOG).mkdir()
    with pytest.raises(exceptions.StoreError, match=f"{LOG}.*: Is a directory"):
        Log(tmp_path)


@pytest.mark.parametrize(("syncs", "synchronous"), [(True, 2), (False, 0)])
def test_a_turn_is_synced_unless_it_need_not_be(tmp_path: Path, syncs: bool, synchronous: int) -> None:  # noqa: FBT001
    """SQLite's numbers: 2 is FULL, 0 is OFF."""
    with contextlib.closing(Log(tmp_path, syncs=syncs)) as log:
        assert log._connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)  # noqa: SLF001
