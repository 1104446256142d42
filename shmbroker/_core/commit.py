# SPDX-License-Identifier: Apache-2.0
"""Publishing to several queues, and transactions: everything of a call happens, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker._core import library
from shmbroker._core.connection import CoreConnection, out_of_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmbroker._core.queue import CoreQueue, PutOptions

ffi, slow, fast, fast_ffi = library.ffi, library.slow, library.fast, library.fast_ffi
_NOBODY = 2**32 - 1
_SHORT = 16384


class Publication(NamedTuple):
    """A message that goes to several queues.

    Attributes:
        body: contiguous bytes-like.
        size: its length in bytes.
        options: what goes with it.
        targets: queues of the connection, each once.
    """

    body: Any
    size: int
    options: PutOptions
    targets: Sequence[CoreQueue]


class Settlement(NamedTuple):
    """A message that is held, and how it is to be settled.

    Attributes:
        queue: its queue's handle in the core.
        token: what the core knows it by.
        how: 0 acknowledge, 1 requeue, 2 reject.
    """

    queue: Any
    token: int
    how: int


class Outcome(NamedTuple):
    """What became of an attempt.

    Attributes:
        status: ``library.OK``, or why nothing happened.
        publication: which publication is to blame, None if none is.
        target: which of its queues is, None if none is.
    """

    status: int
    publication: int | None
    target: int | None


def attempt(
    connection: CoreConnection, publications: Sequence[Publication], settlements: Sequence[Settlement] = ()
) -> Outcome:
    """Publishes and settles, all or nothing, without waiting for room; another segment is added where memory is missing.

    Args:
        connection: whose queues and messages they are.
        publications: what is published.
        settlements: what is settled.

    Returns:
        What became of it.
    """
    with connection.call():
        call = _Call(publications, settlements)
        while (status := call.make(connection)) == library.GROW:
            connection.attachment.grow()
        return Outcome(status, *call.places())


def commit(
    connection: CoreConnection, publications: Sequence[Publication], settlements: Sequence[Settlement], until: int
) -> None:
    """Publishes and settles, all or nothing, waiting for room until then.

    Args:
        connection: whose queues and messages they are.
        publications: what is published.
        settlements: what :meth:`CoreChannel.collect` found.
        until: when to give up waiting for room; nothing was done then.

    Raises:
        queue.Full: a queue has no room.
        OutOfMemory: the broker has no room, or a body can never fit.
        MessageSettled: a message is not held any more.
    """
    with connection.call():
        call = _Call(publications, settlements)
        while (status := call.make(connection)) != library.OK:
            blamed = call.blamed()
            if blamed is not None:
                blamed[1].put_failed(status, blamed[0].size, until)
            elif status == library.GROW:
                connection.attachment.grow()
            elif status == library.NO_MEMORY:
                raise out_of_memory(connection, 0)
            else:
                library.raise_for(status, "the connection")


class _Call:
    """The arguments of a call in the core's form."""

    def __init__(self, publications: Sequence[Publication], settlements: Sequence[Settlement]) -> None:
        self._publications = publications
        self._kept: list[Any] = []
        self._array = ffi.new("sb_publication[]", max(1, len(publications)))
        for one, into in zip(publications, self._array, strict=False):
            body = ffi.from_buffer("char[]", one.body)
            targets = ffi.new("sb_queue *[]", [queue.handle for queue in one.targets])
            self._kept += [body, targets]
            into.body, into.length, into.options = body, one.size, one.options.pointer
            into.targets, into.target_count = targets, len(one.targets)
        self._settlements = ffi.new("sb_settlement[]", max(1, len(settlements)))
        for at, settlement in enumerate(settlements):
            into = self._settlements[at]
            into.queue, into.token, into.how = settlement
        self._settlement_count = len(settlements)
        self._failed = ffi.new("uint32_t[2]")

    def make(self, connection: CoreConnection) -> int:
        """Makes it; a status."""
        return int(
            slow.sb_commit_all(
                connection.handle, self._array, len(self._publications), self._settlements, self._settlement_count,
                self._failed, self._failed + 1,
            )
        )  # fmt: skip

    def places(self) -> tuple[int | None, int | None]:
        """Which publication is to blame, and which of its targets."""
        publication, target = (None if place == _NOBODY else int(place) for place in self._failed)
        return publication, target

    def blamed(self) -> tuple[Publication, CoreQueue] | None:
        """Which publication could not be put into which queue, if one could not."""
        publication, target = self._failed
        if publication == _NOBODY or target == _NOBODY:
            return None
        return self._publications[publication], self._publications[publication].targets[target]
