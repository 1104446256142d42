# SPDX-License-Identifier: Apache-2.0
"""The processes: what each kind does until somebody kills it."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import time
from typing import TYPE_CHECKING, TypeAlias

import shmbroker
from tests.chaos import putters, takers
from tests.chaos.dead_letters.actors import collect, send, work
from tests.chaos.features import actors as features
from tests.chaos.forking import fork
from tests.chaos.journal import Journal, names
from tests.chaos.presence import connected, die_with_parent, write_error
from tests.chaos.stored import actors as stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection as Pipe
    from pathlib import Path

    from tests.chaos.takers import Actor

BACKLOG = 2000  # a producer pauses at this many ready messages: nothing else limits the plain queue
MOST_MOVED = 60
Role: TypeAlias = "Callable[[str, list[str], int, Journal, random.Random], None]"


def perform(kind: str, *, broker: str, queues: list[str], number: int, journal: Path, seed: int) -> None:
    """Is a process of some kind, until it is killed or interrupted. It does not outlive the one that started it."""
    die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background inherits "ignored"
    with Journal(journal) as writes:
        try:
            ROLES[kind](broker, queues, number, writes, random.Random(seed))
        except KeyboardInterrupt:
            writes.write("interrupted")
        except BaseException as error:
            write_error(writes, error)
            raise


def continue_at_end(director: Pipe, pid: int) -> None:
    """Has a stopped process go on when the director closes its end, or dies. No other descriptor holds that open.

    What ends the director, such as a terminal that goes away, must not end this one: it has a session of its own, and
    ignores what it may be sent. When it is so far it says so; until then nobody is to be stopped.
    """
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError):
        stopped = os.pidfd_open(pid)
        with contextlib.suppress(EOFError, OSError):
            director.send("ready")
            director.recv()
        signal.pidfd_send_signal(stopped, signal.SIGCONT)


# ---- producers ----


def produce(broker: str, queues: list[str], number: int, journal: Journal, chance: random.Random) -> None:
    """Puts, in bursts and one by one; each put is to one of its queues."""
    with connected(broker, queues, journal, chance) as actor:
        counts = itertools.count()
        while True:
            queue, way = chance.choice(actor.queues), chance.choice(putters.WAYS)
            for _ in range(chance.randint(1, 200)):
                while len(queue) > BACKLOG:
                    time.sleep(0.002)
                way(actor, queue, number, counts)
                actor.rest()


# ---- the others ----


def take(broker: str, queues: list[str], _number: int, journal: Journal, chance: random.Random) -> None:
    """Takes and settles, now this way and now that; its connection stays."""
    with connected(broker, queues, journal, chance) as actor:
        while True:
            takers.take_somehow(actor)


def browse(broker: str, queues: list[str], _number: int, journal: Journal, chance: random.Random) -> None:
    """Looks through the queues; each body must be whole."""
    with connected(broker, queues, journal, chance) as actor:
        while True:
            seen = [actor.known(message) for message in chance.choice(actor.queues).browse()]
            journal.write("browsed", len(seen))
            time.sleep(chance.uniform(0, 0.05))


def move(broker: str, queues: list[str], _number: int, journal: Journal, chance: random.Random) -> None:
    """Moves messages from the first queue to the second, and back what lies there; it is the only one that does so."""
    with connected(broker, queues, journal, chance) as actor:
        first, second = actor.queues
        while True:
            there = [actor.known(message) for message in second.browse()]
            journal.write("saw", second.name, names(there))
            _move(actor, second, first, len(there))
            _move(actor, first, second, chance.randint(1, MOST_MOVED))
            time.sleep(chance.uniform(0, 0.02))


def _move(actor: Actor, source: shmbroker.Queue, target: shmbroker.Queue, most: int) -> None:
    actor.journal.write("move", source.name, target.name, most)
    actor.journal.write("moved", source.move(target, limit=most))


def visit(broker: str, queues: list[str], number: int, journal: Journal, chance: random.Random) -> None:
    """Connects, does a little, and disconnects, with messages in hand at times; makes and deletes queues of its own."""
    counts = itertools.count()
    while True:
        with connected(broker, queues, journal, chance) as actor:
            for _ in range(chance.randint(0, 3)):
                chance.choice([takers.take_somehow, takers.take_and_keep])(actor)
            if chance.random() < 0.3:
                putters.put_one(actor, chance.choice(actor.queues), number, counts)
            if chance.random() < 0.3:
                _come_and_go(actor, f"of visitor {number}")


def _come_and_go(actor: Actor, name: str) -> None:
    """A queue of its own. Only topology changes may wait for somebody who is stopped, and not for ever.

    A full broker may have no memory for one more queue.
    """
    try:
        own = actor.connection.queue(name)
        own.put_many([b"x" * 100] * actor.chance.randint(0, 100))
        own.delete()
    except (shmbroker.Timeout, shmbroker.OutOfMemory):
        actor.journal.write("timeout")


def patient(role: Role) -> Role:
    """The role, begun again with another connection when a broker that is full of messages has no memory for a call."""

    def perform(broker: str, queues: list[str], number: int, journal: Journal, chance: random.Random) -> None:
        while True:
            try:
                role(broker, queues, number, journal, chance)
            except shmbroker.OutOfMemory:
                journal.write("full")

    return perform


ROLES: dict[str, Role] = {
    "producer": produce,
    "consumer": take,
    "browser": browse,
    "mover": move,
    "visitor": visit,
    "forker": fork,
    "sender": send,
    "worker": work,
    "collector": collect,
    "publisher": features.send,
    "handler": features.work,
    "poster": features.post,
    "reader": features.read,
    "gatherer": features.collect,
    "filler": stored.fill,
    "drainer": patient(stored.drain),
    "taker": patient(take),
    "looker": patient(browse),
}
