# SPDX-License-Identifier: Apache-2.0
"""The single steps of making, growing and removing a broker: what each is given, and what it leaves alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scenario_support.core_calls import Noted

from shmbroker._core import attachment, native, segments

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = 32 << 20
FIRST = int(native.slow.sb_broker_segment_bytes(0, 0))
SEGMENT = int(native.slow.sb_broker_segment_bytes(1, 4))


@pytest.fixture
def path(broker_name: str) -> Iterator[str]:
    """Give the front of the names of a broker's files; remove what is left of it."""
    yield segments.path_of(broker_name)
    for file in Path(segments.DIRECTORY).glob(f"*{broker_name}*"):
        file.unlink()


def suffixes(path: str) -> set[str]:
    """What is there of a broker."""
    return {file.name[len(path) :] for file in Path(segments.DIRECTORY).glob(f"{path[1:]}.*")}


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_a_file_is_never_more_open_than_it_will_be(path: str, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """It has its mode from its first moment, as far as the umask lets it."""
    change, modes, umask = os.fchmod, list[int](), os.umask(0)

    def noted(descriptor: int, mode: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        change(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", noted)
    try:
        assert segments._make(path, 1, 4096, mode)
    finally:
        os.umask(umask)
    assert modes == [mode]


def test_the_limit_of_a_broker_that_exists_is_looked_at(path: str) -> None:
    """One that no broker can have is an error all the same."""
    assert segments.create(path, "b", MEMORY, 0o600)
    with pytest.raises(ValueError, match="memory=0: "):
        segments.create(path, "b", 0, 0o600)


def test_who_made_nothing_takes_nothing_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process has not linked into place yet stays."""
    segments._make(path, "lock", 0, 0o600)
    Path(segments.file_of(path, "tmp-1")).touch()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(segments, "_make_noted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        segments.create(path, "b", MEMORY, 0o600)
    assert suffixes(path) == {"lock", "tmp-1"}


def test_a_new_broker_looks_for_room_first(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For what it needs at least, then for its first segment, and once more when that is allocated."""
    expect = Noted(segments._expect_room)  # noqa: SLF001
    monkeypatch.setattr(segments, "_expect_room", expect)
    assert segments.create(path, "b", MEMORY, 0o600)
    assert expect.calls == [(path, "0 to 4", FIRST + 4 * SEGMENT), (path, 0, FIRST), (path, 0, FIRST)]
    made = [Path(segments.file_of(path, suffix)) for suffix in ("lock", "journal-0", "journal-1")]
    assert [file.stat().st_size for file in made] == [0, 0, 0]


def test_the_number_of_a_broker(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is random, 63 bits of it, and odd, so that it is never 0."""
    monkeypatch.setattr(segments.os, "urandom", (16).to_bytes)
    assert segments.create(path, "b", MEMORY, 0o600)
    attached = attachment.acquire(path)
    try:
        assert attached.facts().instance == 9
    finally:
        attachment.release(attached)


# ---- taking back ----


def test_without_the_lock_nothing_is_taken_back(path: str) -> None:
    """A purge has removed it, and removes the rest."""
    for suffix in ("journal-0", "tmp-1"):
        Path(segments.file_of(path, suffix)).touch(0o600)
    segments._take_back(path, ["journal-0"])  # noqa: SLF001
    assert suffixes(path) == {"journal-0", "tmp-1"}


def test_files_that_go_while_they_are_taken_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may be faster."""
    for suffix in ("lock", "journal-0"):
        Path(segments.file_of(path, suffix)).touch(0o600)
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", lambda _: [f"{path[1:]}.tmp-1"])
        segments._take_back(path, ["lock", "journal-0", "journal-1"])  # noqa: SLF001
    assert suffixes(path) == set()


# ---- growing, and removing ----


def test_a_segment_that_the_purge_removed_itself(path: str) -> None:
    """The broker is removed while its segment is made; the file is gone already, and that is no error."""
    segments._make(path, "lock", 0, 0o600)
    asked: list[bool] = []

    def removed() -> bool:
        asked.append(Path(segments.file_of(path, 1)).exists())
        Path(segments.file_of(path, 1)).unlink(missing_ok=True)
        return len(asked) > 1

    segments.grow(path, 1, 4, 0o600, removed)
    assert asked == [False, True]
    assert suffixes(path) == {"lock"}


def test_every_missing_segment_is_told(path: str) -> None:
    """The next ones are looked at, too."""
    segments._make(path, 1, 4096, 0o600)
    first, second, third = segments.damaged(path, 2, 4)
    assert first == f"segment 0: {segments.file_of(path, 0)} cannot be read: No such file or directory"
    assert second == f"segment 1: {segments.file_of(path, 1)} is cut short: 4096 bytes, not {SEGMENT}"
    assert third == f"segment 2: {segments.file_of(path, 2)} cannot be read: No such file or directory"


def test_a_purge_removes_each_file_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first segment after all others."""
    assert segments.create(path, "b", MEMORY, 0o660)
    before, removed, unlink = suffixes(path), list[str](), os.unlink

    def noted(file: str) -> None:
        removed.append(Path(file).name[len(path) :])
        unlink(file)

    monkeypatch.setattr(os, "unlink", noted)
    segments.remove(path, segments.identity(path))
    assert removed[-1] == "0"
    assert sorted(removed) == sorted(before)
