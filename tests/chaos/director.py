# SPDX-License-Identifier: Apache-2.0
"""The director: kills and stops at random, sees to it that messages flow all the same, and counts what is left."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import queue as standard_queue
import random
import sys
import time
from typing import TYPE_CHECKING

from tests.chaos import stage
from tests.chaos.journal import Journal
from tests.chaos.stage import CAST, LIMITED, PLAIN, SECOND, EndedByItselfError, Stage
from tests.chaos.takers import Actor as Taker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import shmbroker
    from tests.chaos.roles import Role
    from tests.chaos.stage import Player

MEMORY = "1G"
ROOM = 64  # of the limited queue
FLOWING = 20  # messages settled in each queue between two disturbances
WATCHDOG_SECONDS = 60.0
PAUSE_SECONDS = 0.002
FACTS = "facts.json"
ACTS = {"kill": 50, "interrupt": 10, "stop": 40, "kill housekeeper": 3, "stop housekeeper": 3}  # how often each


LIST_OF_WAITERS = 8192  # bytes at most; a broker that was full keeps the list of processes that waited for memory


class StallError(Exception):
    """Something does not come about, though nobody is in its way."""


@dataclasses.dataclass
class Facts:
    """What the director knows, beside the journals."""

    seed: int
    seconds: float
    troubles: list[str] = dataclasses.field(default_factory=list)
    doctor: list[str] = dataclasses.field(default_factory=list)
    queues: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    all_taken: bool = True  # in the end: what was left in the queues
    memory_before: int = 0
    memory_after: int = 0
    rescues: int = 0
    stopped_rescues: int = 0
    losses: int = 0  # of everything but the disk
    deepest: int = 0  # bytes of all bodies in the queues, at most, when everything was lost
    repairs: dict[str, int] = dataclasses.field(default_factory=dict)  # by kind, those that the broker cannot explain
    explained_repairs: dict[str, int] = dataclasses.field(default_factory=dict)
    reaped: int = 0
    longest_sleep: float = 0.0  # of the director, which asks for two milliseconds: the machine had no processor

    @property
    def memory_kept(self) -> int:
        """Bytes that are used in the end and were not in the beginning; too few are as wrong as too many."""
        kept = self.memory_after - self.memory_before
        return kept if kept >= 0 else sys.maxsize


class Director:
    """Runs the chaos of one broker, and writes down the facts."""

    roles: Sequence[Role] = CAST
    queues: Sequence[str] = (PLAIN, LIMITED, SECOND)
    acts: Mapping[str, int] = ACTS
    keepers = 1  # processes that are there with the director when nobody else is

    def __init__(self, broker: shmbroker.Broker, folder: Path, facts: Facts, *, spare_housekeeper: bool) -> None:
        self._broker, self._folder, self._facts, self._spare = broker, folder, facts, spare_housekeeper
        self._chance = random.Random(facts.seed)
        self._keeper: Player | None = None  # the housekeeper, or another one, while it is stopped
        self._connection: shmbroker.Connection
        self._flowing: list[shmbroker.Queue] = []  # queues in which messages have to flow all the time

    def run(self) -> None:
        """From an empty broker to an empty broker."""
        facts = self._facts
        self._broker.start().stop()  # what a first housekeeper takes stays
        facts.memory_before = self._broker.statistics().memory_used
        self._broker.start()
        try:
            with Journal(self._folder / "director") as journal, self._connected():
                with Stage(self._broker.name, self._folder, journal, self._chance, self.roles) as players:
                    self._disturb(players)
                    journal.write("end")
                    self._continue_keeper(players)
                    facts.troubles += players.clear()
                self._await_the_living()
                self._take_the_rest(self._connection)
                self._look(self._connection)
            with contextlib.suppress(StallError):
                self.await_true(self._memory_is_back, lambda: "the memory to be back")
        except StallError as error:
            facts.troubles.append(str(error))
            facts.all_taken = False
        finally:
            (self._folder / FACTS).write_text(json.dumps(dataclasses.asdict(facts), indent=1), encoding="utf-8")

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Is connected, for a block; in it, another connection may take the place of the first one."""
        self._connection = self._broker.connect()
        try:
            self._flowing = self._declare(self._connection)
            yield
        finally:
            self._connection.close()

    def _declare(self, connection: shmbroker.Connection) -> list[shmbroker.Queue]:
        """Declares the queues; returns those in which messages have to flow all the time."""
        connection.queue(SECOND)
        return [connection.queue(PLAIN), connection.queue(LIMITED, max_length=ROOM)]

    # ---- disturbing ----

    def _disturb(self, players: Stage) -> None:
        players.fill()
        end = time.monotonic() + self._facts.seconds
        try:
            while time.monotonic() < end:
                before = {queue: _settled(queue) for queue in self._flowing}
                self._act(players)
                for queue in self._flowing:  # of another broker, if everything was lost
                    self._await_flow(players, queue, before.get(queue, 0) + FLOWING)
                self._let_go_on(players)
                players.check()
        except (EndedByItselfError, StallError) as error:
            self._facts.troubles.append(str(error))

    def _act(self, players: Stage) -> None:
        actor = self._chance.choice(players.cast)
        act = self._chance.choices(list(self.acts), list(self.acts.values()))[0]
        if act == "kill":
            players.kill(actor)
        elif act == "interrupt" and not actor.is_stopped and actor.has_begun:
            players.interrupt(actor)
        elif act == "stop" and not actor.is_stopped and players.may_stop(actor):
            players.stop(actor, self._pause(actor))
        elif act.endswith("keeper") and self._keeper is None and not self._spare:
            deed, _, name = act.partition(" ")
            pid = self._pid_of(name)
            found = stage.housekeeper_of(self._broker.name, pid, name) if pid else None
            if found is not None and deed == "kill":
                players.kill_housekeeper(found)
                found.close()
            elif found is not None:
                players.stop_housekeeper(found, self._pause(found))
                self._keeper = found

    def _pid_of(self, _keeper: str) -> int:
        """The process that has the place of a keeper; 0: there is none."""
        return self._broker.statistics().housekeeper_pid

    def _pause(self, _player: Player) -> float:
        return self._chance.choice([0.0, 0.05, 0.3, 1.0, 6.0])

    def _let_go_on(self, players: Stage) -> None:
        now = time.monotonic()
        for actor in players.cast:
            if actor.is_stopped and actor.stopped_until <= now:
                players.go_on(actor)
        if self._keeper is not None and self._keeper.stopped_until <= now:
            self._continue_keeper(players)

    def _continue_keeper(self, players: Stage) -> None:
        if self._keeper is not None:
            players.continue_housekeeper(self._keeper)
            self._keeper.close()
            self._keeper = None

    def _await_flow(self, players: Stage, queue: shmbroker.Queue, count: int) -> None:
        def what() -> str:
            stopped = "" if self._keeper is None else f", {self._keeper.name} stopped"
            consumers = "; ".join(map(str, self._connection.consumers(queue.name)))
            return f"messages to flow: {queue.statistics()}; {players.states()}{stopped}; {consumers}"

        self.await_true(lambda: _settled(queue) >= count, what)

    # ---- afterwards ----

    def _await_the_living(self) -> None:
        """Until only a housekeeper and we are attached: the dead have been reaped."""
        self.await_true(self._nobody_else_is_there, lambda: f"reaping: {self._broker.statistics()}")

    def _nobody_else_is_there(self) -> bool:
        """With a housekeeper: the one that was there a moment ago may have been killed, and be gone only now."""
        self._broker.start()
        return self._broker.statistics().process_count <= 1 + self.keepers

    def _take_the_rest(self, connection: shmbroker.Connection) -> None:
        with Journal(self._folder / "rest") as journal:
            for name in self.queues:
                take_what_is_ready(Taker(connection, [connection.queue(name)], journal, self._chance))
            journal.write("bye")

    def _look(self, connection: shmbroker.Connection) -> None:
        """Statistics, the doctor, and the memory when the queues are gone."""
        facts = self._facts
        with contextlib.suppress(StallError):
            self.await_true(lambda: not connection.doctor(), lambda: "the doctor to find nothing")
        facts.doctor = connection.doctor()
        for name in self.queues:  # after that: what a death left in the counts of lists was set right
            found = dataclasses.asdict(connection.queue(name).statistics())
            facts.queues[name] = {key: value for key, value in found.items() if isinstance(value, int)}
        self._count_repairs()
        if not facts.doctor:
            for name in connection.queue_names():
                connection.queue(name).delete()

    def _count_repairs(self) -> None:
        """Adds those of a broker whose memory is about to go."""
        facts, broker = self._facts, self._broker.statistics()
        facts.rescues += broker.rescues
        facts.stopped_rescues += broker.stopped_rescues
        facts.reaped += broker.reaped
        for all_, found in ((facts.repairs, broker.repairs), (facts.explained_repairs, broker.explained_repairs)):
            for kind, number in dataclasses.asdict(found).items():
                all_[kind] = all_.get(kind, 0) + number

    def await_true(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        """Waits until a condition is true.

        Raises:
            StallError: it does not become true within a minute.
        """
        until = time.monotonic() + WATCHDOG_SECONDS
        while not condition():
            looked = time.monotonic()
            if looked > until:
                text = f"not within {WATCHDOG_SECONDS:.0f} s: {what()}"
                raise StallError(text)
            time.sleep(PAUSE_SECONDS)
            self._facts.longest_sleep = max(self._facts.longest_sleep, time.monotonic() - looked)

    def _memory_is_back(self) -> bool:
        """With nobody there. Another housekeeper clears up first: what is left of deleted queues is its work."""
        self._broker.start()
        self._broker.stop()
        self._facts.memory_after = self._broker.statistics().memory_used
        return self._facts.memory_kept <= LIST_OF_WAITERS


def take_what_is_ready(taker: Taker) -> None:
    """Takes and acknowledges one message after the other until the queue has none that is ready."""
    (queue,) = taker.queues
    with contextlib.suppress(standard_queue.Empty):
        while True:
            taker.journal.write("take", queue.name, 1, "hold")
            message = queue.get(timeout=0)
            taker.journal.write("ack", f"{taker.got([message])[0]:x}")
            message.ack()
            taker.journal.write("done")


def _settled(queue: shmbroker.Queue) -> int:
    found = queue.statistics()
    return found.acked + found.dropped + found.dead_lettered
