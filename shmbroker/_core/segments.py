# SPDX-License-Identifier: Apache-2.0
"""Files of a broker in /dev/shm: made whole under another name, then linked into place.

A file that is visible under its name is complete and allocated to its last byte, so touching it never raises SIGBUS.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import pathlib
import secrets
import time
from typing import TYPE_CHECKING

import posix_ipc

from shmbroker import exceptions
from shmbroker._core import library

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY = pathlib.Path("/dev/shm")  # noqa: S108 - where shm_open puts its objects
CHUNK = 2 << 20
MINIMUM_CHUNKS = 16
MAXIMUM_CHUNKS = 32768
_SEGMENTS_WANTED = 16
_LARGEST_SEGMENT = 128
_PATIENCE_SECONDS = 1.0


def path_of(broker: str, uid: int | None = None) -> str:
    """The common front of a broker's names, as shm_open wants it: ``/shmbroker-<uid>.<broker>``."""
    return f"/shmbroker-{os.getuid() if uid is None else uid}.{broker}"


def file_of(path: str, number: int | str) -> pathlib.Path:
    """Where segment ``number`` (or ``"lock"``) lies in the file system."""
    return DIRECTORY / f"{path[1:]}.{number}"


def names() -> list[str]:
    """The brokers of this user that exist, sorted."""
    front = f"shmbroker-{os.getuid()}."
    return sorted(file.name[len(front) : -2] for file in DIRECTORY.glob(f"{front}*.0"))


def exists(path: str) -> bool:
    """Does the broker of that path exist?"""
    return file_of(path, 0).exists()


def _room() -> tuple[int, int]:
    """Free bytes of /dev/shm, and all of them."""
    stat = os.statvfs(DIRECTORY)
    return stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize


def _no_room(path: str, suffix: int | str, size: int) -> exceptions.OutOfMemory:
    free, whole = _room()
    return exceptions.OutOfMemory(
        f"{DIRECTORY} has no room for segment {suffix} of broker {path.split('.', 1)[1]!r}, {size} bytes: "
        f"{whole - free} of {whole} bytes are used "
        "(in a container: docker run --shm-size, or an emptyDir of medium Memory at /dev/shm)",
    )


def _allocate(path: str, suffix: int | str, descriptor: int, size: int) -> None:
    """Gives a file its memory, to the last byte, before anybody touches it.

    Raises:
        OutOfMemory: there is not that much left.
    """
    free, whole = _room()
    if whole and free < size:  # so that nothing is taken from others while we find out; 0 of 0: no limit
        raise _no_room(path, suffix, size)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.ENOMEM, errno.EDQUOT}:
            raise _no_room(path, suffix, size) from None
        raise


def _make(path: str, suffix: int | str, size: int, mode: int, fill: bytes | None = None) -> bool:
    """Makes one file whole and links it into place; False when somebody else was first."""
    target = file_of(path, suffix)
    temporary = f"{path}.tmp-{secrets.token_hex(8)}"
    memory = posix_ipc.SharedMemory(temporary, posix_ipc.O_CREX, mode=mode & 0o777)
    try:
        os.fchmod(memory.fd, mode)
        if size:
            _allocate(path, suffix, memory.fd, size)
        if fill is not None:
            os.pwrite(memory.fd, fill, 0)
        try:
            os.link(DIRECTORY / temporary[1:], target)
        except FileExistsError:
            return False
        return True
    finally:
        memory.close_fd()
        posix_ipc.unlink_shared_memory(temporary)


def plan(memory: int) -> tuple[int, int]:
    """Chunks in all, and chunks of one segment, for a limit in bytes.

    Raises:
        ValueError: the limit is too small or too large.
    """
    chunks = memory // CHUNK
    if not MINIMUM_CHUNKS <= chunks <= MAXIMUM_CHUNKS:
        msg = f"memory={memory}: {MINIMUM_CHUNKS * CHUNK} (32M) to {MAXIMUM_CHUNKS * CHUNK} (64G) bytes are allowed"
        raise ValueError(msg)
    per_segment = max(4, min(_LARGEST_SEGMENT, -(-chunks // _SEGMENTS_WANTED)))
    return chunks, max(per_segment, -(-chunks // 255))


def create(path: str, name: str, memory: int, mode: int) -> bool:
    """Makes the lock file and segment 0 of a new broker; False when it exists already."""
    chunks, per_segment = plan(memory)
    if exists(path):
        return False
    size = library.slow.sb_segment_bytes(0, 0)
    free, whole = _room()
    if whole and free < size:  # before anything is left behind
        raise _no_room(path, 0, size)
    _make(path, "lock", 0, mode)
    head = mmap.mmap(-1, size)
    with contextlib.closing(head):
        view = library.ffi.from_buffer(head)
        status = library.slow.sb_broker_format(
            view,
            size,
            name.encode(),
            chunks * CHUNK,
            per_segment,
            mode,
            secrets.randbits(63) | 1,
        )
        library.ffi.release(view)
        if status != library.OK:
            library.raise_for(status, f"broker {name!r}")
        return _make(path, 0, size, mode, head[:])


@contextlib.contextmanager
def _one_at_a_time(path: str) -> Iterator[None]:
    """Keeps two processes from making the same segment: where room is short, both would fail for want of room for two.

    The kernel ends it with the process that holds it; if that one is stopped, others go on after a second.
    """
    descriptor = os.open(file_of(path, "lock"), os.O_RDWR | os.O_CLOEXEC)
    until = time.monotonic() + _PATIENCE_SECONDS
    try:
        while time.monotonic() < until:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no business of the byte locks of that file
                break
            except BlockingIOError:
                time.sleep(0.001)
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # also if a fork has made another descriptor of it
        os.close(descriptor)


def grow(path: str, number: int, chunks_per_segment: int, mode: int) -> None:
    """Makes segment ``number`` of the arena unless somebody else did.

    Raises:
        OutOfMemory: /dev/shm has no room for it.
    """
    if not file_of(path, number).exists():
        with _one_at_a_time(path):
            if not file_of(path, number).exists():
                _make(path, number, library.slow.sb_segment_bytes(number, chunks_per_segment), mode)


def damaged(path: str, count: int, chunks_per_segment: int) -> list[str]:
    """What is wrong with the files of a broker that has ``count`` segments beside its first: missing, or cut short."""
    found = []
    for number in range(count + 1):
        file, whole = file_of(path, number), int(library.slow.sb_segment_bytes(number, chunks_per_segment))
        try:
            size = file.stat().st_size
        except OSError as error:
            found.append(f"segment {number}: {file} cannot be read: {error.strerror}")
            continue
        if size < whole:
            found.append(f"segment {number}: {file} is cut short: {size} bytes, not {whole}")
    return found


def remove(path: str) -> None:
    """Unlinks every file of a broker: its memory goes with the last process that maps it."""
    for file in DIRECTORY.glob(f"{path[1:]}.*"):
        suffix = file.name[len(path) :]
        if suffix == "lock" or suffix.isdigit() or suffix.startswith("tmp-"):
            file.unlink(missing_ok=True)
