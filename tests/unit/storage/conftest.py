# SPDX-License-Identifier: Apache-2.0
"""A broker with a store, whose storekeeper a test drives turn by turn."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

import pytest

import shmbroker
from shmbroker._core import attachment, segments
from shmbroker._storekeeper.process import opened
from shmbroker._storekeeper.storekeeper import Storekeeper
from shmbroker.settings import parse_size
from shmbroker.storage.database import Database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Stored:
    """A broker with a store. A restart loses its memory; all that is left is the folder.

    Attributes:
        keeper: the storekeeper.
        connection: a connection of the broker.
        restored: how many queues the last restart found in the store.
    """

    def __init__(self, folder: Path, memory: str = "64M", full: str = "block") -> None:
        self.folder = folder
        self.name = f"t-{secrets.token_hex(8)}"
        self._memory, self._full = memory, full
        self.database = Database(folder, owner=f"broker {self.name!r}")
        self.restored = 0
        self._begin()

    def _begin(self) -> None:
        path = segments.path_of(self.name)
        self.broker = shmbroker.Broker(self.name, memory=self._memory)
        store = segments.Store(str(self.folder), full=self._full)
        assert segments.create(path, self.name, parse_size(self._memory), 0o600, store)
        found = attachment.acquire(path)
        self.keeper = self.another_keeper()
        assert self.keeper.begin()
        self.restored = self.keeper.restore()
        found.set_restored(verified=True)
        attachment.release(found)
        self.connection = self.broker.connect()

    def another_keeper(self) -> Storekeeper:
        """A storekeeper that has not begun."""
        return Storekeeper(segments.path_of(self.name), self.database)

    def reopen(self) -> None:
        """Opens the store again, after another process had it."""
        self.database = opened(self.name, str(self.folder))

    def take_over(self) -> None:
        """The storekeeper ends, and another one begins."""
        self.keeper.close()
        self.keeper = self.another_keeper()
        assert self.keeper.begin()

    def _end(self) -> None:
        self.connection.close()
        self.keeper.close()
        path = segments.path_of(self.name)
        if not segments.exists(path):
            return  # a test has removed it
        with attachment.attached_to(path) as found:
            found.set_closing()  # no `stop`, which lets a storekeeper take a last turn
            segments.remove(path, segments.identity(path))

    def restart(self) -> None:
        """The memory is lost, and made again from the store."""
        self._end()
        self._begin()
        self.keeper.turn()  # as who begins a broker: the store then knows the queues of this memory
        self.keeper.settle()

    def close(self) -> None:
        """Ends the broker, and removes its memory."""
        self._end()
        self.database.close()


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    """A broker with an empty store."""
    with contextlib.closing(Stored(tmp_path)) as made:
        yield made
