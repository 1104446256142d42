# SPDX-License-Identifier: Apache-2.0
"""Housekeepers for the brokers of tests, forked by a process that has the package loaded already.

Loading it anew for each of a thousand brokers would take a quarter of the whole run. What serves is the same, and the
tests of starting a broker start one as users do.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import shmbroker
from shmbroker._housekeeper import housekeeper

if TYPE_CHECKING:
    from collections.abc import Iterator


class Nursery:
    """Has a process that forks housekeepers on demand."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            text=True,
        )

    def start(self, broker: shmbroker.Broker) -> shmbroker.Broker:
        """Makes the memory, and has a housekeeper serve it; returns the broker."""
        broker.create()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{broker.name}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer == broker.name
        return broker

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


@functools.cache
def nursery() -> Nursery:
    """The one of this process."""
    made = Nursery()
    atexit.register(made.close)
    return made


@contextlib.contextmanager
def served(name: str, **options: Any) -> Iterator[shmbroker.Broker]:  # noqa: ANN401 (those of a broker)
    """A broker with such a housekeeper, purged at the end; options as `shmbroker.Broker`."""
    made = shmbroker.Broker(name, **options)
    try:
        yield nursery().start(made)
    finally:
        made.stop(purge=True)


def _main() -> None:
    """Forks a housekeeper for each name read, which is written back when it serves. They end with their brokers."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for them
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the tests, which end this process
    for line in sys.stdin:
        if os.fork() == 0:
            _serve(line.strip())


def _serve(name: str) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    answers, nothing = [os.dup(1)], os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    os.close(nothing)

    def answer(word: str) -> None:
        with os.fdopen(answers.pop(), "w") as out:
            out.write(f"{word}\n")

    status = 1
    try:
        status = housekeeper.main([name], lambda: answer(name))
    except BaseException:  # noqa: BLE001 - it must not come to the end of the process that forked us
        traceback.print_exc()
    if answers:
        answer(f"{name} is not served")
    os._exit(status)


if __name__ == "__main__":
    _main()
