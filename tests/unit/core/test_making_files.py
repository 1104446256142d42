# SPDX-License-Identifier: Apache-2.0
"""Making the files of a broker: how large they are, when there is no room for them, and one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
from shmbroker._core import attachment, native, segments
from shmbroker.exceptions import OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

CHUNK = 2 << 20
MEMORY = 32 << 20
FIRST = int(native.slow.sb_broker_segment_bytes(0, 0))
SEGMENT = int(native.slow.sb_broker_segment_bytes(1, 4))
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


def has_room(monkeypatch: pytest.MonkeyPatch, free: int, whole: int = 1 << 40) -> None:
    """Have /dev/shm say that it has so many bytes."""
    unit = 2 if free % 2 == whole % 2 == 0 else 1
    found = SimpleNamespace(f_bavail=free // unit, f_bfree=free, f_blocks=whole // unit, f_frsize=unit, f_bsize=3)
    monkeypatch.setattr(os, "statvfs", lambda _: found)


def raising(error: BaseException) -> Callable[..., Any]:
    """What raises instead of being done."""

    def call(*_: object, **__: object) -> None:
        raise error

    return call


# ---- plans ----


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (16 * CHUNK, (16, 4)),
        (17 * CHUNK - 1, (16, 4)),
        (64 * CHUNK, (64, 4)),
        (65 * CHUNK, (65, 5)),
        (128 * CHUNK, (128, 8)),
        (2047 * CHUNK, (2047, 128)),
        (2048 * CHUNK, (2048, 128)),
        (32640 * CHUNK, (32640, 128)),
        (32641 * CHUNK, (32641, 129)),
        (32769 * CHUNK - 1, (32768, 129)),
    ],
)
def test_how_memory_is_divided(memory: int, expected: tuple[int, int]) -> None:
    """Into about 16 segments of 4 to 128 chunks; of larger ones only where 255 would not be enough."""
    assert segments.plan(memory) == expected


@pytest.mark.parametrize("memory", [0, 16 * CHUNK - 1, 32769 * CHUNK])
def test_a_limit_that_is_too_small_or_too_large(memory: int) -> None:
    """It is named, with what is allowed; nothing is made."""
    text = rf"memory={memory}: {32 << 20} \(32M\) to {64 << 30} \(64G\) bytes are allowed"
    for ask in (lambda: segments.plan(memory), lambda: segments.create("/shmbroker-0.none", "none", memory, 0o600)):
        with pytest.raises(ValueError, match=text):
            ask()
    assert suffixes("/shmbroker-0.none") == set()


# ---- room ----


def test_a_full_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says for what there is no room, and how much is used; a journal is no segment."""
    has_room(monkeypatch, 30, 70)
    text = "/dev/shm has no room for {} of broker 'b', 12 bytes: 40 of 70 bytes are used (in a container: "  # noqa: S108
    for suffix, what in ((3, "segment 3"), ("1 to 4", "segment 1 to 4"), ("journal-0", "journal-0")):
        assert str(segments.no_room(segments.path_of("b"), suffix, 12)).startswith(text.format(what))


@pytest.mark.parametrize(("free", "whole", "fits"), [(99, 1000, False), (100, 1000, True), (0, 0, True), (0, 2, False)])
def test_a_file_is_given_its_memory(
    path: str, monkeypatch: pytest.MonkeyPatch, *, free: int, whole: int, fits: bool
) -> None:
    """To the last byte, if there is as much; a folder of no size has no limit."""
    has_room(monkeypatch, free, whole)
    given: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *how: given.append(how))
    if fits:
        segments._allocate(path, 1, 17, 100)  # noqa: SLF001
    else:
        with pytest.raises(OutOfMemory, match=r"no room for segment 1 of broker .*, 100 bytes"):
            segments._allocate(path, 1, 17, 100)  # noqa: SLF001
    assert given == ([(17, 0, 100)] if fits else [])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EIO])
def test_memory_that_another_one_took_meanwhile(path: str, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """That is no room, too; another error stays what it is."""
    monkeypatch.setattr(os, "posix_fallocate", raising(OSError(number, "no")))
    full = number != errno.EIO
    with pytest.raises(OutOfMemory if full else OSError, match="no room for segment 1" if full else "no"):
        segments._allocate(path, 1, 17, 100)  # noqa: SLF001


@pytest.mark.parametrize("missing", [0, 1])
def test_the_room_that_a_broker_needs_at_least(path: str, monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    """Its first segment, and those of 16 chunks: with less nothing is made of it."""
    needed = FIRST + 4 * SEGMENT
    has_room(monkeypatch, needed - missing)
    if not missing:
        assert segments.create(path, "b", 128 << 20, 0o600)
        return
    with pytest.raises(OutOfMemory, match=f"no room for segment 0 to 4 of broker .*, {needed} bytes"):
        segments.create(path, "b", 128 << 20, 0o600)
    assert suffixes(path) == set()


def test_as_many_segments_as_16_chunks_need(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a larger broker fewer, which are larger."""
    has_room(monkeypatch, 0)
    needed = FIRST + 2 * int(native.slow.sb_broker_segment_bytes(1, 10))
    with pytest.raises(OutOfMemory, match=f"no room for segment 0 to 2 of broker .*, {needed} bytes"):
        segments.create(path, "b", 150 * CHUNK, 0o600)


@pytest.mark.parametrize("missing", [0, 1])
def test_the_room_that_a_shared_broker_needs(path: str, monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    """All its memory, before any is taken."""
    needed = 5 * SEGMENT
    has_room(monkeypatch, needed - missing)
    if not missing:
        assert segments.create(path, "b", 17 * CHUNK, 0o660)
        assert suffixes(path) == PAIR | set("012345")
        return
    with pytest.raises(OutOfMemory, match=f"no room for segment 1 to 5 of broker .*, {needed} bytes"):
        segments.create(path, "b", 17 * CHUNK, 0o660)
    assert suffixes(path) == set()


def test_the_first_segment_finds_no_room(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others took it meanwhile: what was made goes."""
    expect = segments._expect_room  # noqa: SLF001

    def taken(path: str, suffix: int | str, size: int) -> None:
        if suffix == 0:
            has_room(monkeypatch, FIRST - 1)
        expect(path, suffix, size)

    monkeypatch.setattr(segments, "_expect_room", taken)
    with pytest.raises(OutOfMemory, match=f"no room for segment 0 of broker .*, {FIRST} bytes"):
        segments.create(path, "b", MEMORY, 0o600)
    assert suffixes(path) == set()


# ---- files ----


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_files_are_made_whole(path: str, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """With their mode, whatever the umask is, their memory, and their content; no other file stays."""
    allocated: list[tuple[str, int | str, int]] = []
    allocate = segments._allocate  # noqa: SLF001

    def noted(path: str, suffix: int | str, descriptor: int, size: int) -> None:
        allocated.append((path, suffix, size))
        allocate(path, suffix, descriptor, size)

    monkeypatch.setattr(segments, "_allocate", noted)
    before, umask = open_files(), os.umask(0o077)
    try:
        assert segments._make(path, "lock", 0, mode)
        assert segments._make(path, 1, 8192, mode)
        assert segments._make(path, 0, 4096, mode, b"content")
        assert not segments._make(path, 0, 8192, mode, b"another one")
    finally:
        os.umask(umask)
    assert open_files() == before
    assert suffixes(path) == {"0", "1", "lock"}
    assert allocated == [(path, 1, 8192), (path, 0, 4096), (path, 0, 8192)]
    for suffix, content in (("lock", b""), ("1", bytes(8192)), ("0", b"content".ljust(4096, b"\0"))):
        file = Path(segments.file_of(path, suffix))
        assert file.read_bytes() == content
        assert stat.S_IMODE(file.stat().st_mode) == mode


@pytest.mark.parametrize("step", ["fchmod", "posix_fallocate", "pwrite", "link"])
def test_a_file_that_cannot_be_made(path: str, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Nothing of it stays, open or in the folder; the error does."""
    before = open_files()
    monkeypatch.setattr(os, step, raising(OSError(errno.EIO, step)))
    with pytest.raises(OSError, match=step):
        segments._make(path, 0, 4096, 0o600, b"content")
    assert open_files() == before
    assert suffixes(path) == set()


def test_an_interrupt_right_after_a_file_was_opened(path: str) -> None:
    """A signal handler that raises then, before the next instruction, leaves nothing open, nor in the folder."""
    before, traced = open_files(), sys.gettrace()

    def trace(frame: FrameType, *_: object) -> Any:  # noqa: ANN401 - itself
        frame.f_trace_opcodes = True
        if frame.f_code.co_filename == segments.__file__ and open_files() > before:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            segments._make(path, 0, 4096, 0o600, b"content")
    finally:
        sys.settrace(traced)
    assert open_files() == before
    assert suffixes(path) == set()


def test_a_memory_object_that_cannot_be_made(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says why."""
    monkeypatch.setattr("posix_ipc.SharedMemory", raising(PermissionError(errno.EACCES, "no object")))
    with pytest.raises(PermissionError, match="no object"):
        segments._make(path, 0, 4096, 0o600)


def test_a_broker_is_made_once(path: str, broker_name: str) -> None:
    """The second time nothing happens."""
    assert segments.create(path, broker_name, MEMORY, 0o600)
    before = {suffix: Path(segments.file_of(path, suffix)).stat().st_ino for suffix in suffixes(path)}
    assert not segments.create(path, broker_name, MEMORY * 2, 0o660)
    assert {suffix: Path(segments.file_of(path, suffix)).stat().st_ino for suffix in suffixes(path)} == before
    assert before.keys() == PAIR | {"0"}


@pytest.mark.parametrize(("mode", "count"), [(0o600, 0), (0o660, 5)])
def test_what_the_first_segment_says(path: str, broker_name: str, mode: int, count: int) -> None:
    """Limit and mode of the broker; each has a number of its own, which is never 0."""
    instances = set()
    for _ in range(2):
        assert segments.create(path, broker_name, 17 * CHUNK + 1, mode)
        assert suffixes(path) == PAIR | {str(number) for number in range(count + 1)}
        attached = attachment.acquire(path)
        facts = attached.facts()
        assert (facts.memory_limit, facts.chunks_per_segment, facts.mode) == (17 * CHUNK, 4, mode)
        instances.add(int(facts.instance))
        attachment.release(attached)
        segments.remove(path, segments.identity(path))
    assert len(instances) == 2
    assert all(instance % 2 == 1 and instance > 1 for instance in instances)


def test_a_first_segment_that_cannot_be_formatted(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the broker, and its files go."""
    core = SimpleNamespace(**{name: getattr(native.slow, name) for name in ("sb_broker_segment_bytes", "SB_INVALID")})
    core.sb_broker_format = lambda *_: native.slow.SB_INVALID
    monkeypatch.setattr(native, "slow", core)
    with pytest.raises(shmbroker.BrokerError, match="broker 'b': a value is out of its range"):
        segments.create(path, "b", MEMORY, 0o600)
    assert suffixes(path) == set()


def test_who_fails_takes_back_what_it_made(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there before stays; what others have not linked into place yet goes: they find that out."""
    segments._make(path, "journal-0", 0, 0o600)
    Path(segments.file_of(path, "tmp-1")).touch()
    monkeypatch.setattr(segments, "_make_first", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        segments.create(path, "b", MEMORY, 0o600)
    assert suffixes(path) == {"journal-0"}


def test_the_lock_goes_last(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is taken back: who makes the broker beside us waits for it."""
    gone: list[str] = []
    unlink = os.unlink

    def noted(file: str) -> None:
        unlink(file)
        gone.append(Path(file).name[len(path) :])

    monkeypatch.setattr(segments, "_make_first", raising(KeyboardInterrupt()))
    monkeypatch.setattr(os, "unlink", noted)
    with pytest.raises(KeyboardInterrupt):
        segments.create(path, "b", MEMORY, 0o660)
    taken = [suffix for suffix in gone if not suffix.startswith("tmp-")]
    assert taken == ["1", "2", "3", "4", "journal-0", "journal-1", "lock"]


def test_what_another_one_made_is_not_taken_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is there in the meantime has its files, and what is made of it goes on."""
    make = segments._make_first  # noqa: SLF001

    def made_beside(*arguments: Any) -> bool:  # noqa: ANN401
        make(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(segments, "_make_first", made_beside)
    with pytest.raises(KeyboardInterrupt):
        segments.create(path, "b", MEMORY, 0o600)
    assert suffixes(path) == PAIR | {"0"}


def test_a_broker_that_was_made_in_vain(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock belongs to a purge that went on: it is made anew, until it stays."""
    make, made = segments._make_noted, []  # noqa: SLF001

    def purged(path: str, suffix: int | str, *how: Any) -> None:  # noqa: ANN401
        make(path, suffix, *how)
        if suffix == "lock":
            made.append(suffix)
            if len(made) < 3:
                Path(segments.file_of(path, suffix)).unlink()

    monkeypatch.setattr(segments, "_make_noted", purged)
    assert segments.create(path, "b", MEMORY, 0o600)
    assert made == ["lock"] * 3
    assert suffixes(path) == PAIR | {"0"}


def test_a_broker_that_another_one_makes_while_we_wait(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there when the lock is ours: it was not made by us."""
    make = segments._make_noted  # noqa: SLF001

    def made_meanwhile(path: str, suffix: int | str, *how: Any) -> None:  # noqa: ANN401
        make(path, suffix, *how)
        Path(segments.file_of(path, 0)).touch(0o600)

    monkeypatch.setattr(segments, "_make_noted", made_meanwhile)
    assert not segments.create(path, "b", MEMORY, 0o600)
    assert suffixes(path) == {"0", "lock"}


# ---- beside another one that makes the same broker, and holds the lock ----


@pytest.fixture
def stopped(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have another one hold the lock, who does nothing; we wait for it only for a moment."""
    segments._make(path, "lock", 0, 0o660)
    monkeypatch.setattr(segments, "_PATIENCE_SECONDS", 0.01)
    with segments.open_file(path, "lock", os.O_RDWR) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("stopped")
def test_segments_that_are_there_need_no_room(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has made two of five: there is room for the others, and for the first one of all."""
    for number in (1, 2):
        segments._make(path, number, SEGMENT, 0o660)
    has_room(monkeypatch, 3 * SEGMENT)
    assert segments.create(path, "b", 17 * CHUNK, 0o660)
    assert suffixes(path) == PAIR | set("012345")


def test_segments_that_are_not_there_need_room(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names these alone."""
    segments._make(path, 1, SEGMENT, 0o660)
    has_room(monkeypatch, 4 * SEGMENT - 1)
    with pytest.raises(OutOfMemory, match=f"no room for segment 2 to 5 of broker .*, {4 * SEGMENT} bytes"):
        segments.create(path, "b", 17 * CHUNK, 0o660)
    assert suffixes(path) == {"1"}


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_beside_another_maker_nothing_is_taken_back(path: str, monkeypatch: pytest.MonkeyPatch, whose: str) -> None:
    """It goes on with all that is there, whoever made it: we leave that, however we end."""
    make, theirs = segments._make, "2" if whose == "theirs" else ""

    def made_beside(path: str, suffix: int | str, *how: Any) -> bool:  # noqa: ANN401
        if str(suffix) == theirs:  # just before we link ours into place
            make(path, suffix, *how)
        return make(path, suffix, *how)

    monkeypatch.setattr(segments, "_make", made_beside)
    monkeypatch.setattr(segments, "_make_first", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        segments.create(path, "b", MEMORY, 0o660)
    assert suffixes(path) == PAIR | set("1234")


def test_what_another_one_linked_first_is_not_taken_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes past us after a second, if we are stopped, and needs its file."""
    make = segments._make

    def made_beside(path: str, suffix: int | str, *how: Any) -> bool:  # noqa: ANN401
        if suffix == 2:
            make(path, suffix, *how)
        return make(path, suffix, *how)

    monkeypatch.setattr(segments, "_make", made_beside)
    monkeypatch.setattr(segments, "_make_first", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        segments.create(path, "b", MEMORY, 0o660)
    assert suffixes(path) == {"2"}


@pytest.mark.parametrize("taken", [2, "journal-1"])
def test_what_another_one_takes_back_is_made_again(
    path: str, monkeypatch: pytest.MonkeyPatch, taken: int | str
) -> None:
    """A broker is visible only when all its files are there."""
    make, left = segments._make, [taken]

    def taken_back(path: str, suffix: int | str, *how: Any) -> bool:  # noqa: ANN401
        made = make(path, suffix, *how)
        if suffix in left:
            left.remove(suffix)
            Path(segments.file_of(path, suffix)).unlink()
        return made

    monkeypatch.setattr(segments, "_make", taken_back)
    assert segments.create(path, "b", MEMORY, 0o660)
    assert suffixes(path) == PAIR | set("01234")


def test_a_first_segment_that_another_one_removes_is_made_again(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes its files back removes what is not linked into place yet."""
    make, tries = segments._make_first, list[bool]()  # noqa: SLF001

    def removed_once(*arguments: Any) -> bool:  # noqa: ANN401
        tries.append(len(tries) > 0 and make(*arguments))
        return tries[-1]

    monkeypatch.setattr(segments, "_make_first", removed_once)
    assert segments.create(path, "b", MEMORY, 0o660)
    assert tries == [False, True]


def test_a_free_lock_is_taken_without_a_look_at_the_files(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether another process makes progress matters only to one that waits: many files may lie in the folder."""
    monkeypatch.setattr(segments, "_being_made", raising(AssertionError("listed")))
    assert segments.create(path, "b", MEMORY, 0o600)
    assert suffixes(path) == PAIR | {"0"}


def test_who_makes_files_is_waited_for(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as its files grow or become more, by the second; then it may be stopped, and we go on."""
    segments._make(path, "lock", 0, 0o660)
    now, temporary = [100.0], Path(segments.file_of(path, "tmp-1"))
    steps: dict[float, Callable[[], object]] = {
        100.5: temporary.touch,
        101.5: lambda: temporary.write_bytes(bytes(8192)),
        102.5: lambda: temporary.rename(segments.file_of(path, 1)),
    }

    def sleep(_seconds: float) -> None:
        now[0] += 0.25
        steps.get(now[0], lambda: None)()

    with segments.open_file(path, "lock", os.O_RDWR) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        monkeypatch.setattr(segments, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
        for making, ends in ((True, 104.0), (False, 105.0)):
            with segments._turn(path, making=making) as turn:  # noqa: SLF001
                assert (turn.there, turn.held) == (True, False)
            assert now == [ends]


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_what_a_killed_maker_left_is_replaced(path: str, broker_name: str, mode: int) -> None:
    """It made a broker of another size, and another mode; what fits stays."""
    for suffix in PAIR:
        segments._make(path, suffix, 0, 0o660)
    for number, size, left_mode in ((1, SEGMENT, 0o660), (2, 4096, mode), (3, SEGMENT, 0o600)):
        segments._make(path, number, size, left_mode)
    assert segments.create(path, broker_name, MEMORY, mode)
    with shmbroker.Broker(broker_name).connect() as connection:
        connection.queue("q").put_many([bytes(1 << 20)] * 10, timeout=0)  # in two segments at least
    found = [file.stat() for file in Path(segments.DIRECTORY).glob(f"{path[1:]}.*")]
    assert {stat.S_IMODE(one.st_mode) for one in found} == {mode}
    assert {one.st_size for one in found} <= {0, FIRST, SEGMENT}


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("suffix", [0, 1])
def test_a_link_that_leads_nowhere_is_a_file(path: str, suffix: int) -> None:
    """Nothing can be linked into its place: it is neither waited for, nor made again and again."""
    Path(segments.file_of(path, suffix)).symlink_to("nowhere")
    assert segments.create(path, "b", MEMORY, 0o660) == (suffix != 0)
    assert Path(segments.file_of(path, suffix)).is_symlink()
