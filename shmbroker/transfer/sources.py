# SPDX-License-Identifier: Apache-2.0
"""Where exported messages come from: a queue of a broker that runs, or the store of one that does not."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker import properties as basic
from shmbroker._amqp.errors import amqp_error
from shmbroker._choosing import at_most, chosen
from shmbroker._core import managing, record
from shmbroker._session.queues import core_of
from shmbroker._storekeeper import records, users
from shmbroker.storage import messages as stored
from shmbroker.storage import rows, verifying
from shmbroker.storage.database import DATA, Database
from shmbroker.storage.reading import Reader
from shmbroker.storage.writer import Writer
from shmbroker.transfer.exported import DEAD, READY, SCHEDULED, Exported

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from shmbroker._core.queue import CoreQueue
    from shmbroker.queue import Queue

_LANES = 256  # sequence numbers have 60 bits
_STATES = (READY, SCHEDULED, DEAD)


def messages_of(
    queue: Queue, selector: str | None = None, *, state: str = READY, limit: int | None = None
) -> Iterator[Exported]:
    """Yields copies of the messages of a queue, by ascending sequence number, without taking them.

    Messages that come meanwhile may be among them; the call ends even if they come faster than it copies them. A
    message that is taken or returned meanwhile may be left out.

    Args:
        queue: the queue.
        selector: a condition, as of :meth:`Queue.browse`; only messages for which it is true. ``None`` = all.
        state: ``"ready"``, ``"scheduled"``, ``"delivering"`` or ``"dead"``, as of :meth:`Queue.browse`.
        limit: the most messages; ``None`` = all.

    Raises:
        InvalidSelector: the selector is no condition in the language of selectors.
        CorruptSegment: a message is damaged.
        ValueError: the state or the limit is not allowed.
    """
    if state not in managing.STATES:
        allowed = ", ".join(repr(name) for name in managing.STATES)
        msg = f"state={state!r}: one of {allowed} is allowed"
        raise ValueError(msg)
    core = core_of(queue)
    return _seen(core, managing.STATES[state], chosen(core, selector, None, limit), to_wall=_to_wall())


def _to_wall() -> int:
    return time.time_ns() - time.monotonic_ns()


def _seen(core: CoreQueue, state: int, which: managing.Chosen, *, to_wall: int) -> Iterator[Exported]:
    began, there, count = time.time_ns(), max(0, core.length()), 0
    lanes = _LANES if core.settings()[0].max_priority else 1
    ends = [lane << rows.LANE_SHIFT for lane in range(1, lanes)] + [which.spans[0][1]]
    for lane, end in enumerate(ends):
        spans = ((lane << rows.LANE_SHIFT, end),)
        for seen in managing.browse(core, state, which._replace(spans=spans, limit=which.limit - count)):
            message = _of_record(core.name, seen, to_wall)
            if count >= there and (message.timestamp_ns or 0) > began:
                break  # the rest of the lane came meanwhile, too
            count += 1
            yield message


def _of_record(queue: str, seen: managing.Seen, to_wall: int) -> Exported:
    data = seen.record
    held = managing.Held(data, record.header(data))
    header = held.header
    return Exported(
        data[len(data) - header.body_length :] if header.body_length else b"",
        _decoded(queue, header.sequence, held.properties),
        exchange=held.exchange.decode(),
        routing_key=held.routing_key.decode() or None,
        priority=header.priority,
        sequence=header.sequence,
        state=seen.state,
        timestamp_ns=header.timestamp_ns,
        expires_ns=header.expires_ns + to_wall if header.expires_ns else 0,
        due_ns=seen.due_ns + to_wall if seen.due_ns else None,
        # A browse counts the deliveries of a message only while it is being delivered.
        delivery_count=header.delivery_count or None,
        redelivered=bool(header.marks & record.REDELIVERED),
    )


def _decoded(queue: str, sequence: int, encoded: bytes) -> basic.BasicProperties:
    try:
        return basic.decode(encoded)
    except Exception as error:
        text = f"the properties of message {sequence} of queue {queue!r} cannot be decoded: {error}"
        raise exceptions.CorruptSegment(text=text) from error


class StoredQueues:
    """The queues of a store that no process uses; :func:`opened` yields it."""

    def __init__(self, folder: Path, reader: Reader) -> None:
        self._folder, self._reader = folder, reader
        found = {number: records.decode(encoded) for number, encoded in reader.queues().items()}
        self._numbers = {one.name: number for number, one in found.items()}

    def names(self) -> list[str]:
        """The names of the queues, sorted."""
        return sorted(self._numbers)

    def messages_of(self, queue: str, *, state: str | None = None, limit: int | None = None) -> Iterator[Exported]:
        """Yields the messages of a queue, by ascending sequence number.

        Args:
            queue: the name of the queue.
            state: ``"ready"``: those that a broker could deliver now, if it began from the store; ``"scheduled"``:
                those that become ready later; ``"dead"``: those that wait to go to the dead-letter exchange; ``None`` =
                all.
            limit: the most messages; ``None`` = all.

        Raises:
            NotFound: the store has no such queue.
            StoreError: a message is damaged.
            ValueError: the state or the limit is not allowed.
        """
        if state is not None and state not in _STATES:
            msg = f"state={state!r}: None, or one of {', '.join(map(repr, _STATES))} is allowed: of a store"
            raise ValueError(msg)
        if queue not in self._numbers:
            raise amqp_error(exceptions.NotFound, f"no queue {queue!r} in the store in {str(self._folder)!r}")
        return self._messages(queue, state, at_most(limit, "limit"))

    def _messages(self, queue: str, state: str | None, limit: int) -> Iterator[Exported]:
        now, count = time.time_ns(), 0
        for one in stored.messages_of(self._reader, self._numbers[queue]):
            if count == limit:
                return
            found = DEAD if one.dead else SCHEDULED if one.due_ns > now else READY
            if state in {None, found} and not 0 < one.expires_ns <= now:
                count += 1
                yield _of_store(queue, one, found)


def _of_store(queue: str, one: stored.StoredMessage, state: str) -> Exported:
    return Exported(
        bytes(one.body),
        _decoded(queue, one.sequence, one.properties),
        exchange=one.exchange.decode(),
        routing_key=one.routing_key.decode() or None,
        priority=one.priority,
        sequence=one.sequence,
        state=state,
        timestamp_ns=one.timestamp_ns,
        expires_ns=one.expires_ns,
        due_ns=one.due_ns if state == SCHEDULED else None,
        delivery_count=one.delivery_count,
        redelivered=one.redelivered,
    )


@contextlib.contextmanager
def opened(data_dir: str | os.PathLike[str]) -> Iterator[StoredQueues]:
    """Opens a store that no process uses, for the length of a block. No broker can begin from it meanwhile.

    What only the log has comes into the database first, as it does when a broker begins.

    Raises:
        StoreError: the folder has no store; the store is in use, or damaged.
    """
    folder = Path(data_dir).resolve()
    users.refuse_a_broker(folder)
    if folder.is_dir() and not (folder / DATA).exists():
        raise exceptions.StoreError(text=f"data_dir={str(folder)!r} has no store: there is no file {DATA!r}")
    if folder.is_dir():
        verifying.verified(folder)
    with (
        Database(folder, owner="an export") as database,
        contextlib.closing(Writer(database)),
        database.read() as transaction,
    ):
        yield StoredQueues(folder, Reader(database, transaction))
