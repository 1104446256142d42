# SPDX-License-Identifier: Apache-2.0
"""What the processes do: send messages of all classes, and take them in all ways, also by selectors."""

from __future__ import annotations

import itertools
import queue as standard_queue
import time
from typing import TYPE_CHECKING

import shmbroker
from tests.chaos import content, takers
from tests.chaos.dead_letters import actors as dead_letters
from tests.chaos.dead_letters.actors import BACKLOG, MORTAL, MOST_AT_REST, TTL, Worker, WrongDeliveryError
from tests.chaos.features.plan import ALIKE, COLOURS, RANKED, SOURCES, class_of
from tests.chaos.journal import names
from tests.chaos.presence import connected

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator
    from typing import Any

    from tests.chaos.journal import Journal

FULL_SECONDS = 0.05


# ---- senders ----


def send(broker: str, queues: list[str], number: int, journal: Journal, chance: random.Random) -> None:
    """Sends in bursts, each message with what its class says; a queue may be full, or reject."""
    with connected(broker, queues, journal, chance) as actor:
        counts = itertools.count()
        while True:
            queue, way = chance.choice(actor.queues), chance.choice(WAYS)
            for _ in range(chance.randint(1, 50)):
                while len(queue) > BACKLOG or queue.statistics().scheduled > MOST_AT_REST:
                    time.sleep(0.002)
                way(actor, queue, number, counts)
                actor.rest()


def _headers(message: int, *, mortal: bool) -> dict[str, Any]:
    found = class_of(message)
    return {"JMSXGroupID": found.group, "colour": found.colour, **({MORTAL: True} if mortal else {})}


def _put(actor: takers.Actor, queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    """Puts some of one class with one call; some have a time to live."""
    first = content.message_of(number, next(counts))
    messages = [first]
    while messages[-1] % ALIKE != ALIKE - 1 and actor.chance.random() < 0.6:
        messages.append(content.message_of(number, next(counts)))
    bodies = [content.body_of(message) for message in messages]
    mortal = actor.chance.random() < 0.1
    options: dict[str, Any] = {
        "priority": class_of(first).priority, "headers": _headers(first, mortal=mortal), "ttl": TTL if mortal else None,
    }  # fmt: skip
    actor.journal.write("put", queue.name, names(messages))
    try:
        if len(messages) == 1:
            queue.put(bodies[0], timeout=FULL_SECONDS, **options)
            done = 1
        else:
            done = queue.put_many(bodies, timeout=FULL_SECONDS, **options)
    except standard_queue.Full:
        done = 0
    actor.journal.write("done", done)


def _publish(actor: takers.Actor, queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    """Publishes some in a transaction; not to a queue that may reject one of them."""
    if queue.name == RANKED:
        _put(actor, queue, number, counts)
        return
    with actor.connection.channel() as channel:
        channel.tx_select()
        some = itertools.islice(counts, actor.chance.randint(1, dead_letters.MOST_PUT))
        messages = [content.message_of(number, count) for count in some]
        for message in messages:
            properties = shmbroker.BasicProperties(
                priority=class_of(message).priority, headers=_headers(message, mortal=False)
            )
            channel.basic_publish("", queue.name, content.body_of(message), properties)
        actor.journal.write("commit", *(f"{queue.name}:{message:x}" for message in messages))
        channel.tx_commit()
        actor.journal.write("done", len(messages))


WAYS = (_put, _put, _publish)


# ---- workers ----


class ClassWorker(Worker):
    """A process that fails at many messages, and looks whether each is what its number says."""

    def got(self, messages: Iterable[shmbroker.Message]) -> list[int]:
        """Writes down what came.

        Raises:
            WrongDeliveryError: a message is not of its class, or was delivered too often.
        """
        came = list(messages)
        known = super().got(came)
        for message, which in zip(came, known, strict=True):
            found = class_of(which)
            headers = message.headers
            if (headers["JMSXGroupID"], message.priority, headers["colour"]) != found:
                text = f"{message.queue}[{message.sequence}] is not of its class {found}: {headers}"
                raise WrongDeliveryError(text)
        return known


def work(broker: str, queues: list[str], _number: int, journal: Journal, chance: random.Random) -> None:
    """Takes in all the ways there are, by selectors as well, and fails at many messages."""
    with connected(broker, queues, journal, chance, ClassWorker) as actor:
        while True:
            if queues[0] == RANKED and chance.random() < 0.3:
                _consume_selected(actor)
            else:
                takers.take_somehow(actor)


def _consume_selected(actor: takers.Actor) -> None:
    """A consumer of one colour."""
    colour, prefetch = actor.chance.choice(COLOURS), actor.chance.choice([1, 2, 8, 64])
    queue = actor.queues[0]
    actor.journal.write("open", prefetch, "hold")
    with queue.consume(prefetch=prefetch, selector=f"colour = '{colour}'") as consumer:
        for _ in range(actor.chance.randint(1, 100)):
            try:
                message = consumer.get(timeout=takers.SECONDS)
            except standard_queue.Empty:
                break
            (known,) = actor.got([message])
            if class_of(known).colour != colour:
                text = f"{message.queue}[{message.sequence}] is not {colour}"
                raise WrongDeliveryError(text)
            actor.settle(message, known)
            actor.rest()
        actor.journal.write("close", prefetch)


# ---- collectors ----


def collect(broker: str, queues: list[str], number: int, journal: Journal, chance: random.Random) -> None:
    """Takes dead letters; each must say why it died."""
    dead_letters.collect(broker, queues, number, journal, chance, SOURCES)


# ---- a queue whose messages stay ----


def post(broker: str, queues: list[str], number: int, journal: Journal, chance: random.Random) -> None:
    """Puts messages where nobody takes them. The readers see what is wrong, so there is nothing to write down."""
    with connected(broker, queues, journal, chance) as actor:
        for count in itertools.count():
            actor.queues[0].put(content.body_of(content.message_of(number, count)))
            actor.rest()


def read(broker: str, queues: list[str], _number: int, journal: Journal, chance: random.Random) -> None:
    """Reads from the beginning, again and again; returns some messages to get them once more.

    Writes down what came after a newer message of its producer: one that a process owned which was stopped.

    Raises:
        WrongDeliveryError: a message came twice.
    """
    with connected(broker, queues, journal, chance) as actor:
        while True:
            seen: set[int] = set()
            latest: dict[int, int] = {}
            came = 0
            with actor.queues[0].consume(prefetch=chance.choice([1, 8, 64])) as consumer:
                for _ in range(chance.randint(1, 500)):
                    try:
                        message = consumer.get(timeout=takers.SECONDS)
                    except standard_queue.Empty:
                        break
                    _look_at(actor, message, seen, latest)
                    message.nack() if chance.random() < takers.NACKED else message.ack()
                    came += 1
            journal.write("browsed", came)


def _look_at(actor: takers.Actor, message: shmbroker.Message, seen: set[int], latest: dict[int, int]) -> None:
    which = actor.known(message)
    producer = content.producer_of(which)
    if message.redelivered:
        return
    if which in seen:
        text = f"{message.queue}[{message.sequence}] {which:x} came twice"
        raise WrongDeliveryError(text)
    seen.add(which)
    if which < latest.get(producer, -1):
        actor.journal.write("passed", f"{which:x}")
    latest[producer] = max(which, latest.get(producer, -1))
