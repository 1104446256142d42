# SPDX-License-Identifier: Apache-2.0
"""Files of a broker: their names, whom they are trusted to belong to, and which of them a purge removes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
from shmbroker._core import native, segments
from shmbroker.exceptions import AccessRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

UID = os.getuid()
STRANGER = 65534
MEMORY = 32 << 20
SHARED = "/dev/shm"  # noqa: S108 - where the files lie
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


def open_files() -> int:
    """How many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - of what the descriptors lead to nothing is needed


# ---- names ----


def test_the_front_of_the_names_of_files() -> None:
    """A broker of ours has our user in it, another user's has that one; both ways the names come back."""
    ours, other = f"/shmbroker-{UID}.orders", f"/shmbroker-{UID + 1}.orders"
    assert segments.path_of("orders") == segments.path_of(f"{UID}/orders") == ours
    assert segments.path_of(f"{UID + 1}/orders") == other
    assert [segments.uid_of(path) for path in (ours, other)] == [UID, UID + 1]
    assert [segments.name_of(path) for path in (ours, other)] == ["orders", f"{UID + 1}/orders"]
    assert [segments.full_name_of(path) for path in (ours, other)] == [f"{UID}/orders", f"{UID + 1}/orders"]
    assert segments.file_of(ours, 3) == f"{SHARED}/shmbroker-{UID}.orders.3"
    assert segments.file_of(ours, "lock") == f"{SHARED}/shmbroker-{UID}.orders.lock"


def test_a_name_with_dashes(broker_name: str) -> None:
    """Only what is before the name tells the user."""
    path = segments.path_of("7/a-b_c")
    assert (segments.uid_of(path), segments.name_of(path)) == (7, "7/a-b_c")
    assert segments.name_of(segments.path_of(broker_name)) == broker_name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder in the place of /dev/shm."""
    monkeypatch.setattr(segments, "DIRECTORY", str(tmp_path))
    return tmp_path


def test_brokers_are_listed_by_their_first_segments(folder: Path) -> None:
    """Sorted; what only looks like one is none."""
    for name in ("b.0", "a-1_Z.0", "b.1", "b.lock", "b.journal-0", ".0", "a b.0", "a.b.0", "b.0-fresh"):
        (folder / f"shmbroker-{UID}.{name}").touch(0o600)
    for name in (f"shmbroker-0{UID}.c.0", "shmbroker-x.c.0", "shmbroker-.c.0", "other-0.c.0", "shmbroker-0.0"):
        (folder / name).touch(0o600)
    assert segments.names() == ["a-1_Z", "b"]


@ROOT
def test_brokers_of_others_are_listed_when_they_share_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that belong to whom they say, are shared with a group, and can be read and written."""
    for name, mode, owner in (
        ("shared", 0o660, STRANGER),
        ("private", 0o600, STRANGER),
        ("open", 0o666, STRANGER),
        ("not-his", 0o660, 0),
    ):
        file = folder / f"shmbroker-{STRANGER}.{name}.0"
        file.touch()
        file.chmod(mode)
        os.chown(file, owner, owner)
    (folder / "shmbroker-0.ours.0").touch(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert segments.names() == [f"{STRANGER}/shared", "ours"]
    asked: list[tuple[str, int]] = []

    def refuses(file: str, how: int) -> bool:
        asked.append((Path(file).name, how))
        return False

    monkeypatch.setattr(os, "access", refuses)
    assert segments.names() == ["ours"]
    assert asked == [(f"shmbroker-{STRANGER}.shared.0", os.R_OK | os.W_OK)]


@pytest.mark.usefixtures("folder")
def test_a_broker_of_another_user_that_goes_while_it_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left out."""
    monkeypatch.setattr(os, "listdir", lambda _: [f"shmbroker-{UID + 1}.gone.0"])
    assert segments.names() == []


@pytest.mark.parametrize("error", [FileNotFoundError, NotADirectoryError, PermissionError])
def test_no_folder_for_shared_memory(monkeypatch: pytest.MonkeyPatch, error: type[OSError]) -> None:
    """A machine without one, or one that this process cannot list, shows no brokers, and no files of one."""

    def fails(_: str) -> list[str]:
        raise error

    monkeypatch.setattr(os, "listdir", fails)
    assert segments.names() == []
    assert "this process cannot open its files" in str(segments.refused(segments.path_of("b")))


def test_what_tells_a_broker_from_a_later_one(folder: Path) -> None:
    """The file of its first segment; none when there is none."""
    path = segments.path_of("b")
    assert segments.identity(path) is None
    assert not segments.exists(path)
    file = folder / f"shmbroker-{UID}.b.0"
    file.touch()
    found = file.stat()
    assert segments.identity(path) == (found.st_dev, found.st_ino)
    assert segments.exists(path)


# ---- trust ----


def of_file(kind: int = stat.S_IFREG, *, mode: int = 0o600, uid: int = UID) -> Any:  # noqa: ANN401 - in the place of a stat
    """What `stat` says of a file."""
    return SimpleNamespace(st_mode=kind | mode, st_uid=uid)


@pytest.mark.parametrize("mode", [0o600, 0o700, 0o660, 0o670, 0o400, 0o000, 0o4600])
def test_a_file_of_ours_is_trusted(mode: int) -> None:
    """Whatever its owner may do; its group may do nothing, or read and write."""
    assert segments.distrust(segments.path_of("b"), 0, of_file(mode=mode)) == ""


@pytest.mark.parametrize("mode", [0o601, 0o602, 0o604, 0o640, 0o620, 0o610, 0o650, 0o630, 0o661, 0o667])
def test_a_file_that_is_open_to_others_is_not(mode: int) -> None:
    """Nor one that is half open to its group: the mode is named."""
    expected = f"{SHARED}/shmbroker-{UID}.b.1 has mode {mode:04o}: 0600, or 0660 for a group, is allowed"
    assert segments.distrust(segments.path_of("b"), 1, of_file(mode=mode)) == expected


def test_a_file_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is trusted if it is his whose broker it is, and shared with a group; we count by our effective user."""
    path, file = segments.path_of("77/b"), f"{SHARED}/shmbroker-77.b.lock"
    assert segments.distrust(path, "lock", of_file(uid=UID)) == f"{file} belongs to user {UID}, not to user 77"
    assert segments.distrust(path, "lock", of_file(uid=77)) == f"{file} is private to user 77"
    for mode in (0o620, 0o640):
        assert "0660 for a group" in segments.distrust(path, "lock", of_file(uid=77, mode=mode))
    assert segments.distrust(path, "lock", of_file(uid=77, mode=0o660)) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 77)
    assert segments.distrust(path, "lock", of_file(uid=77)) == ""


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFDIR, stat.S_IFSOCK, stat.S_IFCHR])
def test_what_is_no_regular_file(kind: int) -> None:
    """It is not trusted, whosever it is."""
    expected = f"{SHARED}/shmbroker-{UID}.b.0 is no regular file"
    assert segments.distrust(segments.path_of("b"), 0, of_file(kind)) == expected


def test_the_error_names_the_first_file_that_is_not_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of their names; without one, that they cannot be opened."""
    path = segments.path_of("b")
    nothing = "403 ACCESS_REFUSED - broker 'b' cannot be used: this process cannot open its files"
    assert str(segments.refused(path)) == nothing
    for suffix, mode in (("0", 0o600), ("1", 0o604), ("2", 0o602), ("lock", 0o600)):
        file = folder / f"shmbroker-{UID}.b.{suffix}"
        file.touch()
        file.chmod(mode)
    text = f"403 ACCESS_REFUSED - broker 'b' cannot be used: {folder}/shmbroker-{UID}.b.{{}} has mode 060{{}}: "
    assert str(segments.refused(path)).startswith(text.format(1, 4))
    seen = os.lstat

    def gone(file: str) -> os.stat_result:
        if file.endswith(".1"):
            raise FileNotFoundError
        return seen(file)

    monkeypatch.setattr(os, "lstat", gone)
    assert str(segments.refused(path)).startswith(text.format(2, 2))


def test_how_a_file_is_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As was asked for; no link is followed, nothing is waited for, no child inherits it."""
    file = folder / f"shmbroker-{UID}.b.lock"
    file.touch(0o600)
    asked, opened = [], os.open

    def noted(name: str, flags: int) -> int:
        asked.append((name, flags))
        return opened(name, flags)

    monkeypatch.setattr(os, "open", noted)
    with segments.open_file(segments.path_of("b"), "lock", os.O_RDWR):
        pass
    assert asked == [(str(file), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.ELOOP])
def test_a_file_that_may_not_be_opened(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The broker is refused."""
    assert folder.exists()
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(number, "no")))
    opening = segments.open_file(segments.path_of("b"), "lock", os.O_RDWR)
    with pytest.raises(AccessRefused, match="this process cannot open its files"), opening:
        pass


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EMFILE, errno.EWOULDBLOCK])
def test_a_file_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The error of the system stays what it is."""
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(number, "no")))
    opening = segments.open_file(segments.path_of("b"), "lock", os.O_RDWR)
    with pytest.raises(OSError, match=f"{number}") as failed, opening:
        pass
    assert failed.value.errno == number


def test_a_file_that_is_not_trusted_is_closed(folder: Path) -> None:
    """Its descriptor does not stay."""
    file = folder / f"shmbroker-{UID}.b.lock"
    file.touch()
    file.chmod(0o604)
    before = open_files()
    opening = segments.open_file(segments.path_of("b"), "lock", os.O_RDWR)
    with pytest.raises(AccessRefused, match=f"{file} has mode 0604"), opening:
        pass
    assert open_files() == before


def test_a_file_that_cannot_be_looked_at_is_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the system stays what it is."""
    (folder / f"shmbroker-{UID}.b.lock").touch(0o600)
    before, opening = open_files(), segments.open_file(segments.path_of("b"), "lock", os.O_RDWR)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "no")))
        with pytest.raises(OSError, match="no"), opening:
            pass
    assert open_files() == before


# ---- damage ----


def test_files_that_are_missing_or_cut_short(folder: Path) -> None:
    """Each is named with what is wrong; of as many segments as there should be beside the first."""
    path = segments.path_of("b")
    whole = [int(native.slow.sb_broker_segment_bytes(number, 4)) for number in range(4)]
    for number, size in enumerate((whole[0], whole[1] - 1, None, whole[3] + 1)):
        if size is not None:
            with Path(segments.file_of(path, number)).open("wb") as file:
                file.truncate(size)
    first, second = (folder / f"shmbroker-{UID}.b.{number}" for number in (1, 2))
    expected = [
        f"segment 1: {first} is cut short: {whole[1] - 1} bytes, not {whole[1]}",
        f"segment 2: {second} cannot be read: {os.strerror(errno.ENOENT)}",
    ]
    assert segments.damaged(path, 3, 4) == segments.damaged(path, 2, 4) == expected
    assert segments.damaged(path, 1, 4) == expected[:1]
    assert segments.damaged(path, 0, 4) == []
    assert whole[1] != int(native.slow.sb_broker_segment_bytes(1, 5))


# ---- purging ----


@pytest.fixture
def made(broker_name: str) -> Iterator[str]:
    """Make a broker, and give the front of the names of its files."""
    shmbroker.Broker(broker_name, memory=MEMORY, mode=0o660).create()
    yield segments.path_of(broker_name)
    for file in Path(segments.DIRECTORY).glob(f"*{broker_name}*"):
        file.unlink()


def suffixes(path: str) -> set[str]:
    """What is there of a broker."""
    return {file.name[len(path) :] for file in Path(segments.DIRECTORY).glob(f"{path[1:]}.*")}


WHOLE = {"0", "1", "2", "3", "4", "lock", "journal-0", "journal-1"}


def test_a_purge_removes_what_is_the_brokers(made: str) -> None:
    """Also what is being made of it; what has other names stays."""
    assert suffixes(made) == WHOLE
    others = {"0-kept", "x1", "journal-2", "locks", "1.5", "not-tmp-1"}
    for suffix in {"tmp-0123456789abcdef", *others}:
        Path(segments.file_of(made, suffix)).touch()
    before = open_files()
    segments.remove(made, segments.identity(made))
    assert suffixes(made) == others
    assert open_files() == before


def test_a_purge_of_a_broker_that_is_another_one_by_now(made: str) -> None:
    """Nothing is removed, nor where there was none when it began."""
    what = segments.identity(made)
    assert what is not None
    for other in ((what[0], what[1] + 1), None):
        segments.remove(made, other)
        assert suffixes(made) == WHOLE


def test_a_purge_of_what_another_purge_left(made: str) -> None:
    """Files without a first segment, or a lock, go."""
    for suffix in ("0", "lock"):
        Path(segments.file_of(made, suffix)).unlink()
    segments.remove(made, None)
    assert suffixes(made) == set()


def test_files_that_go_while_they_are_removed(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that purges the broker may be faster."""
    found = sorted(Path(segments.DIRECTORY).glob(f"{made[1:]}.*"))
    what = segments.identity(made)
    with monkeypatch.context() as late:
        late.setattr(os, "listdir", lambda _: [file.name for file in found])
        for file in found[1:]:
            file.unlink()
        segments.remove(made, what)
        segments.remove(made, None)
    assert suffixes(made) == set()
