# SPDX-License-Identifier: Apache-2.0
"""The housekeeper's functions of the core, and what the core remembers of each queue for the housekeeper.

An automatic housekeeper is one that a client started. It ends when another process waits to take its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error
from shmbroker._core import native, segments
from shmbroker._core.facts import consumer_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue
    from shmbroker.statistics import ConsumerInfo

ffi, slow = native.ffi, native.slow
TURN_SECONDS = 0.01
"""How long one call works on timers, and the housekeeper on dead letters, before other work gets its turn."""
_TURN = int(TURN_SECONDS * native.NANOSECONDS)
_MAX_PROCESSES: int = slow.SB_MAX_PROCESSES
_SUCCESSOR: int = slow.SB_LOCK_SUCCESSOR
_STARTING: int = slow.SB_LOCK_STARTING
_FLOCK = struct.Struct("hhqqi")  # struct flock: the kind of lock, whence, the first byte, the number of bytes, the pid


class CoreHousekeeper:
    """The housekeeper of a broker in the core. The caller closes the connection after the last call.

    One thread calls :meth:`reap` and :meth:`pids`, another one everything else.
    """

    def __init__(self, connection: CoreConnection) -> None:
        self.queues: list[CoreQueue] = []
        self._handle = connection.handle
        self._number = connection.id
        self._broker = connection.attachment.handle
        self._makes_way = False  # whether this is a housekeeper that ends when a process waits for its place
        self._handles: Any = ffi.new("sb_queue *[]", 1)
        self._memories: Any = ffi.new("sb_queue_memory[]", 1)
        self._at: dict[int, int] = {}  # the index of a queue by its slot
        self._indexes: Any = ffi.new("uint32_t[]", 1)
        self._first = 0  # the index of the queue whose timers have their turn first

    # ---- its service ----

    def begin(self) -> bool:
        """Becomes the housekeeper, unless there is another one."""
        begun = bool(slow.sb_housekeeper_begin(self._handle) == native.OK)
        self._makes_way = begun and self._is_automatic()
        return begun

    def _is_automatic(self) -> bool:
        facts = ffi.new("sb_connection_facts *")
        status = slow.sb_connection_describe(self._broker, self._number, facts)
        return bool(status == native.OK and ffi.string(facts.name) == segments.AUTOMATIC.encode())

    def end(self) -> None:
        """Ends the service of a housekeeper."""
        slow.sb_housekeeper_end(self._handle)

    def stand_in(self) -> bool:
        """Stands in for a housekeeper whose process is stopped, for example by SIGSTOP.

        False: there is no such housekeeper, or another process stands in.
        """
        return bool(slow.sb_housekeeper_stand_in(self._handle) == native.OK)

    def is_relieved(self) -> bool:
        """Whether the stopped housekeeper continues, or is gone."""
        return bool(slow.sb_housekeeper_is_relieved(self._handle))

    def step_down(self) -> None:
        """Ends the service of this process as a stand-in."""
        slow.sb_housekeeper_step_down(self._handle)

    # ---- waiting ----

    def next_due(self, due: int) -> None:
        """Announces the time of the next timer, so that clients wake the housekeeper for an earlier one only."""
        slow.sb_housekeeper_next_due(self._handle, due)

    def arm(self) -> int:
        """Lets clients wake the housekeeper from now on. The caller then looks for work that came before this call.

        Returns:
            The argument ``armed`` of the next :meth:`wait`.
        """
        return int(slow.sb_housekeeper_arm(self._handle))

    def wait(self, armed: int, until: int) -> int:
        """Waits until the housekeeper is woken, or until ``until``; returns a status, STOPPING if it must end.

        It must end if the broker is stopped or purged. An automatic housekeeper must also end if another process waits
        for its place. That process takes the lock of :func:`awaiting_place` before it wakes the housekeeper, so one
        look before the sleep is enough.
        """
        if self._makes_way and slow.sb_housekeeper_is_awaited(self._broker):
            return native.STOPPING
        return int(slow.sb_housekeeper_wait(self._handle, armed, until))

    def changes(self) -> int:
        """A number that changes whenever queues may have been created or removed."""
        return int(slow.sb_housekeeper_changes(self._handle))

    # ---- queues ----

    def watch(self, queues: list[CoreQueue], kept: list[int]) -> None:
        """Replaces the list of queues.

        Args:
            queues: the new list. It begins with queues of the old one: what the core remembers of these is kept.
            kept: the indexes that these queues have in the old list.
        """
        memories = ffi.new("sb_queue_memory[]", max(1, len(queues)))
        for to, at in enumerate(kept):
            memories[to] = self._memories[at]
        for at in {*range(len(self.queues))}.difference(kept):
            slow.sb_housekeeper_forget(self._memories + at)
        self.queues, self._memories = queues, memories
        self._at = {queue.slot: at for at, queue in enumerate(queues)}
        self._handles = ffi.new("sb_queue *[]", [queue.handle for queue in queues])
        self._indexes = ffi.new("uint32_t[]", max(1, len(queues)))

    def tick(self) -> bool:
        """Runs the periodic check of all queues. False: no queue had traffic for some ticks, and none can expire."""
        return bool(slow.sb_housekeeper_ticks(self._handle, self._handles, self._memories, len(self.queues)))

    def trim(self) -> None:
        """Drops the schedule entries whose message is gone from the queue."""
        for queue in self.queues:
            slow.sb_housekeeper_trim(queue.handle)

    def sweep(self) -> int:
        """Frees the memory of deleted queues; returns how many it could not free, since connections have them open.

        Does nothing and returns 0 if the topology is locked.
        """
        return int(slow.sb_housekeeper_sweep(self._handle, 0))

    def reclaim(self) -> bool:
        """Takes the next step of freeing unused memory of structures; True if there is more to do soon."""
        return bool(slow.sb_housekeeper_reclaim(self._handle))

    # ---- timers ----

    def has_timers(self) -> bool:
        """Looks for timers that :meth:`run_timers` has not found yet; True if there are some."""
        return bool(slow.sb_housekeeper_new_timers(self._handles, self._memories, len(self.queues)))

    @property
    def timers_due(self) -> int:
        """The time at which :meth:`run_timers` is needed next."""
        return int(slow.sb_housekeeper_due(self._memories, len(self.queues)))

    def run_timers(self, until: int, nanoseconds: int = _TURN) -> bool:
        """Does what is due until ``until``, for about TURN_SECONDS; :attr:`timers_due` then says whether more is.

        Returns:
            Whether a queue has dead messages to carry out.
        """
        self.has_timers()
        self._first += 1
        count = len(self.queues)
        return bool(
            slow.sb_housekeeper_run_timers(
                self._handles, self._memories, count, self._first % max(1, count), until, nanoseconds
            )
        )

    # ---- consumers without progress ----

    def tell_still(self, until: int) -> list[ConsumerInfo]:
        """The consumers that have made no progress since `until`, and of which no call has told; see ``sb_waits.h``.

        Args:
            until: a time in nanoseconds of the monotonic clock.
        """
        count = slow.sb_housekeeper_with_still(
            self._memories, len(self.queues), until, self._indexes, len(self._indexes)
        )
        facts, found = ffi.new("sb_consumer_facts *"), []
        for at in ffi.unpack(self._indexes, count) if count else []:
            queue = self.queues[at]
            while slow.sb_housekeeper_tell_still(self._handle, queue.slot, until, facts):
                found.append(consumer_of(queue.name, facts, time.monotonic_ns()))
        return found

    def looks(self) -> int:
        """The number of times at which messages are to be looked at."""
        return sum(int(slow.sb_housekeeper_looks(self._memories + at)) for at in range(len(self.queues)))

    # ---- dead messages ----

    def with_dead(self) -> list[int]:
        """Returns the slots of the queues that have dead messages to carry out."""
        count = slow.sb_housekeeper_with_dead(self._memories, len(self.queues), self._indexes, len(self._indexes))
        return [self.queues[at].slot for at in ffi.unpack(self._indexes, count)] if count else []

    def memory_of(self, queue: CoreQueue) -> Any:  # noqa: ANN401 - cffi has no types
        """Returns what the core remembers of a queue; valid until the next :meth:`watch`."""
        return self._memories + self._at[queue.slot]

    def has_dead(self, queue: CoreQueue) -> bool:
        """Whether the queue has dead messages to carry out."""
        return bool(slow.sb_housekeeper_with_dead(self.memory_of(queue), 1, self._indexes, 1))

    # ---- dead processes ----

    def attaches(self) -> int:
        """The number of attaches of processes so far."""
        return int(slow.sb_broker_attach_count(self._broker))

    def pids(self) -> set[int]:
        """The ids of the attached processes."""
        pids = ffi.new("int32_t[]", _MAX_PROCESSES)
        count = min(_MAX_PROCESSES, slow.sb_broker_pids(self._broker, pids, _MAX_PROCESSES))
        return set(ffi.unpack(pids, count))

    def reap(self) -> None:
        """Clears up after dead processes."""
        slow.sb_housekeeper_reap(self._handle)


@contextlib.contextmanager
def awaiting_place(path: str) -> Iterator[None]:
    """Shows to an automatic housekeeper, while the block runs, that this process waits to take the housekeeper's place.

    The sign is a shared lock on a byte of the lock file, so several processes may wait. If this process dies, the
    kernel releases the lock, so the housekeeper does not end in vain.

    Raises:
        BrokerNotFound: another process has purged the broker.
    """
    with _lock_file(path) as descriptor:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _lock(fcntl.F_RDLCK, _SUCCESSOR))
            yield
        finally:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _lock(fcntl.F_UNLCK, _SUCCESSOR))  # also of a fork's descriptor


@contextlib.contextmanager
def starting(path: str) -> Iterator[int | None]:
    """Gives the descriptor that the next automatic housekeeper is to inherit; ``None``: another one is being started.

    The descriptor holds a lock, which ends when the housekeeper calls :func:`started` or dies. If the block starts no
    process, the lock ends with the block.

    Raises:
        BrokerNotFound: another process has purged the broker.
    """
    with _lock_file(path) as descriptor:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _lock(fcntl.F_WRLCK, _STARTING))
            got: int | None = descriptor
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: another descriptor has the lock
            got = None
        yield got


def started(descriptor: int) -> None:
    """Releases the lock of :func:`starting` in the housekeeper that inherited its descriptor, and closes it."""
    # Closing would release the lock only after a fork has closed its copy of the descriptor, too.
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _lock(fcntl.F_UNLCK, _STARTING))
    os.close(descriptor)


@contextlib.contextmanager
def _lock_file(path: str) -> Iterator[int]:
    with contextlib.ExitStack() as opened:
        try:
            descriptor = opened.enter_context(segments.open_file(path, "lock", os.O_RDWR))
        except FileNotFoundError:
            raise amqp_error(exceptions.BrokerNotFound, f"no broker {segments.name_of(path)!r}") from None
        yield descriptor


def _lock(kind: int, byte: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)
