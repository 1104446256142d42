# SPDX-License-Identifier: Apache-2.0
"""The broker that tests of the doctor damage by hand."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

import shmbroker
import shmbroker.testing
from scenario_support.memory import Memory
from scenario_support.observing import numbered, put_each
from scenario_support.processes import Actor
from scenario_support.waiting import becomes, eventually
from shmbroker_cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTSIDE = (1 << 28) - 1
"""The number of a slot beyond every memory."""
NOBODY = 4000
"""The number of a connection that there is not."""
MESSAGES = 100
LARGE = 5 << 20


class Patient:
    """A broker at rest, with something of everything in it, and its memory.

    `jobs` has more messages than a page holds, one of them scheduled, and two are held by a stopped client, which
    also consumes `idle`. `ring` has limits, so it keeps hints. `large` holds bodies of several kinds of slots.
    """

    def __init__(self, broker: shmbroker.Broker, connection: shmbroker.Connection, client: Actor) -> None:
        """Make the queues, and bring everybody to rest."""
        self.broker, self.connection = broker, connection
        jobs, idle = connection.queue("jobs"), connection.queue("idle")
        put_each(jobs, numbered(MESSAGES - 1))
        jobs.put(b"later", delay=3600)
        put_each(connection.queue("ring", ring_size=9), numbered(20))
        large = connection.queue("large")
        for size in (10_000, LARGE, 100):
            large.put(b"x" * size)
        self._add(connection)
        client.do("get", queue="jobs", count=2)
        client.do("consume", queue="idle")
        eventually(lambda: idle.statistics().interested == 1)
        becomes(connection.doctor, [])
        client.stop()
        broker.stop()
        self._end(connection)
        self.memory = Memory(broker.name)
        self.lib = self.memory.lib
        self.client = int(self.lib.sb_cell_owner(self.memory.cell("jobs", 0).word))
        assert self.complaints() == []
        self._healthy = self.memory.contents()

    def _add(self, connection: shmbroker.Connection) -> None:
        """Make more queues."""

    def _end(self, connection: shmbroker.Connection) -> None:
        """Do what no housekeeper may see."""

    def recover(self) -> None:
        """Undo whatever was done to the memory; it is healthy again."""
        self.memory.restore(self._healthy)
        assert self.connection.doctor() == []

    def complaints(self) -> list[str]:
        """Return what the doctor says; it must not change a byte while it looks.

        An IO thread of ours may look for the dead meanwhile; what the doctor changed, it would change each time.
        """
        for _ in range(3):
            before = self.memory.contents()
            said = self.connection.doctor()
            after = self.memory.contents()
            if after == before:
                break
        assert after == before
        return said

    def says(self, *words: str) -> None:
        """See that the doctor says something that has all these words, from Python and on the command line."""
        said = self.complaints()
        assert [line for line in said if all(word in line for word in words)], said
        ran = CliRunner().invoke(app, ["doctor", self.broker.name])
        assert (ran.exit_code, ran.stderr) == (1, "")
        lines = [line.removeprefix(f"{self.broker.name}: ") for line in ran.stdout.splitlines()]
        assert [line for line in lines if all(word in line for word in words)], lines

    # ---- the consumer of `idle` ----

    def idle_level(self) -> Any:  # noqa: ANN401 (a pointer of cffi)
        """Return the only priority of consumers that `idle` has."""
        return self.memory.slot("consumer_level", self.memory.queue("idle").consumer_levels)

    def idle_entry(self) -> tuple[Any, int]:
        """Return the cell of the interested list where the consumer of `idle` stands, and the slot of the consumer."""
        cells = self.memory.leaf(self.idle_level().interested.root).cells
        entries = [cell for cell in cells if self.lib.sb_cell_state(cell.word) == self.lib.SB_CELL_ENTRY]
        return entries[-1], self.lib.sb_cell_slot(entries[-1].word)


class MortalPatient(Patient):
    """A broker that has messages with priorities, and messages that wait: dead ones, and returned ones.

    `ranked` has three messages in each of three lanes, of the priorities 3, 1 and 0, and hints. `mortal` has a dead
    message at its first position, a returned one at the second, and a ready one.
    """

    LANES = {3: 0, 1: 2, 0: 3}  # noqa: RUF012 (by priority)

    def _add(self, connection: shmbroker.Connection) -> None:
        ranked = connection.queue("ranked", max_priority=3, max_length=50)
        for priority in self.LANES:
            put_each(ranked, numbered(3), priority=priority)
        mortal = connection.queue(
            "mortal", dead_letter_exchange="", dead_letter_routing_key="idle", redelivery_delay=3600
        )
        put_each(mortal, "ABC")

    def _end(self, connection: shmbroker.Connection) -> None:
        mortal = connection.queue("mortal", passive=True)
        mortal.get(timeout=0).reject()
        mortal.get(timeout=0).nack()


@contextlib.contextmanager
def admitted(kind: type[Patient] = Patient) -> Iterator[Patient]:
    """Run a broker with something in it."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(shmbroker.testing.broker(memory="64M"))
        connection = stack.enter_context(broker.connect())
        for name in ("jobs", "idle"):
            connection.queue(name)
        client = stack.enter_context(Actor(broker.name))
        yield kind(broker, connection, client)
