# SPDX-License-Identifier: Apache-2.0
"""What the processes do: send messages that may die, fail at many of them, and collect the dead."""

from __future__ import annotations

import itertools
import queue as standard_queue
import time
from typing import TYPE_CHECKING

import shmbroker
from tests.chaos import content, takers
from tests.chaos.dead_letters.plan import ATTEMPTS, HEAD, HIGHEST, SOURCES
from tests.chaos.journal import names
from tests.chaos.presence import connected

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable, Iterator

    from tests.chaos.journal import Journal

BACKLOG = 300  # ready messages of a queue at which a sender pauses
MOST_AT_REST = 10_000  # of those that wait for their delay, or for the housekeeper: nothing else limits them
MOST_PUT = 20
MORTAL = "mortal"  # the header of a message that was given a time to live
TTL = 0.05
PRIORITIES = (None, 0, 1, 2, HIGHEST, 9)
RETURNED, REJECTED = 0.5, 0.1


class WrongDeliveryError(Exception):
    """A message came that must not, or does not say of itself what it should."""


class Worker(takers.Actor):
    """A process that fails at many messages, and that never gets one more often than the queue allows."""

    def got(self, messages: Iterable[shmbroker.Message]) -> list[int]:
        """Writes down what came.

        Raises:
            WrongDeliveryError: a message was delivered too often.
        """
        came = list(messages)
        for message in came:
            if not 1 <= message.delivery_count <= ATTEMPTS:
                text = f"{message.queue}[{message.sequence}] was delivered {message.delivery_count} times"
                raise WrongDeliveryError(text)
        return super().got(came)

    def settle(self, message: shmbroker.Message, known: int) -> None:
        """Returns many messages, and rejects some."""
        luck = self.chance.random()
        how = "nack" if luck < RETURNED else "reject" if luck < RETURNED + REJECTED else "ack"
        self.journal.write(how, names([known]))
        getattr(message, how)()
        self.journal.write("done")


# ---- senders ----


def send(broker: str, queues: list[str], number: int, journal: Journal, chance: random.Random) -> None:
    """Sends in bursts; some messages have a priority, and some a time to live."""
    with connected(broker, queues, journal, chance) as actor:
        counts = itertools.count()
        while True:
            queue, way = chance.choice(actor.queues), chance.choice(WAYS)
            for _ in range(chance.randint(1, 50)):
                while len(queue) > BACKLOG or queue.statistics().scheduled > MOST_AT_REST:
                    time.sleep(0.002)
                way(actor, queue, number, counts)
                actor.rest()


def _put(actor: takers.Actor, queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    """Puts some with one call: one, or several."""
    messages = _some(actor, number, counts)
    bodies = [content.body_of(message) for message in messages]
    priority, mortal = actor.chance.choice(PRIORITIES), actor.chance.random() < 0.3
    ttl, headers = (TTL, {MORTAL: True}) if mortal else (None, None)
    actor.journal.write("put", queue.name, names(messages))
    if len(messages) == 1:
        queue.put(bodies[0], priority=priority, ttl=ttl, headers=headers)
    else:
        queue.put_many(bodies, priority=priority, ttl=ttl, headers=headers)
    actor.journal.write("done", len(messages))


def _publish(actor: takers.Actor, queue: shmbroker.Queue, number: int, counts: Iterator[int]) -> None:
    """Publishes some over a channel, in a transaction: each with a priority, and some with an expiration."""
    with actor.connection.channel() as channel:
        channel.tx_select()
        messages = _some(actor, number, counts)
        for message in messages:
            mortal = actor.chance.random() < 0.3
            properties = shmbroker.BasicProperties(
                priority=actor.chance.choice(PRIORITIES), expiration="50" if mortal else None,
                headers={MORTAL: True} if mortal else None,
            )  # fmt: skip
            channel.basic_publish("", queue.name, content.body_of(message), properties)
        actor.journal.write("commit", *(f"{queue.name}:{message:x}" for message in messages))
        channel.tx_commit()
        actor.journal.write("done", len(messages))


def _some(actor: takers.Actor, number: int, counts: Iterator[int]) -> list[int]:
    most = actor.chance.choice([1, 1, MOST_PUT])
    return [content.message_of(number, count) for count in itertools.islice(counts, actor.chance.randint(1, most))]


WAYS = (_put, _put, _publish)


# ---- workers ----


def work(broker: str, queues: list[str], _number: int, journal: Journal, chance: random.Random) -> None:
    """Takes in all the ways there are, and fails at many."""
    with connected(broker, queues, journal, chance, Worker) as actor:
        while True:
            takers.take_somehow(actor)


# ---- collectors ----


def collect(
    broker: str, queues: list[str], _number: int, journal: Journal, chance: random.Random,
    sources: Collection[str] = SOURCES,
) -> None:  # fmt: skip
    """Takes dead letters, and at times too slowly for those that die; each must say why it died."""
    with connected(broker, queues, journal, chance) as actor:
        while True:
            queue, most = chance.choice(actor.queues), chance.randint(1, 50)
            actor.journal.write("take", queue.name, most, "hold")
            try:
                batch = queue.get_many(most, timeout=takers.SECONDS)
            except standard_queue.Empty:
                continue
            known = actor.got(batch)
            reasons = [reason_of(message, sources) for message in batch]
            actor.journal.write("dead", *(f"{which:x}:{why}" for which, why in zip(known, reasons, strict=True)))
            returned = chance.random() < 0.05
            actor.journal.write("nack" if returned else "ack", names(known))
            if returned:
                batch.nack()
            else:
                batch.ack()
            actor.journal.write("done")
            if chance.random() < 0.1:
                time.sleep(chance.uniform(0, 0.3))


def reason_of(message: shmbroker.Message, sources: Collection[str] = SOURCES) -> str:
    """The reason of a dead letter's only death.

    Raises:
        WrongDeliveryError: it does not tell of one death, or of one that cannot be.
    """
    headers = message.headers
    deaths = headers.get("x-death", [])
    if len(deaths) != 1 or deaths[0]["count"] != 1 or deaths[0]["queue"] not in sources:
        text = f"{message.queue}[{message.sequence}] tells of other deaths than one: {headers}"
        raise WrongDeliveryError(text)
    reason, queue = str(deaths[0]["reason"]), deaths[0]["queue"]
    possible = {"rejected", "delivery_limit"}
    possible |= {"expired"} if MORTAL in headers else set()
    possible |= {"maxlen"} if queue == HEAD else set()
    if reason not in possible or (headers["x-first-death-reason"], headers["x-first-death-queue"]) != (reason, queue):
        text = f"{message.queue}[{message.sequence}] cannot have died so: {headers}"
        raise WrongDeliveryError(text)
    return reason
