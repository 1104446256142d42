# SPDX-License-Identifier: Apache-2.0
"""Files of a broker are made by one process at a time, and segments when they are needed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from shmbroker._core import native, segments
from shmbroker.exceptions import AccessRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = 32 << 20
PAIR = {"lock", "journal-0", "journal-1"}


@pytest.fixture
def path(broker_name: str) -> Iterator[str]:
    """Give the front of the names of a broker's files; remove what is left of it."""
    yield segments.path_of(broker_name)
    for file in Path(segments.DIRECTORY).glob(f"*{broker_name}*"):
        file.unlink()


def suffixes(path: str) -> set[str]:
    """What is there of a broker."""
    return {file.name[len(path) :] for file in Path(segments.DIRECTORY).glob(f"{path[1:]}.*")}


def open_files() -> int:
    """How many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - of what the descriptors lead to nothing is needed


def lock_of(path: str) -> int:
    """Make the lock file of a broker, and open it."""
    segments._make(path, "lock", 0, 0o600)
    return os.open(segments.file_of(path, "lock"), os.O_RDWR)


def is_free(descriptor: int) -> bool:
    """Whether the lock can be had, and is given back."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def test_one_process_at_a_time(path: str) -> None:
    """It has the lock until the end, however it ends, and a child that has the same file does not keep it."""
    descriptor = lock_of(path)
    before = open_files()
    with segments._one_at_a_time(path) as alone:  # noqa: SLF001
        assert alone is True
        assert not is_free(descriptor)
    assert is_free(descriptor)
    assert open_files() == before
    os.close(descriptor)


def test_the_lock_is_given_back_however_it_ends(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a fork has made another descriptor of it, which stays."""
    descriptor, opened, inherited = lock_of(path), segments.open_file, []

    @contextlib.contextmanager
    def forked(path: str, suffix: int | str, flags: int) -> Iterator[int]:
        with opened(path, suffix, flags) as found:
            inherited.append(os.dup(found))
            yield found

    before = open_files()
    with monkeypatch.context() as patched:
        patched.setattr(segments, "open_file", forked)
        with pytest.raises(KeyError), segments._one_at_a_time(path):  # noqa: SLF001
            raise KeyError
    assert is_free(descriptor)
    assert open_files() == before + 1
    for one in (descriptor, *inherited):
        os.close(one)


def test_without_a_lock_file(path: str) -> None:
    """Nobody is kept out, and that is told; a lock that is not ours is an error."""
    with segments._one_at_a_time(path) as alone:  # noqa: SLF001
        assert alone is False
    Path(segments.file_of(path, "lock")).touch()
    Path(segments.file_of(path, "lock")).chmod(0o666)
    with pytest.raises(AccessRefused), segments._one_at_a_time(path):  # noqa: SLF001
        pass


def test_a_lock_that_was_removed_meanwhile(path: str) -> None:
    """Those who come later do not wait for us: that is told."""
    os.close(lock_of(path))
    opened = segments.open_file

    @contextlib.contextmanager
    def removed(path: str, suffix: int | str, flags: int) -> Iterator[int]:
        with opened(path, suffix, flags) as descriptor:
            Path(segments.file_of(path, suffix)).unlink()
            yield descriptor

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segments, "open_file", removed)
        with segments._one_at_a_time(path) as alone:  # noqa: SLF001
            assert alone is False


def test_another_one_has_the_lock(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """We look for it again and again, for a second by the clock; then we go on without it."""
    descriptor = lock_of(path)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += 0.25

    with monkeypatch.context() as patched:
        patched.setattr(segments, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
        with segments._one_at_a_time(path) as alone:  # noqa: SLF001
            assert alone is True
    assert slept == [0.001] * 4
    with segments.open_file(path, "lock", os.O_RDWR) as other:
        assert not is_free(other)
    os.close(descriptor)


# ---- growing ----


def test_a_segment_is_made_unless_it_is_there(path: str, broker_name: str) -> None:
    """With its size and mode; the broker is not asked for when there is nothing to make."""
    segments.create(path, broker_name, MEMORY, 0o600)
    asked: list[None] = []

    def removed() -> bool:
        asked.append(None)
        return False

    for _ in range(2):
        segments.grow(path, 2, 4, 0o600, removed)
    found = Path(segments.file_of(path, 2)).stat()
    assert (found.st_size, stat.S_IMODE(found.st_mode)) == (int(native.slow.sb_broker_segment_bytes(2, 4)), 0o600)
    assert len(asked) == 2
    assert suffixes(path) == PAIR | {"0", "2"}


def test_a_segment_of_a_broker_that_goes(path: str, broker_name: str) -> None:
    """It is not made; if the broker goes while it is made, it goes, too."""
    segments.create(path, broker_name, MEMORY, 0o600)
    for answers in ([True], [False, True]):
        segments.grow(path, 1, 4, 0o600, lambda answers=answers: answers.pop(0))  # type: ignore[misc]
        assert answers == []
        assert suffixes(path) == PAIR | {"0"}


def test_a_segment_that_another_one_makes(path: str, broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While we wait for the lock, or beside us: it stays as it is."""
    segments.create(path, broker_name, MEMORY, 0o600)
    flock = fcntl.flock

    def made_meanwhile(descriptor: int, operation: int) -> None:
        Path(segments.file_of(path, 1)).touch()
        flock(descriptor, operation)

    with monkeypatch.context() as patched:
        patched.setattr(segments, "fcntl", SimpleNamespace(**vars(fcntl) | {"flock": made_meanwhile}))
        segments.grow(path, 1, 4, 0o600, lambda: pytest.fail("there is nothing to make"))
    assert Path(segments.file_of(path, 1)).stat().st_size == 0
    with monkeypatch.context() as patched:
        patched.setattr(segments, "_make", lambda *_: Path(segments.file_of(path, 2)).touch())
        answers = [False, True]
        segments.grow(path, 2, 4, 0o600, lambda: answers.pop(0))
    assert answers == [True]
    assert suffixes(path) == PAIR | {"0", "1", "2"}
