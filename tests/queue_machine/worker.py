# SPDX-License-Identifier: Apache-2.0
"""A process that uses queues: it carries out one order after the other, and sends back what came of it.

Most consumers are suspended but while they pull. So each order has one outcome, and nothing happens between two orders.
Others are awake: they get messages whenever there are some, and hand them out when they are told to.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, NamedTuple

import shmbroker
from shmbroker import exceptions
from shmbroker._selectors.compiler import compile_selector
from tests.chaos.presence import die_with_parent
from tests.queue_machine.choices import NO_WAIT
from tests.queue_machine.world import SELECTORS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

REFUSED = (exceptions.AccessRefused, exceptions.ResourceLocked)
for selector in filter(None, SELECTORS):  # in the process of which all workers are forks: the first takes long
    compile_selector(selector)


class Received(NamedTuple):
    """A message that a process has."""

    number: int  # of the delivery, for the orders that settle it
    body: str
    delivery_count: int
    redelivered: bool
    deaths: tuple[tuple[str, str, int], ...]  # queue, reason and number, the latest first


def deaths_in(message: Any) -> tuple[tuple[str, str, int], ...]:  # noqa: ANN401 - a message, or a delivery of a channel
    """What the header x-death tells."""
    return tuple((one["queue"], one["reason"], one["count"]) for one in message.headers.get("x-death", ()))


class Worker:
    """What the process can do, and what it has between two orders. Each public method is an order."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._numbers = itertools.count(1)
        self._connect()

    def _connect(self) -> None:
        self._connection = shmbroker.connect(self._broker, create=False)
        self._consumers: dict[int, shmbroker.Consumer] = {}
        self._held: dict[int, Any] = {}
        self._channel: shmbroker.Channel | None = None
        self._claim: shmbroker.Channel | None = None

    def _queue(self, name: str) -> shmbroker.Queue:
        return self._connection.queue(name, passive=True)

    def _received(self, message: Any) -> Received:  # noqa: ANN401 - a message, or a delivery of a channel
        number = next(self._numbers)
        self._held[number] = message
        body = bytes(message.body).decode().rstrip(".")
        return Received(number, body, message.delivery_count, message.redelivered, deaths_in(message))

    # ---- putting ----

    def put(self, queue: str, bodies: list[bytes], **options: Any) -> str | int:  # noqa: ANN401
        """Put one message, or several in one call: `put`, `full`, `rejected`, or how many of several were put."""
        try:
            if len(bodies) > 1:
                return self._queue(queue).put_many(bodies, timeout=0, **options)
            self._queue(queue).put(bodies[0], timeout=0, **options)
        except exceptions.PublishRejected:
            return "rejected"
        except Full:
            return "full"
        return "put"

    # ---- getting ----

    def get(self, queue: str, count: int, *, auto_ack: bool) -> list[Received]:
        """Take up to `count` messages."""
        try:
            if count > 1:
                return [self._received(one) for one in self._queue(queue).get_many(count, timeout=0, auto_ack=auto_ack)]
            return [self._received(self._queue(queue).get_nowait(auto_ack=auto_ack))]
        except Empty:
            return []

    def consume(self, number: int, queue: str, *, awake: bool, **options: Any) -> list[Received] | None:  # noqa: ANN401
        """Open a consumer, and hand out all that it pulls; `None`: it is refused. One that is awake pulls on.

        It waits for the shortest delay of a gate, whether there is one or not.
        """
        try:
            consumer = self._queue(queue).consume(**options)
        except REFUSED:
            return None
        self._consumers[number] = consumer
        time.sleep(2 * NO_WAIT)
        if awake:
            return []
        received = self._all(consumer)
        consumer.suspend()
        return received

    def take(self, number: int) -> list[Received]:
        """Hand out what a consumer that is awake has."""
        return self._all(self._consumers[number])

    def pull(self, number: int) -> list[Received]:
        """Hand out all that a consumer may have now."""
        consumer = self._consumers[number]
        consumer.resume()
        received = self._all(consumer)
        consumer.suspend()
        return received

    def _all(self, consumer: shmbroker.Consumer) -> list[Received]:
        received: list[Received] = []
        while True:
            try:
                received.append(self._received(consumer.get(timeout=0)))
            except Empty:
                return received

    def facts(self, number: int) -> tuple[int, int]:
        """How many messages of a consumer are unacked, and how many of these were not handed out."""
        seen = self._consumers[number].statistics()
        return seen.unacked, seen.waiting

    def cancel(self, number: int) -> None:
        """End a consumer; what was handed out stays with the process."""
        self._consumers.pop(number).cancel()

    def close(self, number: int) -> None:
        """End a consumer; all that it has goes back."""
        self._consumers.pop(number).close()

    # ---- settling ----

    def settle(self, numbers: list[int], how: str) -> None:
        """Settle deliveries: `ack`, `nack`, `reject`, `give_back`."""
        for number in numbers:
            getattr(self._held.pop(number), how)()

    # ---- channels ----

    def _tx(self) -> shmbroker.Channel:
        if self._channel is None:
            self._channel = self._connection.channel()
            self._channel.tx_select()
        return self._channel

    def channel_get(self, queue: str) -> list[Received]:
        """Take a message over the channel."""
        delivery = self._tx().basic_get(queue)
        return [] if delivery is None else [self._received(delivery)]

    def transact(
        self, puts: list[tuple[str, bytes, dict[str, Any]]], settles: list[tuple[int, str]], *, commits: bool
    ) -> str:
        """Publish and settle in one transaction; roll it back if it does not commit.

        Returns:
            `done`, `full`, `rejected`, `duplicate`.
        """
        channel = self._tx()
        for exchange, body, properties in puts:
            name, _, key = exchange.partition(":")
            channel.basic_publish(name, key, body, shmbroker.BasicProperties(**properties))
        for number, how in settles:
            getattr(self._held[number], how)()
        if not commits:
            channel.tx_rollback()
            return "done"
        try:
            channel.tx_commit(timeout=0)
        except Full:
            channel.tx_rollback()
            return "full"
        except exceptions.DuplicateId:
            channel.tx_rollback()
            return "duplicate"
        except exceptions.PreconditionFailed:
            self._channel = None
            return "rejected"
        for number, _ in settles:
            del self._held[number]
        return "done"

    def close_channel(self) -> None:
        """Close the channel; what it has goes back."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def claim(self, queue: str) -> bool:
        """Be the only consumer of a queue, with a selector that selects nothing; return whether that was allowed."""
        channel = self._connection.channel()
        nothing = {"x-filter-jms-selector": "colour = 'of nothing'"}
        try:
            channel.basic_consume(queue, lambda *_: None, exclusive=True, arguments=nothing)
        except REFUSED:
            return False
        self._claim = channel
        return True

    def unclaim(self) -> None:
        """End that."""
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    # ---- administration ----

    def purge(self, queue: str, selector: str | None) -> int:
        """Remove messages."""
        return self._queue(queue).purge(selector=selector)

    def move(self, queue: str, to: str, selector: str | None, limit: int | None) -> int | str:
        """Move messages."""
        try:
            return self._queue(queue).move(to, selector=selector, limit=limit)
        except exceptions.NeverFits:
            return "never fits"

    def count(self, queue: str, selector: str | None) -> int:
        """Count messages."""
        return self._queue(queue).count(selector=selector)

    def pause(self, queue: str, *, paused: bool) -> None:
        """Pause deliveries, or resume them."""
        (self._queue(queue).pause if paused else self._queue(queue).resume)()

    def configure(self, queue: str, *, trim: bool, changes: dict[str, Any]) -> bool:
        """Change settings; return whether that was allowed."""
        try:
            self._queue(queue).configure(trim=trim, **changes)
        except exceptions.PreconditionFailed:
            return False
        return True

    def leave(self) -> None:
        """Close the connection, and open another one."""
        self._connection.close()
        self._connect()


def serve(broker: str, pipe: Pipe) -> None:
    """Be a worker until the pipe is closed."""
    die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = Worker(broker)
    pipe.send("ready")
    while True:
        try:
            order, arguments, options = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            pipe.send(getattr(worker, order)(*arguments, **options))
        except Exception as error:  # noqa: BLE001 - the machine shall see it, whatever it is
            pipe.send(error)
