# SPDX-License-Identifier: Apache-2.0
"""The housekeeper: reaps dead processes, makes scheduled messages due, expires messages, repeats missed notifications.

Messages flow without a housekeeper. The housekeeper holds a lock, which the kernel releases when its process dies.
Clients notice that, and start another housekeeper.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import native, segments
from shmbroker._core.connection import CoreConnection
from shmbroker._core.housekeeper import CoreHousekeeper, started
from shmbroker._core.queue import CoreQueue
from shmbroker._housekeeper import stalled
from shmbroker._housekeeper.auto_delete import AutoDelete
from shmbroker._housekeeper.dead_letters import DeadLetters
from shmbroker._housekeeper.launch import STARTING
from shmbroker._storekeeper.launch import await_children, ensure_storekeeper
from shmbroker._topology import addresses
from shmbroker._topology.shared import exchanges_of

if TYPE_CHECKING:
    from collections.abc import Callable

TICK_SECONDS = 0.25
REST_SECONDS = 1.0  # between two checks of all queues (ticks) while all queues are quiet, and none can expire
RECLAIM_SECONDS = 1.0  # the interval between searches for unused memory that can be freed
REAP_SECONDS = 4.0  # between checks whether a process called exec, which its pidfd does not report
LINGER_SECONDS = 10.0
_DYING_SECONDS = 1.0  # how long a stand-in tries to become the housekeeper
_ASK_SECONDS = 0.01
_TRIM_TURNS = 40  # between two trims of the schedules, at least
_TRIM_SECONDS = 1.0  # between two of them, at least, and _TRIM_SHARE times as long as the last one took
_TRIM_SHARE = 50
_WATCH_TURNS = 8  # every 8 turns, the housekeeper looks for clients, and for new queues even without a sign of change


class EndFlag:
    """A flag that stays set once it was set. A signal handler may set it: it needs no lock.

    The lock of a ``threading.Event`` would deadlock if a second signal interrupts the handler while it holds the lock.
    """

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Tells the housekeeper to end."""
        self._set = True

    def is_set(self) -> bool:
        """Whether the housekeeper is to end."""
        return self._set


class Housekeeper:
    """The housekeeper of one broker, or a stand-in for one whose process is stopped; :meth:`run` does the work."""

    def __init__(self, broker: str, name: str = segments.HOUSEKEEPER) -> None:
        self._connection = CoreConnection(segments.path_of(broker), name)
        self._core = CoreHousekeeper(self._connection)
        self._by_slot: dict[int, CoreQueue] = {}
        self._changes, self._unfreed, self._attached = -1, 0, -1
        self._busy, self._tick_due = True, 0
        self._reclaim_due = self._trim_due = 0.0
        self._dead_letters = DeadLetters(self._connection, self._core, self._queue_in, self._queue_of)
        self._auto_delete = AutoDelete(self._connection)
        self._applied: object = None  # the address settings that all queues have
        self._turns, self._trim_turn = 0, _TRIM_TURNS
        self._serves, self._stands_in = False, False
        self._wake_reaper = os.eventfd(0, os.EFD_CLOEXEC)
        self._broker = broker
        self._has_store = self._connection.attachment.data_dir is not None

    def begin(self) -> bool:
        """Becomes the housekeeper, unless there is another one."""
        self._serves = self._core.begin()
        return self._serves

    def stand_in(self) -> bool:
        """Takes over the work of a housekeeper whose process is stopped, until that process continues.

        Returns:
            Whether this process stands in now. ``False``: it is not needed, for example because another process stands
            in already.
        """
        self._stands_in = self._core.stand_in()
        return self._stands_in

    def _step_down(self) -> None:
        if self._stands_in:
            self._stands_in = False
            self._core.step_down()

    def _is_relieved(self) -> bool:
        """Whether this stand-in must end. False if this process is no stand-in.

        When the stopped housekeeper continues, or has died, this process steps down, and tries for a second to become
        the housekeeper. That succeeds only if the other one has died. If it fails, this process must end.
        """
        if not self._stands_in or not self._core.is_relieved():
            return False
        self._step_down()
        return not self._succeeds()

    def _succeeds(self) -> bool:
        """Tries for a second to become the housekeeper: a killed housekeeper holds its lock until its process ends."""
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
            self._core.end()
        os.close(self._wake_reaper)
        self._dead_letters.forget_plans()
        self._replace([], [])
        self._connection.close()

    def run(self, ended: EndFlag, *, linger: float | None) -> None:
        """Serves until ``ended`` is set, the broker is stopped or purged, or no client is left.

        Call :meth:`begin` or :meth:`stand_in` before. A stand-in also ends when the stopped housekeeper continues. A
        housekeeper that a client started automatically also ends when a process waits to take its place.

        Args:
            ended: set by a signal handler.
            linger: the seconds without a client after which the housekeeper ends; ``None`` = never.
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
                if self._wait() == native.STOPPING and self._leaves():
                    break
        except exceptions.ConnectionClosedByBroker:
            pass  # purged during a turn
        finally:
            ended.set()
            os.eventfd_write(self._wake_reaper, 1)
            reaper.join()
            await_children(self._broker, _DYING_SECONDS)
            self.close()

    def _leaves(self) -> bool:
        """Gives up the housekeeper's lock, and takes it again if the reason to end has gone.

        Another process may start the broker again just before this process releases the lock. That process still finds
        a housekeeper, so it starts none.

        Returns:
            Whether this process is no longer the housekeeper.
        """
        if self._serves:
            self._serves = False
            self._core.end()
            if self._core.wait(self._core.arm(), 0) != native.STOPPING:  # looks again, and does not sleep
                self.begin()
        return not self._serves

    def _wait(self) -> int:
        self._core.next_due(self._due())
        armed = self._core.arm()
        # From here on, clients wake the housekeeper for a timer that is due before the one that was announced, and for
        # dead messages. What came before, without a wake-up, is found here. Later timers wait for the next turn: a
        # producer that sets many does not keep the housekeeper awake.
        if self._core.has_timers():
            self._run_timers(time.monotonic_ns())
        due = 0 if self._has_changed() else self._due()
        return self._core.wait(armed, min(self._tick_due, due))

    def _due(self) -> int:
        return min(self._core.timers_due, self._dead_letters.due)

    def _has_changed(self) -> bool:
        return self._core.changes() != self._changes

    def _clients(self) -> bool:
        attached = self._connection.attachment
        return attached.facts().processes > 1 + self._stands_in + attached.storekeeper_serves()

    # ---- queues ----

    def _turn(self) -> None:
        self._turns += 1
        attached = self._core.attaches()
        if attached != self._attached:  # a process has attached: the reaper must watch for its end
            self._attached = attached
            os.eventfd_write(self._wake_reaper, 1)
        self._watch()
        self._run_timers(time.monotonic_ns())
        self._dead_letters.run(time.monotonic_ns())
        self._tick()
        self._reclaim()
        self._trim()
        self._keep_store()

    def _keep_store(self) -> None:
        """Starts a storekeeper if the broker has a store, and no storekeeper."""
        if self._has_store and self._connection.attachment.storekeeper_missing():
            ensure_storekeeper(self._broker)

    def _tick(self) -> None:
        """Checks all queues if the periodic check is due; does nothing if a timer woke the thread earlier."""
        if time.monotonic_ns() >= self._tick_due:
            self._busy = self._core.tick()
            self._auto_delete.run()
            stalled.warn(self._broker, self._core)
            seconds = TICK_SECONDS if self._busy else REST_SECONDS
            self._tick_due = time.monotonic_ns() + int(seconds * native.NANOSECONDS)

    def _trim(self) -> None:
        """Drops schedule entries that are not needed any more, if it is time to: this looks at all of them."""
        begun = time.monotonic()
        if self._turns >= self._trim_turn and begun >= self._trim_due:
            self._core.trim()
            ended = time.monotonic()
            self._trim_turn = self._turns + _TRIM_TURNS
            self._trim_due = ended + max(_TRIM_SECONDS, _TRIM_SHARE * (ended - begun))

    def _reclaim(self) -> None:
        """Takes the next step of freeing memory of unused structures, if it is due. Freed memory can hold bodies."""
        if time.monotonic() >= self._reclaim_due:
            more = self._core.reclaim()
            self._reclaim_due = time.monotonic() + (TICK_SECONDS if more else RECLAIM_SECONDS)

    def _watch(self) -> None:
        """Opens new queues, leaves deleted ones, frees their memory, removes the bindings to them; applies settings."""
        if not self._has_changed() and not self._unfreed and self._turns % _WATCH_TURNS:
            return
        self._leave_deleted()
        self._unfreed = self._core.sweep()
        # `prune` removes bindings to queues that have ended. If it fails, a later turn tries again. A damaged journal
        # is not reported here: the doctor reports it, and so do clients that declare exchanges or bindings.
        with contextlib.suppress(exceptions.Timeout, exceptions.OutOfMemory, exceptions.CorruptSegment):
            exchanges_of(self._connection).prune(self._connection, 0)
        # The number of changes is read after the pruning, because the pruning can change it, and before the slots are
        # listed, so that the next turn notices a change during the listing.
        self._changes = self._core.changes()
        fresh = [slot for slot in self._connection.queue_slots() if slot not in self._by_slot]
        opened = [queue for queue in map(self._open, fresh) if queue is not None]
        if opened:
            watched = self._core.queues
            self._replace(watched + opened, list(range(len(watched))))
        with contextlib.suppress(exceptions.Timeout, exceptions.OutOfMemory, exceptions.CorruptSegment):
            self._apply_settings()

    def _apply_settings(self) -> None:
        """Applies the address settings to all queues, if they have changed; the first time always.

        The process that changed them may have been killed before it did so. If this call raises, a later turn tries
        again.
        """
        entries = exchanges_of(self._connection).addresses(self._connection).entries
        if entries is not self._applied:  # not compared: a change that was taken back may have been applied in part
            addresses.apply(self._connection, self._queue_of, 0)
            self._applied = entries

    def _leave_deleted(self) -> None:
        watched = self._core.queues
        kept = [at for at, queue in enumerate(watched) if queue.length() >= 0 or not queue.leave()]
        if len(kept) < len(watched):
            self._dead_letters.forget_plans()
            self._replace([watched[at] for at in kept], kept)

    def _open(self, slot: int) -> CoreQueue | None:
        with contextlib.suppress(exceptions.NotFound, exceptions.OutOfMemory):  # deleted again, or a later turn retries
            facts = self._connection.queue_facts(slot)
            if facts is not None:
                return CoreQueue(self._connection, facts.name, slot)
        return None

    def _replace(self, watched: list[CoreQueue], kept: list[int]) -> None:
        """Replaces the list of queues that the core watches.

        Args:
            watched: the new list. It begins with the queues that remain from the old list.
            kept: the indexes of the remaining queues in the old list.
        """
        self._core.watch(watched, kept)
        self._by_slot = {queue.slot: queue for queue in watched}
        self._auto_delete.watch(watched)

    # ---- timers ----

    def _run_timers(self, until: int) -> None:
        if self._core.run_timers(until):
            self._dead_letters.add(self._core.with_dead())

    def _queue_in(self, slot: int) -> CoreQueue | None:
        """Returns the handle of the queue in a slot; ``None``: this process does not watch it."""
        return self._by_slot.get(slot)

    def _queue_of(self, name: str) -> CoreQueue | None:
        """Returns the handle of a queue; ``None``: there is no such queue, or it cannot be opened now."""
        slot = self._connection.queue_slot(name)
        if slot and slot not in self._by_slot:  # it is younger than the last look for queues
            opened = self._open(slot)
            if opened is not None:
                watched = self._core.queues
                self._replace([*watched, opened], list(range(len(watched))))
        return self._by_slot.get(slot)

    # ---- dead processes ----

    def _reap(self, ended: EndFlag) -> None:
        watched: dict[int, int] = {}
        zombies: set[int] = set()
        poll = select.poll()
        poll.register(self._wake_reaper, select.POLLIN)
        while not ended.is_set():
            self._watch_processes(watched, zombies, poll)
            self._core.reap()
            told = poll.poll(REAP_SECONDS * 1000)
            if not told:
                zombies.clear()  # such a pid may belong to another process by now
            for descriptor, _ in told:
                if descriptor == self._wake_reaper:
                    os.eventfd_read(descriptor)
                else:
                    poll.unregister(descriptor)
                    os.close(descriptor)
                    zombies.add(watched.pop(descriptor))
        for descriptor in watched:
            os.close(descriptor)

    def _watch_processes(self, watched: dict[int, int], zombies: set[int], poll: select.poll) -> None:
        """Watches for the end of each attached process.

        Args:
            watched: the pids of the watched processes, by descriptor.
            zombies: the pids whose end was reported. While they stay attached, they are not watched until a poll has
                reported nothing for REAP_SECONDS: the descriptor of a zombie is always readable. Such a pid stays
                attached if the reap of the client has failed, or if the client lives in another pid namespace and only
                a process with the same pid in this one has ended.
            poll: polls the descriptors.
        """
        pids = self._core.pids()
        zombies &= pids
        for pid in pids - zombies - {*watched.values(), os.getpid()}:
            # An error usually means that the process has ended: the next reap clears up after it. The process may also
            # live in another pid namespace, or this process may have no descriptor left.
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(pid)
                watched[descriptor] = pid
                poll.register(descriptor, select.POLLIN)


def main(arguments: list[str], on_ready: Callable[[], None] = lambda: None) -> int:
    """``python -m shmbroker._housekeeper.housekeeper NAME [--automatic]``: the program of a housekeeper.

    It runs until it is told to end, or until no client is left for ten seconds. With ``--automatic``, a client started
    it, not a user. With ``--starting=N``, the process has inherited the descriptor N, which holds the lock of
    `_core.housekeeper.starting`: until it is released, other clients start no housekeeper. The process releases the
    lock as soon as it serves, or knows that it cannot.

    Args:
        arguments: the arguments without the program's name.
        on_ready: called once, when the housekeeper serves.

    Returns:
        0 after it has served. 1 if it did not serve: the broker is gone or could not be opened, or another housekeeper
        serves it.
    """
    ended = EndFlag()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        keeper = Housekeeper(arguments[0], segments.AUTOMATIC if "--automatic" in arguments else segments.HOUSEKEEPER)
    except (exceptions.BrokerError, exceptions.OutOfMemory) as error:
        purged = isinstance(error, (exceptions.BrokerNotFound, exceptions.ConnectionClosedByBroker))
        if not purged or isinstance(error, exceptions.NotAllowed):
            print(error, file=sys.stderr)  # noqa: T201 - the process that started it logs that
        return 1
    serves = keeper.begin() or keeper.stand_in()
    for argument in arguments:
        if argument.startswith(STARTING):
            started(int(argument.removeprefix(STARTING)))
    if not serves:
        keeper.close()
        return 1  # another housekeeper was faster
    on_ready()
    keeper.run(ended, linger=LINGER_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
