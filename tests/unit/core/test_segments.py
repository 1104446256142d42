# SPDX-License-Identifier: Apache-2.0
"""Memory that is not what it should be: an error, never a crash, never a hang."""

from __future__ import annotations

import errno
import os
import random
import struct
from typing import TYPE_CHECKING

import pytest
from scenario_support.brokers import files, remove_files, segment
from scenario_support.inside import core_of
from scenario_support.observing import put_each
from scenario_support.processes import run_python

import shmbroker
from shmbroker._core import segments
from shmbroker._core.native import slow
from shmbroker.exceptions import LayoutMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAYOUT_MAJOR_OFFSET = 8
"""Magic, then the layout's version, major and minor, then its hash (shm-format.md)."""

LAYOUT = f"{slow.SB_LAYOUT_MAJOR}.{slow.SB_LAYOUT_MINOR}"
NOBODY = 65534
PAGE = 4096

ATTACHES = """
    import sys
    import shmbroker
    from shmbroker.exceptions import CorruptSegment, LayoutMismatch

    try:
        with shmbroker.connect(sys.argv[1], create=sys.argv[2] == "create") as c:
            queue = c.queue("q", passive=True)
            print("attached", bytes(queue.get(timeout=1)))
    except (CorruptSegment, LayoutMismatch) as error:
        print(type(error).__name__, error)
    except BaseException as error:
        print("other", repr(error))
"""


@pytest.fixture
def resting(broker_name: str) -> Iterator[str]:
    """Leave the memory of a broker whose processes have ended."""
    with shmbroker.Broker(broker_name, memory="64M") as broker, broker.connect() as connection:
        put_each(connection.queue("q"), "ABC")
    assert segment(broker_name, 0).exists()
    yield broker_name
    remove_files(broker_name)


def attached(name: str, how: str) -> str:
    """Return what comes of connecting to the broker in a process of its own."""
    done = run_python(ATTACHES, name, how)
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    return done.stdout.strip()


def refused(name: str, how: str) -> str:
    """Connect, which must be refused by one of the two errors; return its text."""
    said = attached(name, how)
    assert said.split()[0] in ("CorruptSegment", "LayoutMismatch"), said
    return said


both_ways = pytest.mark.parametrize("how", ["create", "attach"])


def test_the_resting_memory_is_good(resting: str) -> None:
    """Untouched, it can be attached to: what follows fails for its own reason."""
    assert attached(resting, "attach") == "attached b'A'"


@both_ways
def test_another_layout_is_refused_with_both_versions(resting: str, how: str) -> None:
    """A segment of another version is refused; the text names both versions."""
    path = segment(resting, 0)
    with path.open("r+b") as file:
        file.seek(LAYOUT_MAJOR_OFFSET)
        major, minor = struct.unpack("<II", file.read(8))
        file.seek(LAYOUT_MAJOR_OFFSET)
        file.write(struct.pack("<II", major + 41, minor))
    said = refused(resting, how)
    assert said.startswith("LayoutMismatch")
    assert f"{major}.{minor}" in said
    assert f"{major + 41}.{minor}" in said


@both_ways
def test_another_hash_of_the_same_version_is_refused(resting: str, how: str) -> None:
    """The same version number over another layout is refused by the hash."""
    path = segment(resting, 0)
    with path.open("r+b") as file:
        file.seek(LAYOUT_MAJOR_OFFSET + 8)
        file.write(b"\x5a" * 8)
    assert refused(resting, how).startswith("LayoutMismatch")


@both_ways
def test_something_else_entirely_is_refused(resting: str, how: str) -> None:
    """A file of that name with random bytes is refused, and stays as it is."""
    path = segment(resting, 0)
    noise = random.Random(1).randbytes(path.stat().st_size)
    path.write_bytes(noise)
    refused(resting, how)
    assert path.read_bytes() == noise


@both_ways
def test_a_header_of_zeros_is_refused(resting: str, how: str) -> None:
    """A file that is all zeros, as of one who died while making it, is refused."""
    path = segment(resting, 0)
    path.write_bytes(bytes(path.stat().st_size))
    refused(resting, how)


@both_ways
@pytest.mark.parametrize("size", [0, 1, 63, 4096, 100_000, -4096, -1])
def test_a_truncated_first_segment_is_refused(resting: str, how: str, size: int) -> None:
    """A first segment that is cut short is refused, not read beyond its end."""
    path = segment(resting, 0)
    whole = path.stat().st_size
    os.truncate(path, size if size >= 0 else whole + size)
    refused(resting, how)


@pytest.mark.parametrize("size", [0, 4096, -4096])
def test_a_truncated_second_segment_is_refused(resting: str, size: int) -> None:
    """The same for a segment of the arena."""
    path = segment(resting, 1)
    whole = path.stat().st_size
    os.truncate(path, size if size >= 0 else whole + size)
    refused(resting, "attach")


CONNECTS = """
    import sys, shmbroker

    with shmbroker.connect(sys.argv[1], create=False):
        print("connected")
"""


@pytest.mark.damaged
def test_a_segment_that_is_cut_short_when_it_comes_is_refused(broker_name: str) -> None:
    """A process that is attached maps a new segment when it needs it: the error names the broker and the layout.

    The segment does not count then, so other processes can attach.
    """
    shmbroker.Broker(broker_name, memory="64M").create()
    with shmbroker.connect(broker_name, create=False) as connection:
        facts, path = core_of(connection).attachment.facts(), segments.path_of(broker_name)
        segments.grow(path, facts.segments + 1, facts.chunks_per_segment, facts.mode, lambda: False)
        os.truncate(segment(broker_name, facts.segments + 1), PAGE)
        with pytest.raises(LayoutMismatch, match=f"{broker_name}.* shorter than layout {LAYOUT} requires"):
            connection.queue("q").put_many([bytes(1 << 20)] * 64)
        assert core_of(connection).attachment.facts().segments == facts.segments
        assert run_python(CONNECTS, broker_name).stdout == "connected\n"


NO_DESCRIPTORS = """
    import os, resource, sys
    import shmbroker

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    broker = shmbroker.Broker(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, most))
    try:
        broker.connect()
    except shmbroker.BrokerError as error:
        print(error)
"""


def test_a_system_call_that_fails_is_told(resting: str) -> None:
    """A process that may open no more files is told so in the words of the system, with the name of the broker."""
    done = run_python(NO_DESCRIPTORS, resting)
    assert done.stdout == f"541 broker {resting!r}: a system call failed: {os.strerror(errno.EMFILE)}\n", done.stderr


def test_a_missing_second_segment_is_refused(resting: str) -> None:
    """A segment of the arena that is gone is an error, not an empty queue."""
    segment(resting, 1).unlink()
    refused(resting, "attach")


@both_ways
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_segment_of_somebody_else_is_refused(resting: str, how: str) -> None:
    """A file of our name that belongs to another user is not trusted."""
    os.chown(segment(resting, 0), NOBODY, NOBODY)
    said = attached(resting, how)
    assert "AccessRefused" in said, said


@both_ways
def test_a_link_in_place_of_a_segment_is_refused(resting: str, how: str, tmp_path: Path) -> None:
    """A symbolic link where the segment should be is not followed."""
    path = segment(resting, 0)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(elsewhere)
    said = attached(resting, how)
    assert not said.startswith("attached"), said


USES = """
    import sys
    import shmbroker

    def tried(use):
        try:
            return use()
        except Exception as error:
            print(type(error).__name__, end=" ")

    connection = tried(lambda: shmbroker.connect(
        sys.argv[1], create=False, operation_timeout=1.0))
    if connection is not None:
        tried(connection.consumers)
        tried(connection.doctor)
        for name in ("q", "ring", "new"):
            queue = tried(lambda: connection.queue(name))
            if queue is None:
                continue
            tried(queue.statistics)
            tried(lambda: [bytes(m) for _, m in zip(range(500), queue.browse())])
            for _ in range(3):
                tried(lambda: queue.put(b"x" * 300, timeout=0))
                tried(lambda: queue.get(timeout=0).nack())
                tried(lambda: queue.get(timeout=0).ack())
            tried(lambda: queue.put_many([b"y"] * 20, timeout=0))
            tried(lambda: queue.get_many(10, timeout=0).ack())
            tried(lambda: queue.consume(timeout=0.05).get(timeout=0.05))
            tried(queue.purge)
            tried(queue.delete)
        tried(connection.doctor)
        tried(connection.close)
    print("survived")
"""


def used_words(path: Path, first_page: int) -> list[int]:
    """Return the offsets of the words of a file that are not zero."""
    words = []
    with path.open("rb") as file:
        for page in range(first_page, path.stat().st_size // PAGE):
            file.seek(page * PAGE)
            content = file.read(PAGE)
            if any(content):
                words += [page * PAGE + at for at in range(0, PAGE, 8) if any(content[at : at + 8])]
    return words


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_a_corrupted_segment_gives_errors_and_no_crash(broker_name: str, number: int, seed: int) -> None:
    """Words of a broker's memory overwritten at random: errors, no crash, no hang.

    "Whatever is read from it is bounds-checked: a corrupted segment gives an exception,
    never a crash" (DESIGN 4). The first page, whose damage is refused, is left alone.
    """
    try:
        with shmbroker.Broker(broker_name, memory="64M") as broker, broker.connect() as connection:
            put_each(connection.queue("q"), [f"m{n}" for n in range(200)])
            put_each(connection.queue("ring", ring_size=9), "abcdefghijklmn")
        chance = random.Random(f"{number} {seed}")
        path = segment(broker_name, number)
        words = used_words(path, 1 if number == 0 else 0)
        assert words
        with path.open("r+b") as file:
            for offset in chance.sample(words, min(len(words), 12)):
                file.seek(offset)
                old = int.from_bytes(file.read(8), "little")
                new = chance.choice([chance.getrandbits(64), old ^ 1 << chance.randrange(64), 0])
                file.seek(offset)
                file.write(new.to_bytes(8, "little"))
        done = run_python(USES, broker_name)
        assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
        assert done.stdout.endswith("survived\n"), done.stdout + done.stderr
    finally:
        remove_files(broker_name)
    assert files(broker_name) == []
