# SPDX-License-Identifier: Apache-2.0
"""A stage: many processes write batches to it, and each batch is published from it once."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from typing import TYPE_CHECKING

from shmbroker import exceptions, settings
from shmbroker._amqp.names import is_internal
from shmbroker._core import native
from shmbroker._session.queues import core_of
from shmbroker._session.session import session_of
from shmbroker.staging import names
from shmbroker.staging.marker import Marker, forget_gone
from shmbroker.staging.publication import Begun, PublicationState, Receipt
from shmbroker.staging.publishing import Publisher
from shmbroker.staging.transaction import Limits
from shmbroker.staging.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmbroker.connection import Connection
    from shmbroker.queue import Queue
    from shmbroker.staging.marker import Held
    from shmbroker.staging.names import Attempt, Batch

AT_ONCE = 10_000
"""A batch of up to this many messages is published in one step, unless a stage has another limit."""
_LONGEST = 36  # characters of the longest form of a batch, a UUID
_PART_OF_MEMORY = 4  # by default, 1/4 of the memory limits the bytes of a batch that is published in one step


@dataclasses.dataclass(frozen=True, slots=True)
class StageInfo:
    """A staged attempt: ``count`` messages, whose bodies have ``bytes`` bytes together.

    ``publication`` is its publication; ``batch``, ``partition`` and ``attempt`` are the numbers that it is written
    under.
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
        connection: the connection to the broker that has the target.
        publication: the name of the publication, 1 to 100 characters.
        expires: seconds without a write or a publish after which the broker deletes an attempt; ``None`` = never.
        at_once: the most messages of a batch that is published in one step; a larger batch is moved in parts.
        bytes_at_once: the most bytes that the bodies of such a batch have together; ``None``: a quarter of the broker's
            memory.
        per_target: whether the record of published batches is kept only as long as the target exists. If the target is
            deleted and declared again, batches are published to it from the first one on. A publish to another target
            discards the record, too. While a publication with this option has no record, as before its first batch with
            a number, each publish deletes the records whose targets are gone.
        durable: in a broker with a store: whether what is staged lies in the store, and a writer's block and a publish
            wait until all of it is on the disk. ``False`` is for targets that are not durable. The record of published
            batches is in the store in any case.

    Attributes:
        publication: the name of the publication.
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
        durable: bool = True,
    ) -> None:
        self._connection = connection
        self.publication = names.check_publication(publication)
        self._expires = settings.validate({"expires": expires})["expires"]
        if bytes_at_once is None:
            bytes_at_once = session_of(connection).core.attachment.facts().memory_limit // _PART_OF_MEMORY
        self._limits = Limits(
            settings.parse_size(at_once, "at_once"), settings.parse_size(bytes_at_once, "bytes_at_once")
        )
        self._marker = Marker(connection, publication)
        self._per_target, self._durable = per_target, durable

    # ---- writing ----

    def attempt(self, batch: Batch, partition: int, attempt: int) -> Writer:
        """Returns a writer of one partition of a batch, for a ``with`` block.

        Args:
            batch: the number of the batch, or the id of a job.
            partition: the partition of the batch, from 0.
            attempt: an integer from 0; two attempts with the same number do not conflict.
        """
        made = names.new_attempt(self.publication, batch, partition, attempt)
        return Writer(self._connection, made, self._marker, expires=self._expires, durable=self._durable)

    # ---- publishing ----

    def publish(self, batch: Batch, winners: Iterable[Receipt], to: str, *, timeout: float | None = None) -> int:
        """Publishes a batch, once, in the order of its partitions; then drops all attempts at it and at earlier ones.

        If the call raises an error listed below, it published nothing, and what was staged is still staged. There is
        one exception: of a batch that is too large for one step, it may have published some messages. The next call
        publishes the others. An interrupt may come after the batch was published: then the next call returns 0. After
        a Timeout, another process may have published the batch.

        Args:
            batch: the number of the batch, published only if it is above that of the last one; or the id of a job.
            winners: the receipt of one attempt at each partition.
            to: the queue that gets the messages.
            timeout: seconds to wait for other publishers, for room in the queue and for memory.

        Returns:
            The number of messages that this call published; 0 if the batch was published before. If an earlier
            publisher was killed while it moved the batch, only the messages that it left count.

        Raises:
            NotStaged: an attempt is gone, or differs from its receipt.
            NotFound: the queue ``to`` does not exist.
            queue.Full: the queue has no room in time.
            OutOfMemory: the broker has no memory in time, or a body can never fit.
            Timeout: another process was publishing all the time; or the batch is published, and was not on the disk in
                time.
        """
        wanted = Begun(names.check_batch(batch), _checked_target(to), _checked_winners(batch, winners))
        until, published = native.deadline(timeout), 0
        publisher = Publisher(self._connection, self.publication, self._limits, until)
        state, is_first = PublicationState(), False
        while not state.has(batch):
            with self._marker.held(until) as held:
                target = self._target(held, wanted.to)
                state, begun = held.state, held.state.begun
                is_first = is_first or (self._per_target and state.last is None)
                if state.has(batch):
                    break
                if begun is None:
                    state, count = publisher.publish_or_begin(held, wanted, target)
                else:  # a batch is begun, this one or another: it is finished first
                    state, count = publisher.finish(held, begun, target)
                published = count if begun is None or begun.batch == batch else 0
        self._sweep(lambda one: state.is_over(one.batch))
        if is_first:  # not with each batch: it examines all markers
            forget_gone(self._connection)
        if self._durable:  # also if another process has published the batch, which may still wait
            self._marker.synced(until)
        return published

    def _target(self, held: Held, to: str) -> Queue | None:
        """With ``per_target``, returns the target, and empties the held marker's state if that is for another one.

        Without ``per_target``, returns ``None``: the publisher then opens the target itself.
        """
        if not self._per_target:
            return None
        target = self._connection.queue(to, passive=True)
        held.state = held.state.of(core_of(target).birth)
        return target

    def _sweep(self, is_done: Callable[[Attempt], bool]) -> int:
        """Drops the attempts for which ``is_done`` is true; returns their number. Skips any it cannot drop in time."""
        dropped = 0
        for name in self._connection.queue_names(all=True):
            attempt = names.attempt_of(name)
            if attempt is not None and attempt.publication == self.publication and is_done(attempt):
                with contextlib.suppress(exceptions.NotFound, exceptions.Timeout, exceptions.OutOfMemory):
                    self._connection.queue(name, passive=True).delete()
                    dropped += 1
        return dropped

    def drop(self, batch: Batch, *, timeout: float | None = None) -> int:
        """Drops the attempts at a batch that is not needed; returns their number.

        A batch that may be published in part is not dropped, as the rest of it is needed: the call returns 0. A dropped
        job is over: a writer that still stages for it gets NotStaged, at its next put or the end of its block. A
        dropped batch with a number is not over: new attempts at it can be published.

        Raises:
            OutOfMemory: there was no memory in time to record that the job is over; its attempts are dropped already.
            Timeout: another process was publishing all the time.
        """
        names.check_batch(batch)
        until = native.deadline(timeout)
        with self._marker.held(until) as held:
            begun = held.state.begun
            if begun is not None and begun.batch == batch:
                return 0
            dropped = self._sweep(lambda one: one.batch == batch)
            if isinstance(batch, uuid.UUID) and not held.state.is_over(batch):
                held.replace(held.state.without(batch), until)  # there may be memory for it only now
                dropped += self._sweep(lambda one: one.batch == batch)
            return dropped

    # ---- facts ----

    @property
    def published(self) -> int | None:
        """The number of the last published batch; ``None``: there is none. Waits for a process that is publishing."""
        return self._state().last

    def is_published(self, batch: Batch) -> bool:
        """Whether a batch was published. Of jobs, only the last 256 are known. Waits for a process that is publishing.

        Raises:
            Timeout: another process was publishing for longer than the connection's ``operation_timeout``.
        """
        return self._state().has(names.check_batch(batch))

    def _state(self) -> PublicationState:
        with self._marker.held(session_of(self._connection).operation_deadline()) as held:
            return held.state

    def forget(self) -> None:
        """Deletes everything of the publication: its staged attempts, and the record of its published batches."""
        self._sweep(lambda _: True)
        with contextlib.suppress(exceptions.NotFound):
            self._connection.queue(names.marker_name(self.publication), passive=True).delete()

    def __repr__(self) -> str:
        return f"<Stage of {self.publication!r} in broker {self._connection.broker_name!r}>"


def stages(connection: Connection, publication: str | None = None) -> list[StageInfo]:
    """Lists the staged attempts, of one publication or of all, including those that will never be published."""
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
            msg = f"winners: {receipt!r} is not a receipt"
            raise TypeError(msg)
        if receipt.batch != batch:
            msg = f"winners: {receipt!r} is not of batch {batch}"
            raise ValueError(msg)
    if len({receipt.partition for receipt in given}) < len(given):
        partitions = sorted(receipt.partition for receipt in given)
        msg = f"winners: two receipts are of the same partition, among {partitions}: one for each is allowed"
        raise ValueError(msg)
    return tuple(sorted(given, key=lambda one: one.partition))
