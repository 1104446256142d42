# SPDX-License-Identifier: Apache-2.0
"""What becomes of the statuses of a channel: another try, or the error that says what it is about."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest
from scenario_support.core_calls import Noted, Replaced, answering, telling
from scenario_support.core_channel import Channel, put
from scenario_support.inside import core_of

from shmbroker._core import channel as module
from shmbroker._core import native
from shmbroker._core.channel import CoreChannel
from shmbroker._core.transaction import ACK
from shmbroker.exceptions import (
    BrokerError,
    ConnectionClosed,
    ConnectionClosedByBroker,
    NotAllowed,
    NotFound,
    OutOfMemory,
)

if TYPE_CHECKING:
    import shmbroker

CHANNEL_CLOSED = "the channel is closed"


def test_a_channel_that_cannot_be_opened(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is that of the status, and names the channel."""
    opened = telling(native.slow.sb_channel_open, native.slow.SB_LIMIT, result=native.ffi.NULL)
    monkeypatch.setattr(module, "slow", Replaced(native.slow, sb_channel_open=opened))
    with pytest.raises(NotAllowed, match="the channel"):
        CoreChannel(core_of(connection), 1)
    CoreChannel(core_of(connection), 1).close()


def test_a_consumer_that_needs_another_segment(
    queue: shmbroker.Queue, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker grows, once for each time that the core asks for it; then the consumer is there."""
    attached = channel.core.connection.attachment
    before = attached.facts().segments
    consume = answering(native.slow.sb_channel_consume_selected, native.GROW, native.GROW)
    monkeypatch.setattr(module, "slow", Replaced(native.slow, sb_channel_consume_selected=consume))
    number = channel.consume(queue)
    assert attached.facts().segments == before + 2
    assert channel.core.queues == {number: core_of(queue)}
    put(queue, 1)
    assert channel.texts() == ["1"]


def test_there_is_no_memory_for_a_consumer(
    queue: shmbroker.Queue, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what the broker's memory is used for; there is no such consumer."""
    consume = answering(native.slow.sb_channel_consume_selected, native.NO_MEMORY, native.NO_MEMORY)
    monkeypatch.setattr(module, "slow", Replaced(native.slow, sb_channel_consume_selected=consume))
    with pytest.raises(OutOfMemory, match=r"has no room: \d+ of \d+ bytes are used"):
        channel.consume(queue)
    assert channel.core.queues == {}


def test_a_channel_that_is_closed_consumes_nothing(
    connection: shmbroker.Connection, queue: shmbroker.Queue, channel: Channel
) -> None:
    """The error names the channel; that of a queue that is gone names the queue."""
    channel.core.close()
    with pytest.raises(ConnectionClosed, match=CHANNEL_CLOSED):
        channel.consume(queue)
    other = Channel(connection)
    core_of(queue).delete(if_unused=False, if_empty=False, until=native.FOR_EVER)
    with pytest.raises(NotFound, match="no queue 'q'"):
        other.consume(queue)
    assert other.core.queues == {}


@pytest.mark.parametrize("status", [native.OK, native.EMPTY, native.TIMEOUT, native.INTERRUPTED, native.TICK])
def test_a_call_that_brought_nothing_is_made_again(channel: Channel, status: int) -> None:
    """Nothing was wrong, and nothing is done."""
    before = channel.core.connection.attachment.facts().segments
    channel.core.failed(status)
    assert channel.core.connection.attachment.facts().segments == before


def test_a_call_that_needs_memory(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker grows or lets go of what was deleted, and the call is made again; else the error says so."""
    attached = channel.core.connection.attachment
    before = attached.facts().segments
    channel.core.failed(native.GROW)
    assert attached.facts().segments == before + 1
    looks = iter((True, False))
    monkeypatch.setattr(channel.core.connection, "let_go", lambda: next(looks))
    channel.core.failed(native.NO_MEMORY)
    with pytest.raises(OutOfMemory, match=r"has no room: \d+ of \d+ bytes are used"):
        channel.core.failed(native.NO_MEMORY)


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (native.CLOSED, ConnectionClosed, CHANNEL_CLOSED),
        (native.SETTLED, BrokerError, "PRECONDITION_FAILED"),
        (native.slow.SB_CORRUPT, BrokerError, "the channel: shared memory contradicts itself"),
    ],
)
def test_a_call_that_failed(channel: Channel, status: int, error: type[BrokerError], text: str) -> None:
    """The error is that of the status, and names the channel."""
    with pytest.raises(error, match=text):
        channel.core.failed(status)


def test_what_would_be_settled_is_counted_first(
    queue: shmbroker.Queue, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, all are told, and only those that the core has written."""
    collect = Noted(native.slow.sb_channel_collect)
    monkeypatch.setattr(module, "slow", Replaced(native.slow, sb_channel_collect=collect))
    assert channel.core.collect(0, ACK, multiple=True) == []
    assert len(collect.calls) == 1
    put(queue, *range(5))
    channel.consume(queue)
    channel.drain()
    found = channel.core.collect(0, ACK, multiple=True)
    assert [one.delivery_tag for one in found] == [1, 2, 3, 4, 5]
    assert {one.queue.address for one in found} == {core_of(queue).address}
    assert len(collect.calls) == 3
    assert [one.delivery_tag for one in channel.core.collect(2, ACK, multiple=False)] == [2]
    assert len(collect.calls) == 4


def test_a_channel_that_is_closed_has_nothing_to_settle(queue: shmbroker.Queue, channel: Channel) -> None:
    """Minus a status is no number of settlements."""
    put(queue, 1)
    channel.consume(queue)
    channel.drain()
    channel.core.close()
    assert channel.core.collect(0, ACK, multiple=True) == []


def test_a_channel_of_a_broker_that_goes_has_something_to_settle(queue: shmbroker.Queue, channel: Channel) -> None:
    """That its deliveries cannot be listed does not say that there are none: the error is that of the broker."""
    put(queue, 1)
    channel.consume(queue)
    channel.drain()
    attached = core_of(queue).connection.attachment
    attached.set_closing()
    with pytest.raises(ConnectionClosedByBroker):
        channel.core.collect(1, ACK, multiple=False)
    native.slow.sb_broker_set_closing(attached.handle, 0)
    assert [one.delivery_tag for one in channel.core.collect(1, ACK, multiple=False)] == [1]


def test_a_channel_that_nobody_has_gives_everything_back(
    connection: shmbroker.Connection, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed without being told to: what it held is ready again; and its memory in this process is freed."""
    put(queue, 1, 2)
    free = Noted(native.slow.sb_channel_free)
    monkeypatch.setattr(module, "slow", Replaced(native.slow, sb_channel_free=free))
    channel = Channel(connection)
    channel.consume(queue, prefetch=1)
    held = channel.next()
    assert held is not None
    assert queue.statistics().delivering == 1
    gone, handle = weakref.ref(channel.core), channel.core.handle
    del held, channel
    gc.collect()
    assert gone() is None
    assert free.calls.count((handle,)) == 1
    assert queue.statistics().ready == 2
    assert queue.statistics().consumers == 0


def test_consumers_keep_their_queues(connection: shmbroker.Connection, channel: Channel) -> None:
    """The handle of a queue stays as long as a channel consumes from it, although nobody else has it."""
    kept = weakref.ref(core_of(connection.queue("kept")))
    number = channel.consume(connection.queue("kept"))
    assert channel.core.queues[number] is kept()
    assert channel._queue_name(number) == "kept"  # noqa: SLF001
