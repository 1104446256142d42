# SPDX-License-Identifier: Apache-2.0
"""A process that forks while other threads of it are at work; its children connect for themselves.

A child is named after its parent, with a number behind a dot. Some run another program in the end, with messages in
hand: to the broker that is a death.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import signal
import threading
import time
from typing import TYPE_CHECKING

from tests.chaos import putters, takers
from tests.chaos.journal import Journal
from tests.chaos.presence import connected, die_with_parent, write_error

if TYPE_CHECKING:
    from pathlib import Path

COUNTS_OF_A_CHILD = 1 << 20
SECONDS_OF_A_CHILD = 60.0  # one that is not through by then hangs
OTHER_PROGRAM = "/bin/true"


@dataclasses.dataclass(frozen=True)
class Task:
    """What a child is to do, and where it writes it down."""

    broker: str
    queues: list[str]
    number: int  # of its parent
    child: int
    journal: Path
    seed: int


def fork(broker: str, queues: list[str], number: int, journal: Journal, chance: random.Random) -> None:
    """Forks, one child after the other; meanwhile a thread with a connection of its own takes messages."""
    enough = threading.Event()

    def beside() -> None:
        with Journal(journal.beside("0")) as writes:
            try:
                with connected(broker, queues, writes, random.Random(number)) as actor:
                    while not enough.is_set():
                        takers.take_somehow(actor)
            except BaseException as error:  # noqa: BLE001 (no other code would see it)
                write_error(writes, error)

    thread = threading.Thread(target=beside)
    try:
        thread.start()
        for child in itertools.count(1):
            task = Task(broker, queues, number, child, journal.beside(str(child)), chance.getrandbits(32))
            problem = _in_a_child(task)
            if problem:
                journal.write("error", f"child {child} {problem}")
            time.sleep(chance.uniform(0, 0.02))
    finally:
        enough.set()
        thread.join()


def _in_a_child(task: Task) -> str:
    """Fork, and wait for the child's end. Returns what went wrong with it."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_with_parent(parent)
            _live(task)
            code = 0
        finally:
            os._exit(code)
    ended = False
    try:
        until = time.monotonic() + SECONDS_OF_A_CHILD
        ended = os.waitpid(pid, os.WNOHANG) != (0, 0)
        while not ended and time.monotonic() < until:
            time.sleep(0.002)
            ended = os.waitpid(pid, os.WNOHANG) != (0, 0)  # the last look comes after time is up: we may be stopped
        return "" if ended else f"does not end within {SECONDS_OF_A_CHILD:.0f} s"
    finally:
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _live(task: Task) -> None:
    """What a child does; what goes wrong is in its journal."""
    chance = random.Random(task.seed)
    counts = itertools.count(task.child * COUNTS_OF_A_CHILD)
    with Journal(task.journal) as writes:
        try:
            with connected(task.broker, task.queues, writes, chance) as actor:
                for _ in range(chance.randint(0, 3)):
                    putters.put_one(actor, chance.choice(actor.queues), task.number, counts)
                if chance.random() < 0.5:
                    takers.take_somehow(actor)
                if chance.random() < 0.5:
                    takers.take_and_keep(actor)
                if chance.random() < 0.3:
                    writes.write("exec")
                    os.execv(OTHER_PROGRAM, [OTHER_PROGRAM])  # noqa: S606 (that is what is tried)
        except BaseException as error:  # noqa: BLE001 (a child has no caller)
            write_error(writes, error)
