# SPDX-License-Identifier: Apache-2.0
"""What a channel is given: prefetch, limits, turns, priorities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scenario_support.core_channel import Channel, put
from scenario_support.inside import core_of
from scenario_support.waiting import eventually

from shmbroker._core import native
from shmbroker._core.channel import AUTO_ACK, BY_GET
from shmbroker.message import Message

if TYPE_CHECKING:
    import shmbroker


def test_a_prefetch_is_a_consumers_own(queue: shmbroker.Queue, channel: Channel) -> None:
    """Each consumer has at most its prefetch unacked, and gets more when it acknowledges."""
    put(queue, *range(9))
    channel.consume(queue, prefetch=2)
    channel.consume(queue, prefetch=3)
    messages = channel.drain()
    assert len(messages) == 5
    messages[0].ack()
    assert len(channel.drain()) == 1


def test_messages_are_dealt_in_turn(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Two consumers of one connection get 1, 3, 5 and 2, 4, 6, on one channel or on two."""
    one, other = Channel(connection), Channel(connection)
    one.consume(queue)
    other.consume(queue)
    put(queue, *range(1, 7))
    eventually(lambda: one.core.waiting() + other.core.waiting() == 6)
    assert one.texts() == ["1", "3", "5"]
    assert other.texts() == ["2", "4", "6"]


def test_higher_priority_first(queue: shmbroker.Queue, channel: Channel) -> None:
    """All goes to the consumer of the highest priority that has credit."""
    low = channel.consume(queue, prefetch=1)
    high = channel.consume(queue, prefetch=2, priority=1)
    put(queue, *range(4))
    messages = channel.drain()
    assert [message._fields.subscription for message in messages] == [high, high, low]
    messages[0].ack()
    assert [message._fields.subscription for message in channel.drain()] == [high]


def test_a_limit_of_the_channel(queue: shmbroker.Queue, channel: Channel) -> None:
    """It counts what all consumers have unacked, works at once, and takes nothing back."""
    put(queue, *range(9))
    assert channel.core.limit(3) == native.OK
    channel.consume(queue, prefetch=2)
    channel.consume(queue)
    messages = channel.drain()
    assert len(messages) == 3
    channel.core.limit(1)
    messages[0].ack()
    messages[1].ack()
    assert channel.drain() == []
    assert channel.core.unacked() == 1
    channel.core.limit(0)
    assert len(channel.drain()) == 6


def test_a_limit_of_the_connection(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """It counts what the consumers of all channels have unacked."""
    one, other = Channel(connection), Channel(connection)
    put(queue, *range(9))
    core_of(connection).limit(3)
    one.consume(queue)
    other.consume(queue)
    eventually(lambda: one.core.waiting() + other.core.waiting() == 3)
    messages = one.drain() + other.drain()
    assert len(messages) == 3
    messages[0].ack()
    eventually(lambda: one.core.waiting() + other.core.waiting() == 1)
    core_of(connection).limit(0)
    eventually(lambda: one.core.waiting() + other.core.waiting() == 6)


def test_gets_are_not_limited(queue: shmbroker.Queue, channel: Channel) -> None:
    """A get takes what is there, whatever the limits; what it took is a delivery of the channel."""
    put(queue, 1, 2, 3)
    channel.core.limit(1)
    channel.consume(queue)
    assert channel.texts() == ["1"]
    message = channel.get(queue)
    assert isinstance(message, Message)
    assert (message.delivery_tag, message._fields.subscription, channel.core.unacked()) == (2, BY_GET, 2)
    assert isinstance(channel.get(queue, auto_ack=True), Message)
    assert channel.get(queue) == native.EMPTY
    message.nack()
    again = channel.get(queue)
    assert isinstance(again, Message)
    assert (again.delivery_tag, again.redelivered) == (4, True)


def test_a_full_channel_stops_auto_ack_too(connection: shmbroker.Connection, channel: Channel) -> None:
    """Nothing is delivered by a channel whose limit is used up; what is acknowledged when it is given uses none."""
    first, second = connection.queue("first"), connection.queue("second")
    channel.core.limit(1)
    channel.consume(second, flags=AUTO_ACK)
    put(second, *range(10))
    assert len(channel.drain()) == 10
    channel.consume(first)
    put(first, "holds")
    (held,) = channel.drain()
    put(second, "waits")
    assert channel.drain() == []
    held.ack()
    assert channel.texts() == ["waits"]
