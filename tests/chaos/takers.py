# SPDX-License-Identifier: Apache-2.0
"""Ways to take messages and to settle them, each with a line before and after whatever counts."""

from __future__ import annotations

import dataclasses
import queue as standard_queue
import threading
import time
from typing import TYPE_CHECKING

import shmbroker
from tests.chaos import content
from tests.chaos.journal import names

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from tests.chaos.journal import Journal

MOST_AT_ONCE = 50
SECONDS = 0.1  # to wait for a message
NACKED, REJECTED = 0.04, 0.02  # of those that are settled one by one


@dataclasses.dataclass(frozen=True)
class Actor:
    """A process and what it works with."""

    connection: shmbroker.Connection
    queues: list[shmbroker.Queue]
    journal: Journal
    chance: random.Random

    @property
    def for_consumers(self) -> list[shmbroker.Queue]:
        """Those that a consumer may prefetch from: what it took and never saw it could not write down."""
        return self.queues[:2]

    def rest(self) -> None:
        """At times there is something else to do."""
        if self.chance.random() < 0.5:
            time.sleep(self.chance.uniform(0, 0.004))

    def known(self, message: shmbroker.Message) -> int:
        """Which message it is; a body that is not whole goes into the journal."""
        try:
            return content.message_in(bytes(message))
        except content.TornError as error:
            self.journal.write("torn", message.queue, error)
            raise

    def got(self, messages: Iterable[shmbroker.Message]) -> list[int]:
        """Writes down what came; all of it is of one queue. Returns which they are."""
        came = list(messages)
        known = [self.known(message) for message in came]
        words = [f"{which:x}:{one.sequence}:{one.redelivered:d}" for which, one in zip(known, came, strict=True)]
        self.journal.write("got", came[0].queue, *words)
        return known

    def settle(self, message: shmbroker.Message, known: int) -> None:
        """Acknowledges a message; some are returned, and some rejected."""
        luck = self.chance.random()
        if luck < NACKED:
            self.journal.write("nack", names([known]))
            message.nack()
        elif luck < NACKED + REJECTED:
            self.journal.write("reject", names([known]))
            message.reject()
        else:
            self.journal.write("ack", names([known]))
            message.ack()
        self.journal.write("done")


def get(actor: Actor) -> None:
    """One after the other."""
    queue = actor.chance.choice(actor.queues)
    for _ in range(actor.chance.randint(1, 100)):
        actor.journal.write("take", queue.name, 1, "hold")
        try:
            message = queue.get(timeout=SECONDS)
        except standard_queue.Empty:
            return
        actor.settle(message, actor.got([message])[0])
        actor.rest()


def get_auto_acked(actor: Actor) -> None:
    """One after the other, each settled as it is taken."""
    queue = actor.chance.choice(actor.queues)
    for _ in range(actor.chance.randint(1, 30)):
        actor.journal.write("take", queue.name, 1, "auto")
        try:
            message = queue.get(timeout=SECONDS, auto_ack=True)
        except standard_queue.Empty:
            return
        actor.got([message])
        actor.rest()


def get_many(actor: Actor) -> None:
    """Many at once; some settled one by one, the others together."""
    queue = actor.chance.choice(actor.queues)
    for _ in range(actor.chance.randint(1, 20)):
        most = actor.chance.randint(1, MOST_AT_ONCE)
        actor.journal.write("take", queue.name, most, "hold")
        try:
            batch = queue.get_many(most, timeout=SECONDS)
        except standard_queue.Empty:
            return
        known = actor.got(batch)
        one_by_one = actor.chance.randint(0, len(known)) if actor.chance.random() < 0.3 else 0
        for message, which in zip(batch[:one_by_one], known[:one_by_one], strict=True):
            actor.settle(message, which)
        returned = actor.chance.random() < NACKED
        actor.journal.write("nack" if returned else "ack", names(known[one_by_one:]))
        if returned:
            batch.nack()
        else:
            batch.ack()
        actor.journal.write("done")
        actor.rest()


def get_many_auto_acked(actor: Actor) -> None:
    """Many at once, settled as they are taken."""
    queue, most = actor.chance.choice(actor.queues), actor.chance.randint(1, MOST_AT_ONCE)
    actor.journal.write("take", queue.name, most, "auto")
    try:
        batch = queue.get_many(most, timeout=SECONDS, auto_ack=True)
    except standard_queue.Empty:
        return
    actor.got(batch)


def consume(actor: Actor) -> None:
    """A consumer with prefetch over all its queues; what it holds when it is closed goes back."""
    prefetch = actor.chance.choice([1, 2, 8, 64])
    with actor.connection.consumer(actor.for_consumers, prefetch=_noted(actor, prefetch, "hold")) as consumer:
        for _ in range(actor.chance.randint(1, 300)):
            try:
                message = consumer.get(timeout=SECONDS)
            except standard_queue.Empty:
                break
            actor.settle(message, actor.got([message])[0])
            actor.rest()
        _about_to_close(actor, consumer)


def consume_auto_acked(actor: Actor) -> None:
    """A consumer whose messages are settled when they are handed out."""
    prefetch = actor.chance.choice([1, 8, 64])
    with actor.connection.consumer(
        actor.for_consumers, prefetch=_noted(actor, prefetch, "auto"), auto_ack=True
    ) as consumer:
        for _ in range(actor.chance.randint(1, 50)):
            try:
                actor.got([consumer.get(timeout=SECONDS)])
            except standard_queue.Empty:
                break
            actor.rest()
        _about_to_close(actor, consumer)


def consume_in_batches(actor: Actor) -> None:
    """A consumer that sends its acknowledgements together. One is through when they were sent."""
    prefetch, together = 64, actor.chance.choice([4, 16, 32])
    with actor.connection.consumer(
        actor.for_consumers, prefetch=_noted(actor, prefetch, "hold"), ack_batch=together, ack_interval=0.005
    ) as consumer:
        for count in range(actor.chance.randint(1, 300)):
            try:
                message = consumer.get(timeout=SECONDS)
            except standard_queue.Empty:
                break
            known = actor.got([message])
            if count % 50 == 49:
                consumer.flush()
                actor.journal.write("done")
                actor.journal.write("nack", names(known))
                message.nack()
                actor.journal.write("done")
            else:
                actor.journal.write("ack", names(known))
                message.ack()
            actor.rest()
        consumer.flush()
        actor.journal.write("done")
        _about_to_close(actor, consumer)


class Called:
    """The callback of a consumer on a channel: so many messages are settled, the others go back when it is closed.

    Attributes:
        lock: held by the callback.
        closing: nothing is written any more.
        leaving: the program is about to close the channel. An interrupt may let it do so beside the callback.
        enough: set after so many messages.
    """

    def __init__(self, actor: Actor, most: int) -> None:
        self._actor, self._left = actor, most
        self.lock = threading.Lock()
        self.closing = self.leaving = False
        self.enough = threading.Event()

    def __call__(self, channel: shmbroker.Channel, message: shmbroker.Delivery, *_: object) -> None:
        """Settles a message. Whoever closes the channel takes the lock: nothing is written after that."""
        with self.lock:
            if self.closing:
                return
            self._channel = channel
            try:
                self._settle(message, self._actor.got([message])[0])
            except shmbroker.exceptions.ConnectionClosed:
                if not self.leaving:
                    raise
                self.closing = True
                return
            self._left -= 1
            if self._left == 0:
                self.closing = True
                self.enough.set()
        self._actor.rest()

    def _settle(self, message: shmbroker.Delivery, known: int) -> None:
        self._actor.settle(message, known)


class CalledInBatches(Called):
    """The same; several are acknowledged with one call, for some channels when they commit it."""

    def __init__(self, actor: Actor, most: int, together: int, *, commits: bool) -> None:
        super().__init__(actor, most)
        self._together, self._commits = together, commits
        self._waiting: list[int] = []

    def _settle(self, message: shmbroker.Delivery, known: int) -> None:
        self._waiting.append(known)
        if len(self._waiting) == self._together:
            returned = self._actor.chance.random() < NACKED
            self._actor.journal.write("nack" if returned else "ack", names(self._waiting))
            if returned:
                self._channel.basic_nack(message.delivery_tag, multiple=True)
            else:
                self._channel.basic_ack(message.delivery_tag, multiple=True)
            if self._commits:
                self._channel.tx_commit()
            self._actor.journal.write("done")
            self._waiting = []


def consume_on_channel(actor: Actor) -> None:
    """A channel whose callbacks settle one by one."""
    prefetch = actor.chance.choice([1, 8, 64])
    _until_enough(actor, Called(actor, actor.chance.randint(1, 300)), prefetch, commits=False)


def consume_in_batches_on_channel(actor: Actor) -> None:
    """A channel whose callbacks acknowledge several at once, or commit that."""
    prefetch, commits = 64, actor.chance.random() < 0.5
    called = CalledInBatches(actor, actor.chance.randint(1, 300), actor.chance.choice([4, 16, 32]), commits=commits)
    _until_enough(actor, called, prefetch, commits=commits)


def _until_enough(actor: Actor, called: Called, prefetch: int, *, commits: bool) -> None:
    queues = actor.for_consumers
    actor.journal.write("open", prefetch * len(queues), "hold")
    with actor.connection.channel() as channel:
        try:
            channel.basic_qos(prefetch_count=prefetch)
            if commits:
                channel.tx_select()
            for queue in queues:
                channel.basic_consume(queue.name, called)
            called.enough.wait(actor.chance.uniform(0, 1))
        finally:  # an interrupt too ends the callbacks before the channel is closed, unless a second one comes
            called.leaving = True
            with called.lock:
                called.closing = True
                actor.journal.write("close", prefetch * len(queues))


def take_and_keep(actor: Actor) -> None:
    """A few that are not settled: they go back when the connection is closed."""
    queue, most = actor.chance.choice(actor.queues), actor.chance.randint(1, 3)
    actor.journal.write("take", queue.name, most, "hold")
    try:
        actor.got(queue.get_many(most, timeout=0))
    except standard_queue.Empty:
        return


def take_somehow(actor: Actor) -> None:
    """One of the ways."""
    actor.chance.choices([way for way, _ in WAYS], [often for _, often in WAYS])[0](actor)


def _about_to_close(actor: Actor, consumer: shmbroker.Consumer) -> None:
    """What waits in its row is counted when nothing more comes in; sometimes things come in to the end."""
    if actor.chance.random() < 0.8:
        consumer.suspend()
        most = consumer.statistics().waiting
    else:
        most = consumer.statistics().prefetch
    actor.journal.write("close", most)


def _noted(actor: Actor, prefetch: int, how: str) -> int:
    actor.journal.write("open", prefetch, how)
    return prefetch


WAYS = (
    (get, 4),
    (get_many, 4),
    (consume, 4),
    (consume_in_batches, 4),
    (consume_on_channel, 3),
    (consume_in_batches_on_channel, 3),
    (get_auto_acked, 1),
    (get_many_auto_acked, 1),
    (consume_auto_acked, 1),
)
