# SPDX-License-Identifier: Apache-2.0
"""The exchanges and bindings of a broker as this process sees them, and their changes.

All connections of a process to a broker share one table. Before a use, the process replays into the table what was
appended to the journal since the last replay, by other processes and by itself.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from shmbroker._core.journal import Journal, topology_lock
from shmbroker._process import locks
from shmbroker._topology import changes
from shmbroker._topology.routing import Router, selects_nothing
from shmbroker._topology.state import Topology
from shmbroker.exceptions import ConnectionClosed, CorruptSegment, OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from shmbroker._core.connection import CoreConnection
    from shmbroker._topology.address_table import AddressTable
    from shmbroker._topology.binding import Binding, ToQueue
    from shmbroker._topology.exchange import Exchange


class _Table:
    """The table as of the records replayed so far, and the position in the journal up to which they reach.

    Attributes:
        journal: The journal, with that position.
        topology: The exchanges and bindings.
        router: Finds routes in the topology.
        is_whole: Whether table and position agree. False during a replay, and after a replay that an interrupt or a
            damaged record has cut short. Such a table is of no use: its position is behind records that were not
            replayed, and an earlier position would replay others twice, which can do harm.
        users: The number of code blocks of one thread that use the table now. A signal handler that runs inside such a
            block must not change the table.
        not_shortened: The length of the journal at the last attempt to compact it, if that attempt failed; 0: no
            attempt has failed since the journal was rewritten.
    """

    def __init__(self, path: str) -> None:
        self.journal = Journal(path)
        self._clear()
        self.is_whole = True
        self.users = 0

    def _clear(self) -> None:
        self.topology = Topology()
        self.router = Router(self.topology)
        self.not_shortened = 0

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
        """Replays new records and returns the topology, which the caller must not change.

        Raises:
            CorruptSegment: the journal is damaged. The next call reads it anew.
        """
        with self._lock:
            table = self._taken(connection)
            table.users -= 1
            return table.topology

    @contextlib.contextmanager
    def _refreshed(self, connection: CoreConnection) -> Iterator[_Table]:
        """Replays new records and yields the table. In the block, the table does not change."""
        with self._lock:
            table = self._taken(connection)
            try:
                yield table
            finally:
                table.users -= 1

    def _taken(self, connection: CoreConnection) -> _Table:
        """Replays new records and returns the table, with one more user. The caller has the lock.

        A signal handler may call this while its thread replays into the table, or uses it. If that replay has not
        ended, or the handler needs a replay, this method begins a new table, which the process uses from then on. Code
        that used the old table continues with it; code that replayed into it takes the new one afterwards. If a handler
        raises before the caller's `try`, the number of users stays too high: the next replay, too, begins a new table.
        """
        while True:
            table = self._table
            news = table.journal.has_news(connection)
            if not table.is_whole or (news and table.users):
                self._table = _Table(self._path)
                continue
            if news:
                table.replay_new(connection)
            table.users += 1
            if table is self._table and table.is_whole:
                return table
            table.users -= 1

    def exchange(self, connection: CoreConnection, name: str) -> Exchange:
        """Returns the exchange of a name.

        Raises:
            NotFound: there is no such exchange.
        """
        return self.refresh(connection).exchange(name)

    def route(  # noqa: PLR0917 - as of a router
        self,
        connection: CoreConnection,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, Any] | None,
        keys: tuple[str, ...],
        selects: Callable[[bytes], bool] = selects_nothing,
    ) -> tuple[ToQueue, ...]:
        """Returns the queues that get a message; see :meth:`Router.route`."""
        with self._lock:  # without `_refreshed`, which adds a microsecond to each publish that is routed by headers
            table = self._taken(connection)
            try:
                return table.router.route(exchange, routing_key, headers, keys, selects)
            finally:
                table.users -= 1

    def addresses(self, connection: CoreConnection) -> AddressTable:
        """Returns the address settings. Later changes change this table, until another table takes its place."""
        with self._refreshed(connection) as table:
            return table.topology.addresses

    def looks_at_headers(self, connection: CoreConnection) -> bool:
        """Whether the headers of a message matter for any binding.

        The headers CC and BCC do not count: they have further routing keys.
        """
        with self._refreshed(connection) as table:
            return table.topology.looks_at_headers()

    def all(self, connection: CoreConnection) -> tuple[list[Exchange], list[Binding]]:
        """Returns all exchanges, sorted by name, and all bindings, sorted by the name of their source, then by age."""
        with self._refreshed(connection) as table:
            exchanges = sorted(table.topology.exchanges.values(), key=lambda one: one.name)
            return exchanges, [binding for one in exchanges for binding in table.topology.bindings_from(one.name)]

    def problems(self, connection: CoreConnection) -> list[str]:
        """Describes the first fault of the journal; empty: no fault. Reads the whole journal, not the cached table."""
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
            make: checks the change against the current table and returns its record; empty: no change. It is called
                again if a signal handler changed the topology meanwhile.

        Raises:
            Timeout: another holder keeps the lock past ``until``.
            OutOfMemory: /dev/shm has no room for the record; nothing was changed.
        """
        with topology_lock(connection, until, "the topology"), self._lock:
            length = 0
            while not length:
                with self._refreshed(connection) as table:
                    record = make(table.topology)
                    if not record:
                        return
                    length = table.journal.append(connection, record)
            # The change is in effect: the caller is not told that the journal stays long, or that another thread closed
            # the connection.
            with contextlib.suppress(OutOfMemory, ConnectionClosed):
                self._compact(connection)

    def _compact(self, connection: CoreConnection) -> None:
        """Shortens the journal if that is worth it. The caller holds the topology lock.

        After a failed attempt, only the bytes count that were appended since then: the next attempt is made when a
        journal of just these bytes would be worth compacting.
        """
        with self._refreshed(connection) as table:
            length = table.journal.length(connection)
            if table.topology.worth_compacting(length - table.not_shortened):
                table.not_shortened = length
                table.journal.replace(connection, table.topology.snapshot())

    def prune(self, connection: CoreConnection, until: int) -> None:
        """Removes the bindings that were left when their queues ended.

        These are the bindings to expired, auto-delete and exclusive queues, and to queues whose deleter was killed
        before it removed them. Does nothing if no such queue has ended since the last call.
        """
        ended = connection.queues_ended()
        if ended == self._ended:
            return
        with self._refreshed(connection) as table:
            queues = table.topology.bound_queues()
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
