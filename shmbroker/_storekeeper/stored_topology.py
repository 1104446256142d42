# SPDX-License-Identifier: Apache-2.0
"""Exchanges, bindings and address settings in the store: those that outlive the memory.

These are the durable exchanges, the bindings from them to durable exchanges and stored queues, and all address
settings. They are records as those of the journal, but a binding names its queue by the queue's number in the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker._core import journal
from shmbroker._topology import records
from shmbroker._topology.binding import Binding, ToQueue
from shmbroker._topology.records import AddressSet, Bound, Declared
from shmbroker._topology.shared import exchanges_of
from shmbroker.exceptions import CorruptSegment, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from shmbroker._core.connection import CoreConnection


class StoredTopology:
    """What of the topology goes into the store.

    Args:
        connection: the storekeeper's connection.
    """

    def __init__(self, connection: CoreConnection) -> None:
        self._connection = connection
        self._written = -1

    def changed(self, queues: Mapping[tuple[str, int], int]) -> tuple[int, list[bytes]] | None:
        """The records, if the topology has changed since :meth:`written`.

        Args:
            queues: the number in the store of each stored queue, by name and incarnation.

        Returns:
            The version of the topology, and the records; ``None``: nothing has changed.
        """
        version = journal.version(self._connection)  # before the records: a later change is written by the next turn
        if version == self._written:
            return None
        return version, list(self._records(queues))

    def written(self, version: int) -> None:
        """Notes that the store has that version."""
        self._written = version

    def _records(self, queues: Mapping[tuple[str, int], int]) -> Iterator[bytes]:
        exchanges, bindings = exchanges_of(self._connection).all(self._connection)
        durable = {one.name for one in exchanges if one.durable}
        yield from (records.encode(Declared(one)) for one in exchanges if one.durable and not one.predeclared)
        for binding in bindings:
            to = binding.destination
            if binding.source not in durable:
                continue
            if isinstance(to, ToQueue):
                number = queues.get((to.name, to.incarnation))
                if number is not None:
                    yield records.encode(Bound(binding._replace(destination=ToQueue(to.name, number))))
            elif to.name in durable:
                yield records.encode(Bound(binding))
        entries = exchanges_of(self._connection).addresses(self._connection).entries
        yield from (records.encode(AddressSet(*entry)) for entry in entries.items())


def restore(
    connection: CoreConnection, stored: Iterable[bytes], incarnation_of: Callable[[int], int | None], until: int
) -> None:
    """Makes the stored topology again, in a broker that has none.

    Args:
        connection: the storekeeper's connection.
        stored: the records of the store.
        incarnation_of: returns the incarnation of the queue that has a number in the store; ``None``: there is none.
        until: the deadline of the wait for the topology lock.

    Raises:
        StoreError: a record is damaged.
    """
    found = []
    try:
        for change, _ in records.decode(b"".join(stored)):
            if isinstance(change, Bound) and isinstance(change.binding.destination, ToQueue):
                binding = _to_queue(change.binding, incarnation_of)
                found += [] if binding is None else [records.encode(Bound(binding))]
            else:
                found.append(records.encode(change))
    except CorruptSegment as error:
        raise StoreError(text=f"the store is damaged: {error.text}") from error
    exchanges_of(connection).change(connection, until, lambda _: b"".join(found))


def _to_queue(binding: Binding, incarnation_of: Callable[[int], int | None]) -> Binding | None:
    name, number = binding.destination  # type: ignore[misc]
    incarnation = incarnation_of(number)
    return None if incarnation is None else binding._replace(destination=ToQueue(name, incarnation))
