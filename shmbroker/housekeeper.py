# SPDX-License-Identifier: Apache-2.0
"""The housekeeper: reaps the dead, makes scheduled messages due, expires, and checks for missed notifications.

Messages flow without it. It holds a lock that the kernel frees when it dies; clients notice and start another one.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import select
import signal
import sys
import threading
import time
from typing import Any

import psutil

from shmbroker import exceptions
from shmbroker._core import library, segments
from shmbroker._core.connection import CoreConnection
from shmbroker._core.queue import CoreQueue

TICK_SECONDS = 0.25
LINGER_SECONDS = 10.0
_ROOM = 65536
_TRIM_TICKS = 40

slow, ffi = library.slow, library.ffi


class EndFlag:
    """Set once, from a signal handler too: unlike an Event it has no lock that a second signal could find taken."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """It is to end."""
        self._set = True

    def is_set(self) -> bool:
        """Is it to end?"""
        return self._set


class Housekeeper:
    """The housekeeper of one broker. :meth:`run` returns when it is told to end, or nobody is left."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._connection = CoreConnection(segments.path_of(broker), "housekeeper")
        self._handle = self._connection.handle
        self._queues: dict[int, _Watched] = {}
        self._timers: list[tuple[int, int, int]] = []
        self._ticks = 0
        self._wake_reaper = os.eventfd(0, os.EFD_CLOEXEC)

    def run(self, ended: EndFlag, *, linger: float | None) -> None:
        """Serves until ``ended`` is set, the broker is purged, or no client was there for ``linger`` seconds.

        Raises:
            BrokerError: another housekeeper serves this broker.
        """
        if slow.sb_housekeeper_begin(self._handle) != library.OK:
            self._connection.close()
            raise exceptions.BrokerError(530, f"NOT_ALLOWED - broker {self._broker!r} is being served already")
        reaper = threading.Thread(target=self._reap, args=(ended,), name="shmbroker-reaper", daemon=True)
        reaper.start()
        lonely_since = time.monotonic()
        try:
            while not ended.is_set():
                self._tick()
                if self._clients():
                    lonely_since = time.monotonic()
                elif linger is not None and time.monotonic() - lonely_since > linger:
                    break
                if self._wait() == library.STOPPING:
                    break
        finally:
            ended.set()
            os.eventfd_write(self._wake_reaper, 1)
            reaper.join()
            os.close(self._wake_reaper)
            slow.sb_housekeeper_end(self._handle)
            self._connection.close()

    def _wait(self) -> int:
        until = time.monotonic_ns() + int(TICK_SECONDS * library.NANOSECONDS)
        due = self._timers[0][0] if self._timers else library.FOR_EVER
        slow.sb_housekeeper_next_due(self._handle, due)
        if self._new_timers():  # looked again after saying what we know: nobody's timer falls in between
            return library.OK
        return int(slow.sb_housekeeper_wait(self._handle, min(until, due)))

    def _clients(self) -> bool:
        return bool(self._connection.attachment.facts().processes > 1)

    # ---- queues ----

    def _tick(self) -> None:
        self._ticks += 1
        self._watch()
        self._new_timers()
        self._run_timers()
        for slot, watched in self._queues.items():
            slow.sb_housekeeper_tick(self._handle, slot, watched.memory)
            if self._ticks % _TRIM_TICKS == 0:
                slow.sb_housekeeper_trim(watched.core.handle)
        slow.sb_housekeeper_sweep(self._handle, 0)

    def _watch(self) -> None:
        present = set(self._connection.queue_slots())
        for slot in [slot for slot in self._queues if slot not in present or not self._queues[slot].is_open()]:
            if self._queues[slot].core.leave():
                del self._queues[slot]
        for slot in present - self._queues.keys():
            with contextlib.suppress(exceptions.NotFound, exceptions.OutOfMemory):
                self._queues[slot] = _Watched(self._connection, slot)

    # ---- timers ----

    def _new_timers(self) -> bool:
        found = False
        for slot, watched in self._queues.items():
            for position in watched.new_positions():
                heapq.heappush(self._timers, (0, slot, position))
                found = True
        return found

    def _run_timers(self) -> None:
        now = time.monotonic_ns()
        while self._timers and self._timers[0][0] <= now:
            _, slot, position = heapq.heappop(self._timers)
            watched = self._queues.get(slot)
            if watched is None:
                continue
            again = slow.sb_housekeeper_look_at(watched.core.handle, position)
            if again:
                heapq.heappush(self._timers, (max(again, now + 1) if again > now else now + 1_000_000, slot, position))

    # ---- the dead ----

    def _reap(self, ended: EndFlag) -> None:
        watched: dict[int, tuple[int, float]] = {}
        poll = select.poll()
        poll.register(self._wake_reaper, select.POLLIN)
        while not ended.is_set():
            known = {pid for pid, _ in watched.values()}
            for process in range(4096):
                pid = slow.sb_process_pid(self._connection.attachment.handle, process)
                if pid and pid not in known and pid != os.getpid():
                    with contextlib.suppress(OSError, psutil.NoSuchProcess):
                        born = psutil.Process(pid).create_time()
                        descriptor = os.pidfd_open(pid)
                        watched[descriptor] = (pid, born)
                        poll.register(descriptor, select.POLLIN)
            died = poll.poll(TICK_SECONDS * 1000)
            for descriptor, _ in died:
                if descriptor == self._wake_reaper:
                    continue
                poll.unregister(descriptor)
                os.close(descriptor)
                del watched[descriptor]
            slow.sb_recover(self._handle)
        for descriptor in watched:
            os.close(descriptor)


class _Watched:
    """A queue as the housekeeper sees it.

    Its handle, what was there at the last tick, and how far its timers are known.
    """

    def __init__(self, connection: CoreConnection, slot: int) -> None:
        facts = connection.queue_facts(slot)
        if facts is None:
            library.raise_for(library.DELETED, "queue")
        self.incarnation = int(facts.incarnation)
        self.core = CoreQueue(
            connection, bytes(ffi.buffer(facts.name, facts.name_length)).decode(errors="replace"), slot
        )
        self.memory: Any = ffi.new("uint64_t[8]")
        self._cursor: Any = ffi.new("uint64_t[2]")
        self._positions: Any = ffi.new("uint64_t[]", 1024)

    def is_open(self) -> bool:
        return bool(self.core.length() >= 0) and self.core.connection.queue_facts(self.core.slot) is not None

    def new_positions(self) -> list[int]:
        found: list[int] = []
        while True:
            count = slow.sb_housekeeper_timers(self.core.handle, self._cursor, self._positions, 1024)
            found += ffi.unpack(self._positions, count) if count else []
            if count < 1024:  # noqa: PLR2004
                return found


def main(arguments: list[str]) -> int:
    """``python -m shmbroker.housekeeper NAME``: serves until told to end, or nobody is left for ten seconds."""
    ended = EndFlag()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        Housekeeper(arguments[0]).run(ended, linger=LINGER_SECONDS)
    except (exceptions.BrokerNotFound, exceptions.BrokerError):
        return 1  # gone, or somebody else was faster
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
