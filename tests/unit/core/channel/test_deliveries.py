# SPDX-License-Identifier: Apache-2.0
"""Deliveries of a channel: their tags, their bodies, and settling them."""

# ruff: noqa: SLF001 - below any policy: the core's part of connections and messages
# ruff: noqa: FBT003 - the core's functions take their arguments by position
from __future__ import annotations

from typing import TYPE_CHECKING

from scenario_support.core_channel import Channel, put
from scenario_support.inside import core_of
from scenario_support.waiting import eventually

from shmbroker._core import native
from shmbroker._core.channel import AUTO_ACK
from shmbroker._core.transaction import ACK, REJECT, REQUEUE
from shmbroker.message import FRESH

if TYPE_CHECKING:
    import shmbroker

LONG = bytes(range(256)) * 40


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
    assert channel.core.settle_tag(2, False, ACK) == native.SETTLED
    assert channel.core.settle_multiple(3, ACK) == native.OK
    assert channel.core.unacked() == 0
    assert queue.statistics().message_count == 0


def test_acknowledging_all(queue: shmbroker.Queue, channel: Channel) -> None:
    """Tag 0 means all there are, also if there are none; of multiple ones the last must be there."""
    assert channel.core.settle_multiple(0, ACK) == native.OK
    assert channel.core.settle_multiple(1, ACK) == native.SETTLED
    assert channel.core.settle_tag(0, False, ACK) == native.SETTLED
    put(queue, *range(5))
    channel.consume(queue)
    channel.drain()
    assert channel.core.settle_multiple(0, ACK) == native.OK
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
    message = channel.receiver.take(channel, False)
    assert message is not None
    assert message._state == FRESH
    del message
    first, second = channel.drain()
    assert (first.delivery_tag, bytes(first), second.delivery_tag, bytes(second)) == (1, b"1", 2, b"2")
    assert channel.core.delivered() == 2


def test_recovering(queue: shmbroker.Queue, channel: Channel) -> None:
    """All that is unacked comes again, marked."""
    put(queue, 1, 2)
    channel.consume(queue)
    channel.drain()
    assert channel.core.settle_multiple(0, REQUEUE) == native.OK
    messages = channel.drain()
    assert [(bytes(m), m.redelivered, m.delivery_tag) for m in messages] == [(b"1", True, 3), (b"2", True, 4)]


def test_what_is_settled_is_collected_first(queue: shmbroker.Queue, channel: Channel) -> None:
    """A transaction is told what settling would settle, and says when it has done so."""
    put(queue, *range(4))
    channel.consume(queue, prefetch=4)
    messages = channel.drain()
    assert channel.core.collect(9, ACK, multiple=False) == []
    found = channel.core.collect(3, REJECT, multiple=True)
    assert [settlement.delivery_tag for settlement in found] == [1, 2, 3]
    assert [settlement.disposition for settlement in found] == [REJECT] * 3
    assert len({settlement.token for settlement in found}) == 3
    assert channel.core.unacked() == 4
    for message in messages[:3]:
        assert core_of(queue).settle(message._record[:64], REQUEUE) == native.SETTLED  # a tag is no holding
    channel.core.forget(3, multiple=True)
    assert channel.core.unacked() == 1
    assert channel.core.collect(1, ACK, multiple=False) == []


def test_many_unacked_in_any_pattern(queue: shmbroker.Queue, channel: Channel) -> None:
    """Deliveries are found by their tags, whichever of them are left, and no tag is used twice."""
    count = 3000
    queue.put_many([str(n).encode() for n in range(count)])
    channel.consume(queue)
    tags = [message.delivery_tag for message in channel.drain()]
    assert tags == list(range(1, count + 1))
    for tag in tags:
        if tag % 64:
            assert channel.core.settle_tag(tag, False, ACK) == native.OK
    left = [tag for tag in tags if not tag % 64]
    assert channel.core.unacked() == len(left)
    assert [channel.core.settle_tag(tag, False, ACK) for tag in left[::2]] == [native.OK] * len(left[::2])
    assert channel.core.settle_multiple(0, REQUEUE) == native.OK
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
    assert channel.core.settle_multiple(0, ACK) == native.OK
    assert queue.statistics().message_count == 0
