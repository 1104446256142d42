# SPDX-License-Identifier: Apache-2.0
"""The journal of exchanges and bindings: what killed writers leave in it, and readers that were overtaken."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Never

import pytest

import shmbroker
from shmbroker._core import segments
from shmbroker._core.journal import Journal

if TYPE_CHECKING:
    from shmbroker._core.connection import CoreConnection


@pytest.fixture
def core(connection: shmbroker.Connection) -> CoreConnection:
    """The connection in the core."""
    return connection.core


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
    assert journal.news(core) == (False, b"")
    assert journal.append(core, b"one") == 3
    assert journal.news(core) == (False, b"one")
    assert journal.append(core, b"two") == 6
    assert journal.news(core) == (False, b"two")
    assert journal.news(core) == (False, b"")
    assert Journal(path).news(core) == (False, b"onetwo")
    assert journal.length(core) == 6


def test_what_a_killed_writer_left_does_not_count(core: CoreConnection, path: str, journal: Journal) -> None:
    """Bytes behind those that count are seen by nobody, and the next record takes their place."""
    journal.append(core, b"one")
    with file_of(path, 0).open("ab") as file:
        file.write(b"half a record, and more")
    assert journal.news(core) == (False, b"one")
    journal.append(core, b"two")
    assert journal.news(core) == (False, b"two")
    assert Journal(path).news(core) == (False, b"onetwo")


def test_a_journal_written_anew_is_read_anew(core: CoreConnection, path: str, journal: Journal) -> None:
    """Readers are told that what they know counts no more; the file before it is emptied."""
    journal.append(core, b"one, two, three")
    journal.news(core)
    journal.replace(core, b"three")
    journal.append(core, b", four")
    assert journal.news(core) == (True, b"three, four")
    assert Journal(path).news(core) == (True, b"three, four")
    assert file_of(path, 0).stat().st_size == 0


def test_a_snapshot_that_was_not_finished_does_not_count(core: CoreConnection, path: str, journal: Journal) -> None:
    """What a killed writer left in the other file is overwritten when that is used."""
    journal.append(core, b"one")
    file_of(path, 1).write_bytes(b"a long snapshot that nobody finished")
    assert journal.news(core) == (False, b"one")
    journal.replace(core, b"1")
    assert journal.news(core) == (True, b"1")
    assert Journal(path).news(core) == (True, b"1")


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
            journal.replace(core, b"anew %d" % left[0])
        return read(descriptor, size, start)

    monkeypatch.setattr(os, "pread", overtaken)
    assert Journal(path).news(core) == (True, b"anew 0")


def test_a_journal_that_is_cut_short_is_corrupt(core: CoreConnection, path: str, journal: Journal) -> None:
    """Bytes that should count and are not there are not taken for nothing."""
    journal.append(core, b"one")
    os.truncate(file_of(path, 0), 2)
    with pytest.raises(shmbroker.CorruptSegment, match=r"journal of broker .* is cut short"):
        journal.news(core)


def test_no_room_changes_nothing(
    core: CoreConnection, path: str, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full /dev/shm is OutOfMemory, and the journal is what it was."""
    journal.append(core, b"one")

    def full(*_: object) -> Never:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(shmbroker.OutOfMemory):
            journal.append(core, b"two")
        with pytest.raises(shmbroker.OutOfMemory):
            journal.replace(core, b"1")
    assert Journal(path).news(core) == (False, b"one")


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
        assert connection.administration.exchanges.refresh(core).bindings_from("e") == {}.keys()
