# SPDX-License-Identifier: Apache-2.0
"""Process-wide handling of connections: in a forked child, and at the end of the program."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - its exit handler must run after ours
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
    """The process-wide interface of a connection."""

    def handed_out(self) -> Iterator[Queue]:
        """Iterates over the handles of queues that the connection has open."""
        ...

    def stop_callbacks(self) -> None:
        """Prevents new callbacks; messages without a callback are requeued."""
        ...


_connections = Living[ProcessConnection]()


def note(connection: ProcessConnection) -> None:
    """Registers an opened connection."""
    _connections.add(connection)


def _after_fork() -> None:
    for connection in _connections:
        inherit(connection.handed_out())


def _at_exit() -> None:
    """Stops the callbacks of every connection when the main thread has ended.

    The interpreter waits for the threads of executors, which would otherwise process all prefetched messages.
    """
    for connection in list(_connections):
        try:
            connection.stop_callbacks()
        except Exception:  # noqa: BLE001 - a failure must not keep the other connections from stopping
            _log.exception("the callbacks of %r could not be stopped at the end of the program", connection)


os.register_at_fork(after_in_child=_after_fork)
# The registration that the standard library's executors use, so that ours runs first; `atexit` runs after theirs.
getattr(threading, "_register_atexit", atexit.register)(_at_exit)
