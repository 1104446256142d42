# SPDX-License-Identifier: Apache-2.0
"""The request to the storekeeper for a database that has everything, and the locks of readers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._storekeeper import process
from shmbroker.storage import beside, settling
from shmbroker.storage.database import DATA
from shmbroker.storage.writer import Writer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.storage.conftest import Stored


def test_a_request_counts_once(tmp_path: Path) -> None:
    """Two processes that ask at the same time get one commit."""
    assert not settling.take(tmp_path)
    settling.ask(tmp_path)
    settling.ask(tmp_path)
    assert settling.is_asked(tmp_path)
    assert settling.take(tmp_path)
    assert not settling.is_asked(tmp_path)
    assert not settling.take(tmp_path)


def test_a_failed_commit_is_tried_again(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is not forgotten, although the broker is busy: no turn begins before the database has everything."""
    ended, settle, turn = process.EndFlag(), Writer.settle, stored.keeper.turn
    calls: list[str] = []

    def fails_twice(writer: Writer) -> None:
        calls.append("settle")
        if len(calls) <= 2:
            raise exceptions.StoreError(text="no space")
        settle(writer)

    def ends() -> int:
        calls.append("turn")
        ended.set()
        return turn()

    monkeypatch.setattr(Writer, "settle", fails_twice)
    monkeypatch.setattr(stored.keeper, "turn", ends)
    monkeypatch.setattr(stored.keeper, "rest", lambda *_, **__: native.OK)  # a connection asks for a turn
    settling.ask(stored.folder)
    process.run(stored.keeper, ended)
    assert calls == ["settle", "settle", "settle", "turn", "turn"]  # the last one is that of the end


def test_a_reader_locks_the_file_that_is_there(tmp_path: Path) -> None:
    """A replacement is refused while a process reads the file; a file that is missing is left to LMDB."""
    path, new = tmp_path / DATA, tmp_path / "new"
    assert beside.reading(path) == -1
    path.write_bytes(b"one")
    old = os.open(path, os.O_RDONLY)
    with beside.replacing(path):
        new.write_bytes(b"two")
        new.replace(path)
    descriptor = beside.reading(path)
    assert os.fstat(descriptor).st_ino == path.stat().st_ino != os.fstat(old).st_ino
    with pytest.raises(exceptions.StoreError, match="is being read by another process"), beside.replacing(path):
        pass
    os.close(descriptor)
    with beside.replacing(path):
        pass
    os.close(old)
