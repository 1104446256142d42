# SPDX-License-Identifier: Apache-2.0
"""The storekeeper's process: it serves, is killed, is stopped, and ends."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.brokers import remove_files
from scenario_support.waiting import eventually

from shmbroker import exceptions
from shmbroker._core import attachment, native, segments, syncing
from shmbroker._storekeeper import launch, process
from shmbroker.storage.place import is_in_use

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker
    from tests.unit.storage.conftest import Stored

WATCHDOG = 60.0


class Served:
    """A broker with a store, whose storekeeper is a process.

    Attributes:
        stored: the broker; its own storekeeper does not serve.
        connection: a connection.
    """

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self._is_back = False  # whether this process has opened the store again
        stored.keeper.close()
        stored.database.close()
        self.connection = stored.connection
        self._attached = attachment.acquire(segments.path_of(stored.name))
        self.ensure()

    @property
    def pid(self) -> int:
        """The process of the storekeeper; 0: there is none."""
        return int(native.slow.sb_store_keeper(self._attached.handle))

    def ensure(self) -> int:
        """Starts a storekeeper if there is none; returns its process."""

        def serves() -> bool:
            launch.ensure_storekeeper(self.stored.name)
            return self.pid != 0

        eventually(serves, "a storekeeper that serves")
        return self.pid

    def wait(self, seconds: float = WATCHDOG) -> None:
        """Waits until all that was put is in the store."""
        core = self.connection._session.core  # noqa: SLF001 - a wait of the core
        syncing.wait(core, syncing.ask(core), native.deadline(seconds))

    def kill(self) -> None:
        """The storekeeper is killed."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: self.pid != pid, "the end of the storekeeper")

    def end(self) -> None:
        """The storekeeper ends; the store may be opened by others."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
            self._attached.set_stopped(stopped=True)
            eventually(lambda: self.pid == 0, "the end of the storekeeper")

    def restart(self) -> shmbroker.Connection:
        """The memory is lost, and made again; the storekeeper is not a process any more."""
        self._come_back()
        self.stored.restart()
        return self.stored.connection

    def _come_back(self) -> None:
        if not self._is_back:
            self.end()
            self.stored.reopen()
            self._is_back = True

    def close(self) -> None:
        """Ends the storekeeper."""
        self._come_back()
        attachment.release(self._attached)


@pytest.fixture
def served(stored: Stored) -> Iterator[Served]:
    """A broker with a storekeeper in a process of its own."""
    with contextlib.closing(Served(stored)) as made:
        yield made


def numbers_of(queue: shmbroker.Queue) -> list[int]:
    """The bodies that are ready, as numbers."""
    return [int(bytes(message)) for message in queue.browse()]


def test_what_is_synced_survives(served: Served) -> None:
    """After the wait, the message is in the store."""
    queue = served.connection.queue("q", durable=True)
    for number in range(50):
        queue.put(b"%d" % number, timeout=0)
        served.wait()
    assert numbers_of(served.restart().queue("q", passive=True)) == [*range(50)]


def test_a_killed_storekeeper_loses_nothing(served: Served) -> None:
    """Wherever it is killed: what a wait returned for is there, what was acknowledged and synced is not."""
    chance = random.Random(5)
    queue = served.connection.queue("q", durable=True)
    left: list[int] = []
    for number in range(12):
        queue.put_many([b"%d" % (number * 100 + at) for at in range(100)], timeout=0)
        left += range(number * 100, number * 100 + 100)
        for _ in range(chance.randrange(60)):
            queue.get(timeout=WATCHDOG).ack()
            left.pop(0)
        core = served.connection._session.core  # noqa: SLF001
        turn = syncing.ask(core)
        time.sleep(chance.uniform(0, 0.01))  # into the turn
        served.kill()
        served.ensure()
        syncing.wait(core, turn, native.deadline(WATCHDOG))
    assert numbers_of(served.restart().queue("q", passive=True)) == left


def test_a_stopped_storekeeper_blocks_only_those_that_wait(served: Served) -> None:
    """Put, get and ack go on; a wait times out, and succeeds when the storekeeper goes on."""
    queue = served.connection.queue("q", durable=True)
    queue.put(b"0", timeout=0)
    served.wait()
    os.kill(served.pid, signal.SIGSTOP)
    for number in range(1, 2000):
        queue.put(b"%d" % number, timeout=0)
        queue.get(timeout=WATCHDOG).ack()
    with pytest.raises(exceptions.Timeout, match="has not synced"):
        served.wait(0.05)
    os.kill(served.pid, signal.SIGCONT)
    served.wait()
    assert numbers_of(served.restart().queue("q", passive=True)) == [1999]


def test_it_ends_with_the_broker(served: Served) -> None:
    """A stop of the broker ends it, after a last turn."""
    queue = served.connection.queue("q", durable=True)
    queue.put_many([b"%d" % number for number in range(500)], timeout=0)
    served.end()
    assert numbers_of(served.restart().queue("q", passive=True)) == [*range(500)]


def test_it_ends_when_the_memory_is_gone(served: Served) -> None:
    """Somebody removed the files by hand: the folder is free for the next broker."""
    queue = served.connection.queue("q", durable=True)
    queue.put(b"0", timeout=0)
    served.wait()
    remove_files(served.stored.name)
    eventually(lambda: not is_in_use(served.stored.folder), "the end of the storekeeper")


def test_a_second_one_ends(served: Served) -> None:
    """The place is taken."""
    pid = served.pid
    launch._started.clear()  # noqa: SLF001 - as another process would
    launch._start(served.stored.name)  # noqa: SLF001
    served.connection.queue("q", durable=True).put(b"0", timeout=0)
    served.wait()
    assert served.pid == pid


@pytest.mark.parametrize(("sync", "syncs"), [("always", True), ("interval", True), ("none", False)])
def test_whether_the_store_is_synced(monkeypatch: pytest.MonkeyPatch, sync: str, syncs: bool) -> None:  # noqa: FBT001
    """As the broker was made: a storekeeper syncs what nobody waits for, unless nothing is to be synced."""
    given: list[bool] = []

    def opened(*_: object, syncs: bool) -> None:
        given.append(syncs)
        raise exceptions.StoreError(text="not opened")

    broker: Any = SimpleNamespace(data_dir="folder", is_restoring=lambda: False, removed=False, sync=sync, name="name")
    broker.facts = lambda: SimpleNamespace(stopped=False)
    monkeypatch.setattr(process, "opened", opened)
    with pytest.raises(exceptions.StoreError, match="not opened"):
        process._served(broker, process.EndFlag(), even_if_stopped=True)  # noqa: SLF001
    assert given == [syncs]
