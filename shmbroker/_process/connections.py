# SPDX-License-Identifier: Apache-2.0
"""The connections of this process: the shared connection to each broker, and a handler for the program's end."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - its exit handler must run after ours
import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from shmbroker._process import locks
from shmbroker._process.living import Living

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_log = logging.getLogger("shmbroker")


class ProcessConnection(Protocol):
    """The methods of a connection that the handlers for forks and for the program's end call."""

    def handed_out(self) -> Iterator[Any]:
        """Iterates over the handles of queues that the connection has open."""
        ...

    def stop_callbacks(self) -> None:
        """Prevents new callbacks, and requeues the messages whose callback has not begun.

        A thread that is delivering a message at that moment still calls its callback.
        """
        ...


_connections = Living[ProcessConnection]()


def note(connection: ProcessConnection) -> None:
    """Registers an opened connection."""
    _connections.add(connection)


def noted() -> Iterator[ProcessConnection]:
    """Iterates over the registered connections that are still referred to."""
    return iter(_connections)


# ---- shared connections ----


class SharedConnection(Protocol):
    """A connection that all code of a process may share."""

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used."""
        ...


C = TypeVar("C", bound=SharedConnection)

_shared: dict[tuple[Callable[[str], Any], str], Any] = {}
_shared_lock = locks.lock()  # reentrant: a signal handler may load a pickled queue


def shared(connect: Callable[[str], C], broker: str) -> C:
    """Returns the one connection of this process to a broker; connects if there is none, or if it is closed.

    Args:
        connect: connects to the broker of a name. Connections are shared only between calls with the same function.
        broker: the name of the broker.
    """
    with _shared_lock:
        found: C | None = _shared.get((connect, broker))
        if found is None or not found.is_open:
            found = _shared[connect, broker] = connect(broker)
        return found


# ---- the end of the program ----


def _at_exit() -> None:
    """Stops the callbacks of every connection when the main thread has ended.

    The interpreter waits for the threads of executors, which would otherwise process all prefetched messages.
    """
    for connection in list(_connections):
        try:
            connection.stop_callbacks()
        except Exception:  # noqa: BLE001 - a failure must not keep the other connections from stopping
            _log.exception("the callbacks of %r could not be stopped at the end of the program", connection)


os.register_at_fork(after_in_child=_shared.clear)
# The thread pools of the standard library register their handler in the same way, and the handler that was registered
# last runs first: ours runs before theirs, since their module is imported above. The handlers of `atexit` run after
# theirs.
getattr(threading, "_register_atexit", atexit.register)(_at_exit)
