# SPDX-License-Identifier: Apache-2.0
"""Copies messages to another queue, gives them another priority, and returns dead letters to where they come from."""

from __future__ import annotations

import contextlib
import queue as standard_queue
import time
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker import properties as basic
from shmbroker._amqp import deaths
from shmbroker._core import managing, native, record
from shmbroker._core.patience import Patience
from shmbroker._core.queue import PutOptions
from shmbroker._core.transaction import Publication, Settlement, commit
from shmbroker._dataclasses import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker._core.managing import Chosen, Held, Seen
    from shmbroker._core.queue import CoreQueue

_AT_ONCE = 64  # messages of a commit


def _looked_at(queue: CoreQueue, chosen: Chosen, *, body: bool) -> Iterator[Seen]:
    """Yields the chosen ready messages. Ends when it has come to as many as there are now: more may come meanwhile."""
    there = max(0, queue.length())
    return managing.browse(queue, managing.READY, chosen._replace(limit=there), body=body)


def _life_left(expires_ns: int) -> float:
    """Returns the seconds until a time of the monotonic clock, at least a nanosecond; 0 = for ever."""
    return max(1, expires_ns - time.monotonic_ns()) / native.NANOSECONDS if expires_ns else 0.0


def copy(queue: CoreQueue, target: CoreQueue, chosen: Chosen) -> int:
    """Puts copies of ready messages into another queue, until that queue is full; returns their number.

    Raises:
        NeverFits: a body can never fit the target; the messages before it are copied.
        OutOfMemory: the broker has no memory for a copy, and none came free in time; the messages before it are copied.
    """
    with Patience(queue.connection, "copied").told() as patience:
        for seen in _looked_at(queue, chosen, body=True):
            if patience.done == chosen.limit or not _copy(target, seen, patience):
                break
            patience.worked()
            if chosen.progress is not None:
                chosen.progress(patience.done)
    return patience.done


def _copy(target: CoreQueue, seen: Seen, patience: Patience) -> bool:
    """Puts a copy of a message, as soon as there is memory for it. False: the target has no room."""
    message = managing.Held(seen.record, record.header(seen.record))
    body = seen.record[len(seen.record) - message.header.body_length :]
    options = _options(message, message.header.priority, message.properties)
    while True:
        try:
            target.put_with(body, len(body), options, 0)
        except exceptions.NeverFits:
            raise
        except exceptions.OutOfMemory:
            if not patience.waits():
                raise
        except standard_queue.Full:
            return False
        else:
            return True


def _options(message: Held, priority: int, properties: bytes) -> PutOptions:
    life = _life_left(message.header.expires_ns)
    return PutOptions(life, 0, priority, message.routing_key, properties, message.exchange)


class Ranking:
    """Gives ready messages of a queue another priority.

    Each commit publishes some of them anew, and ends them where they were.

    Args:
        queue: the queue.
        priority: the new priority.
    """

    def __init__(self, queue: CoreQueue, priority: int) -> None:
        self._queue, self._priority = queue, priority
        self._taken = managing.Taken(queue)
        self._publications: list[Publication] = []
        self._ends: list[Settlement] = []
        self._patience = Patience(queue.connection, "changed")

    @property
    def changed(self) -> int:
        """How many messages have the priority now."""
        return self._patience.done

    def run(self, chosen: Chosen) -> None:
        """Changes the chosen messages, until the queue has no room.

        Raises:
            OutOfMemory: the broker has no memory for a message, and none came free in time; those before it have
                changed.
            CorruptSegment: a message is damaged; those before it have changed.
        """
        try:
            with self._patience.told():
                self._run(chosen)
        finally:
            self._taken.end()

    def _run(self, chosen: Chosen) -> None:
        for seen in _looked_at(self._queue, chosen, body=False):
            header = record.header(seen.record)
            if self.changed + len(self._ends) == chosen.limit:
                break
            if header.priority != self._priority:
                self._add(header.sequence)
            if len(self._ends) == _AT_ONCE:
                if not self._commit():
                    return
                if chosen.progress is not None:
                    chosen.progress(self.changed)
        self._commit()

    def _add(self, sequence: int) -> None:
        message = self._taken.take(sequence)
        if message is not None:
            options = _options(message, self._priority, _with_priority(message.properties, self._priority))
            self._publications.append(Publication(message.body(self._queue), (self._queue,), options))
            self._ends.append(Settlement(self._queue, message.header.tag, managing.TRANSFER))

    def _commit(self) -> bool:
        """Commits the messages that were taken. False: the queue has no room for them, and they are back."""
        connection, statuses = self._queue.connection, self._taken.statuses
        while commit(connection, self._publications, self._ends, statuses).status == native.NO_MEMORY:
            self._patience.no_memory()
        self._taken.end()
        if statuses[-1] not in {native.OK, native.FULL, native.REJECTED}:
            native.raise_for(statuses[-1], self._queue.what)
        if statuses[-1] == native.OK:
            self._patience.worked(len(self._ends))
        self._publications, self._ends = [], []
        return statuses[-1] == native.OK


def _with_priority(properties: bytes, priority: int) -> bytes:
    """Returns encoded properties that say the same priority as the message, if they say one."""
    with contextlib.suppress(ValueError):  # damaged ones stay as they are
        given = basic.decode(properties) if properties else basic.NO_PROPERTIES
        if given.priority is not None:
            return basic.encode(replace(given, priority=priority))
    return properties


class Returning:
    """Moves dead letters back to the queues that they died in last.

    Args:
        queue: the queue that they are in.
        reach: returns the queue of a name; ``None``: there is none.

    Attributes:
        moved: how many were moved.
        stayed: for each reason for which messages stayed, how many did.
    """

    def __init__(self, queue: CoreQueue, reach: Callable[[str], CoreQueue | None]) -> None:
        self._queue, self._reach = queue, reach
        self._refused: dict[str, str] = {}  # why no message can be moved to a queue
        self.moved = 0
        self.stayed: dict[str, int] = {}

    def run(self, chosen: Chosen) -> None:
        """Moves the chosen messages.

        Raises:
            OutOfMemory: the broker has no memory to move a message; those before it are moved.
            CorruptSegment: a message, or a property that the selector reads, is damaged; those before it are moved.
        """
        for looked, seen in enumerate(_looked_at(self._queue, chosen, body=False), 1):
            if self.moved == chosen.limit:
                break
            why = self._move(managing.Held(seen.record, record.header(seen.record)))
            if why is not None:
                self.stayed[why] = self.stayed.get(why, 0) + 1
            if chosen.progress is not None and looked % _AT_ONCE == 0:
                chosen.progress(self.moved)

    def _move(self, message: Held) -> str | None:
        """Moves a dead letter; returns why it stays, or ``None`` if it is gone from the queue."""
        origin = _origin(message.properties)
        if origin is None:
            return "no header x-death names a queue"
        if origin in self._refused:
            return self._refused[origin]
        target = self._reach(origin)
        return self._refuse(origin, "does not exist") if target is None else self._move_to(target, message)

    def _move_to(self, target: CoreQueue, message: Held) -> str | None:
        origin = target.name
        if origin == self._queue.name:
            return self._refuse(origin, "is this queue")
        try:
            moved, is_full = managing.move_one(self._queue, target, message.header.sequence)
        except exceptions.NeverFits:
            return f"{target.what} can never have room for a body of its size"
        except exceptions.NotFound:
            if self._queue.is_deleted():
                raise
            return self._refuse(origin, "does not exist")
        self.moved += moved
        return self._refuse(origin, "is full") if is_full else None

    def _refuse(self, origin: str, why: str) -> str:
        text = self._refused[origin] = f"queue {origin!r} {why}"
        return text


def _origin(properties: bytes) -> str | None:
    """Returns the queue of the latest death; ``None``: the properties tell of none."""
    try:
        found = deaths.deaths_of(basic.decode(properties).headers or {}) if properties else []
    except ValueError:
        return None
    origin = found[0].get("queue") if found else None
    return origin if isinstance(origin, str) else None
