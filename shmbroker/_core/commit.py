# SPDX-License-Identifier: Apache-2.0
"""Publishing to several queues, and transactions: all of it happens, or nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from shmbroker._core import library
from shmbroker._core.connection import out_of_memory
from shmbroker._core.queue import NO_OPTIONS, CoreQueue, PutOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmbroker._core.connection import CoreConnection

LONG = 16_384
"""Bytes, and cells to write for each 256 of them, from which on a call drops the GIL."""
_CELL = 256
_NOBODY = 2**32 - 1
ACK, REQUEUE, REJECT = range(3)


class Publication(NamedTuple):
    """A body and the queues it goes to, none of them twice.

    Attributes:
        body: Bytes-like and contiguous; it is stored once.
        targets: Queues of the connection that commits.
        options: As of a put.
    """

    body: Any
    targets: Sequence[CoreQueue]
    options: PutOptions = NO_OPTIONS


class Handle(Protocol):
    """An object of the core."""

    @property
    def address(self) -> int:
        """Where it is."""
        ...


class Settlement(NamedTuple):
    """A message that the connection holds, and what becomes of it.

    Attributes:
        queue: The queue it was taken from.
        token: The tag of its record; the place of a consumer in it is ignored.
        how: ACK, REQUEUE, REJECT.
        delivery_tag: That of its channel; a commit does not look at it.
    """

    queue: Handle
    token: int
    how: int = ACK
    delivery_tag: int = 0


class Outcome(NamedTuple):
    """What became of a commit.

    Attributes:
        status: ``library.OK``, or why nothing happened.
        publication: Which publication is to blame, None if none is.
        target: Which of its queues is, None if none is.
    """

    status: int
    publication: int | None
    target: int | None


class _Arrays:
    """The arguments of a call for one of the two native modules; kept alive as long as it."""

    def __init__(self, ffi: Any, publications: Sequence[Publication], settlements: Sequence[Settlement]) -> None:  # noqa: ANN401
        self.publications = ffi.new("sb_publication[]", len(publications))
        self.settlements = ffi.new("sb_settlement[]", len(settlements))
        self._kept: list[Any] = []
        queues, targets, given, options = None, None, None, None  # those of many are the same
        for place, publication in enumerate(publications):
            one = self.publications[place]
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
        for place, (queue, token, how, _) in enumerate(settlements):
            entry = self.settlements[place]
            if queue is not source:
                source, pointer = queue, ffi.cast("sb_queue *", queue.address)
            entry.queue, entry.token, entry.how = pointer, token, how


def _is_long(publications: Sequence[Publication], settlements: Sequence[Settlement]) -> bool:
    size = _CELL * len(settlements)
    return size + sum(memoryview(one.body).nbytes + _CELL * len(one.targets) for one in publications) > LONG


def commit(
    connection: CoreConnection, publications: Sequence[Publication], settlements: Sequence[Settlement] = ()
) -> Outcome:
    """Publishes and settles, all or nothing, whoever is killed.

    A queue that was deleted is passed over. Where memory is missing another segment is added.

    Args:
        connection: The one that has the queues open and holds the messages.
        publications: What goes where.
        settlements: Messages that are done with.

    Returns:
        What became of it. FULL: that queue has no room, the caller may wait for it and call again; SETTLED: a message
        is not held any more; NO_MEMORY, TOO_LARGE, INVALID and others as from a put. Nothing happened then.
    """
    drops_gil = _is_long(publications, settlements)
    native, ffi = (library.slow, library.ffi) if drops_gil else (library.fast, library.fast_ffi)
    arrays = _Arrays(ffi, publications, settlements)
    failed = ffi.new("uint32_t[2]")
    handle = ffi.cast("sb_connection *", connection.address)
    with connection.call():
        while True:
            status = int(
                native.sb_commit_all(
                    handle,
                    arrays.publications,
                    len(publications),
                    arrays.settlements,
                    len(settlements),
                    failed,
                    failed + 1,
                )
            )
            if status != library.GROW:
                break
            connection.attachment.grow()
    publication, target = (None if place == _NOBODY else int(place) for place in failed)
    return Outcome(status, publication, target)


def commit_waiting(
    connection: CoreConnection,
    publications: Sequence[Publication],
    settlements: Sequence[Settlement],
    until: int,
    memory_until: int | None = None,
) -> None:
    """The same, waiting for room until then; for memory until ``memory_until``, if that is given.

    Raises:
        queue.Full: A queue has no room in time, or never has for so much; nothing happened.
        OutOfMemory: The broker has none, or a body can never fit.
        MessageSettled: A message is not held any more.
    """
    while True:
        status, publication, target = commit(connection, publications, settlements)
        if status == library.OK:
            return
        if publication is None:
            if status == library.NO_MEMORY:
                raise out_of_memory(connection, 0)
            library.raise_for(status, "the connection")
        blamed = publications[publication]
        queue = blamed.targets[target or 0]
        if status == library.FULL:
            sizes = [memoryview(one.body).nbytes for one in publications if queue in one.targets]
            queue.check_can_fit(len(sizes), sum(sizes))
        waits_until = memory_until if status == library.NO_MEMORY and memory_until is not None else until
        queue.put_failed(status, memoryview(blamed.body).nbytes, waits_until)
