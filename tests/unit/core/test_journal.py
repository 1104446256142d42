# SPDX-License-Identifier: Apache-2.0
"""The journal of exchanges and bindings: what killed writers leave in it, and readers that were overtaken."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import pytest
from scenario_support.inside import core_of, session_of
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.nursery import served
from scenario_support.processes import run_python
from scenario_support.waiting import WATCHDOG_SECONDS

import shmbroker
from shmbroker._core import native, segments
from shmbroker._core.connection import CoreConnection
from shmbroker._core.journal import Journal, topology_lock, version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager


pytestmark = pytest.mark.damaged  # what is written here is not records: the doctor would have something to say


@pytest.fixture
def connection(broker_name: str) -> Iterator[shmbroker.Connection]:
    """A connection to a broker of the test's own."""
    with served(broker_name) as broker, broker.connect() as connection:
        yield connection


@pytest.fixture
def core(connection: shmbroker.Connection) -> CoreConnection:
    """The connection in the core."""
    return core_of(connection)


@pytest.fixture
def path(core: CoreConnection) -> str:
    """What the files of the broker begin with."""
    return core.attachment.path


@pytest.fixture
def journal(path: str) -> Journal:
    """A reader and writer. Nobody else writes, so the lock is not needed."""
    return Journal(path)


def file_of(path: str, number: int) -> Path:
    """One of the two files."""
    return Path(segments.file_of(path, segments.JOURNALS[number]))


def test_news_come_once(core: CoreConnection, path: str, journal: Journal) -> None:
    """Each reader gets what was appended since it last asked; a new one gets all of it."""
    assert not journal.has_news(core)
    assert journal.read_new(core) == (False, b"")
    assert journal.append(core, b"one") == 3
    assert journal.has_news(core)
    assert journal.read_new(core) == (False, b"one")
    assert not journal.has_news(core)
    assert journal.append(core, b"two") == 6
    assert journal.read_new(core) == (False, b"two")
    assert journal.read_new(core) == (False, b"")
    assert Journal(path).read_new(core) == (False, b"onetwo")
    assert journal.length(core) == 6


def test_what_a_killed_writer_left_does_not_count(core: CoreConnection, path: str, journal: Journal) -> None:
    """Bytes behind those that count are seen by nobody, and the next record takes their place."""
    journal.append(core, b"one")
    with file_of(path, 0).open("ab") as file:
        file.write(b"half a record, and more")
    assert journal.read_new(core) == (False, b"one")
    journal.append(core, b"two")
    assert journal.read_new(core) == (False, b"two")
    assert Journal(path).read_new(core) == (False, b"onetwo")


def test_a_journal_written_anew_is_read_anew(core: CoreConnection, path: str, journal: Journal) -> None:
    """Readers are told that what they know counts no more; the file before it is emptied."""
    journal.append(core, b"one, two, three")
    journal.read_new(core)
    journal.replace(core, b"three")
    assert journal.read_new(core) == (True, b"three")
    journal.append(core, b", four")
    assert journal.read_new(core) == (False, b", four")
    assert Journal(path).read_new(core) == (True, b"three, four")
    assert file_of(path, 0).stat().st_size == 0


def test_a_snapshot_that_was_not_finished_does_not_count(core: CoreConnection, path: str, journal: Journal) -> None:
    """What a killed writer left in the other file is overwritten when that is used."""
    journal.append(core, b"one")
    file_of(path, 1).write_bytes(b"a long snapshot that nobody finished")
    assert journal.read_new(core) == (False, b"one")
    journal.replace(core, b"1")
    assert journal.read_new(core) == (True, b"1")
    assert Journal(path).read_new(core) == (True, b"1")


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_reader_that_was_overtaken_reads_again(
    core: CoreConnection, path: str, journal: Journal, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is written anew, once or several times, between a reader's look at the word and its reading."""
    journal.append(core, b"the first one, which is long")
    read, left = os.pread, [times]

    def overtaken(descriptor: int, size: int, start: int) -> bytes:
        while left[0]:
            left[0] -= 1
            journal.read_new(core)
            journal.replace(core, b"anew %d" % left[0])
        return read(descriptor, size, start)

    monkeypatch.setattr(os, "pread", overtaken)
    assert Journal(path).read_new(core) == (True, b"anew 0")


def test_a_journal_that_is_cut_short_is_corrupt(core: CoreConnection, path: str, journal: Journal) -> None:
    """Bytes that should count and are not there are not taken for nothing."""
    journal.append(core, b"one")
    os.truncate(file_of(path, 0), 2)
    with pytest.raises(shmbroker.CorruptSegment, match=r"journal of broker .* is cut short"):
        journal.read_new(core)


def test_no_room_changes_nothing(
    core: CoreConnection, path: str, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full /dev/shm is OutOfMemory, and the journal is what it was."""
    journal.append(core, b"one")
    journal.read_new(core)

    def full(*_: object) -> Never:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(shmbroker.OutOfMemory):
            journal.append(core, b"two")
        with pytest.raises(shmbroker.OutOfMemory):
            journal.replace(core, b"1")
    assert Journal(path).read_new(core) == (False, b"one")


def test_a_rewrite_without_room_takes_none(
    core: CoreConnection, path: str, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it wrote before the room ended is given back, and the journal is what it was."""
    journal.append(core, b"one")
    journal.read_new(core)
    write = os.pwrite

    def until_full(descriptor: int, data: memoryview, at: int) -> int:
        if at:
            raise OSError(errno.ENOSPC, "no space")
        return write(descriptor, data[:3], at)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", until_full)
        with pytest.raises(shmbroker.OutOfMemory):
            journal.replace(core, b"anew")
    assert file_of(path, 1).stat().st_size == 0
    assert Journal(path).read_new(core) == (False, b"one")


@pytest.mark.parametrize("way", ["append", "replace"])
@pytest.mark.parametrize("theirs", ["append", "replace"])
@pytest.mark.parametrize("moment", ["before", "opening", "closing"])
def test_a_writer_that_was_overtaken_writes_no_more(  # noqa: PLR0917
    core: CoreConnection, path: str, journal: Journal, way: str, theirs: str, moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A signal handler wrote to the journal before the call, before the writing, or before it counted."""
    journal.append(core, b"one")
    journal.read_new(core)

    def overtake() -> None:
        monkeypatch.undo()
        other = Journal(path)
        other.read_new(core)
        getattr(other, theirs)(core, b"handler's")

    opened, close = segments.open_file, os.close

    def open_late(*given: Any) -> AbstractContextManager[int]:  # noqa: ANN401
        overtake()
        return opened(*given)

    def close_late(descriptor: int) -> None:
        overtake()
        close(descriptor)

    if moment == "before":
        overtake()
    elif moment == "opening":
        monkeypatch.setattr(segments, "open_file", open_late)
    else:
        monkeypatch.setattr(os, "close", close_late)
    assert not getattr(journal, way)(core, b"the program's, which is long")
    whole = (False, b"onehandler's") if theirs == "append" else (True, b"handler's")
    assert Journal(path).read_new(core) == whole


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EIO])
def test_an_error_of_the_system(
    core: CoreConnection, journal: Journal, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """What says that there is no room names the journal and its size; anything else is the system's error."""

    def fails(*_: object) -> Never:
        raise OSError(code, "failed")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fails)
        if code == errno.EIO:
            with pytest.raises(OSError, match="failed"):
                journal.append(core, b"four")
        else:
            with pytest.raises(shmbroker.OutOfMemory, match=r"no room for journal-0 of broker .*, 4 bytes"):
                journal.append(core, b"four")
            with pytest.raises(shmbroker.OutOfMemory, match=r"no room for journal-1 of broker .*, 5 bytes"):
                journal.replace(core, b"12345")
    assert journal.length(core) == 0


def test_what_is_written_piece_by_piece_is_whole(
    core: CoreConnection, path: str, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may take less than it is given."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: write(descriptor, data[:3], at))
    assert journal.append(core, b"0123456789") == 10
    assert journal.read_new(core) == (False, b"0123456789")
    assert journal.append(core, b"abcd") == 14
    assert journal.read_new(core) == (False, b"abcd")
    journal.replace(core, b"anew, and longer")
    assert Journal(path).read_new(core) == (True, b"anew, and longer")


def test_no_descriptor_stays_open(core: CoreConnection, journal: Journal) -> None:
    """Of reading, appending and writing anew."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        assert journal.append(core, b"one")
        journal.append(core, b"refused, as it was not read")
        journal.read_new(core)
        journal.replace(core, b"1")
        assert journal.read_new(core) == (True, b"1")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_numbers_of_the_files(core: CoreConnection, path: str, journal: Journal) -> None:
    """They count up, and begin again after 65,535; a reader knows by the number that the journal was written anew."""

    def number() -> int:
        return int(native.slow.sb_topology_journal(core.handle)) >> 48

    assert number() == 0
    journal.replace(core, b"one")
    assert number() == 1
    journal.read_new(core)
    journal.replace(core, b"two")
    assert number() == 2
    native.slow.sb_topology_journal_commit(core.handle, 65_535 << 48)
    assert journal.read_new(core) == (True, b"")
    journal.append(core, b"last")
    assert file_of(path, 1).read_bytes()[:4] == b"last"
    journal.read_new(core)
    journal.replace(core, b"first")
    assert number() == 0
    assert journal.read_new(core) == (True, b"first")
    assert journal.length(core) == 5


def test_a_file_that_is_gone(core: CoreConnection, path: str, journal: Journal) -> None:
    """That is damage; or it went with its broker, and that is said then."""
    journal.append(core, b"one")
    file_of(path, 0).unlink()
    with pytest.raises(shmbroker.CorruptSegment, match=f"{file_of(path, 0)} is gone"):
        journal.read_new(core)
    core.attachment.set_closing()
    with pytest.raises(shmbroker.ConnectionClosedByBroker):
        journal.read_new(core)


def test_the_lock_of_the_topology(core: CoreConnection, path: str) -> None:
    """Its owner may take it again; nobody else has it meanwhile; it is given back, also after an error."""
    other = CoreConnection(path, "other")
    errors: list[BaseException] = []

    def take() -> None:
        try:
            with topology_lock(other, 1, "the other"):
                pass
        except shmbroker.Timeout as error:
            errors.append(error)

    def take_elsewhere() -> None:
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()

    with topology_lock(core, native.FOR_EVER, "one"):
        with topology_lock(core, native.FOR_EVER, "again"):
            take_elsewhere()
        take_elsewhere()
        assert [str(error).partition(" is held")[0] for error in errors] == ["the other: the topology lock"] * 2
        assert core.calls == 1
    with pytest.raises(ZeroDivisionError), topology_lock(core, native.FOR_EVER, "one"):
        1 / 0  # noqa: B018 (an error)
    take_elsewhere()
    assert len(errors) == 2
    assert core.calls == 0
    other.close()


# Interrupts a change of the topology wherever a signal's handler may raise, also in the functions of `with`. Then
# another thread takes the lock.
LOCK_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    import contextlib, threading
    from shmbroker._core import native, segments
    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.journal import topology_lock

    def change():
        with topology_lock(core, native.FOR_EVER, "the change"):
            pass

    def take():
        try:
            with topology_lock(other, 1, "the other"):
                pass
        except shmbroker.Timeout:
            refused.append(number)

    package = package, contextlib.__file__
    path = segments.path_of(sys.argv[1])
    core, other = CoreConnection(path, "one"), CoreConnection(path, "other")
    number, more, refused, calls = 0, True, [], set()
    while more:
        more = signalled_at(number, change)
        calls.add(core.calls)
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        number += 1
    print(json.dumps([number, refused, list(calls)]))
"""


def test_an_interrupted_change_gives_the_lock_of_the_topology_back(connection: shmbroker.Connection) -> None:
    """Wherever a signal's handler raises, also as soon as the lock is taken: another thread can have it then."""
    done = run_python(LOCK_WHERE_SIGNALS_COME, connection.broker_name)
    assert done.returncode == 0, done.stderr
    number, refused, calls = json.loads(done.stdout)
    assert number > 20
    assert (refused, calls) == ([], [0])


def test_the_topology_moves_on(connection: shmbroker.Connection, core: CoreConnection) -> None:
    """Its version is another one after each change, and the same as long as there is none."""
    seen = [version(core)]
    for name in ("one", "two"):
        connection.queue(name)
        seen.append(version(core))
    assert len(set(seen)) == 3
    assert seen[-1] == version(core)


def test_binding_and_unbinding_for_long_takes_little(connection: shmbroker.Connection, core: CoreConnection) -> None:
    """The journal is written anew when it has become much longer than what there is."""
    with connection.channel() as channel:
        channel.queue_declare("q")
        channel.exchange_declare("e")
        longest = 0
        for number in range(2500):
            channel.queue_bind("q", "e", f"key-{number}")
            channel.queue_unbind("q", "e", f"key-{number}")
            longest = max(longest, Journal(core.attachment.path).length(core))
        assert 64 * 1024 < longest < 66 * 1024
        assert session_of(connection).administration.exchanges.refresh(core).bindings_from("e") == {}.keys()


def test_a_journal_that_cannot_be_read_leaves_the_housekeeper_at_work(
    connection: shmbroker.Connection, core: CoreConnection, journal: Journal
) -> None:
    """It goes on with timers and the dead, although it cannot remove the bindings of a queue that ended."""
    queue = connection.queue("late")
    with shmbroker.connect(connection.broker_name, create=False) as other:
        other.queue("mine", exclusive=True)
        journal.append(core, b"no record")
    for number in range(3):
        queue.put(b"%d" % number, delay=0.3)
        with queue.get(timeout=WATCHDOG_SECONDS / 2) as message:
            assert bytes(message) == b"%d" % number
