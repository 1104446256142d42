# SPDX-License-Identifier: Apache-2.0
"""What a process does with its connections as a whole: in a forked child, and when the program ends."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - what it does at the program's end is to come after what we do
import logging
import os
import threading
from typing import TYPE_CHECKING, Protocol

from shmbroker._process.inherited import inherit
from shmbroker._process.living import Living

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker.queue import Queue

_log = logging.getLogger("shmbroker")


class ProcessConnection(Protocol):
    """A connection, as its process sees it."""

    def handed_out(self) -> Iterator[Queue]:
        """The handles of queues that it has open."""
        ...

    def stop_callbacks(self) -> None:
        """No more callbacks begin; what they did not get goes back to its queue."""
        ...


_connections = Living[ProcessConnection]()


def note(connection: ProcessConnection) -> None:
    """A connection was opened."""
    _connections.add(connection)


def _after_fork() -> None:
    for connection in _connections:
        inherit(connection.handed_out())


def _at_exit() -> None:
    """The main thread has ended.

    The interpreter waits for the threads of executors, and these would work through all that was prefetched.
    """
    for connection in list(_connections):
        try:
            connection.stop_callbacks()
        except Exception:  # noqa: BLE001 - those of other connections are stopped all the same
            _log.exception("the callbacks of %r could not be stopped at the end of the program", connection)


os.register_at_fork(after_in_child=_after_fork)
# The one that the standard library's executors use, so that ours comes before theirs; `atexit` comes after them.
getattr(threading, "_register_atexit", atexit.register)(_at_exit)
