# SPDX-License-Identifier: Apache-2.0
"""Channels as tests see them: what callbacks were given, what is refused, what lies in a queue."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest

from scenario_support.waiting import becomes
from shmbroker.exceptions import BrokerError, ChannelClosed, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import shmbroker

ROUNDS = 3
"""So often markers go round before a test believes that nothing else comes."""


class Deliver(Protocol):
    """The method that a callback is given."""

    consumer_tag: str
    delivery_tag: int
    redelivered: bool
    exchange: str
    routing_key: str


class Return(Protocol):
    """The method that a return callback is given."""

    reply_code: int
    reply_text: str
    exchange: str
    routing_key: str


@dataclass(frozen=True)
class Delivery:
    """What a callback was given."""

    text: str
    delivery_tag: int
    consumer_tag: str
    redelivered: bool
    exchange: str
    routing_key: str
    properties: shmbroker.BasicProperties


class Inbox:
    """A callback that keeps what it is given, in the order of its calls; it acks if told to."""

    def __init__(self, *, ack: bool = False) -> None:
        self._ack = ack
        self.deliveries: list[Delivery] = []

    def __call__(
        self, channel: shmbroker.Channel, method: Deliver, properties: shmbroker.BasicProperties, body: bytes
    ) -> None:
        """Take a delivery."""
        assert type(body) is bytes
        delivery = Delivery(
            body.decode(), method.delivery_tag, method.consumer_tag, method.redelivered, method.exchange,
            method.routing_key, properties,
        )  # fmt: skip
        self.deliveries.append(delivery)
        if self._ack:
            channel.basic_ack(delivery.delivery_tag)

    def texts(self) -> list[str]:
        """Return the bodies so far."""
        return [delivery.text for delivery in self.deliveries]

    def wait(self, count: int) -> list[Delivery]:
        """Wait until there are so many deliveries, and return them."""
        becomes(lambda: len(self.deliveries), count)
        return list(self.deliveries)


class Rounds:
    """Tells when nothing more comes: what a connection had to deliver is delivered before a round is over.

    A round is a marker that goes through a queue and a channel of its own; the IO thread has looked at every other
    channel meanwhile. The connection's executor needs a thread that is free.
    """

    def __init__(self, connection: shmbroker.Connection) -> None:
        self._channel = connection.channel()
        self._queue = self._channel.queue_declare("", exclusive=True).queue
        self._inbox = Inbox()
        self._channel.basic_consume(self._queue, self._inbox, auto_ack=True)

    def go(self) -> None:
        """Let everything come that comes."""
        for _ in range(ROUNDS):
            before = len(self._inbox.deliveries)
            self._channel.basic_publish("", self._queue, b"marker")
            self._inbox.wait(before + 1)


class Returned:
    """A return callback that keeps what comes back."""

    def __init__(self, channel: shmbroker.Channel) -> None:
        self.returns: list[tuple[int, str, str, str, bytes]] = []
        channel.add_on_return_callback(self._take)

    def _take(self, _channel: shmbroker.Channel, method: Return, _properties: object, body: bytes) -> None:
        self.returns.append((method.reply_code, method.reply_text, method.exchange, method.routing_key, body))

    def wait(self, count: int) -> list[tuple[int, str, str, str, bytes]]:
        """Wait until so many came back, and return them."""
        becomes(lambda: len(self.returns), count)
        return list(self.returns)


def publish(channel: shmbroker.Channel, queue: str, bodies: Iterable[str]) -> None:
    """Publish texts to a queue, by its name."""
    for body in bodies:
        channel.basic_publish("", queue, body.encode())


def count(channel: shmbroker.Channel, queue: str) -> int:
    """Return how many messages are ready."""
    ready = channel.queue_declare(queue, passive=True).message_count
    assert type(ready) is int
    return ready


def content(channel: shmbroker.Channel, queue: str) -> list[str]:
    """Take all that is ready, with auto-ack; the redelivered ones end in R."""
    found = []
    while (message := channel.basic_get(queue, auto_ack=True)) is not None:
        found.append(bytes(message).decode() + ("R" if message.redelivered else ""))
    return found


def taken(channel: shmbroker.Channel, queue: str, how_many: int) -> list[shmbroker.Message]:
    """Get so many messages without settling them."""
    messages = []
    for _ in range(how_many):
        message = channel.basic_get(queue)
        assert message is not None
        messages.append(message)
    return messages


def routed(channel: shmbroker.Channel, exchange: str, key: str, queues: Iterable[str], **options: object) -> list[str]:
    """Publish to an exchange; return which queues got it, one name for each copy."""
    channel.basic_publish(exchange, key, b"routed", **options)
    return [queue for queue in queues for _ in content(channel, queue)]


def exists(connection: shmbroker.Connection, *, queue: str | None = None, exchange: str | None = None) -> bool:
    """Tell whether there is such a queue or exchange; asked over a channel of its own."""
    with connection.channel() as channel:
        try:
            if queue is not None:
                channel.queue_declare(queue, passive=True)
            if exchange is not None:
                channel.exchange_declare(exchange, passive=True)
        except NotFound:
            return False
    return True


@contextlib.contextmanager
def refused(kind: type[BrokerError], text: str | None = None) -> Iterator[None]:
    """See that the broker refuses, with the code of that error and, if given, the text (without its code)."""
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind
    assert caught.value.code == kind.default_code
    assert caught.value.args == (caught.value.code, caught.value.text)
    if text is not None:
        assert caught.value.text == text


def assert_closed(channel: shmbroker.Channel, because: str = "") -> None:
    """See that the channel is closed, and says why to whoever goes on."""
    assert not channel.is_open
    with pytest.raises(ChannelClosed) as caught:
        channel.queue_declare("x")
    assert because in caught.value.text
