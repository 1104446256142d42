# SPDX-License-Identifier: Apache-2.0
"""The processes on stage: started, stopped, continued, killed and replaced."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from shmbroker._housekeeper import launch
from tests.chaos import actors
from tests.chaos.roles import Role

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection as Pipe
    from multiprocessing.context import ForkServerProcess

    from tests.chaos.journal import Journal

PLAIN, LIMITED, SECOND = "plain", "limited", "second"
SECONDS_TO_DIE = 60.0
INTERRUPTS = 6
HOUSEKEEPER, STOREKEEPER = "housekeeper", "storekeeper"
NEEDED = frozenset(  # without them nothing flows
    {"producer", "consumer", "sender", "worker", "collector", "publisher", "handler", "gatherer", "taker"}
)


CAST = (
    Role("producer", (PLAIN,)),
    Role("producer", (PLAIN,)),
    Role("producer", (LIMITED,)),
    Role("producer", (LIMITED,)),
    Role("producer", (PLAIN, LIMITED)),
    Role("consumer", (PLAIN,)),
    Role("consumer", (PLAIN,)),
    Role("consumer", (LIMITED,)),
    Role("consumer", (LIMITED,)),
    Role("consumer", (PLAIN, LIMITED, SECOND)),
    Role("browser", (PLAIN, LIMITED, SECOND)),
    Role("mover", (PLAIN, SECOND)),
    Role("visitor", (PLAIN, LIMITED)),
    Role("visitor", (PLAIN, LIMITED)),
    Role("forker", (PLAIN, LIMITED)),
)


class Player:
    """A process that can be sent signals. It is known by a descriptor: its number may be another's tomorrow."""

    def __init__(self, name: str, pid: int) -> None:
        self.name, self.pid = name, pid
        self.stopped_until = 0.0
        self._descriptor = os.pidfd_open(pid)

    @property
    def is_stopped(self) -> bool:
        """Was it told to stop?"""
        return self.stopped_until > 0

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def state(self) -> str:
        """What the kernel says: R, S, T ..., nothing when it is gone."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        return ""

    def close(self) -> None:
        """Forgets it."""
        os.close(self._descriptor)


class Actor(Player):
    """A player of the cast."""

    def __init__(self, role: Role, number: int, process: ForkServerProcess, journal: Path) -> None:
        assert process.pid is not None
        super().__init__(f"{role.kind}-{number}", process.pid)
        self.role, self.process, self._journal = role, process, journal

    @property
    def has_begun(self) -> bool:
        """Is it connected? Before that nothing of its own answers to an interrupt."""
        return self._journal.exists() and self._journal.stat().st_size > 0


class EndedByItselfError(Exception):
    """A process that nobody killed has ended."""


class Stage:
    """The cast of one broker, forked by a process that has imported everything: many come and go."""

    def __init__(
        self, broker: str, folder: Path, journal: Journal, chance: random.Random, roles: Sequence[Role] = CAST
    ) -> None:
        self._broker, self._folder, self._journal, self._chance, self._roles = broker, folder, journal, chance, roles
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([actors.__name__])
        self._guards: list[tuple[Pipe, ForkServerProcess]] = []
        self._started = 0
        self.cast: list[Actor] = []
        self.counts: dict[str, int] = {}

    def fill(self) -> None:
        """Everybody comes."""
        self.cast = [self._start(role) for role in self._roles]

    def _start(self, role: Role) -> Actor:
        self._started += 1
        number = self._started
        name = f"{role.kind}-{number}"
        self._journal.write("start", name)
        process = self._context.Process(
            target=actors.perform,
            args=(role.kind,),
            kwargs={
                "broker": self._broker,
                "queues": list(role.queues),
                "number": number,
                "journal": self._folder / name,
                "seed": self._chance.getrandbits(32),
            },
        )
        process.start()
        return Actor(role, number, process, self._folder / name)

    # ---- what is done to them ----

    def kill(self, actor: Actor) -> None:
        """SIGKILL, and another one in its place."""
        self._end(actor)
        self.cast[self.cast.index(actor)] = self._start(actor.role)

    def interrupt(self, actor: Actor) -> None:
        """SIGINT, as Ctrl-C sends it, until it ends by itself in order; another one comes in its place.

        Python drops an interrupt that comes while a destructor runs: so would a user press once more.

        Raises:
            EndedByItselfError: it ended before, or does not end, or not in order.
        """
        self._check_there(actor)
        self._note("interrupt", actor)
        for _ in range(INTERRUPTS):
            actor.send(signal.SIGINT)
            actor.process.join(SECONDS_TO_DIE / INTERRUPTS)
            if actor.process.exitcode is not None:
                break
        if actor.process.exitcode != 0:
            text = f"{actor.name} was interrupted, and its status is {actor.process.exitcode}: {actor.state()}"
            raise EndedByItselfError(text)
        actor.process.close()
        actor.close()
        self.cast[self.cast.index(actor)] = self._start(actor.role)

    def stop(self, player: Player, seconds: float) -> None:
        """SIGSTOP; it has stopped when this returns."""
        self._note("stop", player)
        player.stopped_until = time.monotonic() + seconds
        player.send(signal.SIGSTOP)
        until = time.monotonic() + SECONDS_TO_DIE
        while player.state() not in {"T", "Z", "X", ""} and time.monotonic() < until:
            time.sleep(0.0005)

    def go_on(self, player: Player) -> None:
        """SIGCONT."""
        self._note("cont", player)
        player.stopped_until = 0
        player.send(signal.SIGCONT)

    def stop_housekeeper(self, housekeeper: Player, seconds: float) -> None:
        """SIGSTOP. It is no child of ours, and would stay for ever if we died: somebody else sees to it then."""
        ours, theirs = self._context.Pipe()
        guard = self._context.Process(target=actors.continue_at_end, args=(theirs, housekeeper.pid))
        guard.start()
        theirs.close()
        self._guards.append((ours, guard))
        with contextlib.suppress(EOFError):  # the housekeeper has ended meanwhile
            ours.recv()
        self.stop(housekeeper, seconds)

    def continue_housekeeper(self, housekeeper: Player) -> None:
        """SIGCONT."""
        self.go_on(housekeeper)
        self._close_guards()

    def _close_guards(self) -> None:
        """Ends the guards. Each has sent its SIGCONT when this returns, so that none comes after the next SIGSTOP."""
        while self._guards:
            ours, guard = self._guards.pop()
            ours.close()
            guard.join(SECONDS_TO_DIE)

    def kill_housekeeper(self, housekeeper: Player) -> None:
        """SIGKILL; whoever misses it starts another one."""
        self._note("kill", housekeeper)
        housekeeper.send(signal.SIGKILL)

    def _end(self, actor: Actor) -> None:
        self._check_there(actor)
        self._note("kill", actor)
        actor.send(signal.SIGKILL)
        actor.process.join(SECONDS_TO_DIE)
        actor.process.close()
        actor.close()

    def _note(self, what: str, player: Player) -> None:
        self._journal.write(what, player.name)
        key = f"{what} {player.name.partition('-')[0]}"
        self.counts[key] = self.counts.get(key, 0) + 1

    # ---- the processes ----

    def check(self) -> None:
        """Nobody ends by itself.

        Raises:
            EndedByItselfError: somebody did.
        """
        for actor in self.cast:
            self._check_there(actor)

    def _check_there(self, actor: Actor) -> None:
        if actor.process.exitcode is not None:
            text = f"{actor.name} ended by itself with status {actor.process.exitcode}"
            raise EndedByItselfError(text)

    def may_stop(self, actor: Actor) -> bool:
        """Does each queue keep a process of each kind that it needs, and that runs?"""
        others = [one for one in self.cast if one.role == actor.role and one is not actor and not one.is_stopped]
        return actor.role.kind not in NEEDED or len(actor.role.queues) > 1 or bool(others)

    def lose(self, deed: Callable[[], None]) -> None:
        """Kills all, by a deed that ends every process of the broker; nobody comes in their place before `fill`."""
        for actor in self.cast:
            self._check_there(actor)
            self._note("kill", actor)
        for actor in self.cast:  # one that has not attached yet is no process of the broker
            actor.send(signal.SIGKILL)
        deed()
        for actor in self.cast:
            actor.process.join(SECONDS_TO_DIE)
            actor.process.close()
            actor.close()
        self.cast = []
        self._journal.write("lost")

    def clear(self) -> list[str]:
        """Kills all, the stopped ones too. Returns who had ended before."""
        ended = []
        for actor in self.cast:
            try:
                self._end(actor)
            except EndedByItselfError as error:
                ended.append(str(error))
        self.cast = []
        return ended

    def states(self) -> str:
        """Everybody, and how it is with them."""
        return ", ".join(f"{one.name} {one.state()}{' stopped' if one.is_stopped else ''}" for one in self.cast)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_guards()
        self.clear()


def housekeeper_of(broker: str, pid: int, name: str = HOUSEKEEPER) -> Player | None:
    """The housekeeper, or another process that clients of a broker start, if that is still its number."""
    try:
        found = Player(name, pid)
    except OSError:
        return None
    environment: list[bytes] = []
    with contextlib.suppress(OSError):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    if f"{launch.MARK}={broker}".encode() in environment:
        return found
    found.close()
    return None
