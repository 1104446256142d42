# SPDX-License-Identifier: Apache-2.0
"""The program of an actor: a client that does one task after the other.

A task is a method of `Tasks`; it comes as a line of JSON, and its result, or its
error, goes back as one. A task that is a generator sends what it yields on the way.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import inspect
import json
import random
import signal
import sys
import threading
import time
import traceback
from queue import Empty, Full
from typing import TYPE_CHECKING, Any

import shmbroker
from shmbroker._core.channel import EXCLUSIVE, CoreChannel
from shmbroker._session.queues import core_of
from shmbroker._session.session import session_of
from shmbroker.exceptions import NotFound, ResourceLocked

if TYPE_CHECKING:
    from collections.abc import Iterator

LIFETIME_SECONDS = 900
GIVE_UP_SECONDS = 240.0


def described(message: shmbroker.Message) -> dict[str, Any]:
    """Return what tests want to know of a message; of a long body, the beginning."""
    return {
        "body": bytes(message)[:64].decode(),
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
        "sequence": message.sequence,
    }


class Tasks:
    """What an actor can do, and what it holds between two tasks."""

    def __init__(self, connection: shmbroker.Connection) -> None:
        """Work over `connection`."""
        self._connection = connection
        self._queues: dict[str, shmbroker.Queue] = {}
        self._consumer: shmbroker.Consumer | None = None
        self._held: list[shmbroker.Message] = []
        self._views: list[memoryview] = []
        self._channel: shmbroker.Channel | None = None

    def _queue(self, name: str) -> shmbroker.Queue:
        if name not in self._queues:
            self._queues[name] = self._connection.queue(name, passive=True)
        return self._queues[name]

    def put(self, queue: str, bodies: list[str], **options: object) -> None:
        """Put the bodies one by one."""
        for body in bodies:
            self._queue(queue).put(body.encode(), **options)

    def put_told(self, queue: str, count: int, producer: str = "") -> Iterator[int]:
        """Put the numbers from 0 on one by one, and report how many puts have returned.

        With the name of a producer, name and number are the body and the id of each message.
        """
        for number in range(count):
            body = f"{producer}{number}"
            self._queue(queue).put(body.encode(), duplicate_id=body if producer else None)
            yield number + 1

    def put_ids(self, queue: str, ids: list[str]) -> None:
        """Put a message for each id, whose body is the id."""
        for one in ids:
            self._queue(queue).put(one.encode(), duplicate_id=one)

    def commit_ids(self, source: str, queue: str, ids: list[str]) -> None:
        """Take a message, and put one for each id, each pair in a transaction of its own."""
        channel = self._connection.channel()
        channel.tx_select()
        for one in ids:
            found = channel.basic_get(source)
            assert found is not None
            headers = shmbroker.BasicProperties(headers={"x-duplicate-id": one})
            channel.basic_publish("", queue, one.encode(), headers)
            channel.basic_ack(found.delivery_tag)
            channel.tx_commit()

    def publish_in_transaction(self, queue: str, one: str) -> None:
        """Publish a message with an id, and do not commit."""
        channel = self._own_channel()
        channel.tx_select()
        channel.basic_publish("", queue, one.encode(), shmbroker.BasicProperties(headers={"x-duplicate-id": one}))

    def publish_row(self, exchange: str, bodies: list[str]) -> None:
        """Publish the bodies one by one to an exchange."""
        for body in bodies:
            self._own_channel().basic_publish(exchange, "", body.encode())

    def put_until_full(self, queue: str) -> int:
        """Put messages until one finds no room; return how many were put."""
        put = 0
        with contextlib.suppress(Full):
            while True:
                self._queue(queue).put(b"x", timeout=0)
                put += 1
        return put

    def put_storm(self, queue: str, bodies: list[str]) -> None:
        """Put the bodies one by one at irregular intervals."""
        chance = random.Random(bodies[0])
        for body in bodies:
            self._queue(queue).put(body.encode())
            linger(chance.uniform(0, 0.0002))

    def put_values(self, queue: str, values: list[tuple[str, str]], header: str) -> None:
        """Put the bodies one by one, each with its key in a header: `values` has keys and bodies."""
        for key, body in values:
            self._queue(queue).put(body.encode(), headers={header: key})

    def get(self, queue: str, count: int = 1, timeout: float | None = None, settle: str = "") -> list[dict[str, Any]]:
        """Get messages and settle them (`ack`, `nack`, `reject`), or hold them."""
        received = []
        for _ in range(count):
            message = self._queue(queue).get(timeout=timeout)
            received.append(described(message))
            self._settle(message, settle)
        return received

    def get_what_is_there(self, queue: str) -> list[str]:
        """Get and ack without waiting, until there is nothing."""
        received: list[str] = []
        while True:
            try:
                message = self._queue(queue).get_nowait()
            except Empty:
                return received
            received.append(bytes(message).decode())
            message.ack()

    def consume(self, queue: str, **options: object) -> None:
        """Attach a consumer."""
        self._consumer = self._queue(queue).consume(**options)

    def try_to_consume(self, queue: str) -> bool:
        """Attach a consumer, unless the queue admits none."""
        try:
            self.consume(queue)
        except ResourceLocked:
            return False
        return True

    def attach_and_leave(self, queue: str, rounds: int) -> int:
        """Declare an auto-delete queue, consume, put and get, and leave; return how often that succeeded.

        The queue may end with the consumer of another process before this one is admitted: then it is tried again.
        """
        done = 0
        while done < rounds:
            try:
                opened = self._connection.queue(queue, auto_delete=True)
                consumer = opened.consume()
            except NotFound:
                continue
            opened.put(b"x")
            consumer.get(timeout=GIVE_UP_SECONDS).ack()
            consumer.close()
            done += 1
        return done

    def claim(self, queue: str) -> None:
        """Attach an exclusive consumer."""
        self._channel = CoreChannel(session_of(self._connection).core, 1)
        self._channel.consume(core_of(self._queue(queue)), 0, 0, EXCLUSIVE)

    def receive(self, count: int = 1, timeout: float | None = None, settle: str = "") -> list[dict[str, Any]]:
        """Take messages from the consumer and settle or hold them."""
        assert self._consumer is not None
        received = []
        for _ in range(count):
            message = self._consumer.get(timeout=timeout)
            received.append(described(message))
            self._settle(message, settle)
        return received

    def arrived(self) -> list[dict[str, Any]]:
        """Take and hold the one message that is there for the consumer, if one is."""
        try:
            return self.receive(timeout=0)
        except Empty:
            return []

    def receive_all(self, until: int, queue: str) -> list[dict[str, Any]]:
        """Take and ack from the consumer until `queue` has seen `until` acks in all."""
        assert self._consumer is not None
        received = []
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while self._queue(queue).statistics().acked < until:
            if time.monotonic() > deadline:
                break
            try:
                message = self._consumer.get(timeout=0.02)
            except Empty:
                continue
            received.append(described(message))
            message.ack()
        return received

    def close_consumer(self) -> None:
        """Close the consumer."""
        assert self._consumer is not None
        self._consumer.close()
        self._consumer = None

    def settle(self, how: str) -> int:
        """Settle everything held."""
        held, self._held = self._held, []
        for message in held:
            self._settle(message, how)
        return len(held)

    def view(self, queue: str, count: int) -> None:
        """Get messages and ack them, and keep views of their bodies."""
        for _ in range(count):
            message = self._queue(queue).get()
            self._views.append(message.body)
            message.ack()

    def manage(self, queue: str, how: str, arguments: list[Any], most: int) -> Iterator[int]:
        """Do something with one message after the other, and report each; after `most` of them wait to be killed."""
        for done in range(1, most + 1):
            result = getattr(self._queue(queue), how)(*arguments, limit=1)
            assert (result if isinstance(result, int) else result.retried) == 1
            yield done
        while True:
            signal.pause()

    def echo(self, queue: str, count: int, way: str) -> Iterator[str]:
        """Take one message after the other and report each as soon as it is acked."""
        take_one = functools.partial(self.get, queue)
        if way == "consumer":
            self.consume(queue, prefetch=1)
            take_one = self.receive
        for _ in range(count):
            yield take_one(settle="ack")[0]["body"]

    def dabble(self, queue: str, until: int, seed: int) -> list[str]:
        """Get with waits that mostly end too early, until `until` are acked in all."""
        chance = random.Random(seed)
        received = []
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while self._queue(queue).statistics().acked < until:
            if time.monotonic() > deadline:
                break
            try:
                message = self._queue(queue).get(timeout=chance.uniform(0, 0.001))
            except Empty:
                continue
            received.append(bytes(message).decode())
            message.ack()
        return received

    def come_and_go(self, queue: str, until: int, seed: int, watched: str = "") -> list[str]:
        """Consume a little, return some, close, attach again, until all are acked.

        With `watched`, go on until a message lies in that queue as well, and return all that comes meanwhile: whoever
        looks on has then looked while this process worked, however slow it is.
        """
        chance = random.Random(seed)
        received: list[str] = []
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < deadline:
            enough = self._queue(queue).statistics().acked >= until
            if enough and (not watched or self._queue(watched).statistics().message_count):
                break
            options = {"prefetch": chance.randint(1, 8)}
            with self._queue(queue).consume(**options) as consumer:
                for _ in range(chance.randint(0, 20)):
                    try:
                        message = consumer.get(timeout=chance.uniform(0, 0.002))
                    except Empty:
                        break
                    if chance.random() < 0.25 or (watched and enough):
                        message.nack()
                    else:
                        received.append(bytes(message).decode())
                        message.ack()
        return received

    def drift(self, queue: str, until: int, seed: int, selectors: list[str | None]) -> list[int]:
        """Attach with one of the selectors, take some, return some, leave, until `until` are acked in all.

        Return the acked bodies, which begin with a number of eight digits.
        """
        chance = random.Random(seed)
        acked = []
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while self._queue(queue).statistics().acked < until and time.monotonic() < deadline:
            selector, prefetch = chance.choice(selectors), chance.choice([1, 8, 64, 300])
            with self._queue(queue).consume(prefetch=prefetch, selector=selector) as consumer:
                for _ in range(chance.randint(0, 400)):
                    try:
                        message = consumer.get(timeout=0.02)
                    except Empty:
                        break
                    if chance.random() < 0.1:
                        message.nack()
                    else:
                        acked.append(int(bytes(message)[:8]))
                        message.ack()
        return acked

    def take_numbers(self, queue: str, count: int) -> list[int]:
        """Get and ack so many messages, one by one; return the numbers that their bodies begin with."""
        taken = []
        for _ in range(count):
            message = self._queue(queue).get(timeout=GIVE_UP_SECONDS)
            taken.append(int(bytes(message)[:8]))
            message.ack()
        return taken

    def fill(self, queue: str, count: int, size: int, first: int = 0) -> None:
        """Put bodies of a size that begin with successive numbers of eight digits, each with its number as header."""
        for number in range(first, first + count):
            self._queue(queue).put(b"%08d" % number + bytes(size - 8), headers={"n": number}, timeout=60)

    def browse_until(self, queue: str, until: int, size: int) -> int:
        """Browse again and again until `until` are acked; every body must be whole."""
        seen = 0
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while self._queue(queue).statistics().acked < until:
            if time.monotonic() > deadline:
                break
            for message in self._queue(queue).browse():
                body = bytes(message)
                assert len(body) == size, len(body)
                assert body.count(body[:1]) == size, "a body was torn"
                seen += 1
        return seen

    def on_channel(self, method: str, **options: object) -> None:
        """Call a method of a channel of this process's own."""
        getattr(self._own_channel(), method)(**options)

    def consume_on_channel(self, queue: str, auto_ack: bool = False, count: int = 0) -> list[str]:  # noqa: FBT001, FBT002 (JSON)
        """Consume over the channel, and return the first `count` bodies as soon as they are there."""
        received: list[str] = []
        arrived = threading.Semaphore(0)

        def take(_channel: object, _method: object, _properties: object, body: bytes) -> None:
            received.append(body.decode())
            arrived.release()

        self._own_channel().basic_consume(queue, take, auto_ack=auto_ack)
        for _ in range(count):
            assert arrived.acquire(timeout=GIVE_UP_SECONDS)
        return received[:count]

    def _own_channel(self) -> shmbroker.Channel:
        if self._channel is None:
            self._channel = self._connection.channel()
        return self._channel

    def _settle(self, message: shmbroker.Message, how: str) -> None:
        if how == "ack":
            message.ack()
        elif how == "nack":
            message.nack()
        elif how == "reject":
            message.reject()
        else:
            self._held.append(message)


def linger(seconds: float) -> None:
    """Use up a very short time without giving the processor away."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def answer(**line: object) -> None:
    """Send a line to the test."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Connect to the broker named by the first argument and do tasks until the end."""
    faulthandler.dump_traceback_later(LIFETIME_SECONDS, exit=True)
    with shmbroker.connect(sys.argv[1], create=False) as connection:
        tasks = Tasks(connection)
        answer(result="connected")
        for line in sys.stdin:
            order = json.loads(line)
            try:
                result = getattr(tasks, order["task"])(**order["options"])
                if inspect.isgenerator(result):
                    for item in result:
                        answer(item=item)
                    result = None
                answer(result=result)
            except Exception:  # noqa: BLE001 (the test shall see it, whatever it is)
                answer(error=traceback.format_exc())


if __name__ == "__main__":
    main()
