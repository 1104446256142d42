# SPDX-License-Identifier: Apache-2.0
"""The core's part of a consumer: how it begins, waits, and ends."""

# ruff: noqa: SLF001 - below any policy: the core's part of consumers
from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted, Replaced, telling
from scenario_support.inside import core_of, session_of
from scenario_support.waiting import eventually

from shmbroker._core import consumer as module
from shmbroker._core import native
from shmbroker._core.consumer import CoreConsumer
from shmbroker.exceptions import AccessRefused, ConnectionClosed, NotFound, OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker


def consumer_of(*queues: shmbroker.Queue, prefetch: int = 5, **options: Any) -> CoreConsumer:  # noqa: ANN401
    """Consume from queues of one connection."""
    cores = [core_of(queue) for queue in queues]
    given = {"ack_batch": 1, "ack_interval": 0.0} | options
    return CoreConsumer(cores[0].connection, cores, prefetch, given.pop("priority", 0), **given)


def other_calls(monkeypatch: pytest.MonkeyPatch, **others: Callable[..., object]) -> None:
    """Let consumers call others than the core."""
    monkeypatch.setattr(module, "slow", Replaced(native.slow, **others))


def test_what_a_consumer_is(
    connection: shmbroker.Connection, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core gets what the caller gave, times in nanoseconds; the queues are kept and named."""
    consume = Noted(native.slow.sb_consumer_open_with)
    other_calls(monkeypatch, sb_consumer_open_with=consume)
    second = connection.queue("second")
    made = consumer_of(queue, second, prefetch=3, priority=-2, ack_batch=2, ack_interval=1.5, prefetch_bytes=70)
    ((handle, handles, count, options, _),) = consume.calls
    assert handle == core_of(connection).handle
    assert list(handles) == [core_of(queue).handle, core_of(second).handle]
    assert count == 2
    given = ("prefetch", "priority", "ack_batch", "ack_interval_ns", "prefetch_bytes", "selector_length")
    assert [getattr(options, name) for name in given] == [3, -2, 2, 1_500_000_000, 70, 0]
    assert made.queues == [core_of(queue), core_of(second)]
    assert made.what == "queue 'q' and queue 'second'"
    assert made.address == int(native.ffi.cast("uintptr_t", made.handle))
    (seen, _) = connection.consumers()
    assert (seen.priority, seen.prefetch, seen.prefetch_bytes) == (-2, 3, 70)
    assert (made.waiting(), made.delivered(), made.unacked()) == (0, 0, 0)


def test_a_consumer_that_needs_another_segment(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker grows each time that the core asks for it; then the consumer is there."""
    attached = core_of(queue).connection.attachment
    before = attached.facts().segments
    consume = telling(native.slow.sb_consumer_open_with, native.GROW, native.GROW, result=native.ffi.NULL)
    other_calls(monkeypatch, sb_consumer_open_with=consume)
    made = consumer_of(queue)
    assert attached.facts().segments == before + 2
    assert made.handle != native.ffi.NULL
    assert queue.statistics().consumers == 1


def test_there_is_no_memory_for_a_consumer(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what the broker's memory is used for."""
    consume = telling(native.slow.sb_consumer_open_with, native.NO_MEMORY, native.NO_MEMORY, result=native.ffi.NULL)
    other_calls(monkeypatch, sb_consumer_open_with=consume)
    with pytest.raises(OutOfMemory, match=r"has no room: \d+ of \d+ bytes are used"):
        consumer_of(queue)


def test_a_queue_in_exclusive_use(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has RabbitMQ's words and code."""
    consume = telling(native.slow.sb_consumer_open_with, native.ACCESS, result=native.ffi.NULL)
    other_calls(monkeypatch, sb_consumer_open_with=consume)
    with pytest.raises(AccessRefused) as refused:
        consumer_of(queue)
    assert refused.value.code == 403
    assert refused.value.text == "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"


def test_a_queue_that_is_gone(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """The error names all queues of the consumer that is not there."""
    gone = connection.queue("gone")
    core_of(gone).delete(if_unused=False, if_empty=False, until=native.FOR_EVER)
    with pytest.raises(NotFound, match="no queue 'q' and queue 'gone'"):
        consumer_of(queue, gone)
    assert queue.statistics().consumers == 0


def test_waiting_and_events(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """A wait ends with what is pulled; an eventfd is written once for each arming, unless something waits already."""
    session_of(connection).start_io()
    made = consumer_of(queue)
    descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        made.event(descriptor)
        assert made.arm() is False
        queue.put(b"A")
        assert made.wait(native.FOR_EVER) == native.OK
        eventually(lambda: made.waiting() == 1)
        assert os.eventfd_read(descriptor) == 1
        assert made.arm() is True
        assert made.delivered() == 0
    finally:
        made.cancel(return_everything=True)
        os.close(descriptor)


def test_a_consumer_that_is_suspended_pulls_nothing(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Until it is resumed."""
    session_of(connection).start_io()
    made = consumer_of(queue)
    made.suspend(suspended=True)
    queue.put(b"A")
    assert made.wait(1) == native.TIMEOUT
    assert made.waiting() == 0
    made.suspend(suspended=False)
    eventually(lambda: made.waiting() == 1)


@pytest.mark.parametrize(("return_everything", "delivering"), [(True, 0), (False, 1)])
def test_cancelling_returns_what_was_not_seen(
    connection: shmbroker.Connection, queue: shmbroker.Queue, *, return_everything: bool, delivering: int
) -> None:
    """And with `return_everything` what the application holds, too."""
    queue.put_many([b"A", b"B"])
    with queue.consume(prefetch=2) as consumer:
        held = consumer.get(timeout=None)
        consumer._core.cancel(return_everything=return_everything)
        seen = queue.statistics()
        assert (seen.delivering, seen.ready, seen.consumers) == (delivering, 2 - delivering, 0)
        del held
    assert connection.consumers() == []


def test_acknowledgements_that_wait_are_sent(queue: shmbroker.Queue) -> None:
    """What waits for its batch counts when it is sent."""
    queue.put_many([b"A", b"B"])
    with queue.consume(prefetch=4, ack_batch=100, ack_interval=3600) as consumer:
        consumer.get(timeout=None).ack()
        assert queue.statistics().acked == 0
        consumer._core.send_acks()
        assert queue.statistics().acked == 1


def test_a_consumer_of_a_closed_connection(broker: shmbroker.Broker) -> None:
    """Each call says that it is closed."""
    with broker.connect() as connection:
        made = consumer_of(connection.queue("q"))
    for call in (
        made.send_acks,
        made.arm,
        lambda: made.wait(1),
        lambda: made.event(-1),
        lambda: made.suspend(suspended=True),
        lambda: made.cancel(return_everything=True),
    ):
        with pytest.raises(ConnectionClosed, match="the connection is closed"):
            call()


def test_a_consumer_that_nobody_has_ends(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it pulled goes back, and its memory in this process is freed, once."""
    free = Noted(native.slow.sb_consumer_free)
    other_calls(monkeypatch, sb_consumer_free=free)
    queue.put(b"A")
    made = consumer_of(queue)
    handle = made.handle
    assert queue.statistics().consumers == 1
    del made
    gc.collect()
    assert free.calls.count((handle,)) == 1
    seen = queue.statistics()
    assert (seen.consumers, seen.delivering, seen.ready) == (0, 0, 1)
