# SPDX-License-Identifier: Apache-2.0
"""Channels that are closed, with their connection or without it, or found in a forked child."""

# ruff: noqa: FBT003 - the core's functions take their arguments by position
from __future__ import annotations

import os
from typing import TYPE_CHECKING

from scenario_support.core_channel import Channel, put
from scenario_support.waiting import eventually

from shmbroker._core import native
from shmbroker._core.transaction import ACK

if TYPE_CHECKING:
    import shmbroker


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
    assert channel.receiver.take(channel, False) is None
    assert channel.receiver.status == native.CLOSED


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
    assert channel.receiver.take(channel, False) is None
    assert channel.receiver.status == native.CLOSED
    assert channel.core.settle_tag(1, False, ACK) == native.CLOSED
    assert channel.core.arm()
    channel.core.close()


def test_a_forked_child_cannot_use_a_channel(queue: shmbroker.Queue, channel: Channel) -> None:
    """In a child every call says so; the parent goes on."""
    put(queue, 1)
    channel.consume(queue)
    child = os.fork()
    if child == 0:
        good = channel.core.arm() and channel.core.settle_tag(1, False, ACK) == native.FORKED
        channel.core.close()
        os._exit(0 if good and channel.receiver.take(channel, False) is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert channel.texts() == ["1"]
