# SPDX-License-Identifier: Apache-2.0
"""The processes: what each kind does until somebody kills it."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import queue as standard_queue
import random
import signal
import time
import traceback
from typing import TYPE_CHECKING

import shmbroker
from tests.chaos import content, takers
from tests.chaos.journal import Journal, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection as Pipe
    from pathlib import Path

    from tests.chaos.takers import Actor

BACKLOG = 2000  # a producer rests while so many are ready: nothing else limits the plain queue
MOST_PUT, MOST_MOVED = 40, 60
PR_SET_PDEATHSIG = 1


def perform(kind: str, *, broker: str, queues: list[str], number: int, journal: Path, seed: int) -> None:
    """Is a process of some kind. It does not outlive the one that started it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with Journal(journal) as writes:
        try:
            ROLES[kind](broker, queues, number, writes, random.Random(seed))
        except BaseException:
            writes.write("error", traceback.format_exc().replace("\n", " | "))
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


@contextlib.contextmanager
def _connected(broker: str, queues: list[str], journal: Journal, chance: random.Random) -> Iterator[Actor]:
    def failed(error: BaseException) -> None:
        journal.write("error", "".join(traceback.format_exception(error)).replace("\n", " | "))

    with shmbroker.connect(broker, create=False, on_callback_error=failed) as connection:
        journal.write("connected")
        opened = [connection.queue(name, passive=True) for name in queues]
        yield takers.Actor(connection, opened, journal, chance)
        journal.write("leave")
    journal.write("bye")


# ---- producers ----


def produce(broker: str, queues: list[str], number: int, journal: Journal, chance: random.Random) -> None:
    """Puts, in bursts and one by one; each put is to one of its queues."""
    with _connected(broker, queues, journal, chance) as actor:
        counts = itertools.count()
        while True:
            queue, way = chance.choice(actor.queues), chance.choice(WAYS_TO_PUT)
            for _ in range(chance.randint(1, 200)):
                while len(queue) > BACKLOG:
                    time.sleep(0.002)
                way(actor, queue, number, counts)
                actor.rest()


def _put_one(actor: Actor, queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    message = content.message_of(number, next(counts))
    body = content.body_of(message)
    actor.journal.write("put", queue.name, names([message]))
    try:
        queue.put(body, timeout=actor.chance.choice([None, 0.05]))
    except standard_queue.Full:
        actor.journal.write("done", 0)
    else:
        actor.journal.write("done", 1)


def _put_in_place(actor: Actor, queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    message = content.message_of(number, next(counts))
    body = content.body_of(message)
    actor.journal.write("put", queue.name, names([message]))
    with queue.reserve(len(body)) as memory:
        memory[:] = body
    actor.journal.write("done", 1)


def _put_many(actor: Actor, queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    messages = _some(actor, number, counts)
    bodies = [content.body_of(message) for message in messages]
    actor.journal.write("put", queue.name, names(messages))
    try:
        done = queue.put_many(bodies, timeout=actor.chance.choice([None, 0.05]))
    except standard_queue.Full:
        done = 0
    actor.journal.write("done", done)


def _publish(actor: Actor, queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    with actor.connection.channel() as channel:
        channel.confirm_delivery()
        for message in _some(actor, number, counts):
            actor.journal.write("put", queue.name, names([message]))
            channel.basic_publish("", queue.name, content.body_of(message))
            channel.wait_for_confirms()
            actor.journal.write("done", 1)


def _commit(actor: Actor, _queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    """Several messages, each to one of its queues: all of them, or none."""
    with actor.connection.channel() as channel:
        channel.tx_select()
        published = [(actor.chance.choice(actor.queues).name, message) for message in _some(actor, number, counts)]
        for name, message in published:
            channel.basic_publish("", name, content.body_of(message))
        actor.journal.write("commit", *(f"{name}:{message:x}" for name, message in published))
        channel.tx_commit()
        actor.journal.write("done", len(published))


def _some(actor: Actor, number: int, counts: Iterator[int]) -> list[int]:
    return [content.message_of(number, count) for count in itertools.islice(counts, actor.chance.randint(1, MOST_PUT))]


WAYS_TO_PUT = (_put_one, _put_one, _put_in_place, _put_many, _publish, _commit)


# ---- the others ----


def take(broker: str, queues: list[str], _number: int, journal: Journal, chance: random.Random) -> None:
    """Takes and settles, now this way and now that; its connection stays."""
    with _connected(broker, queues, journal, chance) as actor:
        while True:
            takers.take_somehow(actor)


def browse(broker: str, queues: list[str], _number: int, journal: Journal, chance: random.Random) -> None:
    """Looks through the queues; each body must be whole."""
    with _connected(broker, queues, journal, chance) as actor:
        while True:
            seen = [actor.known(message) for message in chance.choice(actor.queues).browse()]
            journal.write("browsed", len(seen))
            time.sleep(chance.uniform(0, 0.05))


def move(broker: str, queues: list[str], _number: int, journal: Journal, chance: random.Random) -> None:
    """Moves messages from the first queue to the second, and back what lies there; it is the only one that does so."""
    with _connected(broker, queues, journal, chance) as actor:
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
        with _connected(broker, queues, journal, chance) as actor:
            for _ in range(chance.randint(0, 3)):
                chance.choice([takers.take_somehow, takers.take_and_keep])(actor)
            if chance.random() < 0.3:
                _put_one(actor, chance.choice(actor.queues), number, counts)
            if chance.random() < 0.3:
                _come_and_go(actor, f"of visitor {number}")


def _come_and_go(actor: Actor, name: str) -> None:
    """A queue of its own. Only topology changes may wait for somebody who is stopped, and not for ever."""
    try:
        own = actor.connection.queue(name)
        own.put_many([b"x" * 100] * actor.chance.randint(0, 100))
        own.delete()
    except shmbroker.Timeout:
        actor.journal.write("timeout")


ROLES: dict[str, Callable[[str, list[str], int, Journal, random.Random], None]] = {
    "producer": produce,
    "consumer": take,
    "browser": browse,
    "mover": move,
    "visitor": visit,
}
