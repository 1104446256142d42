# SPDX-License-Identifier: Apache-2.0
"""A process that has read from the store closes it when it uses the broker no more."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
from scenario_support.stores import serving

from shmbroker import stores
from shmbroker._core import attachment
from shmbroker._storekeeper import loading
from shmbroker.storage.database import DATA, Database

COUNT = 20_000


def lost(name: str, folder: Path) -> None:
    """Put messages into a durable queue, and lose the memory: a start then leaves them in the store.

    They are more than the storekeeper loads ahead, so a process that browses them all loads some itself.
    """
    with serving(name, folder) as broker, broker.connect() as connection:
        connection.queue("jobs", durable=True).put_many([b"%d" % number for number in range(COUNT)])


def has_open(folder: Path) -> bool:
    """Whether this process maps the database in a folder."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return any(line.endswith(str(folder / DATA)) for line in maps)


def test_the_last_connection_lets_go(broker_name: str, tmp_path: Path) -> None:
    """Connections before it do not; another one opens the store again. A store that nobody reads can be compacted."""
    lost(broker_name, tmp_path)
    with serving(broker_name, tmp_path) as broker:
        first, second = broker.connect(), broker.connect()
        assert len(list(first.queue("jobs", passive=True).browse())) == COUNT
        assert has_open(tmp_path)
        first.close()
        assert has_open(tmp_path)
        second.close()
        assert not has_open(tmp_path)
        with broker.connect() as third:
            assert len(list(third.queue("jobs", passive=True).browse())) == COUNT
    assert not has_open(tmp_path)
    stores.compact(tmp_path)


def test_a_dropped_connection_lets_go(broker_name: str, tmp_path: Path) -> None:
    """When the garbage collector finds it."""
    lost(broker_name, tmp_path)
    with serving(broker_name, tmp_path) as broker:
        connection = broker.connect()
        assert len(list(connection.queue("jobs", passive=True).browse())) == COUNT
        assert has_open(tmp_path)
        del connection
        gc.collect()
        assert not has_open(tmp_path)


class Watched(loading.Loader):
    """A loader that opens nothing by itself, and calls a function within each load."""

    def __init__(self, database: Database, within: Any) -> None:  # noqa: ANN401 - any function
        super().__init__(lambda: database)
        self._within = within
        self._store()

    def _load_for(self, *_: object) -> None:
        with self._lock, self._loading():
            self._within()

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self._database is not None


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """Return an empty store, opened for reading; the loader closes it."""
    Database(tmp_path, owner="a test").close()
    return Database(tmp_path)


def test_a_load_keeps_the_store_until_it_ends(database: Database) -> None:
    """The garbage collector may end the last use of a broker within a load of the same thread."""
    seen = []

    def within() -> None:
        loader.let_go()
        seen.append(loader.is_open)

    loader = Watched(database, within)
    loader.load(None, 0, 0)  # type: ignore[arg-type]
    assert (seen, loader.is_open) == ([True], False)


def test_a_load_of_another_thread_is_not_waited_for(database: Database) -> None:
    """That thread may need the lock of attachments, which this one holds: it closes the store at its end."""
    loads, goes_on = threading.Event(), threading.Event()

    def within() -> None:
        loads.set()
        goes_on.wait()

    loader = Watched(database, within)
    thread = threading.Thread(target=loader.load, args=(None, 0, 0))
    thread.start()
    loads.wait()
    with attachment._lock:  # noqa: SLF001 - what is held
        loader.let_go()
    assert loader.is_open
    goes_on.set()
    thread.join()
    assert not loader.is_open
