# SPDX-License-Identifier: Apache-2.0
"""Reading of leases. See :mod:`shmbroker.leasing`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error
from shmbroker._core import native
from shmbroker._core.columns import Columns
from shmbroker._core.queue import CoreQueue
from shmbroker.message import Message, MessageBatch, browsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker._core.bodies import Place
    from shmbroker._core.connection import CoreConnection
    from shmbroker.leasing.group_state import Lease

_F = TypeVar("_F", bound=tuple[Any, ...])  # a browsed message: record, next position; for `places` also its `Place`


class _Leased:
    """The source that the messages of a lease refer to. It names the queue that they were leased from."""

    def __init__(self, core: CoreQueue, name: str) -> None:
        self._core, self._name = core, name
        self._core_connection = core.connection
        self._settle_record: Callable[[bytes, int], int] = core.settle
        self._taker = native.Receiver(core.address, native.OF_QUEUE, Message, MessageBatch)

    def _queue_name(self, subscription: int) -> str:  # noqa: ARG002
        return self._name

    def _next_delivery_tag(self) -> int:
        return 0  # the messages were not delivered


def opened(connection: CoreConnection, number: int, lease: Lease) -> CoreQueue:
    """Opens the queue of a lease.

    Raises:
        LeaseNotFound: the queue is gone.
    """
    slot = connection.queue_slot(lease.queue)
    try:
        return CoreQueue(connection, lease.queue, slot)
    except exceptions.NotFound:
        raise gone(number, lease, "is") from None


@contextlib.contextmanager
def reading(core: CoreQueue, number: int, lease: Lease) -> Iterator[None]:
    """Runs a block that reads a lease, and detaches the handle of the lease's queue at the end of the block.

    Raises:
        LeaseNotFound: the lease was deleted during the block.
    """
    try:
        yield
    except exceptions.LeaseNotFound:
        raise
    except exceptions.NotFound:
        raise gone(number, lease, "is") from None
    finally:
        if not core.connection.closed:
            core.leave()


def messages(core: CoreQueue, name: str, number: int, lease: Lease, span: range) -> Iterator[Message]:
    """Yields copies of the messages of a lease.

    Args:
        core: The queue of the lease, as :func:`opened` returns it.
        name: The name of the queue that the messages were leased from.
        number: The number of the lease.
        lease: What the state of the group says of the lease.
        span: The indexes of the messages in the lease, in steps of 1.

    Raises:
        LeaseNotFound: the lease, or a part of it, is gone.
    """
    source = _Leased(core, name)
    return (browsed(source, found[0]) for found in _browse(core, core.browse, number, lease, span))


def places(core: CoreQueue, name: str, number: int, lease: Lease, span: range) -> Iterator[tuple[Message, Place]]:
    """Yields each message of a lease without its body, paired with the place of the body; see :func:`messages`."""
    source = _Leased(core, name)
    return ((browsed(source, found[0]), found[2]) for found in _browse(core, core.browse_place, number, lease, span))


def _browse(core: CoreQueue, look: Callable[[int], _F | None], number: int, lease: Lease, span: range) -> Iterator[_F]:
    index = position = span.start if lease.dense else 0
    with reading(core, number, lease):
        while index < span.stop:
            found = look(position)
            if found is None or (lease.dense and found[1] != index + 1):
                raise gone(number, lease, "or a part of it is")
            position = found[1]
            if index >= span.start:
                yield found
            index += 1


class ByColumn:
    """Fills columns with the messages of a lease, in order; see :class:`shmbroker.columns.Columns`."""

    def __init__(self, core: CoreQueue, number: int, lease: Lease, span: range) -> None:
        self._core, self._number, self._lease = core, number, lease
        self._left, self._position = len(span), span.start if lease.dense else 0
        if not lease.dense:
            self._next(Columns(), span.start)

    def fill(self, columns: Columns, most: int) -> tuple[int, bool]:
        """Fills up to ``most`` rows with the next messages; returns the number of rows, and whether there are more.

        Raises:
            LeaseNotFound: the lease, or a part of it, is gone.
        """
        count = self._next(columns, min(most, self._left))
        self._left -= count
        return count, self._left > 0

    def _next(self, columns: Columns, most: int) -> int:
        count, position, more = columns._browse(self._core, self._position, most)  # noqa: SLF001
        if (self._lease.dense and position != self._position + count) or not more:
            raise self._gone()
        self._position = position
        return count

    def _gone(self) -> exceptions.LeaseNotFound:
        return gone(self._number, self._lease, "or a part of it is")


def gone(number: int, lease: Lease, what: str) -> exceptions.LeaseNotFound:
    """The error of a lease that is gone (``what`` is "is") or incomplete ("or a part of it is")."""
    text = f"lease {number} (queue '{lease.queue}', {lease.length} messages) {what} gone"
    return amqp_error(exceptions.LeaseNotFound, text)
