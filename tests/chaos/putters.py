# SPDX-License-Identifier: Apache-2.0
"""Ways to put messages, each with a line before and after whatever counts."""

from __future__ import annotations

import itertools
import queue as standard_queue
from typing import TYPE_CHECKING

import shmbroker
from tests.chaos import content
from tests.chaos.journal import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.takers import Actor

MOST_PUT = 40


def put_one(actor: Actor, queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    """One message; at times it does not wait long for room."""
    message = content.message_of(number, next(counts))
    body = content.body_of(message)
    actor.journal.write("put", queue.name, names([message]))
    try:
        queue.put(body, timeout=actor.chance.choice([None, 0.05]))
    except standard_queue.Full:
        actor.journal.write("done", 0)
    except shmbroker.Timeout:
        actor.journal.write("late")
    else:
        actor.journal.write("done", 1)


def put_in_place(actor: Actor, queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    """One message, written where it lies."""
    message = content.message_of(number, next(counts))
    body = content.body_of(message)
    actor.journal.write("put", queue.name, names([message]))
    with queue.reserve(len(body)) as memory:
        memory[:] = body
    actor.journal.write("done", 1)


def put_many(actor: Actor, queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    """Several with one call: a beginning of them, if there is no room for all."""
    messages = _some(actor, number, counts)
    bodies = [content.body_of(message) for message in messages]
    actor.journal.write("put", queue.name, names(messages))
    try:
        done = queue.put_many(bodies, timeout=actor.chance.choice([None, 0.05]))
    except standard_queue.Full:
        done = 0
    except shmbroker.Timeout:
        actor.journal.write("late")
        return
    actor.journal.write("done", done)


def publish(actor: Actor, queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    """Several through a channel, each confirmed."""
    with actor.connection.channel() as channel:
        channel.confirm_delivery()
        for message in _some(actor, number, counts):
            actor.journal.write("put", queue.name, names([message]))
            channel.basic_publish("", queue.name, content.body_of(message))
            channel.wait_for_confirms()
            actor.journal.write("done", 1)


def commit(actor: Actor, _queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    """Several messages, each to one of its queues: all of them, or none."""
    with actor.connection.channel() as channel:
        channel.tx_select()
        published = [(actor.chance.choice(actor.queues).name, message) for message in _some(actor, number, counts)]
        for name, message in published:
            channel.basic_publish("", name, content.body_of(message))
        actor.journal.write("commit", *(f"{name}:{message:x}" for name, message in published))
        channel.tx_commit()
        actor.journal.write("done", len(published))


def _some(actor: Actor, number: int, counts: Iterator[int]) -> list[int]:
    return [content.message_of(number, count) for count in itertools.islice(counts, actor.chance.randint(1, MOST_PUT))]


WAYS = (put_one, put_one, put_in_place, put_many, publish, commit)
