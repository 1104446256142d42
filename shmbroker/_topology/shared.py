# SPDX-License-Identifier: Apache-2.0
"""The exchanges and bindings of a broker as this process sees them, and their changes.

All connections of a process to a broker share one table. Before a use, the process replays into the table what other
processes have appended to the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker._core.journal import Journal, topology_lock
from shmbroker._process import locks
from shmbroker._topology import changes
from shmbroker._topology.routing import Router
from shmbroker._topology.state import Topology
from shmbroker.exceptions import CorruptSegment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shmbroker._core.connection import CoreConnection
    from shmbroker._topology.binding import Binding, ToQueue
    from shmbroker._topology.exchange import Exchange


class _Table:
    """The table as of the records replayed so far, and the position in the journal up to which they reach.

    Attributes:
        journal: The journal, with that position.
        topology: The exchanges and bindings.
        router: Finds routes in the topology.
        is_whole: Whether table and position agree. False during a replay, and after one that did not end: an interrupt
            or a damaged record can end it. Such a table is of no use, as a record that is replayed twice can do harm.
    """

    def __init__(self, path: str) -> None:
        self.journal = Journal(path)
        self._clear()
        self.is_whole = True

    def _clear(self) -> None:
        self.topology = Topology()
        self.router = Router(self.topology)

    def replay_new(self, connection: CoreConnection) -> None:
        """Replays what the journal has after the position."""
        self.is_whole = False
        rewritten, data = self.journal.read_new(connection)
        if rewritten:
            self._clear()
        self.topology.replay(data)
        self.is_whole = True


class Exchanges:
    """The exchanges of one broker. Safe to use from several threads, and from signal handlers."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = locks.lock()
        self._ended = 0
        self._table = _Table(path)

    def refresh(self, connection: CoreConnection) -> Topology:
        """Replays the changes of other processes and returns the table, which the caller must not change.

        Raises:
            CorruptSegment: the journal is damaged. The next call reads it anew.
        """
        return self._refreshed(connection).topology

    def _refreshed(self, connection: CoreConnection) -> _Table:
        # A signal handler may get here in the middle of a replay of its thread. The handler begins a table anew, which
        # this process uses from then on. The replay goes on in the other table, and ends; then it looks here again.
        with self._lock:
            while True:
                if not self._table.is_whole:
                    self._table = _Table(self._path)
                table = self._table
                if table.journal.has_news(connection):
                    table.replay_new(connection)
                if table is self._table:
                    return table

    def exchange(self, connection: CoreConnection, name: str) -> Exchange:
        """Returns the exchange of a name.

        Raises:
            NotFound: there is no such exchange.
        """
        return self.refresh(connection).exchange(name)

    def route(
        self,
        connection: CoreConnection,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, Any] | None,
        keys: tuple[str, ...],
    ) -> tuple[ToQueue, ...]:
        """Returns the queues that get a message; see :meth:`Router.route`."""
        with self._lock:
            return self._refreshed(connection).router.route(exchange, routing_key, headers, keys)

    def looks_at_headers(self, connection: CoreConnection) -> bool:
        """Whether the headers of a message matter for any binding.

        The headers CC and BCC do not count: they have further routing keys.
        """
        with self._lock:
            return self.refresh(connection).looks_at_headers()

    def all(self, connection: CoreConnection) -> tuple[list[Exchange], list[Binding]]:
        """Returns all exchanges by name, and all bindings by the name of their source, the oldest of a source first."""
        with self._lock:
            topology = self.refresh(connection)
            exchanges = sorted(topology.exchanges.values(), key=lambda one: one.name)
            return exchanges, [binding for one in exchanges for binding in topology.bindings_from(one.name)]

    def problems(self, connection: CoreConnection) -> list[str]:
        """Reads the whole journal anew, not the cached table. Returns a text for each fault; empty = no fault."""
        try:
            Exchanges(connection.attachment.path).refresh(connection)
        except CorruptSegment as error:
            return [error.text]
        except OSError as error:
            return [f"the journal cannot be read: {error.filename}: {error.strerror}"]
        return []

    def change(self, connection: CoreConnection, until: int, make: Callable[[Topology], bytes]) -> None:
        """Makes one change, under the topology lock.

        Args:
            connection: the connection of the caller.
            until: the deadline of the wait for the lock.
            make: checks the change against the current table and returns its record; empty: no change.

        Raises:
            Timeout: another holder keeps the lock past ``until``.
            OutOfMemory: /dev/shm has no room for the record.
        """
        with topology_lock(connection, until, "the topology"), self._lock:
            record = make(self.refresh(connection))
            if record:
                journal = self._table.journal
                length = journal.append(connection, record)
                topology = self.refresh(connection)
                if topology.worth_compacting(length):
                    journal.replace(connection, topology.snapshot())

    def prune(self, connection: CoreConnection, until: int) -> None:
        """Removes the bindings to queues that the broker deleted itself, such as expired or auto-delete queues.

        Does nothing if the broker has deleted no queue itself since the last call.
        """
        ended = connection.queues_ended()
        if ended == self._ended:
            return
        with self._lock:
            queues = self.refresh(connection).bound_queues()
        gone = [queue for queue in queues if connection.queue_incarnation(queue.name) != queue.incarnation]
        if gone:
            self.change(
                connection, until, lambda topology: b"".join(changes.queue_gone(topology, queue) for queue in gone)
            )
        self._ended = ended


_known_lock = locks.lock()


def exchanges_of(connection: CoreConnection) -> Exchanges:
    """Returns this process's view of the exchanges of a connection's broker."""
    attachment = connection.attachment
    with _known_lock:
        if attachment.exchanges is None:
            attachment.exchanges = Exchanges(attachment.path)
        found: Exchanges = attachment.exchanges
        return found
