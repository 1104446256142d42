# SPDX-License-Identifier: Apache-2.0
"""How a process of the chaos is there: it dies with the one that started it, and writes down when it is connected."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import traceback
from typing import TYPE_CHECKING

import shmbroker
from tests.chaos import takers

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.chaos.journal import Journal
    from tests.chaos.takers import Actor

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """The kernel kills this process when the one that started it ends, and now, if that has ended before we said so.

    Else what was forked just before its parent was killed would live on, and take what the director counts.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def write_error(journal: Journal, error: BaseException) -> None:
    """Adds what must not be to the journal."""
    journal.write("error", "".join(traceback.format_exception(error)).replace("\n", " | "))


@contextlib.contextmanager
def connected(
    broker: str, queues: list[str], journal: Journal, chance: random.Random, kind: type[Actor] = takers.Actor
) -> Iterator[Actor]:
    """Is connected, for a block; passes what to work with, of the given kind."""

    def failed(error: BaseException) -> None:
        write_error(journal, error)

    with shmbroker.connect(broker, create=False, on_callback_error=failed) as connection:
        journal.write("connected")
        opened = [connection.queue(name, passive=True) for name in queues]
        yield kind(connection, opened, journal, chance)
        journal.write("leave")
    journal.write("bye")
