# SPDX-License-Identifier: Apache-2.0
"""Consumers of a channel: exclusive, single active, without what is local, cancelled, many."""

from __future__ import annotations

import itertools
import queue as standard_queue
from typing import TYPE_CHECKING

import pytest
from scenario_support.core_channel import Channel, put
from scenario_support.inside import core_of
from scenario_support.processes import Actor
from scenario_support.waiting import eventually

from shmbroker._core import native
from shmbroker._core.channel import EXCLUSIVE, NO_LOCAL
from shmbroker.exceptions import AccessRefused, NotFound
from shmbroker.message import Message

if TYPE_CHECKING:
    import shmbroker


def test_a_cancelled_consumer(queue: shmbroker.Queue, channel: Channel) -> None:
    """What it was given can be settled; what it was not goes back."""
    put(queue, 1, 2, 3)
    number = channel.consume(queue)
    message = channel.next()
    assert message is not None
    assert channel.core.cancel(number) == native.OK
    assert channel.core.cancel(number) == native.NOT_FOUND
    assert channel.drain() == []
    assert queue.statistics().ready == 2
    message.ack()
    assert queue.statistics().message_count == 2


def test_a_deleted_queue_cancels_its_consumers(connection: shmbroker.Connection, channel: Channel) -> None:
    """It is reported once; other consumers go on."""
    gone, stays = connection.queue("gone"), connection.queue("stays")
    number = channel.consume(gone)
    channel.consume(stays)
    assert channel.core.next_cancelled() is None
    assert not channel.core.arm()
    gone.delete()
    eventually(channel.core.arm)
    assert channel.core.next_cancelled() == number
    assert channel.core.next_cancelled() is None
    put(stays, 1)
    eventually(lambda: channel.core.waiting() == 1)
    with pytest.raises(NotFound):
        channel.consume(gone)


def test_an_exclusive_consumer(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """It is the only one, native ones included; when it is gone others may come."""
    one, other = Channel(connection), Channel(connection)
    number = one.consume(queue, flags=EXCLUSIVE)
    with pytest.raises(AccessRefused, match="in exclusive use"):
        other.consume(queue)
    with pytest.raises(AccessRefused, match="in exclusive use"):
        other.consume(queue, flags=EXCLUSIVE)
    with pytest.raises(AccessRefused, match="in exclusive use"):
        queue.consume()
    put(queue, 1)
    assert one.texts() == ["1"]
    assert queue.statistics().consumers == 1
    one.core.cancel(number)
    with queue.consume():
        with pytest.raises(AccessRefused, match="in exclusive use"):
            one.consume(queue, flags=EXCLUSIVE)
        ordinary = other.consume(queue)
    with pytest.raises(AccessRefused, match="in exclusive use"):
        one.consume(queue, flags=EXCLUSIVE)
    other.core.cancel(ordinary)
    one.consume(queue, flags=EXCLUSIVE)


def test_an_exclusive_consumer_that_was_killed(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """Its claim ends with its process, before anybody has cleared up after it."""
    channel = Channel(connection)
    with Actor(broker.name) as actor:
        actor.do("claim", queue=queue.name)
        with pytest.raises(AccessRefused):
            channel.consume(queue)
        actor.kill()
        channel.consume(queue)


def test_a_single_active_consumer(connection: shmbroker.Connection) -> None:
    """One takes; when it is gone, the next one by priority, then by registration."""
    queue = connection.queue("single", single_active_consumer=True)
    channels = [Channel(connection) for _ in range(4)]
    numbers = [channel.consume(queue, prefetch=1, priority=n == 3) for n, channel in enumerate(channels)]
    put(queue, *range(8))
    assert [channel.texts() for channel in channels] == [["0"], [], [], []]
    with pytest.raises(AccessRefused):
        channels[1].consume(queue, flags=EXCLUSIVE)
    assert isinstance(channels[1].get(queue), Message)
    channels[0].core.cancel(numbers[0])
    eventually(lambda: channels[3].core.waiting() == 1)
    assert channels[3].texts() == ["2"]
    channels[3].core.close()
    eventually(lambda: channels[1].core.waiting() == 1)
    assert [channels[1].texts(), channels[2].texts()] == [["2"], []]
    plain = queue.consume(prefetch=1)
    with pytest.raises(standard_queue.Empty):
        plain.get(timeout=0)
    channels[1].core.close()
    channels[2].core.close()
    assert bytes(plain.get(timeout=30)) == b"1"


def test_a_single_active_consumer_that_was_killed(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """The next one goes on when what the dead one held has returned."""
    queue, channel = connection.queue("single", single_active_consumer=True), Channel(connection)
    put(queue, 1, 2)
    with Actor(broker.name) as actor:
        actor.do("consume", queue="single")
        assert actor.do("receive")[0]["body"] == "1"
        channel.consume(queue)
        assert channel.drain() == []
        actor.kill()
        eventually(lambda: channel.core.waiting() == 2)
    assert channel.texts() == ["1", "2"]


def test_no_local(broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Such a consumer gets what other connections published, and hides nothing from others."""
    channel, elsewhere = Channel(connection), broker.connect().queue(queue.name)
    number = channel.consume(queue, flags=NO_LOCAL)
    put(queue, "mine")
    put(elsewhere, "yours")
    eventually(lambda: channel.core.waiting() == 1)
    put(queue, "mine too")
    message = channel.next()
    assert message is not None
    assert bytes(message) == b"yours"
    message.nack()
    again = channel.drain()
    assert [(bytes(m), m.redelivered) for m in again] == [(b"yours", True)]
    assert [bytes(elsewhere.get(timeout=0)) for _ in range(2)] == [b"mine", b"mine too"]
    assert channel.core.cancel(number) == native.OK


def test_no_local_gives_way_to_a_higher_priority(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """What a consumer of a higher priority leaves for want of credit goes to it."""
    channel, elsewhere = Channel(connection), broker.connect().queue(queue.name)
    channel.consume(queue, flags=NO_LOCAL)
    high = elsewhere.consume(prefetch=1, priority=1)
    put(elsewhere, 1, 2)
    assert bytes(high.get(timeout=30)) == b"1"
    eventually(lambda: channel.core.waiting() == 1)
    assert channel.texts() == ["2"]


def test_a_queue_that_is_consumed_is_not_left(queue: shmbroker.Queue, channel: Channel) -> None:
    """A handle stays while a channel consumes through it, or holds messages of it."""
    put(queue, 1)
    number = channel.consume(queue)
    message = channel.next()
    assert message is not None
    assert not core_of(queue).leave()
    channel.core.cancel(number)
    assert not core_of(queue).leave()
    message.ack()
    assert core_of(queue).leave()


def test_numbers_of_subscriptions_are_used_again_late(queue: shmbroker.Queue, channel: Channel) -> None:
    """They do not run out, and the last one is not the next one."""
    numbers = []
    for _ in range(1000):
        numbers.append(channel.consume(queue))
        channel.core.cancel(numbers[-1])
    assert all(number != after for number, after in itertools.pairwise(numbers))
    assert max(numbers) < 8


def test_many_channels(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """There may be 65,535 of them; one that consumes is served whatever its number."""
    channels = [Channel(connection, user + 1) for user in range(65535)]
    number = channels[-1].consume(queue)
    put(queue, 1)
    eventually(lambda: channels[-1].core.waiting() == 1)
    assert channels[-1].core.cancel(number) == native.OK
