# SPDX-License-Identifier: Apache-2.0
"""Attachments: this process has one for each broker that it uses, shared by its connections to that broker."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error
from shmbroker._core import native, segments
from shmbroker._core.facts import (
    WHOLE,
    BrokerFacts,
    facts_of_broker,
    statistics_of_broker,
    statistics_of_store,
)
from shmbroker._process import locks
from shmbroker.statistics import ConnectionInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker.statistics import BrokerStatistics, StoreStatistics

ffi, slow = native.ffi, native.slow
_MAX_CONNECTIONS: int = slow.SB_MAX_CONNECTIONS  # number 0 is not used
_MAX_PROCESSES: int = slow.SB_MAX_PROCESSES
_MAX_QUEUES: int = slow.SB_MAX_QUEUES
_GROWTH_PAUSE_NS = 100_000_000
_lock = locks.lock()  # reentrant: the garbage collector may end a view in the thread that holds the lock
_attached: dict[str, Attachment] = {}


class Attachment(native.Finalized):
    """The mapped memory of a broker, and this process's slot in it.

    It counts its users, such as connections and views. The release by the last user detaches it.
    """

    handle: Any = None  # `_finalize` reads it, even if a signal handler raises before `__init__` begins
    known = False

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = segments.name_of(path)
        # The maker counts as a user. Otherwise a signal handler that acquires and releases this object would detach it.
        self.users = 1
        self._no_growth = 0, ""  # the number of the segment that could not be added, and the reason
        self._grow_lock = locks.lock()
        # Loads messages that are in the store and not in the memory: the slot of a queue, and a sequence number.
        self.load: Callable[[Attachment, int, int], None] | None = None
        # Closes what `load` has opened, after the last user has gone. Any thread calls it, so it waits for no lock.
        self.on_detached: Callable[[], None] | None = None
        self.exchanges: Any = None  # the exchanges that `_topology.shared` caches for the life of this attachment
        self._process = os.getpid()
        self._memory = segments.identity(path)  # before: if it is replaced meanwhile, this attachment counts as removed
        self._attach()

    def _attach(self) -> None:
        handles, major, minor = ffi.new("sb_broker **"), ffi.new("uint32_t *"), ffi.new("uint32_t *")
        try:
            status = slow.sb_broker_attach_at(self.path.encode(), handles, major, minor)
            self.handle = handles[0]
        except BaseException:
            if self.handle is None and handles[0] != ffi.NULL:
                slow.sb_broker_detach(handles[0])
            raise
        if self.handle != ffi.NULL:
            return
        self.handle = None
        if status == native.NOT_FOUND:
            raise amqp_error(exceptions.BrokerNotFound, f"no broker {self.name!r}")
        if status == native.LAYOUT:
            text = (
                f"broker {self.name!r} has layout {major[0]}.{minor[0]}, "
                f"this version of shmbroker reads layout {slow.SB_LAYOUT_MAJOR}.{slow.SB_LAYOUT_MINOR}: "
                "its shared memory was made by another version, is truncated, or is not a broker's"
            )
            raise exceptions.LayoutMismatch(text=text)
        if status == slow.SB_ACCESS:
            raise segments.refused(self.path)
        if status == slow.SB_LIMIT:
            text = (
                f"process {os.getpid()} refused: the limit of broker {self.name!r}, {_MAX_PROCESSES} "
                "processes, is reached: all of these places are taken"
            )
            raise amqp_error(exceptions.NotAllowed, text)
        if status == slow.SB_CORRUPT:
            text = f"broker {self.name!r}: its shared memory contradicts itself: it counts segments that do not exist"
            raise exceptions.CorruptSegment(text=text)
        native.raise_for(int(status), f"broker {self.name!r}")

    def _finalize(self) -> None:
        if not self.known and self.handle is not None and not self.forked:  # a signal handler raised in `acquire`
            handle, self.handle = self.handle, None
            slow.sb_broker_detach(handle)  # no signal handler runs between these two lines

    def grow(self) -> None:
        """Does what a call lacks that returned GROW; the caller then repeats that call.

        The call may lack messages that are in the store, and not in the memory: then this method loads them.
        Otherwise it adds a segment.

        If /dev/shm has no room for the segment, or a file that is not the broker's has its name, no call of this
        process returns GROW for a tenth of a second. So the repeated call uses memory that was freed meanwhile, or
        returns NO_MEMORY.

        Threads whose calls return GROW at the same time add only one segment: each thread counts the segments before it
        waits for ``_grow_lock``. A thread that waited finds that another thread has made and mapped the segment.

        Raises:
            ConnectionClosedByBroker: the broker was removed.
            LayoutMismatch: the file of the segment is cut short.
            OSError, BrokerError, OutOfMemory: this process cannot open or map a file of the broker.
            StoreError: the store cannot be read.
        """
        if self.load is not None and (wanted := self.wanted()) is not None:
            self.load(self, *wanted)
            return
        facts = self.facts()
        number = facts.segments + 1
        if number > facts.segments_limit:
            return
        with self._grow_lock:
            try:
                segments.grow(self.path, number, facts.chunks_per_segment, facts.mode, lambda: self.removed)
            except exceptions.OutOfMemory as error:
                self._pause_growth(number, str(error))
                return
            if self.removed:
                native.raise_for(native.STOPPING, f"broker {self.name!r}")
            status = slow.sb_broker_grown(self.handle, number)
            if status == native.OK:
                return
            why = "" if status == native.STOPPING else segments.foreign(self.path, number)
            if not why:
                native.raise_for(status, f"broker {self.name!r}")
            self._pause_growth(number, f"segment {number} cannot be added: {why}")

    def wanted(self) -> tuple[int, int] | None:
        """The slot of the queue and the sequence number that a call of this process needed last, and did not find."""
        slot, sequence = ffi.new("uint32_t *"), ffi.new("uint64_t *")
        return (slot[0], sequence[0]) if slow.sb_store_wanting(self.handle, slot, sequence) else None

    def _pause_growth(self, number: int, reason: str) -> None:
        self._no_growth = number, reason
        slow.sb_broker_grow_again(self.handle, time.monotonic_ns() + _GROWTH_PAUSE_NS)

    def grow_first(self) -> None:
        """Ensures that a new broker has its first arena segment.

        Raises:
            OutOfMemory: /dev/shm has no room for it.
        """
        if self.facts().segments == 0:
            self.grow()
            if self.facts().segments == 0:
                raise self.full()

    def full(self, what: str = "", holder: str = "") -> exceptions.OutOfMemory:
        """The error of a broker that has no room for something: bytes used, the limits, and why it does not grow.

        Args:
            what: what there is no room for, such as ``" for a body of 10 bytes"``; empty: unsaid.
            holder: a clause that says what holds the memory, and begins with ``"; "``; empty: unsaid.
        """
        facts = self.facts(in_full=True)
        free = max(0, facts.memory_limit - facts.memory_structures - facts.memory_bodies)
        text = (
            f"broker {self.name!r} has no room{what}: {facts.memory_used} of {facts.memory_limit} bytes are used; "
            f"{facts.memory_structures} are kept for structures, {facts.memory_bodies} for bodies, {free} are free"
            f"; the longest body that fits now has {facts.memory_room} bytes"
        )
        mark, _ = self.memory_marks()
        if mark is not None:
            text += f"; publishers may use a share of {mark} (memory_high_watermark)"
        number, reason = self._no_growth
        outside = f"; {reason}" if number == facts.segments + 1 else ""
        return exceptions.OutOfMemory(text + holder + outside)

    def all_connected(self, name: str) -> exceptions.NotAllowed:
        """The error of a broker that has the maximum number of connections: the limit, and how many this process has.

        Args:
            name: the name of the refused connection.
        """
        open_now = self.connections()
        own = sum(one.pid == os.getpid() for one in open_now)
        text = (
            f"connection {name!r} refused: the limit of broker {self.name!r}, {_MAX_CONNECTIONS - 1} "
            f"connections, is reached: {len(open_now)} are open, {own} of them in this process"
        )
        return amqp_error(exceptions.NotAllowed, text)

    def all_declared(self, name: str) -> exceptions.NotAllowed:
        """The error of a broker that has the maximum number of queues.

        Args:
            name: the name of the refused queue.
        """
        text = (
            f"queue {name!r} refused: the limit of broker {self.name!r}, {_MAX_QUEUES} queues, is reached"
            f": there are {self.facts().queues}, with those of the broker's own"
        )
        return amqp_error(exceptions.NotAllowed, text)

    def facts(self, *, in_full: bool = False) -> BrokerFacts:
        """The core's description of the broker.

        Args:
            in_full: also determine the use of memory, and whether the housekeeper's process is stopped, which takes
                time. Otherwise these fields are 0, except `memory_limit`.
        """
        return facts_of_broker(self._described(in_full=in_full))

    @functools.cached_property
    def instance(self) -> int:
        """The number of the broker's memory; one that is made again from the store has another number."""
        return self.facts().instance

    def statistics(self) -> BrokerStatistics:
        """A snapshot of the broker."""
        return statistics_of_broker(self.name, self._described(in_full=True), self._store())

    def _store(self) -> StoreStatistics | None:
        folder = self.data_dir
        if folder is None:
            return None
        facts = ffi.new("sb_store_facts *")
        slow.sb_store_describe(self.handle, facts)
        state, full = slow.sb_broker_stores(self.handle), self.store_is_full()
        return statistics_of_store(folder, state, self.sync, self.store_full_policy, facts, full=full)

    def _described(self, *, in_full: bool) -> Any:  # noqa: ANN401 - cffi has no types
        facts = ffi.new("sb_broker_facts *")
        slow.sb_broker_describe(self.handle, facts, in_full)
        return facts

    def connections(self) -> list[ConnectionInfo]:
        """The connections of the broker."""
        facts, found = ffi.new("sb_connection_facts *"), []
        for number in range(1, _MAX_CONNECTIONS):
            if slow.sb_connection_describe(self.handle, number, facts) == native.OK:
                name = ffi.string(facts.name).decode(errors="replace")
                created = facts.created_ns / native.NANOSECONDS
                found.append(
                    ConnectionInfo(
                        id=number,
                        name=name,
                        pid=facts.pid,
                        created_at=created,
                        consumers=facts.consumers,
                        holding=facts.holding,
                        channels=facts.channels,
                        start_ticks=facts.start_ticks,
                        pid_namespace=facts.pid_namespace,
                    )
                )
        return found

    def closing(self) -> bool:
        """Whether a process has begun to purge the broker. It stays true after the purge."""
        return bool(slow.sb_broker_is_closing(self.handle))

    def set_closing(self) -> None:
        """Marks the broker as closing: the calls of every client raise ConnectionClosedByBroker."""
        slow.sb_broker_set_closing(self.handle, 1)

    def set_stopped(self, *, stopped: bool) -> None:
        """Sets whether the broker is stopped: a stopped broker's housekeeper ends, and no client starts another one."""
        slow.sb_broker_set_stopped(self.handle, int(stopped))

    def set_memory_marks(self, high_watermark: float | None, warning: float | None) -> None:
        """Sets the marks of memory, as shares of the limit; ``None``: no mark."""
        marks = [0 if mark is None else max(1, round(mark * WHOLE)) for mark in (high_watermark, warning)]
        slow.sb_broker_set_memory_marks(self.handle, *marks)

    def memory_marks(self) -> tuple[float | None, float | None]:
        """The marks of memory: the high watermark and the warning."""
        found = self.statistics()
        return found.memory_high_watermark, found.memory_warning

    @property
    def data_dir(self) -> str | None:
        """The folder of the broker's store; ``None``: it has none."""
        if slow.sb_broker_stores(self.handle) == slow.SB_STORES_NONE:
            return None
        return os.fsdecode(ffi.string(slow.sb_broker_data_dir(self.handle)))

    @property
    def store_id(self) -> int:
        """A random number that was made with the store of the broker, and that it keeps; 0: the broker has none."""
        return int(slow.sb_broker_store_id(self.handle))

    def set_store_id(self, found: int) -> None:
        """Lets clients know the id of the store, before they are admitted."""
        slow.sb_broker_set_store_id(self.handle, found)

    @property
    def sync(self) -> str:
        """What publishers to stored queues wait for, one of :data:`segments.SYNCS`."""
        return segments.SYNCS[min(slow.sb_broker_sync(self.handle), len(segments.SYNCS) - 1)]

    @property
    def waits_for_store(self) -> bool:
        """Whether publishers to stored queues wait until their messages are in the store, and synced."""
        return self.data_dir is not None and self.sync == segments.SYNCS[0]

    @property
    def store_full_policy(self) -> str:
        """What a put into a stored queue does while the disk of the store is full, one of :data:`segments.ON_FULL`."""
        return segments.ON_FULL[bool(slow.sb_broker_store_refuses(self.handle))]

    def store_is_full(self) -> bool:
        """Whether the disk of the store is full, so that stored queues take no message."""
        return bool(slow.sb_store_is_full(self.handle))

    def is_restoring(self) -> bool:
        """Whether the queues of the broker are being made again from its store."""
        return bool(slow.sb_broker_stores(self.handle) == slow.SB_STORES_RESTORING)

    def set_restored(self, *, verified: bool) -> None:
        """Admits clients: all queues of the store are there again.

        Args:
            verified: whether every process may read the store; if not, only the storekeeper does.
        """
        slow.sb_broker_set_stores(self.handle, slow.SB_STORES_READY if verified else slow.SB_STORES_UNVERIFIED)

    def set_damaged(self) -> None:
        """Nobody reads or writes the store any more."""
        slow.sb_broker_set_stores(self.handle, slow.SB_STORES_DAMAGED)

    def is_verified(self) -> bool:
        """Whether every process may read the store."""
        return bool(slow.sb_broker_stores(self.handle) == slow.SB_STORES_READY)

    def is_damaged(self) -> bool:
        """Whether the store was found to be damaged while the broker ran."""
        return bool(slow.sb_broker_stores(self.handle) == slow.SB_STORES_DAMAGED)

    def storekeeper_serves(self) -> bool:
        """Whether a process holds the storekeeper's lock."""
        return bool(slow.sb_store_keeper(self.handle) != 0)

    def storekeeper_missing(self) -> bool:
        """Whether the broker has a store, and no process holds the storekeeper's lock."""
        return self.data_dir is not None and not self.storekeeper_serves()

    def housekeeper_missing(self) -> bool:
        """Whether no process holds the housekeeper's lock."""
        return bool(slow.sb_housekeeper_missing(self.handle))

    def housekeeper_stopped(self) -> bool:
        """Whether /proc shows that the housekeeper's process is stopped, for example by SIGSTOP.

        False if the housekeeper is in another pid namespace.
        """
        return bool(slow.sb_housekeeper_stopped(self.handle))

    @property
    def forked(self) -> bool:
        """Whether the parent of this process made this attachment.

        The core checks this more reliably, but needs the handle, which another thread may detach meanwhile.
        """
        return self._process != os.getpid()

    @property
    def removed(self) -> bool:
        """Whether the attached broker is being or was removed, or its files were, even if a new broker has its name."""
        return segments.identity(self.path) != self._memory or self.closing()


class User:
    """An object that uses an attachment. ``attached``: whether the object still has to release it."""

    attachment: Attachment
    attached = False


def acquire(path: str, user: User | None = None) -> Attachment:
    """Returns this process's attachment to a broker; the caller gives it back with :func:`release`.

    Args:
        path: the path of the broker.
        user: records the attachment, so that it can be given back even if a signal handler raises.
    """
    user = user or User()
    with _lock:
        found = _attached.get(path)
        if found is not None:
            # Count this user before the checks: a view that ends during them may be the last other user, and detach.
            # One line without a call: a signal handler sees all changes or none.
            found.users, user.attachment, user.attached = found.users + 1, found, True
            if found.handle is not None and not found.forked and not found.removed:
                return found
            # Not usable here: detached, made by the parent process, or of a purged broker. Its other users keep it.
            release(found, user)
        found = Attachment(path)
        # One line without a call, as above. If a signal handler raises before it, `_finalize` detaches the attachment.
        found.known, _attached[path], user.attachment, user.attached = True, found, found, True
        return found


def release(attachment: Attachment, user: User | None = None) -> None:
    """Gives an attachment back; the last user detaches. Does nothing for a user that has given it back already."""
    gone: Any = None
    with _lock:
        if user is None:
            user = User()
        elif not user.attached:
            return
        one, path, detach = attachment, attachment.path, native.fast.sb_broker_detach
        last = 0, None, False, None if one.handle is None else native.cast_fast(one.handle, "sb_broker *")
        # There is no call from here to `detach`, so Python runs no signal handler in between. A handler runs before
        # this line, and still sees this user counted; or after the detach, and sees no handle if this user was the last
        # one. Tests run a handler before each line, too. Therefore each step is one line.
        one.users, one.handle, user.attached, gone = (one.users - 1, one.handle, False, None) if one.users > 1 else last
        if gone is not None:
            if path in _attached and _attached[path] is one: del _attached[path]  # noqa: E701  # fmt: skip
            # `fast` keeps the GIL, so no call of `fast` in another thread runs during the detach. A later call finds
            # its connection closed.
            detach(gone)
    if gone is not None and attachment.on_detached is not None:
        attachment.on_detached()


class MappingReference(User, native.Finalized):
    """Keeps an attachment, and with it the mapping, alive as long as this object lives, or until it is released."""

    def __init__(self, attachment: Attachment) -> None:
        with _lock:
            # One line without a call: a signal handler sees all changes or none.
            attachment.users, self.attachment, self.attached = attachment.users + 1, attachment, True

    def _finalize(self) -> None:
        if self.attached:
            release(self.attachment, self)


def _after_fork() -> None:
    _attached.clear()


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def attached_to(path: str) -> Iterator[Attachment]:
    """Attaches this process to a broker for the length of a block."""
    found = acquire(path)
    try:
        yield found
    finally:
        release(found)
