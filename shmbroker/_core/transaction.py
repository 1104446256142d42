# SPDX-License-Identifier: Apache-2.0
"""Publishing to several queues, and transactions: either all of it takes effect or none of it.

This module has no ``from __future__ import annotations``: see :mod:`shmbroker._core.facts`.
"""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from shmbroker._core import native
from shmbroker._core.queue import NO_OPTIONS, CoreQueue, PutOptions

if TYPE_CHECKING:
    from shmbroker._core.connection import CoreConnection

LONG = 16_384
"""Size from which a call drops the GIL: the body bytes, plus 256 for each cell to write."""
_CELL = 256
_NOBODY = 2**32 - 1
ACK, REQUEUE, REJECT = native.ACK, native.REQUEUE, native.REJECT


class Publication(NamedTuple):
    """A body and its target queues, without duplicates.

    Attributes:
        body: Bytes-like and contiguous; the core stores it once.
        targets: Queues that the committing connection has open.
        options: The options of the put.
    """

    body: Any
    targets: Sequence[CoreQueue]
    options: PutOptions = NO_OPTIONS


class Handle(Protocol):
    """A handle of an object in the core."""

    @property
    def address(self) -> int:
        """The address of the object."""
        ...


class Settlement(NamedTuple):
    """A message that the connection holds, and its disposition.

    Attributes:
        queue: The queue that the message was taken from.
        token: The ``tag`` of the message's record (`_core/record.py`). For a message of a consumer, the bits from 40 on
            are its index in the consumer's table of unacked messages; a commit ignores them.
        disposition: How it ends: ACK, REQUEUE or REJECT.
        delivery_tag: The delivery tag of the message on its channel; a commit does not use it.
    """

    queue: Handle
    token: int
    disposition: int = ACK
    delivery_tag: int = 0


class Outcome(NamedTuple):
    """The result of a commit.

    Attributes:
        status: ``native.OK``, or the reason why nothing happened.
        publication: The index of the publication that failed; None if the failure concerns no single publication.
        target: The index of the failed target among the targets of that publication; None if the failure concerns no
            single target.
    """

    status: int
    publication: int | None
    target: int | None


class _Arrays:
    """The arguments of one call, in the types of one of the native modules; must live as long as the call."""

    def __init__(self, ffi: Any, publications: Sequence[Publication], settlements: Sequence[Settlement]) -> None:  # noqa: ANN401
        self.publications = ffi.new("sb_publication[]", len(publications))
        self.settlements = ffi.new("sb_settlement[]", len(settlements))
        self._kept: list[Any] = []
        queues, targets, given, options = None, None, None, None  # the previous publication's: often the same
        for index, publication in enumerate(publications):
            one = self.publications[index]
            body = ffi.from_buffer("char[]", publication.body)
            self._kept.append(body)
            if publication.targets is not queues:
                queues = publication.targets
                targets = ffi.new("sb_queue *[]", [ffi.cast("sb_queue *", queue.address) for queue in queues])
                self._kept.append(targets)
            if publication.options is not given:
                given = publication.options
                options = ffi.cast("sb_put_options *", given.address)
            one.body, one.length = body, len(body)
            one.options = options
            one.targets, one.target_count = targets, len(publication.targets)
        source, pointer = None, None
        for index, (queue, token, disposition, _) in enumerate(settlements):
            entry = self.settlements[index]
            if queue is not source:
                source, pointer = queue, ffi.cast("sb_queue *", queue.address)
            entry.queue, entry.token, entry.disposition = pointer, token, disposition


def _is_long(publications: Sequence[Publication], settlements: Sequence[Settlement]) -> bool:
    size = _CELL * len(settlements)
    return size + sum(memoryview(one.body).nbytes + _CELL * len(one.targets) for one in publications) > LONG


def commit(
    connection: "CoreConnection",
    publications: Sequence[Publication],
    settlements: Sequence[Settlement] = (),
    statuses: list[int] | None = None,
) -> Outcome:
    """Publishes and settles in one atomic step, even if a process is killed during it.

    A deleted queue is skipped, and so is a full queue with overflow="drop". If memory is missing, the call adds a
    segment.

    Args:
        connection: The connection that has the queues open and holds the messages.
        publications: The bodies and their target queues.
        settlements: The messages to settle.
        statuses: Gets the status of each attempt. It has ``native.OK`` if the commit happened, even if a signal handler
            raised in this function.

    Returns:
        The outcome. FULL: the target has no room; the caller can wait for room and call again. SETTLED: the connection
        no longer holds a message to settle. NO_MEMORY, TOO_LARGE, INVALID and others: as from a put. Unless the status
        is OK, nothing happened.
    """
    drops_gil = _is_long(publications, settlements)
    lib, ffi = (native.slow, native.ffi) if drops_gil else (native.fast, native.fast_ffi)
    arrays = _Arrays(ffi, publications, settlements)
    failed = ffi.new("uint32_t[2]")
    handle = ffi.cast("sb_connection *", connection.address)
    attempt = handle, arrays.publications, len(publications), arrays.settlements, len(settlements), failed, failed + 1
    noted: list[int] = [] if statuses is None else statuses
    with connection.call():
        while True:
            # One call of C commits and stores the status. A signal handler that raises runs before this call or after
            # it.
            noted.extend(itertools.starmap(lib.sb_transaction_commit, [attempt]))
            if noted[-1] != native.GROW:
                break
            connection.attachment.grow()
    publication, target = (None if index == _NOBODY else int(index) for index in failed)
    return Outcome(noted[-1], publication, target)


def commit_waiting(  # noqa: PLR0917 - as for a commit
    connection: "CoreConnection",
    publications: Sequence[Publication],
    settlements: Sequence[Settlement],
    until: int,
    memory_until: int | None = None,
    statuses: list[int] | None = None,
) -> None:
    """Commits as :func:`commit` does, and waits for room until ``until`` and for memory until ``memory_until``.

    Without ``memory_until``, the deadline for memory is ``until``, too. ``statuses``: as for :func:`commit`.

    Raises:
        queue.Full: A queue has no room in time, or its limits can never fit the bodies; nothing happened.
        OutOfMemory: The broker has no memory in time, or a body can never fit.
        MessageSettled: The connection no longer holds a message to settle.
    """
    with connection.memory_waits:
        _commit_waiting(connection, publications, settlements, until, memory_until, statuses)


def _commit_waiting(  # noqa: PLR0917 - as for a commit
    connection: "CoreConnection",
    publications: Sequence[Publication],
    settlements: Sequence[Settlement],
    until: int,
    memory_until: int | None,
    statuses: list[int] | None,
) -> None:
    while True:
        status, publication, target = commit(connection, publications, settlements, statuses)
        if status == native.OK:
            return
        if publication is None:
            if status == native.NO_MEMORY:
                connection.no_memory()
                continue
            native.raise_for(status, "the connection")
        blamed = publications[publication]
        queue = blamed.targets[target or 0]
        sizes = [memoryview(blamed.body).nbytes]
        if status == native.FULL:  # the queue must have room for all its messages at the same time
            sizes = [memoryview(one.body).nbytes for one in publications if queue in one.targets]
            queue.check_can_fit(len(sizes), sum(sizes))
        waits_until = memory_until if status == native.NO_MEMORY and memory_until is not None else until
        queue.put_failed(status, sum(sizes), waits_until, len(sizes))
