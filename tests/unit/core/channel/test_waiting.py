# SPDX-License-Identifier: Apache-2.0
"""Who waits at a channel: the thread it is handed over to, and gets."""

# ruff: noqa: FBT003 - the core's functions take their arguments by position
from __future__ import annotations

import queue as standard_queue
import threading
from typing import TYPE_CHECKING

from scenario_support.core_channel import Channel, put
from scenario_support.inside import core_of
from scenario_support.waiting import eventually

from shmbroker._core import native

if TYPE_CHECKING:
    import shmbroker
    from shmbroker.message import Message


def test_an_armed_channel_is_handed_over_once(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """The IO thread says so when something comes, each once per arming; what is there already is told at once."""
    ready: standard_queue.Queue[int] = standard_queue.Queue()
    core_of(connection).on_ready = ready.put
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


def test_a_get_that_waits(queue: shmbroker.Queue, channel: Channel) -> None:
    """It is woken by what comes; without anything it ends in time."""
    assert channel.receiver.get_wait(channel, core_of(queue).address, False, 1) == native.TIMEOUT
    got: list[Message] = []

    def wait() -> None:
        with channel.core_connection.call():
            got.append(channel.receiver.get_wait(channel, core_of(queue).address, True, native.FOR_EVER))

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: queue.statistics().interested == 1)
    put(queue, "late")
    thread.join(30)
    assert [(bytes(message), message.delivery_tag) for message in got] == [(b"late", 1)]


def test_closing_ends_a_waiting_get(queue: shmbroker.Queue, channel: Channel) -> None:
    """A get that waits ends when its channel is closed by another thread."""
    ended: list[object] = []

    def wait() -> None:
        with channel.core_connection.call():
            ended.append(channel.receiver.get_wait(channel, core_of(queue).address, False, native.FOR_EVER))

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: queue.statistics().interested == 1)
    channel.core.close()
    thread.join(30)
    assert ended == [native.CLOSED]
