# SPDX-License-Identifier: Apache-2.0
"""Files of a broker in /dev/shm: completed under a temporary name, then linked into place.

A file that is visible under its name is complete and allocated to its last byte: an access never raises SIGBUS.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import operator
import os
import re
import stat
import time
from typing import TYPE_CHECKING, NamedTuple

import posix_ipc

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error
from shmbroker._core import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

DIRECTORY = "/dev/shm"  # noqa: S108 - where shm_open puts its objects
CHUNK: int = native.slow.SB_CHUNK_BYTES
MINIMUM_CHUNKS = 16
MAXIMUM_CHUNKS: int = native.slow.SB_MAX_CHUNKS
_MAXIMUM_SEGMENTS: int = native.slow.SB_MAX_SEGMENTS
_SEGMENTS_WANTED = 16
_LARGEST_SEGMENT = 128
_GROUP = 0o060
_PATH = re.compile(r"/shmbroker-(0|[1-9]\d*)\.[A-Za-z0-9_-]+\Z")
HOUSEKEEPER = "housekeeper"
"""The connection name of a housekeeper that a user started."""
AUTOMATIC = "automatic housekeeper"
"""The connection name of a housekeeper that a client started automatically."""
HOUSEKEEPERS = (HOUSEKEEPER, AUTOMATIC)
SYNCS = ("always", "interval", "none")
"""What a publisher to a durable queue waits for, by the number that the core has for it."""
ON_FULL = ("block", "refuse")
"""What a put into a durable queue does while the disk of the store is full: it waits, or is refused."""
JOURNALS = ("journal-0", "journal-1")
"""The files of exchanges and bindings: one is in use, the other is the target of the next rewrite."""
_PATIENCE_SECONDS = 1.0


def path_of(broker: str) -> str:
    """The common prefix of the names of a broker's files, as shm_open needs it: ``/shmbroker-<uid>.<name>``.

    Args:
        broker: the name of a broker of this user, or ``<uid>/<name>``.
    """
    uid, _, name = broker.rpartition("/")
    return f"/shmbroker-{uid or os.getuid()}.{name}"


def uid_of(path: str) -> int:
    """The user id of the broker's owner."""
    return int(path.partition("-")[2].partition(".")[0])


def full_name_of(path: str) -> str:
    """The name of a broker that means the same to every user: ``<uid>/<name>``."""
    return f"{uid_of(path)}/{path.partition('.')[2]}"


def name_of(path: str) -> str:
    """The name of a broker for this user: ``<name>``, or ``<uid>/<name>`` if another user owns the broker."""
    return path.partition(".")[2] if uid_of(path) == os.getuid() else full_name_of(path)


def file_of(path: str, number: int | str) -> str:
    """The path of a broker's file: of segment ``number``, of the lock file (``"lock"``), or of a journal."""
    return f"{DIRECTORY}{path}.{number}"


def names() -> list[str]:
    """Lists the existing brokers, sorted: those named after this user, and other users' that this process may use."""
    paths = [path for path, _, suffix in (f"/{name}".rpartition(".") for name in _listed()) if suffix == "0"]
    return sorted(
        name_of(path) for path in paths if _PATH.match(path) and (uid_of(path) == os.getuid() or _is_usable(path))
    )


def _listed() -> list[str]:
    """The names of the files in /dev/shm, sorted; none if there is no such folder, or this process cannot list it."""
    try:
        return sorted(os.listdir(DIRECTORY))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _files_of(path: str, start: str = "") -> list[str]:
    """The suffixes of a broker's files that begin with ``start``, sorted: see :func:`file_of`."""
    prefix = f"{path[1:]}."
    return [name[len(prefix) :] for name in filter(operator.methodcaller("startswith", prefix + start), _listed())]


def _unlink(file: str) -> None:
    """Removes a file, unless another process has done it."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(file)


def _is_usable(path: str) -> bool:
    try:
        return not distrust(path, 0, os.lstat(file_of(path, 0))) and os.access(file_of(path, 0), os.R_OK | os.W_OK)
    except FileNotFoundError:
        return False


def identity(path: str) -> tuple[int, int] | None:
    """Identifies a broker among successive brokers of the same path; ``None`` when there is none."""
    try:
        found = os.stat(file_of(path, 0))
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def exists(path: str) -> bool:
    """Whether a broker of that path exists."""
    return os.path.exists(file_of(path, 0))


def random_number() -> int:
    """A random number of 63 bits, not 0. Does not use `secrets`, whose import takes longer than that of this module."""
    return int.from_bytes(os.urandom(8)) >> 1 or 1


def _room() -> tuple[int, int]:
    """The free bytes and the total bytes of /dev/shm."""
    found = os.statvfs(DIRECTORY)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def no_room(path: str, suffix: int | str, size: int) -> exceptions.OutOfMemory:
    """The error of a full /dev/shm."""
    free, whole = _room()
    what = suffix if suffix in JOURNALS else f"segment {suffix}"
    return exceptions.OutOfMemory(
        f"{DIRECTORY} has no room for {what} of broker {name_of(path)!r}, {size} bytes: "
        f"{whole - free} of {whole} bytes are used "
        "(in a container: docker run --shm-size, or an emptyDir of medium Memory at /dev/shm)",
    )


def _expect_room(path: str, suffix: int | str, size: int) -> None:
    free, whole = _room()
    if whole and free < size:  # 0 of 0: no limit
        raise no_room(path, suffix, size)


def _allocate(path: str, suffix: int | str, descriptor: int, size: int) -> None:
    """Allocates a file's memory to the last byte, before any process touches it.

    Raises:
        OutOfMemory: /dev/shm has too little room.
    """
    _expect_room(path, suffix, size)  # checked first: an allocation that fails takes memory from others for a moment
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.ENOMEM, errno.EDQUOT}:
            raise no_room(path, suffix, size) from None
        raise


def distrust(path: str, suffix: int | str, found: os.stat_result) -> str:
    """Returns the reason why a file with a broker's name is not trusted; empty: it is trusted.

    Every user may create files in ``/dev/shm``, and rename their own: a name proves nothing. The core checks the same
    conditions, see ``is_trusted`` in `sb_segment.c`.
    """
    if not stat.S_ISREG(found.st_mode):
        return f"{file_of(path, suffix)} is no regular file"
    if found.st_uid != uid_of(path):
        return f"{file_of(path, suffix)} belongs to user {found.st_uid}, not to user {uid_of(path)}"
    if found.st_mode & 0o007 or (found.st_mode & 0o070 and found.st_mode & _GROUP != _GROUP):
        return f"{file_of(path, suffix)} has mode {found.st_mode & 0o777:04o}: 0600, or 0660 for a group, is allowed"
    if found.st_uid != os.geteuid() and not found.st_mode & _GROUP:
        return f"{file_of(path, suffix)} is private to user {found.st_uid}"
    return ""


def refused(path: str) -> exceptions.AccessRefused:
    """The error of a broker with files that are not trusted, or that this process cannot open.

    The text names the first file that is not trusted, if there is one.
    """
    why = ""
    for suffix in _files_of(path):
        with contextlib.suppress(OSError):
            why = why or distrust(path, suffix, os.lstat(file_of(path, suffix)))
    why = why or "this process cannot open its files"
    return amqp_error(exceptions.AccessRefused, f"broker {name_of(path)!r} cannot be used: {why}")


@contextlib.contextmanager
def open_file(path: str, suffix: int | str, flags: int) -> Iterator[int]:
    """Opens a broker's file, checks the owner and mode of the opened descriptor, and closes it after the block.

    Raises:
        AccessRefused: the file is not trusted (see :func:`distrust`), or this process may not open it.
        FileNotFoundError: the file does not exist.
    """
    descriptors = list[int]()
    opening = map(os.open, [file_of(path, suffix)], [flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK])
    try:
        try:
            # One call of C opens the file and stores the descriptor. A signal handler that raises runs before this call
            # or after it. So `descriptors` says whether there is one to close.
            descriptors.extend(opening)
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EPERM, errno.ELOOP}:
                raise refused(path) from None
            raise
        if distrust(path, suffix, os.fstat(descriptors[0])):
            raise refused(path)
        yield descriptors[0]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _make(path: str, suffix: int | str, size: int, mode: int, fill: bytes | mmap.mmap | None = None) -> bool:
    """Completes one file and links it into place; False if another process was first, or removes the broker."""
    temporary = f"{path}.tmp-{random_number():x}"
    memories = list[posix_ipc.SharedMemory]()
    making = map(posix_ipc.SharedMemory, [temporary], [posix_ipc.O_CREX], [mode & 0o777])
    try:
        memories.extend(making)  # one call of C, so that an interrupt loses no descriptor (see `open_file`)
        memory = memories[0]
        os.fchmod(memory.fd, mode)
        if size:
            _allocate(path, suffix, memory.fd, size)
        if fill is not None:
            os.pwrite(memory.fd, fill, 0)
        os.link(DIRECTORY + temporary, file_of(path, suffix))
    except (FileExistsError, FileNotFoundError):
        return False
    finally:
        for memory in memories:
            memory.close_fd()
        _unlink(DIRECTORY + temporary)
    return True


def plan(memory: int) -> tuple[int, int]:
    """Computes, from a limit in bytes, how many chunks the broker has, and how many of them one segment has.

    Raises:
        ValueError: the limit is too small or too large.
    """
    chunks = memory // CHUNK
    if not MINIMUM_CHUNKS <= chunks <= MAXIMUM_CHUNKS:
        msg = f"memory={memory}: {MINIMUM_CHUNKS * CHUNK} (32M) to {MAXIMUM_CHUNKS * CHUNK} (64G) bytes are allowed"
        raise ValueError(msg)
    per_segment = max(4, min(_LARGEST_SEGMENT, -(-chunks // _SEGMENTS_WANTED)))
    return chunks, max(per_segment, -(-chunks // _MAXIMUM_SEGMENTS))


def create(path: str, name: str, memory: int, mode: int, store: Store | None = None) -> bool:
    """Makes the lock file, the journals and segment 0 of a new broker; False when the broker exists.

    With a ``store``, the broker then waits to be restored from there.

    A broker that is shared with a group gets all its segments immediately: only the owner of a file in /dev/shm may
    remove it, so clients of other users must not make any.
    """
    plan(memory)
    made: list[int | str] = []
    try:
        while _missing(path, (0,)):
            _make_noted(path, "lock", 0, mode, made)
            with _turn(path, making=True) as turn:
                if turn.there and _missing(path, (0,)):
                    if turn.held:
                        _remove_unfit(path, memory, mode)
                    if _make_all(path, name, memory, mode, made, store):
                        return True
    except BaseException:  # including an interrupt, wherever it arrives
        if made:
            _take_back(path, made)
        raise
    return False


def _make_noted(path: str, suffix: int | str, size: int, mode: int, made: list[int | str]) -> None:
    """Makes one file unless it exists. Adds its suffix to ``made`` first, in case an interrupt follows the making."""
    if not os.path.exists(file_of(path, suffix)):
        made.append(suffix)
        if not _make(path, suffix, size, mode):
            made.remove(suffix)  # another process made the file first, or removes the broker


def _missing(path: str, suffixes: Iterable[int | str]) -> list[int | str]:
    """Lists the files that do not exist. A symbolic link exists, even if it leads nowhere."""
    return [suffix for suffix in suffixes if not os.path.lexists(file_of(path, suffix))]


def _make_all(  # noqa: PLR0917 - what a broker consists of
    path: str, name: str, memory: int, mode: int, made: list[int | str], store: Store | None
) -> bool:
    """Makes the files that a broker does not have yet, segment 0 last.

    False: this process did not make segment 0: another process made it first, or removed the file before it had its
    name.

    Another process may make the same broker at the same time, with the lock or without it. So this function does not
    make files that the other process has made, and makes files again that the other process takes back.
    """
    chunks, per_segment = plan(memory)
    size, least = int(native.slow.sb_broker_segment_bytes(1, per_segment)), -(-MINIMUM_CHUNKS // per_segment)
    # `least` segments have as many chunks as the smallest broker, at least. This function requires room for them even
    # if it makes only segment 0: in far fewer chunks, the broker's structures would fit, but no message.
    needed = int(native.slow.sb_broker_segment_bytes(0, 0)) + size * len(_missing(path, range(1, least + 1)))
    _expect_room(path, f"0 to {least}", needed)
    count = -(-chunks // per_segment) if mode & _GROUP else 0
    if absent := _missing(path, range(1, count + 1)):  # before the first file takes memory from others
        _expect_room(path, f"{absent[0]} to {absent[-1]}", size * len(absent))
    while absent := _missing(path, (*range(1, count + 1), *JOURNALS)):
        for suffix in absent:
            _make_noted(path, suffix, 0 if suffix in JOURNALS else size, mode, made)
    for suffix in ("lock", *JOURNALS):
        # An existing file may be another user's, or have the mode that a killed process gave it. If there is none,
        # another process purges the broker.
        with contextlib.suppress(FileNotFoundError), open_file(path, suffix, os.O_RDWR) as descriptor:
            os.fchmod(descriptor, mode)
    return _make_first(path, name, chunks, per_segment, mode, store)


def _remove_unfit(path: str, memory: int, mode: int) -> None:
    """Removes segments of another size or mode: a process was killed while it made another broker of that name.

    Only the holder of the lock calls this: without the lock, it could remove files that the holder needs.
    """
    size = int(native.slow.sb_broker_segment_bytes(1, plan(memory)[1]))
    for suffix in _files_of(path):
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(file_of(path, suffix))
            fits = found.st_size == size and stat.S_IMODE(found.st_mode) == mode
            if _is_segment(suffix) and found.st_uid == os.geteuid() and not fits and not exists(path):
                _unlink(file_of(path, suffix))


def _is_segment(suffix: str) -> bool:
    """Whether a file with this suffix is that of a segment other than segment 0."""
    return suffix.isdigit() and suffix != "0"


def _take_back(path: str, made: list[int | str]) -> None:
    """Removes the files made for a broker, unless the broker exists by now: another process may have completed it.

    Temporary files are removed even then. The lock is removed last: while it exists, another process that makes the
    same broker waits for it. A process that does not get the lock removes nothing: the holder may make the same broker,
    and needs these files. If the holder fails, they stay until a process makes or purges a broker of that name.
    """
    with _turn(path, making=False) as turn:
        alone = turn.there and turn.held
        for suffix in _files_of(path, "tmp-") if alone else ():
            _unlink(file_of(path, suffix))
        if alone and not exists(path):
            for each in sorted(made, key=lambda suffix: suffix == "lock"):
                _unlink(file_of(path, each))


def _make_first(  # noqa: PLR0917 - as above
    path: str, name: str, chunks: int, per_segment: int, mode: int, store: Store | None
) -> bool:
    size = native.slow.sb_broker_segment_bytes(0, 0)
    _expect_room(path, 0, size)
    head = mmap.mmap(-1, size)
    view = native.ffi.from_buffer(head)
    status = native.slow.sb_broker_format(
        view, size, name.encode(), chunks * CHUNK, per_segment, mode, random_number() | 1
    )
    if status == native.OK and store is not None:
        status = native.slow.sb_broker_format_store(
            view, os.fsencode(store.data_dir), SYNCS.index(store.sync), store.full == ON_FULL[1]
        )
    if status != native.OK:
        native.raise_for(status, f"broker {name!r}")
    return _make(path, 0, size, mode, head)


class Store(NamedTuple):
    """The store of a new broker.

    Attributes:
        data_dir: its folder.
        sync: what publishers to durable queues wait for, one of :data:`SYNCS`.
        full: what a put into a durable queue does while the disk is full, one of :data:`ON_FULL`.
    """

    data_dir: str
    sync: str = "always"
    full: str = "block"


class _Turn(NamedTuple):
    """What :func:`_turn` yields.

    Attributes:
        there: whether the lock file still exists. While it does, later processes wait for its lock, too.
        held: this process holds the lock.
    """

    there: bool
    held: bool


@contextlib.contextmanager
def _one_at_a_time(path: str) -> Iterator[bool]:
    """Keeps two processes from making the same segment at a time, unless one has waited for a second (:func:`_turn`).

    With room for only one segment, both would fail. It also excludes a removal of all files while another process makes
    one. Waits as :func:`_turn` does, and yields its ``there``.
    """
    with _turn(path, making=False) as turn:
        yield turn.there


@contextlib.contextmanager
def _turn(path: str, *, making: bool) -> Iterator[_Turn]:
    """Takes the lock of a broker's files for the block.

    The kernel releases the lock when its holder dies. A process that has waited for a second continues without the
    lock, since the holder may be stopped. If the lock file is gone, the process continues immediately.

    Args:
        path: the path of the broker.
        making: wait longer than a second, as long as another process makes files: a large broker of a group takes
            seconds.
    """
    with contextlib.ExitStack() as opened:
        try:
            descriptor = opened.enter_context(open_file(path, "lock", os.O_RDWR))
        except FileNotFoundError:
            yield _Turn(there=False, held=False)
            return
        try:
            held = _lock_in_time(descriptor, (lambda: _being_made(path)) if making else dict)
            yield _Turn(os.fstat(descriptor).st_nlink > 0, held)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # even if a fork has duplicated the descriptor


def _lock_in_time(descriptor: int, progress: Callable[[], dict[str, int]]) -> bool:
    """Takes the lock; False: another process held it for a second, in which ``progress()`` did not change."""
    before: dict[str, int] | None = None
    until = 0.0
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # independent of that file's byte locks
            return True
        if time.monotonic() >= until:
            if before == (now := progress()):
                return False
            before, until = now, time.monotonic() + _PATIENCE_SECONDS
        time.sleep(0.001)


def _being_made(path: str) -> dict[str, int]:
    """The allocated blocks of each segment, and of each file that is not linked into place yet."""
    found = {}
    for suffix in _files_of(path):
        if _is_segment(suffix) or suffix.startswith("tmp-"):
            with contextlib.suppress(FileNotFoundError):
                found[suffix] = os.lstat(file_of(path, suffix)).st_blocks
    return found


def grow(path: str, number: int, chunks_per_segment: int, mode: int, removed: Callable[[], bool]) -> None:
    """Makes segment ``number`` of the arena, unless another process did, or ``removed()`` is true.

    Raises:
        OutOfMemory: /dev/shm has no room for the segment.
    """
    if not os.path.exists(file_of(path, number)):
        with _one_at_a_time(path):
            if os.path.exists(file_of(path, number)) or removed():
                return
            size = native.slow.sb_broker_segment_bytes(number, chunks_per_segment)
            if _make(path, number, size, mode) and removed():  # by a process that continued without the lock
                _unlink(file_of(path, number))


def foreign(path: str, number: int) -> str:
    """Returns the reason why the file in the place of segment ``number`` is not the broker's; empty: it is."""
    try:
        return distrust(path, number, os.lstat(file_of(path, number)))
    except FileNotFoundError:
        return f"{file_of(path, number)} was removed meanwhile"


def damaged(path: str, count: int, chunks_per_segment: int) -> list[str]:
    """Describes each segment file, from 0 to ``count`` inclusive, that cannot be read or is cut short."""
    found = []
    for number in range(count + 1):
        file, whole = file_of(path, number), int(native.slow.sb_broker_segment_bytes(number, chunks_per_segment))
        try:
            size = os.stat(file).st_size
        except OSError as error:
            found.append(f"segment {number}: {file} cannot be read: {error.strerror}")
            continue
        if size < whole:
            found.append(f"segment {number}: {file} is cut short: {size} bytes, not {whole}")
    return found


def remove(path: str, what: tuple[int, int] | None) -> None:
    """Unlinks every file of a broker; the memory is freed when the last process unmaps it.

    Segment 0 is removed last: while it exists, no process makes another broker of that name. So a new broker finds no
    files of this one.

    Args:
        path: the path of the broker.
        what: the broker's :func:`identity`; if it differs now, another process already removed this broker.
    """
    with _one_at_a_time(path):
        if identity(path) != what:
            return
        for suffix in _files_of(path):
            if suffix in {"lock", *JOURNALS} or _is_segment(suffix) or suffix.startswith("tmp-"):
                _unlink(file_of(path, suffix))
        _unlink(file_of(path, 0))
