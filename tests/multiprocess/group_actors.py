# SPDX-License-Identifier: Apache-2.0
"""Users of consumer groups, for the kill tests. Each logs with plain write(2), so that a kill loses no line."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shmbroker
from shmbroker import exceptions
from shmbroker._amqp import names
from shmbroker._system_queues import queues, register
from shmbroker.leasing import group, group_state, reading

if TYPE_CHECKING:
    from types import FrameType

FENCED = 3
_FILES = {module.__file__ for module in (group, group_state, names, queues, reading, register)}


def _die_at(line: int) -> None:
    """Ends this process, as kill -9 does, before so many lines of the modules of groups were run; 0 = never."""
    left = line

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:  # noqa: ANN401
        nonlocal left
        if frame.f_code.co_filename not in _FILES:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    if line:
        sys.settrace(trace)


def step(broker: str, log: str, line: str) -> None:
    """Attaches, leases twice, acknowledges, leases, releases; killed at a line. What it saw is in the log."""
    descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with shmbroker.connect(broker, create=False) as connection:
        user = shmbroker.Group(connection, "jobs", "g")
        _die_at(int(line))
        user.attach()
        for number in (1, 2):
            user.lease(number - 1, max_messages=3)
            bodies = b" ".join(bytes(message) for message in user.messages(number))
            os.write(descriptor, b"leased %d %b\n" % (number, bodies))
        os.write(descriptor, b"acking 1\n")
        user.ack(1)
        os.write(descriptor, b"acked 1\n")
        user.lease(2, max_bytes=2)
        os.write(descriptor, b"releasing\n")
        user.release()
        sys.settrace(None)
        os.write(descriptor, b"released\n")


def query(broker: str, folder: str, seed: str, then: str) -> None:
    """What a streaming query does with a group: notes a lease, reads it, writes it out, notes that it is done.

    The notes are a folder: ``<number>.wanted``, ``<number>.out``, ``<number>.done``. It ends with ``FENCED``
    when somebody else has taken the group; else, when all is written out and ``then`` is "end", not "wait".
    """
    chance, notes = random.Random(seed), Path(folder)
    with shmbroker.connect(broker, create=False) as connection:
        user = shmbroker.Group(connection, "jobs", "g")
        user.attach()
        done = max((int(path.stem) for path in notes.glob("*.done")), default=0)
        try:
            if (notes / f"{done + 1}.wanted").exists():  # it is read without asking for a lease, as Spark does
                _write_out(user, notes, done + 1)
                done += 1
            user.ack(done)
            while (number := user.lease(done, max_messages=chance.randrange(1, 40))) != done or then == "wait":
                if number == done:
                    time.sleep(0.001)
                    continue
                (notes / f"{number}.wanted").touch()
                _write_out(user, notes, number)
                user.ack(number)
                done = number
        except exceptions.GroupInUse:
            sys.exit(FENCED)
        except (exceptions.GroupRewound, exceptions.LeaseNotFound):
            latest = shmbroker.Group(connection, "jobs", "g")
            sys.exit(FENCED if latest.acked > done else 1)  # another one went on while this one was reading


def _write_out(user: shmbroker.Group, notes: Path, number: int) -> None:
    """All at once, and equal if it was written before."""
    out = b"".join(bytes(message) + b"\n" for message in user.messages(number))
    path = notes / f"{number}.out"
    if path.exists() and path.read_bytes() != out:
        sys.exit(f"lease {number} is not what it was")
    part = notes / f"{number}.part-{os.getpid()}"
    part.write_bytes(out)
    part.rename(path)
    (notes / f"{number}.done").touch()


if __name__ == "__main__":
    {"step": step, "query": query}[sys.argv[1]](*sys.argv[2:])
