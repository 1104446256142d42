# SPDX-License-Identifier: Apache-2.0
"""Channels of the core: deliveries in one order, limits, dealing, and being handed over."""

# ruff: noqa: SLF001 - below any policy: the core's part of connections and messages
# ruff: noqa: FBT003 - the core's functions take their arguments by position
from __future__ import annotations

import itertools
import os
import queue as standard_queue
import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.processes import Actor
from scenario_support.waiting import eventually

from shmbroker._core import library
from shmbroker._core.channel import AUTO_ACK, BY_GET, EXCLUSIVE, NO_LOCAL, CoreChannel
from shmbroker.exceptions import AccessRefused, NotFound
from shmbroker.message import FRESH, OPEN, Message, MessageBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker

ACK, REQUEUE, REJECT, RETURN = range(4)
LONG = bytes(range(256)) * 40


class Channel:
    """What a layer above makes of a core channel, without any policy: the source of its messages."""

    def __init__(self, connection: shmbroker.Connection, user: int = 1) -> None:
        connection.start_io()
        self.core = CoreChannel(connection.core, user)
        self.core_connection = self.core.connection
        self.settle = self.core.settle
        self.taker = library.Taker(self.core.address, library.OF_CHANNEL, Message, MessageBatch)

    def queue_name(self, subscription: int) -> str:
        """The name of its queue."""
        return self.core.queues[subscription].name if subscription != BY_GET else "by get"

    def next_delivery_tag(self) -> int:
        """Never asked: deliveries have tags."""
        raise AssertionError

    def consume(self, queue: shmbroker.Queue, *, prefetch: int = 0, priority: int = 0, flags: int = 0) -> int:
        """Starts a consumer."""
        return self.core.consume(queue.core, prefetch, priority, flags)

    def next(self) -> Message | None:
        """The next delivery that is there."""
        message = self.taker.take(self, False)
        while message is None and self.taker.status != library.EMPTY:
            self.core.failed(self.taker.status)
            message = self.taker.take(self, False)
        if message is not None and message._state == FRESH:
            message._state = OPEN
        return message

    def get(self, queue: shmbroker.Queue, *, auto_ack: bool = False) -> Message | int:
        """A basic get: a status when there is nothing."""
        message = self.taker.get(self, queue.core.address, auto_ack)
        if isinstance(message, Message) and not auto_ack:
            message._state = OPEN
        return message

    def drain(self) -> list[Message]:
        """Whatever is there."""
        return list(iter(self.next, None))

    def texts(self) -> list[str]:
        """The bodies of whatever is there."""
        return [bytes(message).decode() for message in self.drain()]


@pytest.fixture
def channel(connection: shmbroker.Connection) -> Iterator[Channel]:
    """A channel of the test's connection."""
    made = Channel(connection)
    yield made
    made.core.close()


def put(queue: shmbroker.Queue, *texts: object) -> None:
    """Puts a message for each."""
    for text in texts:
        queue.put(str(text).encode())


def test_deliveries_are_numbered_in_the_order_they_are_pulled(
    connection: shmbroker.Connection, channel: Channel
) -> None:
    """Deliveries of all consumers of a channel, and gets, have the tags 1, 2, 3 ..."""
    first, second = connection.queue("first"), connection.queue("second")
    put(first, "a", "b")
    put(second, "c")
    numbers = {channel.consume(first), channel.consume(second)}
    messages = channel.drain()
    assert [message.delivery_tag for message in messages] == [1, 2, 3]
    assert sorted(bytes(message) for message in messages) == [b"a", b"b", b"c"]
    assert {message._fields.subscription for message in messages} == numbers
    put(first, "d")
    assert channel.drain()[0].delivery_tag == 4


def test_acknowledging_by_tag(queue: shmbroker.Queue, channel: Channel) -> None:
    """An acknowledged delivery is over; a second acknowledgement finds no such tag."""
    put(queue, 1, 2, 3)
    channel.consume(queue)
    messages = channel.drain()
    messages[1].ack()
    assert channel.core.unacked() == 2
    assert channel.core.settle_tag(2, False, ACK) == library.SETTLED
    assert channel.core.settle_multiple(3, ACK) == library.OK
    assert channel.core.unacked() == 0
    assert queue.statistics().message_count == 0


def test_acknowledging_all(queue: shmbroker.Queue, channel: Channel) -> None:
    """Tag 0 means all there are, also if there are none; of multiple ones the last must be there."""
    assert channel.core.settle_multiple(0, ACK) == library.OK
    assert channel.core.settle_multiple(1, ACK) == library.SETTLED
    assert channel.core.settle_tag(0, False, ACK) == library.SETTLED
    put(queue, *range(5))
    channel.consume(queue)
    channel.drain()
    assert channel.core.settle_multiple(0, ACK) == library.OK
    assert queue.statistics().message_count == 0


def test_a_long_body_is_read_in_place(queue: shmbroker.Queue, channel: Channel) -> None:
    """A long body can be looked at while it is unacked, and as long as the view, if it is settled when it is given."""
    queue.put(LONG)
    queue.put(LONG)
    number = channel.consume(queue, prefetch=1)
    message = channel.next()
    assert message is not None
    assert bytes(message.body) == LONG
    message.ack()
    channel.core.cancel(number)
    channel.consume(queue, flags=AUTO_ACK)
    settled = channel.next()
    assert settled is not None
    assert settled._state == 1
    assert bytes(settled) == LONG
    assert queue.statistics().message_count == 0


def test_what_was_not_seen_is_the_next_one_again(queue: shmbroker.Queue, channel: Channel) -> None:
    """A delivery that is dropped before it reached the application comes again, under its tag."""
    put(queue, 1, 2)
    channel.consume(queue)
    message = channel.taker.take(channel, False)
    assert message is not None
    assert message._state == FRESH
    del message
    first, second = channel.drain()
    assert (first.delivery_tag, bytes(first), second.delivery_tag, bytes(second)) == (1, b"1", 2, b"2")
    assert channel.core.delivered() == 2


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
    assert channel.core.limit(3) == library.OK
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
    connection.core.limit(3)
    one.consume(queue)
    other.consume(queue)
    eventually(lambda: one.core.waiting() + other.core.waiting() == 3)
    messages = one.drain() + other.drain()
    assert len(messages) == 3
    messages[0].ack()
    eventually(lambda: one.core.waiting() + other.core.waiting() == 1)
    connection.core.limit(0)
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
    assert channel.get(queue) == library.EMPTY
    message.nack()
    again = channel.get(queue)
    assert isinstance(again, Message)
    assert (again.delivery_tag, again.redelivered) == (4, True)


def test_a_cancelled_consumer(queue: shmbroker.Queue, channel: Channel) -> None:
    """What it was given can be settled; what it was not goes back."""
    put(queue, 1, 2, 3)
    number = channel.consume(queue)
    message = channel.next()
    assert message is not None
    assert channel.core.cancel(number) == library.OK
    assert channel.core.cancel(number) == library.NOT_FOUND
    assert channel.drain() == []
    assert queue.statistics().ready == 2
    message.ack()
    assert queue.statistics().message_count == 2


def test_a_closed_channel_returns_everything(queue: shmbroker.Queue, channel: Channel) -> None:
    """All goes back to its place: marked if the application saw it."""
    put(queue, *range(5))
    channel.consume(queue, prefetch=4)
    channel.next()
    channel.next()
    channel.core.close()
    channel.core.close()
    messages = [queue.get(timeout=0) for _ in range(5)]
    assert [bytes(message) for message in messages] == [b"0", b"1", b"2", b"3", b"4"]
    assert [message.delivery_count for message in messages] == [2, 2, 1, 1, 1]
    assert channel.taker.take(channel, False) is None
    assert channel.taker.status == library.CLOSED


def test_recovering(queue: shmbroker.Queue, channel: Channel) -> None:
    """All that is unacked comes again, marked."""
    put(queue, 1, 2)
    channel.consume(queue)
    channel.drain()
    assert channel.core.settle_multiple(0, REQUEUE) == library.OK
    messages = channel.drain()
    assert [(bytes(m), m.redelivered, m.delivery_tag) for m in messages] == [(b"1", True, 3), (b"2", True, 4)]


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


def test_an_armed_channel_is_handed_over_once(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """The IO thread says so when something comes, each once per arming; what is there already is told at once."""
    ready: standard_queue.Queue[int] = standard_queue.Queue()
    connection.core.on_ready = ready.put
    channel = Channel(connection, 4711)
    channel.consume(queue)
    assert not channel.core.arm()
    put(queue, 1, 2)
    assert ready.get(timeout=30) == 4711
    eventually(lambda: channel.core.waiting() == 2)
    assert ready.empty()
    assert channel.core.arm()
    channel.drain()
    assert not channel.core.arm()
    put(queue, 3)
    assert ready.get(timeout=30) == 4711


def test_closing_ends_a_waiting_get(queue: shmbroker.Queue, channel: Channel) -> None:
    """A get that waits ends when its channel is closed by another thread."""
    ended: list[object] = []

    def wait() -> None:
        with channel.core_connection.call():
            ended.append(channel.taker.get_wait(channel, queue.core.address, False, library.FOR_EVER))

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: queue.statistics().interested == 1)
    channel.core.close()
    thread.join(30)
    assert ended == [library.CLOSED]


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
    native = queue.consume(prefetch=1)
    with pytest.raises(standard_queue.Empty):
        native.get(timeout=0)
    channels[1].core.close()
    channels[2].core.close()
    assert bytes(native.get(timeout=30)) == b"1"


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
    assert channel.core.cancel(number) == library.OK


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


def test_what_is_settled_is_collected_first(queue: shmbroker.Queue, channel: Channel) -> None:
    """A transaction is told what settling would settle, and says when it has done so."""
    put(queue, *range(4))
    channel.consume(queue, prefetch=4)
    messages = channel.drain()
    assert channel.core.collect(9, ACK, multiple=False) == library.SETTLED
    found = channel.core.collect(3, REJECT, multiple=True)
    assert [settlement.how for settlement in found] == [REJECT] * 3
    assert len({settlement.token for settlement in found}) == 3
    assert channel.core.unacked() == 4
    for message in messages[:3]:
        assert queue.core.settle(message._record[:64], REQUEUE) == library.SETTLED  # a tag is no holding
    channel.core.forget(3, multiple=True)
    assert channel.core.unacked() == 1
    assert channel.core.collect(1, ACK, multiple=False) == library.SETTLED


def test_many_unacked_in_any_pattern(queue: shmbroker.Queue, channel: Channel) -> None:
    """Deliveries are found by their tags, whichever of them are left, and no tag is used twice."""
    count = 3000
    queue.put_many([str(n).encode() for n in range(count)])
    channel.consume(queue)
    tags = [message.delivery_tag for message in channel.drain()]
    assert tags == list(range(1, count + 1))
    for tag in tags:
        if tag % 64:
            assert channel.core.settle_tag(tag, False, ACK) == library.OK
    left = [tag for tag in tags if not tag % 64]
    assert channel.core.unacked() == len(left)
    assert [channel.core.settle_tag(tag, False, ACK) for tag in left[::2]] == [library.OK] * len(left[::2])
    assert channel.core.settle_multiple(0, REQUEUE) == library.OK
    assert [message.delivery_tag for message in channel.drain()] == list(range(count + 1, count + 1 + len(left[1::2])))


def test_more_unacked_than_there_is_memory_at_first(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """What is held takes memory of the broker, which is made when it is needed, whoever pulls."""
    channel = Channel(connection)
    channel.consume(queue)
    for _ in range(60):
        queue.put_many([b"x" * 64] * 1000)
        eventually(lambda: channel.core.waiting() > 0)
        channel.drain()
    eventually(lambda: len(channel.drain()) == 0 and channel.core.unacked() == 60_000)
    assert channel.core.settle_multiple(0, ACK) == library.OK
    assert queue.statistics().message_count == 0


def test_a_get_that_waits(queue: shmbroker.Queue, channel: Channel) -> None:
    """It is woken by what comes; without anything it ends in time."""
    assert channel.taker.get_wait(channel, queue.core.address, False, 1) == library.TIMEOUT
    got: list[Message] = []

    def wait() -> None:
        with channel.core_connection.call():
            got.append(channel.taker.get_wait(channel, queue.core.address, True, library.FOR_EVER))

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: queue.statistics().interested == 1)
    put(queue, "late")
    thread.join(30)
    assert [(bytes(message), message.delivery_tag) for message in got] == [(b"late", 1)]


def test_a_closed_connection_ends_its_channels(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """What they held goes back, marked if the application saw it; calls say that they are closed."""
    connection = broker.connect()
    channel = Channel(connection)
    channel.consume(connection.queue("q"))
    put(queue, 1, 2)
    eventually(lambda: channel.core.waiting() == 2)
    assert channel.next() is not None
    connection.close()
    assert [bytes(queue.get(timeout=0)) for _ in range(2)] == [b"1", b"2"]
    assert channel.taker.take(channel, False) is None
    assert channel.taker.status == library.CLOSED
    assert channel.core.settle_tag(1, False, ACK) == library.CLOSED
    assert channel.core.arm()
    channel.core.close()


def test_a_forked_child_cannot_use_a_channel(queue: shmbroker.Queue, channel: Channel) -> None:
    """In a child every call says so; the parent goes on."""
    put(queue, 1)
    channel.consume(queue)
    child = os.fork()
    if child == 0:
        good = channel.core.arm() and channel.core.settle_tag(1, False, ACK) == library.FORKED
        channel.core.close()
        os._exit(0 if good and channel.taker.take(channel, False) is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert channel.texts() == ["1"]


def test_a_queue_that_is_consumed_is_not_left(queue: shmbroker.Queue, channel: Channel) -> None:
    """A handle stays while a channel consumes through it, or holds messages of it."""
    put(queue, 1)
    number = channel.consume(queue)
    message = channel.next()
    assert message is not None
    assert not queue.core.leave()
    channel.core.cancel(number)
    assert not queue.core.leave()
    message.ack()
    assert queue.core.leave()


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
    assert channels[-1].core.cancel(number) == library.OK
