# SPDX-License-Identifier: Apache-2.0
"""Leases that are read. See :mod:`shmbroker.group`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from shmbroker import exceptions
from shmbroker._core import library
from shmbroker._core.queue import CoreQueue
from shmbroker.message import Message, MessageBatch, browsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker._core.connection import CoreConnection, Place
    from shmbroker.group_state import Lease

_F = TypeVar("_F", bound=tuple[Any, ...])  # what is found: a record, the position behind it, more


class _Leased:
    """Where messages of a lease come from, as they see it: the queue from which they were leased."""

    def __init__(self, core: CoreQueue, name: str) -> None:
        self._core, self._name = core, name
        self.core_connection = core.connection
        self.settle: Callable[[bytes, int], int] = core.settle
        self.taker = library.Taker(core.address, library.OF_QUEUE, Message, MessageBatch)

    def queue_name(self, subscription: int) -> str:  # noqa: ARG002
        """The name of the queue."""
        return self._name

    def next_delivery_tag(self) -> int:
        """They were not delivered."""
        return 0


def messages(connection: CoreConnection, name: str, number: int, lease: Lease, span: range) -> Iterator[Message]:
    """Copies of the messages of a lease.

    Args:
        connection: Through which it is read.
        name: The queue they were leased from.
        number: Of the lease.
        lease: What is known of it.
        span: Which ones; in steps of one.

    Raises:
        LeaseNotFound: it, or some of it, is gone.
    """
    core = _opened(connection, number, lease)
    source = _Leased(core, name)
    return (browsed(source, found[0]) for found in _browse(core, core.browse, number, lease, span))


def places(
    connection: CoreConnection, name: str, number: int, lease: Lease, span: range
) -> Iterator[tuple[Message, Place]]:
    """As :func:`messages`, but they have no bodies: those stay where they are."""
    core = _opened(connection, number, lease)
    source = _Leased(core, name)
    return ((browsed(source, found[0]), found[2]) for found in _browse(core, core.browse_place, number, lease, span))


def _opened(connection: CoreConnection, number: int, lease: Lease) -> CoreQueue:
    slot = connection.queue_slot(lease.queue)
    try:
        if slot == 0:
            library.raise_for(library.NOT_FOUND)
        return CoreQueue(connection, lease.queue, slot)
    except exceptions.NotFound:
        raise gone(number, lease, "is") from None


def _browse(core: CoreQueue, look: Callable[[int], _F | None], number: int, lease: Lease, span: range) -> Iterator[_F]:
    index = position = span.start if lease.dense else 0
    try:
        while index < span.stop:
            found = look(position)
            if found is None or (lease.dense and found[1] != index + 1):
                raise gone(number, lease, "or a part of it is")
            position = found[1]
            if index >= span.start:
                yield found
            index += 1
    except exceptions.NotFound:
        raise gone(number, lease, "is") from None
    finally:
        if not core.connection.closed:
            core.leave()


def gone(number: int, lease: Lease, what: str) -> exceptions.LeaseNotFound:
    """The error of a lease whose messages somebody removed."""
    text = f"NOT_FOUND - lease {number} of {lease.length} messages (queue '{lease.queue}') {what} gone"
    return exceptions.LeaseNotFound(404, text)
