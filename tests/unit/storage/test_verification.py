# SPDX-License-Identifier: Apache-2.0
"""The verification of a large store beside its broker: who reads the store meanwhile, and what a damaged page does."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import psutil
import pytest
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import exceptions
from shmbroker._core import attachment, paging, patience, segments
from shmbroker._storekeeper import admission, beginning, launch, loading, verification
from shmbroker._storekeeper.verification import Verification
from shmbroker.storage import rows, verify
from shmbroker.storage.database import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shmbroker._core.attachment import Attachment
    from tests.unit.storage.conftest import Stored

LEAF = rows.LEAF
COUNT = 10 * LEAF
LANE_END = 1 << 51  # behind all messages of a lane
PAGE = 4096
TREE = {1, 2}  # the flags of branch and leaf pages
_FLAGS = 10  # the offset of the flags in a page
BODY = bytes(6000)


@contextlib.contextmanager
def attached(stored: Stored) -> Iterator[Attachment]:
    """The attachment of this process."""
    with attachment.attached_to(segments.path_of(stored.name)) as found:
        yield found


@pytest.fixture
def queue(stored: Stored) -> shmbroker.Queue:
    """A queue all of whose messages have left the memory, in a store that nobody has verified."""
    made = stored.connection.queue("q", durable=True)
    made.put_many([b"%d" % number for number in range(COUNT)], timeout=0)
    stored.keeper.turn()
    stored.keeper.settle()
    assert paging.leave(made._core, LANE_END, 0, COUNT).leaves == COUNT // LEAF  # noqa: SLF001
    with attached(stored) as found:
        found.set_restored(verified=False)
        load_as_clients(found)
    return made


def load_as_clients(found: Attachment) -> None:
    """The calls of this process load as those of a client do, though the storekeeper is in this process, too."""
    found.load = None
    admission.loads_from_its_store(found)


class Serving:
    """A storekeeper in a thread that serves wishes, until the block ends. It loads nothing that nobody wished for."""

    def __init__(self, stored: Stored) -> None:
        self._stored, self._ready, self._ended = stored, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with self._stored.another_keeper() as keeper:
            assert keeper.begin()
            keeper._room.load_ahead = lambda _: False  # type: ignore[method-assign]  # noqa: SLF001
            self._ready.set()
            while not self._ended.is_set():
                keeper.turn()
                keeper.make_room()

    def __enter__(self) -> None:
        self._stored.keeper.close()
        self._thread.start()
        assert self._ready.wait(60)
        with attached(self._stored) as found:
            load_as_clients(found)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._stored.take_over()


def numbers(queue: shmbroker.Queue) -> list[int]:
    """The bodies of all messages, as a browser sees them, from the last one of the first half on."""
    return [int(bytes(one)) for one in queue.browse()]


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """No loader of a client opens the store."""
    monkeypatch.setattr(loading, "Database", lambda _: pytest.fail("a client opens the store"))


def test_the_storekeeper_reads_a_store_that_is_not_verified(
    stored: Stored, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients wish for what they need."""
    forbid_reading(monkeypatch)
    with Serving(stored):
        assert numbers(queue) == [*range(COUNT)]


def test_a_process_without_access_to_the_store_wishes(
    stored: Stored, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker of another user: its memory is shared, its folder is not."""
    with attached(stored) as found:
        found.set_restored(verified=True)
    forbid_reading(monkeypatch)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Serving(stored):
        assert numbers(queue) == [*range(COUNT)]


def test_a_storekeeper_that_does_not_answer_is_a_timeout(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text says who has not loaded."""
    monkeypatch.setattr(patience, "PATIENCE_NS", 1)
    with pytest.raises(exceptions.Timeout, match="the storekeeper has not loaded messages of queue 'q'"):
        queue.get(timeout=0)


def test_a_store_that_is_damaged_is_not_read(stored: Stored, queue: shmbroker.Queue) -> None:
    """The error is that of the verification; what is in the memory can be had, and nothing is written."""
    (stored.folder / "damage").write_text("the heads of queue 1 at 64", encoding="utf-8")
    with attached(stored) as found:
        found.set_damaged()
    with pytest.raises(exceptions.StoreError, match="the heads of queue 1 at 64"):
        queue.get(timeout=0)
    with pytest.raises(exceptions.StoreError, match="the heads of queue 1 at 64"):
        stored.keeper.verification.look()
    verification.forget_fault(stored.folder)
    with pytest.raises(exceptions.StoreError, match=r"the store in .* is damaged"):
        queue.get(timeout=0)
    store = stored.broker.statistics().store
    assert store is not None
    assert store.state == "damaged"


def look_until_the_end(walk: Verification, found: Attachment) -> None:
    """Look now and then, as the storekeeper does."""
    walk.begin()

    def ended() -> bool:
        walk.look()
        return found.is_verified() or found.is_damaged()

    eventually(ended, "the end of the walk")


def test_a_sound_store_is_admitted(stored: Stored, queue: shmbroker.Queue) -> None:
    """The walk begins once."""
    with attached(stored) as found, contextlib.closing(Verification(found, stored.folder)) as walk:
        look_until_the_end(walk, found)
        assert found.is_verified()
        walk.begin()
        assert walk._child is None  # noqa: SLF001 - it is verified
    assert len(queue) == COUNT


def test_a_damaged_page_is_found_by_the_walk(stored: Stored, queue: shmbroker.Queue) -> None:
    """It says so in the folder, and in the state of the broker."""
    assert len(queue) == COUNT
    damage(stored.folder / DATA, first=2)
    with attached(stored) as found, contextlib.closing(Verification(found, stored.folder)) as walk:
        with pytest.raises(exceptions.StoreError, match=str(stored.folder)):
            look_until_the_end(walk, found)
        assert found.is_damaged()
        with pytest.raises(exceptions.StoreError, match=str(stored.folder)):
            Verification(found, stored.folder).look()


def damage(file: Path, first: int) -> None:
    """Write into the pages that lead to values, from a page on."""
    whole = bytearray(file.read_bytes())
    for at in range(first * PAGE, len(whole), PAGE):
        if struct.unpack_from("<H", whole, at + _FLAGS)[0] in TREE:
            whole[at + _FLAGS + 6 : at + 36] = b"\xff" * 20  # where the values lie
    with file.open("r+b") as stream:
        stream.write(whole)


def test_the_end_of_a_storekeeper_ends_the_walk(stored: Stored, queue: shmbroker.Queue) -> None:
    """Nobody would hear of its result; and it has the database open."""
    assert len(queue) == COUNT
    with attached(stored) as found:
        walk = Verification(found, stored.folder)
        walk.begin()
        assert walk._child is not None  # noqa: SLF001
        child = psutil.Process(walk._child.pid)  # noqa: SLF001
        child.suspend()  # it does not end by itself
        walk.close()
        assert not child.is_running()


def test_a_walk_ends_when_its_storekeeper_is_killed(
    stored: Stored, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks now and then whose child it is."""
    assert len(queue) == COUNT
    parents = iter([7, 7, 1])
    monkeypatch.setattr(verify, "_OFTEN", 1)
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    database, stored.database = stored.database, None  # type: ignore[assignment]
    stored.keeper.close()
    database.close()
    with pytest.raises(SystemExit) as ended:
        verify.main([str(stored.folder)])
    assert ended.value.code == 3
    stored.reopen()
    stored.keeper = stored.another_keeper()
    assert stored.keeper.begin()


# ---- the processes ----


@pytest.fixture
def large(broker_name: str, tmp_path: Path) -> Iterator[shmbroker.Broker]:
    """A broker of more messages than a start verifies before it admits clients. It does not run."""
    made = shmbroker.Broker(broker_name, memory="64M", data_dir=tmp_path, sync="interval")
    count = verification.SMALL // len(BODY) + 1000
    with made.start().connect() as connection:
        queue = connection.queue("q", durable=True)
        for first in range(0, count, 500):
            queue.put_many([b"%08d" % number + BODY for number in range(first, first + 500)], timeout=120)
    made.stop(purge=True)
    assert not verification.is_small(tmp_path)
    yield made
    made.stop(purge=True)


def state_of(broker: shmbroker.Broker) -> str:
    """The state of the store."""
    store = broker.statistics().store
    assert store is not None
    return store.state


def keeper_of(broker: shmbroker.Broker) -> int:
    """The process of the storekeeper; 0: there is none."""
    store = broker.statistics().store
    assert store is not None
    return store.storekeeper_pid


def test_a_large_store_is_verified_beside_its_broker(large: shmbroker.Broker) -> None:
    """Whoever kills the storekeeper meanwhile only delays that; the walk ends with the storekeeper."""
    large.start()
    with large.connect() as connection:
        queue = connection.queue("q", passive=True)
        before = state_of(large)
        walks = [one.pid for one in psutil.Process(keeper_of(large)).children()] if before == "verifying" else []
        os.kill(keeper_of(large), signal.SIGKILL)
        for number in range(3 * LEAF):
            message = queue.get(timeout=60)
            assert int(bytes(message)[:8]) == number
            message.ack()
        eventually(lambda: state_of(large) == "ready", "a verified store")
    eventually(lambda: not any(map(psutil.pid_exists, walks)), "the end of the first walk")


def test_a_large_store_that_is_damaged_ends_no_client(large: shmbroker.Broker, tmp_path: Path) -> None:
    """The start may refuse it; if not, the walk finds it. A get of what is damaged raises an error in any case."""
    damage(tmp_path / DATA, first=2000)
    try:
        large.start()
    except exceptions.StoreError:
        return
    with large.connect() as connection:
        queue = connection.queue("q", passive=True)
        eventually(lambda: state_of(large) == "damaged", "a damaged store")

        def get_all() -> None:
            for _ in range(len(queue)):
                queue.get_nowait().ack()

        with pytest.raises(exceptions.StoreError, match=str(tmp_path)):
            get_all()


# ---- the begin ----


def test_a_storekeeper_that_ends_without_a_report_is_an_error(
    broker_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged page may end it; no memory is left that would look like an empty broker."""

    def start(_name: str, _option: str, inherits: tuple[int, ...]) -> subprocess.Popen[bytes]:
        kill = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
        return subprocess.Popen([sys.executable, "-c", kill], pass_fds=inherits)

    monkeypatch.setattr(launch, "start", start)
    with pytest.raises(exceptions.StoreError, match=r"is damaged, or was not read to its end: .* ended with SIGSEGV"):
        shmbroker.Broker(broker_name, memory="64M", data_dir=tmp_path).create()
    assert not segments.exists(segments.path_of(broker_name))


def test_a_program_that_was_forked_meanwhile_delays_nothing(
    broker_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the pipe of the report open as well, and stays."""
    reads, writes = os.pipe()
    start = launch.start

    def start_beside_a_fork(*given: object, **options: object) -> subprocess.Popen[bytes]:
        if os.fork() == 0:
            os.read(reads, 1)
            os._exit(0)
        return start(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(beginning.launch, "start", start_beside_a_fork)
    broker = shmbroker.Broker(broker_name, memory="64M", data_dir=tmp_path).create()
    os.write(writes, b"x")
    os.wait()
    broker.stop(purge=True)
