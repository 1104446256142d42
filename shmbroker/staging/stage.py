# SPDX-License-Identifier: Apache-2.0
"""A stage: where batches are written by many processes, and from where they are published once."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from typing import TYPE_CHECKING

from shmbroker import exceptions, settings
from shmbroker._amqp.names import is_internal
from shmbroker._core import library
from shmbroker.staging import names
from shmbroker.staging.marker import Marker, forget_gone
from shmbroker.staging.part import Limits
from shmbroker.staging.publishing import Publisher
from shmbroker.staging.state import Begun, Receipt, State
from shmbroker.staging.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmbroker.connection import Connection
    from shmbroker.queue import Queue
    from shmbroker.staging.marker import Held
    from shmbroker.staging.names import Attempt, Batch

AT_ONCE = 10_000
"""A batch of so many messages is published at once, unless a stage is told otherwise."""
_LONGEST = 36  # a batch, as text
_PART_OF_MEMORY = 4  # and so is one that takes a quarter of the broker's


@dataclasses.dataclass(frozen=True, slots=True)
class StageInfo:
    """An attempt that is staged: ``count`` messages, whose bodies are together ``bytes`` long.

    ``publication`` is whose it is; ``batch``, ``partition`` and ``attempt`` are those that it is written under.
    """

    publication: str
    batch: Batch
    partition: int
    attempt: int
    count: int
    bytes: int


class Stage:
    """The batches of one publication: of one streaming query, or of the jobs that write to one queue.

    Args:
        connection: to the broker that has the target.
        publication: its name, 1 to 100 characters.
        expires: seconds after which the broker deletes an attempt that nobody wrote to or published; ``None`` = never.
        at_once: a batch of up to so many messages is published all at once.
        bytes_at_once: ... if its bodies together have so many bytes; ``None``: a quarter of the broker's memory.
        per_target: what was published holds as long as the target lives: a queue that is deleted and made anew gets
            its batches from the first one on. What is left of such publications, whose targets are gone, is deleted by
            the first batch of the next one.
    """

    def __init__(
        self,
        connection: Connection,
        publication: str,
        *,
        expires: float | None = None,
        at_once: int = AT_ONCE,
        bytes_at_once: int | str | None = None,
        per_target: bool = False,
    ) -> None:
        self._connection = connection
        self.publication = names.check_publication(publication)
        self._expires = settings.validate({"expires": expires})["expires"]
        if bytes_at_once is None:
            bytes_at_once = int(connection.core.attachment.facts().memory_limit) // _PART_OF_MEMORY
        self._limits = Limits(
            settings.parse_size(at_once, "at_once"), settings.parse_size(bytes_at_once, "bytes_at_once")
        )
        self._marker = Marker(connection, publication)
        self._per_target = per_target

    # ---- writing ----

    def attempt(self, batch: Batch, partition: int, attempt: int) -> Writer:
        """A writer of one partition of a batch, to be used in a ``with`` block.

        Args:
            batch: its number, or the id of a job.
            partition: of the batch, from 0.
            attempt: any number; two attempts of the same one do not meet.
        """
        made = names.new_attempt(self.publication, batch, partition, attempt)
        return Writer(self._connection, made, self._expires, self._marker)

    # ---- publishing ----

    def publish(self, batch: Batch, winners: Iterable[Receipt], to: str, *, timeout: float | None = None) -> int:
        """Publishes a batch, once, in the order of its partitions; drops what is left of this and of earlier ones.

        If it raises nothing was published, and everything is staged still. Of a batch that is too large to be published
        at once some messages may have been: the next call goes on with the others.

        Args:
            batch: its number, which must be above that of the last one for it to be published; or the id of a job.
            winners: the receipt of one attempt at each partition.
            to: the queue that gets the messages.
            timeout: seconds to wait for others who publish, for room in the queue and for memory.

        Returns:
            How many messages were published; 0 if that batch was published before. If a publisher of it was killed who
            had begun to move it: how many were left.

        Raises:
            NotStaged: an attempt is not there as it was completed.
            NotFound: there is no such queue.
            queue.Full: it has no room in time.
            OutOfMemory: the broker has none in time, or a body can never fit.
            Timeout: somebody else was publishing all the time.
        """
        wanted = Begun(names.check_batch(batch), _checked_target(to), _checked_winners(batch, winners))
        until, published = library.deadline(timeout), 0
        publisher = Publisher(self._connection, self.publication, self._limits, until)
        state, is_first = State(), False
        while not state.has(batch):
            with self._marker.held(until) as held:
                target = self._target(held, wanted.to)
                state, begun = held.state, held.state.begun
                is_first = is_first or (self._per_target and state.last is None)
                if state.has(batch):
                    break
                if begun is None:
                    state, count = publisher.publish_or_begin(held, wanted, target)
                else:  # it is finished first, whichever it is
                    state, count = publisher.finish(held, begun, target)
                published = count if begun is None or begun.batch == batch else 0
        self._sweep(lambda one: state.is_over(one.batch))
        if is_first:  # not with each batch: all markers are looked at
            forget_gone(self._connection)
        return published

    def _target(self, held: Held, to: str) -> Queue | None:
        """The target, where what the marker says is to hold for that; ``None``: it is opened when it is needed."""
        if not self._per_target:
            return None
        target = self._connection.queue(to, passive=True)
        held.state = held.state.of(target.core.incarnation)
        return target

    def _sweep(self, is_done: Callable[[Attempt], bool]) -> int:
        """Drops attempts; what cannot be dropped in time is left to the next publish."""
        dropped = 0
        for name in self._connection.queue_names(all=True):
            attempt = names.attempt_of(name)
            if attempt is not None and attempt.publication == self.publication and is_done(attempt):
                with contextlib.suppress(exceptions.NotFound, exceptions.Timeout, exceptions.OutOfMemory):
                    self._connection.queue(name, passive=True).delete()
                    dropped += 1
        return dropped

    def drop(self, batch: Batch, *, timeout: float | None = None) -> int:
        """Drops the attempts at a batch that is not wanted; returns how many there were.

        A batch that may be published in part is not dropped: the rest of it is needed. A job that was dropped is over:
        who stages for it still is told so when he is done. The number of a batch may be used again.

        Raises:
            Timeout: somebody else was publishing all the time.
        """
        names.check_batch(batch)
        until = library.deadline(timeout)
        with self._marker.held(until) as held:
            begun = held.state.begun
            if begun is not None and begun.batch == batch:
                return 0
            dropped = self._sweep(lambda one: one.batch == batch)
            if isinstance(batch, uuid.UUID) and not held.state.is_over(batch):
                held.replace(held.state.without(batch), until)  # for which there may be memory only now
                dropped += self._sweep(lambda one: one.batch == batch)
            return dropped

    # ---- facts ----

    @property
    def published(self) -> int | None:
        """The number of the last batch that was published, ``None``: none was. Waits for who is publishing."""
        return self._state().last

    def is_published(self, batch: Batch) -> bool:
        """Was that batch published? Of jobs the last 256 are remembered. Waits for who is publishing.

        Raises:
            Timeout: somebody was publishing for longer than the connection's ``operation_timeout``.
        """
        return self._state().has(names.check_batch(batch))

    def _state(self) -> State:
        with self._marker.held(self._connection.operation_deadline()) as held:
            return held.state

    def forget(self) -> None:
        """Deletes all that there is of the publication: what is staged, and which batches were published."""
        self._sweep(lambda _: True)
        with contextlib.suppress(exceptions.NotFound):
            self._connection.queue(names.marker_name(self.publication), passive=True).delete()

    def __repr__(self) -> str:
        return f"<Stage of {self.publication!r} in broker {self._connection.broker_name!r}>"


def stages(connection: Connection, publication: str | None = None) -> list[StageInfo]:
    """The attempts that are staged, of one publication or of all; what nobody will publish any more is among them."""
    found = []
    for statistics in connection.queue_statistics(all=True):
        attempt = names.attempt_of(statistics.name)
        if attempt is not None and publication in {None, attempt.publication}:
            found.append(StageInfo(*attempt[:4], count=statistics.message_count, bytes=statistics.bytes))
    return sorted(found, key=lambda one: (one.publication, str(one.batch).zfill(_LONGEST), one.partition, one.attempt))


def _checked_target(to: object) -> str:
    if not isinstance(to, str):
        msg = f"to={to!r}: the name of a queue is needed"
        raise TypeError(msg)
    if is_internal(to):
        msg = f"to={to!r}: that queue is the broker's own"
        raise ValueError(msg)
    return to


def _checked_winners(batch: Batch, winners: Iterable[Receipt]) -> tuple[Receipt, ...]:
    given = tuple(winners)
    for receipt in given:
        if not isinstance(receipt, Receipt):
            msg = f"winners: {receipt!r} is no receipt"
            raise TypeError(msg)
        if receipt.batch != batch:
            msg = f"winners: {receipt!r} is not of batch {batch}"
            raise ValueError(msg)
    if len({receipt.partition for receipt in given}) < len(given):
        msg = "winners: there are two of one partition"
        raise ValueError(msg)
    return tuple(sorted(given, key=lambda one: one.partition))
