# SPDX-License-Identifier: Apache-2.0
"""The housekeeper: reaps dead processes, makes scheduled messages due, expires messages, repeats missed notifications.

Messages flow without it. It holds a lock that the kernel releases when it dies; clients notice and start another one.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._core import library, segments
from shmbroker._core.connection import CoreConnection
from shmbroker._core.queue import CoreQueue
from shmbroker._process.timers import Timers
from shmbroker._topology.shared import exchanges_of

if TYPE_CHECKING:
    from collections.abc import Callable

TICK_SECONDS = 0.25
REST_SECONDS = 1.0  # between ticks while no queue changes
RECLAIM_SECONDS = 1.0  # memory of structures that is unused for this long may serve bodies
REAP_SECONDS = 4.0  # a process descriptor reports a process's end; this interval finds an exec
LINGER_SECONDS = 10.0
_DYING_SECONDS = 1.0  # how long a stand-in tries to become the housekeeper
_ASK_SECONDS = 0.01
_TRIM_TURNS = 40
_WATCH_TURNS = 8  # turns between two looks for queues and clients, even if nothing indicates new ones
_PROCESSES = 4096
_POSITIONS = 1024

slow, ffi = library.slow, library.ffi
_WORDS, _CURSORS, _NEW_TIMERS = slow.SB_MEMORY_WORDS, 4, 7  # of sb_queue_memory


class EndFlag:
    """A flag that is set once, also by a signal handler. Unlike an Event it has no lock that a second signal meets."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Tells the housekeeper to end."""
        self._set = True

    def is_set(self) -> bool:
        """Whether the housekeeper is to end."""
        return self._set


class Housekeeper:
    """The housekeeper of one broker. :meth:`run` returns when it is told to end, or when no client is left."""

    def __init__(self, broker: str, name: str = "housekeeper") -> None:
        self._connection = CoreConnection(segments.path_of(broker), name)
        self._handle = self._connection.handle
        self._watched: list[CoreQueue] = []
        self._places: dict[int, CoreQueue] = {}
        self._handles = ffi.new("sb_queue *[]", 1)
        self._memories = ffi.new("uint64_t[]", _WORDS)  # the core's memory of each queue
        self._positions = ffi.new("uint64_t[]", _POSITIONS)
        self._changes, self._unfreed, self._attached = -1, 0, -1
        self._busy, self._tick_due = True, 0
        self._reclaim_due = 0.0
        self._timers = Timers(self._look_at)
        self._turns = 0
        self._serves, self._stands_in = False, False
        self._wake_reaper = os.eventfd(0, os.EFD_CLOEXEC)

    def begin(self) -> bool:
        """Becomes the housekeeper, unless there is another one."""
        self._serves = slow.sb_housekeeper_begin(self._handle) == library.OK
        return self._serves

    def stand_in(self) -> bool:
        """Stands in for a stopped housekeeper, unless another process does; :meth:`run` ends when it continues."""
        self._stands_in = slow.sb_housekeeper_stand_in(self._handle) == library.OK
        return self._stands_in

    def _step_down(self) -> None:
        if self._stands_in:
            self._stands_in = False
            slow.sb_housekeeper_step_down(self._handle)

    def _is_relieved(self) -> bool:
        """Whether the stopped housekeeper continues; if it is gone, this one takes its place instead."""
        if not self._stands_in or not slow.sb_housekeeper_is_relieved(self._handle):
            return False
        self._step_down()
        return not self._succeeds()

    def _succeeds(self) -> bool:
        """Tries to become the housekeeper for a second: one that is being killed holds its lock for a moment."""
        until = time.monotonic() + _DYING_SECONDS
        while not self.begin():
            if time.monotonic() > until:
                return False
            time.sleep(_ASK_SECONDS)
        return True

    def close(self) -> None:
        """Gives up the housekeeper's place; :meth:`run` does so at its end."""
        self._step_down()
        if self._serves:
            slow.sb_housekeeper_end(self._handle)
        os.close(self._wake_reaper)
        self._connection.close()

    def run(self, ended: EndFlag, *, linger: float | None) -> None:
        """Serves, after :meth:`begin`, until ``ended`` is set, the broker is stopped or purged, or no client is left.

        Args:
            ended: set by a signal handler.
            linger: the seconds without a client after which it ends; ``None`` = never.
        """
        reaper = threading.Thread(target=self._reap, args=(ended,), name="shmbroker-reaper", daemon=True)
        reaper.start()
        lonely_since = time.monotonic()
        try:
            while not ended.is_set() and not self._is_relieved():
                self._turn()
                if self._turns % _WATCH_TURNS == 0:
                    if self._clients():
                        lonely_since = time.monotonic()
                    elif linger is not None and time.monotonic() - lonely_since > linger:
                        break
                if self._wait() == library.STOPPING:
                    break
        except exceptions.ConnectionClosedByBroker:
            pass  # purged during a turn
        finally:
            ended.set()
            os.eventfd_write(self._wake_reaper, 1)
            reaper.join()
            self.close()

    def _wait(self) -> int:
        due = self._timers.due
        slow.sb_housekeeper_next_due(self._handle, due)
        armed = slow.sb_housekeeper_arm(self._handle)
        # Checked again once a wake-up is possible: no change is missed in between.
        if self._new_timers() or self._has_changed() or self._timers.asks:
            due = 0
        return int(slow.sb_housekeeper_wait(self._handle, armed, min(self._tick_due, due)))

    def _has_changed(self) -> bool:
        return bool(slow.sb_housekeeper_changes(self._handle) != self._changes)

    def _clients(self) -> bool:
        return bool(self._connection.attachment.facts().processes > 1 + self._stands_in)

    # ---- queues ----

    def _turn(self) -> None:
        self._turns += 1
        attached = slow.sb_process_attaches(self._connection.attachment.handle)
        if attached != self._attached:  # a new process, whose end the reaper must watch
            self._attached = attached
            os.eventfd_write(self._wake_reaper, 1)
        self._watch()
        self._new_timers()
        self._timers.run(time.monotonic_ns())
        self._tick()
        self._reclaim()
        if self._turns % _TRIM_TURNS == 0:
            for queue in self._watched:
                slow.sb_housekeeper_trim(queue.handle)

    def _tick(self) -> None:
        """Runs the periodic check of the queues only when it is due, however often timers wake the thread."""
        if time.monotonic_ns() >= self._tick_due:
            count = len(self._watched)
            self._busy = bool(slow.sb_housekeeper_ticks(self._handle, self._handles, self._memories, count))
            seconds = TICK_SECONDS if self._busy else REST_SECONDS
            self._tick_due = time.monotonic_ns() + int(seconds * library.NANOSECONDS)

    def _reclaim(self) -> None:
        """Takes the next step of freeing unused memory of structures for bodies."""
        if time.monotonic() >= self._reclaim_due:
            more = slow.sb_housekeeper_reclaim(self._handle)
            self._reclaim_due = time.monotonic() + (TICK_SECONDS if more else RECLAIM_SECONDS)

    def _watch(self) -> None:
        """Opens new queues, leaves deleted ones, and frees the memory of deleted queues."""
        if not self._has_changed() and not self._unfreed and self._turns % _WATCH_TURNS:
            return
        self._leave_deleted()
        self._unfreed = int(slow.sb_housekeeper_sweep(self._handle, 0))
        # Retried in another turn; a damaged journal is reported to a client that declares, and by the doctor.
        with contextlib.suppress(exceptions.Timeout, exceptions.OutOfMemory, exceptions.CorruptSegment):
            exchanges_of(self._connection).prune(self._connection, 0)
        # After the sweep, which changes queues itself; before the look, since changes during it must count.
        self._changes = slow.sb_housekeeper_changes(self._handle)
        present = {queue.slot for queue in self._watched}
        fresh = [slot for slot in self._connection.queue_slots() if slot not in present]
        opened = [queue for queue in map(self._open, fresh) if queue is not None]
        if opened:
            self._replace(self._watched + opened, list(range(len(self._watched))))

    def _leave_deleted(self) -> None:
        kept = [at for at, queue in enumerate(self._watched) if queue.length() >= 0 or not queue.leave()]
        if len(kept) < len(self._watched):
            self._replace([self._watched[at] for at in kept], kept)

    def _open(self, slot: int) -> CoreQueue | None:
        with contextlib.suppress(exceptions.NotFound, exceptions.OutOfMemory):  # gone again, or retried at another tick
            facts = self._connection.queue_facts(slot)
            if facts is not None:
                return CoreQueue(self._connection, facts.name, slot)
        return None

    def _replace(self, watched: list[CoreQueue], kept: list[int]) -> None:
        """Replaces the list of queues; its first ones are the queues that were at the indexes ``kept``."""
        memories = ffi.new("uint64_t[]", _WORDS * max(1, len(watched)))
        for to, at in enumerate(kept):
            memories[to * _WORDS : (to + 1) * _WORDS] = self._memories[at * _WORDS : (at + 1) * _WORDS]
        self._watched, self._memories = watched, memories
        self._handles = ffi.new("sb_queue *[]", [queue.handle for queue in watched])
        self._places = {queue.slot: queue for queue in watched}

    # ---- timers ----

    def _new_timers(self) -> bool:
        if not slow.sb_housekeeper_new_timers(self._handles, self._memories, len(self._watched)):
            return False
        for at, queue in enumerate(self._watched):
            if self._memories[at * _WORDS + _NEW_TIMERS]:
                self._timers.add(queue.slot, self._positions_of(queue, self._memories + at * _WORDS + _CURSORS))
        return True

    def _positions_of(self, queue: CoreQueue, cursors: Any) -> list[int]:  # noqa: ANN401
        found: list[int] = []
        while True:
            count = slow.sb_housekeeper_timers(queue.handle, cursors, self._positions, _POSITIONS)
            found += ffi.unpack(self._positions, count) if count else []
            if count < _POSITIONS:
                return found

    def _look_at(self, slot: int, position: int) -> int:
        queue = self._places.get(slot)
        return 0 if queue is None else int(slow.sb_housekeeper_look_at(queue.handle, position))

    # ---- the dead ----

    def _reap(self, ended: EndFlag) -> None:
        watched: dict[int, int] = {}
        poll = select.poll()
        poll.register(self._wake_reaper, select.POLLIN)
        while not ended.is_set():
            self._watch_processes(watched, poll)
            slow.sb_recover(self._handle)
            for descriptor, _ in poll.poll(REAP_SECONDS * 1000):
                if descriptor == self._wake_reaper:
                    os.eventfd_read(descriptor)
                else:
                    poll.unregister(descriptor)
                    os.close(descriptor)
                    del watched[descriptor]
        for descriptor in watched:
            os.close(descriptor)

    def _watch_processes(self, watched: dict[int, int], poll: select.poll) -> None:
        known = {*watched.values(), os.getpid()}
        pids = ffi.new("int32_t[]", _PROCESSES)
        count = min(_PROCESSES, slow.sb_process_pids(self._connection.attachment.handle, pids, _PROCESSES))
        for pid in set(ffi.unpack(pids, count)) - known:
            with contextlib.suppress(OSError):  # ended already: sb_recover finds that itself
                descriptor = os.pidfd_open(pid)
                watched[descriptor] = pid
                poll.register(descriptor, select.POLLIN)


def main(arguments: list[str], on_ready: Callable[[], None] = lambda: None) -> int:
    """``python -m shmbroker._housekeeper.housekeeper NAME [--automatic]``: the program of a housekeeper.

    It runs until it is told to end, or until no client is left for ten seconds. With ``--automatic``, a client started
    it, not a user.

    Args:
        arguments: the arguments without the program's name.
        on_ready: called once, when the housekeeper serves.

    Returns:
        0, or 1 if it is not needed: the broker is gone, or another housekeeper serves it.
    """
    ended = EndFlag()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        keeper = Housekeeper(arguments[0], segments.AUTOMATIC if "--automatic" in arguments else "housekeeper")
    except (exceptions.BrokerError, exceptions.OutOfMemory) as error:
        purged = isinstance(error, (exceptions.BrokerNotFound, exceptions.ConnectionClosedByBroker))
        if not purged or isinstance(error, exceptions.NotAllowed):
            print(error, file=sys.stderr)  # noqa: T201 - the process that started it logs that
        return 1
    if not keeper.begin() and not keeper.stand_in():
        keeper.close()
        return 1  # another housekeeper was faster
    on_ready()
    keeper.run(ended, linger=LINGER_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
