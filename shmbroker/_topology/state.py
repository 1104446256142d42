# SPDX-License-Identifier: Apache-2.0
"""The topology: the exchanges and their bindings, and the address settings.

The topology is stored as a journal of records in shared memory. The holder of the topology lock appends records, which
`changes` makes; every process replays new records. A record states the requested change. Every replay derives the
consequences (bindings removed with an exchange, exchanges removed with their last binding) itself. So the same records
always give the same table, even if a process is killed after appending one. A record changes nothing if its change is
in effect already, or if it needs an exchange that does not exist.

A `Topology` is not safe for concurrent use: a process that replays and routes in several threads holds a lock.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
from typing import TYPE_CHECKING, Protocol

from shmbroker._topology import ordered, records
from shmbroker._topology.address_table import AddressTable
from shmbroker._topology.binding import Binding, Destination, ToExchange, ToQueue
from shmbroker._topology.exchange import DEFAULT, PREDECLARED, Exchange, missing
from shmbroker._topology.records import (
    AddressRemoved,
    AddressSet,
    Bound,
    Change,
    Declared,
    Deleted,
    QueueGone,
    Unbound,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from shmbroker._topology.ordered import Ordered

_SPARE = 64 * 1024
_LARGE = 1024 * 1024


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Pauses the garbage collector: a replay makes many objects and no cycles, so collections would double its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Observer(Protocol):
    """Receives each change, derived changes included."""

    def declared(self, exchange: Exchange) -> None:
        """Handles a new exchange."""

    def deleted(self, exchange: Exchange) -> None:
        """Handles a deleted exchange; the bindings from it were removed before."""

    def bound(self, binding: Binding, order: int) -> None:
        """Handles a new binding; later bindings have higher numbers."""

    def unbound(self, binding: Binding, order: int) -> None:
        """Handles the removal of the binding that had this number."""


class Topology:
    """Exchanges, bindings and address settings, as of the records replayed so far.

    Attributes:
        exchanges: The exchanges by name; callers must not change this dictionary.
        addresses: The address settings; callers must not change them.
    """

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = dict(PREDECLARED)
        self.addresses = AddressTable()
        self._from: dict[str, dict[Binding, int]] = {name: {} for name in PREDECLARED}
        self._to: dict[Destination, Ordered[Binding]] = {}
        self._orders = itertools.count()
        self._size = 0  # bytes of `snapshot`, tracked without encoding it
        self._observers: list[Observer] = []

    def __repr__(self) -> str:
        bindings = sum(map(len, self._from.values()))
        return f"<Topology of {len(self.exchanges)} exchanges and {bindings} bindings>"

    def exchange(self, name: str) -> Exchange:
        """Returns the exchange of a name.

        Raises:
            NotFound: there is no such exchange.
        """
        found = self.exchanges.get(name)
        if found is None:
            raise missing(name)
        return found

    def bindings_from(self, exchange: str) -> Collection[Binding]:
        """Returns the bindings from an exchange, oldest first; empty if there is no such exchange."""
        return self._from.get(exchange, {}).keys()

    def bindings_to(self, destination: Destination) -> Collection[Binding]:
        """Returns the bindings to a queue or an exchange. Those from the same source are in order, oldest first."""
        return ordered.things(self._to.get(destination))

    def bound_queues(self) -> list[ToQueue]:
        """Lists the queues that have a binding."""
        return [to for to in self._to if isinstance(to, ToQueue)]

    def looks_at_headers(self) -> bool:
        """Whether the headers of a message matter for any binding."""
        return any(self._from[one.name] for one in self.exchanges.values() if one.type == "headers")

    def observe(self, observer: Observer) -> None:
        """Tells an observer of everything that exists, and of each change from now on."""
        for exchange in self.exchanges.values():
            observer.declared(exchange)
        for bindings in self._from.values():
            for binding, order in bindings.items():
                observer.bound(binding, order)
        self._observers.append(observer)

    def replay(self, data: bytes) -> None:
        """Applies records.

        Args:
            data: any number of whole records.

        Raises:
            CorruptSegment: a record cannot be decoded; the records before it are applied.
        """
        with _collector_paused() if len(data) > _LARGE else contextlib.nullcontext():
            for change, length in records.decode(data):
                self._apply(change, length)

    def snapshot(self) -> bytes:
        """Returns the records from which an empty topology gets this table."""
        return b"".join(map(records.encode, self._changes()))

    def worth_compacting(self, journal_bytes: int) -> bool:
        """Whether a journal of ``journal_bytes`` bytes should be replaced by a snapshot."""
        return journal_bytes > 2 * self._size + _SPARE

    def _changes(self) -> Iterator[Change]:
        yield from (Declared(one) for one in self.exchanges.values() if not one.predeclared)
        for bindings in self._from.values():
            yield from map(Bound, bindings)
        yield from (AddressSet(*entry) for entry in self.addresses.entries.items())

    def _apply(self, change: Change, length: int) -> None:
        match change:
            case Bound(binding):
                self._bind(binding, length)
            case Unbound(binding):
                self._unbind([binding])
            case QueueGone(queue):
                self._unbind(self.bindings_to(queue))
            case Declared(exchange):
                self._declare(exchange, length)
            case Deleted(name):
                self._delete(name)
            case AddressSet(match, settings):
                self._forget_address(match)
                self.addresses.put(match, settings)
                self._size += length
            case AddressRemoved(match):
                self._forget_address(match)

    def _forget_address(self, match: str) -> None:
        settings = self.addresses.entries.get(match)
        if settings is not None:
            self.addresses.drop(match)
            self._size -= len(records.encode(AddressSet(match, settings)))

    def _declare(self, exchange: Exchange, length: int) -> None:
        if exchange.name in self.exchanges:
            return
        self.exchanges[exchange.name] = exchange
        self._from[exchange.name] = {}
        self._size += length
        for observer in self._observers:
            observer.declared(exchange)

    def _delete(self, name: str) -> None:
        exchange = self.exchanges.get(name)
        if exchange is not None and not exchange.predeclared:
            self._unbind(self._drop(exchange))

    def _bind(self, binding: Binding, length: int) -> None:
        bindings = self._from.get(binding.source)
        if bindings is None or binding in bindings or not self._may_bind(binding):
            return
        order = bindings[binding] = next(self._orders)
        ordered.add_to(self._to, binding.destination, order, binding)
        self._size += length
        for observer in self._observers:
            observer.bound(binding, order)

    def _may_bind(self, binding: Binding) -> bool:
        to = binding.destination
        reachable = not isinstance(to, ToExchange) or (to.name in self.exchanges and to.name != DEFAULT)
        return reachable and binding.source != DEFAULT

    def _unbind(self, bindings: Iterable[Binding]) -> None:
        """Removes bindings. Also removes each auto-delete exchange that has no binding left, and all bindings to it."""
        pending = list(bindings)
        while pending:
            binding = pending.pop()
            order = self._from.get(binding.source, {}).pop(binding, None)
            if order is None:
                continue
            self._forget(binding, order)
            source = self.exchanges[binding.source]
            if source.auto_delete and not self._from[source.name]:
                pending += self._drop(source)

    def _drop(self, exchange: Exchange) -> Iterable[Binding]:
        """Removes an exchange and the bindings from it. Returns the bindings to it, which the caller removes."""
        for binding, order in self._from.pop(exchange.name).items():
            self._forget(binding, order)
        del self.exchanges[exchange.name]
        self._size -= len(records.encode(Declared(exchange)))
        for observer in self._observers:
            observer.deleted(exchange)
        return self.bindings_to(ToExchange(exchange.name))

    def _forget(self, binding: Binding, order: int) -> None:
        """Removes a binding from the table of destinations, and tells observers; the caller removed it from `_from`."""
        ordered.remove_from(self._to, binding.destination, order)
        self._size -= len(records.encode(Bound(binding)))
        for observer in self._observers:
            observer.unbound(binding, order)
