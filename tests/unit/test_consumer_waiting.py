# SPDX-License-Identifier: Apache-2.0
"""How a consumer waits: how long it sleeps between two looks, what ends the wait, and what an iteration makes of it."""

# ruff: noqa: SLF001 - its own parts
from __future__ import annotations

import gc
import os
import re
import sys
from queue import Empty
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Replaced
from scenario_support.inside import core_of, session_of
from scenario_support.observing import assert_counts, await_counts, put_each, text
from scenario_support.waiting import WATCHDOG_SECONDS

from shmbroker import consumer as module
from shmbroker._core import native
from shmbroker.exceptions import ConnectionClosed, CorruptSegment, NotFound
from shmbroker.statistics import ConsumerStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker

NOW = 5 * 10**12
FIRST, NEXT = 10**7, 10**9  # nanoseconds to the first look, and to each look after it


class Script:
    """In the place of a consumer's receiver and of the core's wait: statuses of a list each.

    The first take is that of the compiled code, which has a receiver of its own: here, only its status counts.

    Attributes:
        until: The times that the consumer waited for.
        status: What the last take found, as of a receiver.
    """

    def __init__(self, consumer: Any, takes: list[Any], waits: list[int]) -> None:  # noqa: ANN401
        self.status, *self._takes = takes
        self._waits = waits
        self.until: list[int] = []
        consumer._taker = self
        consumer._core.wait = self.wait

    def take(self, *_: object) -> Any:  # noqa: ANN401
        """A message, or None and a status."""
        found = self._takes.pop(0)
        if isinstance(found, int):
            self.status = found
            return None
        return found

    def wait(self, until: int) -> int:
        """A status."""
        self.until.append(until)
        return self._waits.pop(0)


@pytest.fixture
def consumer(queue: shmbroker.Queue) -> Iterator[shmbroker.Consumer]:
    """A consumer of the queue."""
    with queue.consume() as made:
        yield made


@pytest.fixture
def clock(consumer: shmbroker.Consumer, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Have the consumers' time stand still at NOW; a get waits until `until` whatever timeout it is given."""
    assert not consumer._ended
    fixed = SimpleNamespace(until=native.FOR_EVER)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=lambda: NOW))
    monkeypatch.setattr(module, "native", Replaced(native, deadline=lambda _timeout: fixed.until))
    return fixed


@pytest.mark.parametrize(("ack_batch", "waits"), [(1, 0), (2, 1)])
def test_a_get_that_does_not_wait(queue: shmbroker.Queue, ack_batch: int, waits: int) -> None:
    """It asks the core for more only where acknowledgements may wait for their batch: those make room."""
    with queue.consume(ack_batch=ack_batch) as consumer:
        until: list[int] = []
        core: Any = consumer._core
        wait = core.wait
        core.wait = lambda time: until.append(time) or wait(time)
        with pytest.raises(Empty):
            consumer.get(timeout=0)
        assert len(until) == waits
        with pytest.raises(Empty):
            consumer.get(timeout=1e-9)
        assert len(until) > waits


def test_messages_wait_for_their_settlement_unless_that_was_given(queue: shmbroker.Queue) -> None:
    """With auto_ack they are settled when they are handed out, whichever way they come."""
    for auto_ack in (True, False):
        put_each(queue, "ABC")
        with queue.consume(auto_ack=auto_ack) as consumer:
            found = [consumer.get(), next(consumer), next(iter(consumer))]
            assert [one.settled for one in found] == [auto_ack] * 3
            assert [bytes(one) for one in found] == [b"A", b"B", b"C"]
            for one in found if not auto_ack else ():
                one.ack()
    assert_counts(queue, acked=6, message_count=0)


def test_a_message_that_was_waited_for_is_the_applications(queue: shmbroker.Queue) -> None:
    """Like one that was there: dropped without a settlement, it stays unacked, and does not come back to the row."""
    with queue.consume() as consumer:
        core: Any = consumer._core
        wait = core.wait
        core.wait = lambda time: [queue.put(b"A"), wait(time)][1]
        assert text(consumer.get(timeout=WATCHDOG_SECONDS)) == "A"
        gc.collect()
        assert consumer.statistics() == ConsumerStatistics(prefetch=64, delivered=1, unacked=1, waiting=0)


def test_a_message_that_an_exception_drops(queue: shmbroker.Queue) -> None:
    """In the expression that got it, before a variable has it: it becomes the next one again."""
    put_each(queue, "AB")
    with queue.consume() as consumer:
        with pytest.raises(ZeroDivisionError):
            [consumer.get(), 1 / 0]  # drops the list
        assert [text(consumer.get()) for _ in range(2)] == ["A", "B"]
        assert consumer.statistics().delivered == 2


@pytest.mark.parametrize(
    ("positional", "named", "said"),
    [
        ((1, 2), {}, r"get\(\) takes at most 2 positional arguments but 3 were given"),
        ((), {"wait": 1}, r"get\(\) got an unexpected keyword argument 'wait'"),
        ((1,), {"wait": 1}, r"get\(\) got an unexpected keyword argument 'wait'"),
        ((1,), {"timeout": 1}, r"get\(\) got multiple values for argument 'timeout'"),
        ((), {"timeout": 1, "wait": 1}, r"get\(\) got an unexpected keyword argument 'wait'"),
    ],
)
def test_arguments_that_a_get_does_not_have(
    consumer: Any,  # noqa: ANN401
    positional: tuple[int, ...],
    named: dict[str, int],
    said: str,
) -> None:
    """As of a function in Python; no message is taken."""
    with pytest.raises(TypeError, match=said):
        consumer.get(*positional, **named)


@pytest.mark.parametrize("timeout", ["1", -1, float("nan"), True])
def test_a_timeout_that_is_not_allowed(queue: shmbroker.Queue, timeout: Any) -> None:  # noqa: ANN401
    """An error names it, before a message is taken."""
    put_each(queue, "A")
    with queue.consume() as consumer:
        for named in ({}, {"timeout": timeout}):
            with pytest.raises((TypeError, ValueError), match=re.escape(f"timeout={timeout!r}")):
                consumer.get(*(() if named else (timeout,)), **named)
        assert consumer.statistics().delivered == 0


def test_the_sleeps_between_two_looks(consumer: Any, clock: SimpleNamespace) -> None:  # noqa: ANN401
    """The first is short, for the sake of signals; none is longer than the caller waits; a message ends them."""
    message = object()
    waits = [native.TIMEOUT, native.INTERRUPTED, native.OK]
    script = Script(consumer, [native.EMPTY] * 3 + [message], list(waits))
    assert consumer.get() is message
    assert script.until == [NOW + FIRST, NOW + NEXT, NOW + NEXT]
    clock.until = NOW + FIRST + 5
    script = Script(consumer, [native.EMPTY] * 3 + [message], list(waits))
    assert consumer.get(timeout=1) is message
    assert script.until == [NOW + FIRST, clock.until, clock.until]


@pytest.mark.parametrize("early", [0, 1])
def test_the_time_is_over(consumer: Any, clock: SimpleNamespace, early: int) -> None:  # noqa: ANN401
    """When the core has said so, and not when it has woken the consumer: then there may be a message."""
    clock.until = NOW - early
    script = Script(consumer, [native.EMPTY] * 4, [native.OK, native.INTERRUPTED, native.TIMEOUT])
    with pytest.raises(Empty):
        consumer.get(timeout=1)
    assert script.until == [clock.until] * 3


def test_a_look_that_is_over_before_the_time(consumer: Any, clock: SimpleNamespace) -> None:  # noqa: ANN401
    """The consumer goes on waiting."""
    clock.until = NOW + 1
    script = Script(consumer, [native.EMPTY] * 3, [native.TIMEOUT, 99])
    with pytest.raises(Exception, match="the consumer: operation failed"):
        consumer.get(timeout=1)
    assert len(script.until) == 2


def test_memory_has_to_be_mapped_first(
    queue: shmbroker.Queue,
    consumer: Any,  # noqa: ANN401
    clock: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also by a get that does not wait: it takes the message then, without waiting for the IO thread to pull it."""
    seen: list[int] = []
    monkeypatch.setattr(core_of(queue), "get_failed", seen.append)
    clock.until = NOW
    message = object()
    script = Script(consumer, [native.GROW, message], [])
    assert consumer._get_slowly(0) is message
    assert (seen, script.until) == ([native.GROW], [])


@pytest.mark.parametrize(
    ("take", "wait", "error", "said"),
    [
        (native.DELETED, native.OK, NotFound, "no queue 'q'"),
        (native.EMPTY, native.CLOSED, ConnectionClosed, "the consumer is closed"),
        (native.EMPTY, native.slow.SB_CORRUPT, CorruptSegment, "the consumer: shared memory contradicts itself"),
    ],
)
@pytest.mark.usefixtures("clock")
def test_what_ends_a_wait(consumer: Any, take: int, wait: int, error: type[Exception], said: str) -> None:  # noqa: ANN401
    """The error says of what: of the queue, or of the consumer. An iteration has it as well."""
    for use in (consumer.get, consumer.__next__):
        Script(consumer, [take] * 2, [wait])
        with pytest.raises(error, match=said):
            use()


@pytest.mark.usefixtures("clock")
def test_a_consumer_that_ends_meanwhile(consumer: Any) -> None:  # noqa: ANN401
    """A get says that it is closed, whatever the core says of its queue; an iteration is over."""

    def end(_until: int) -> int:
        consumer._ended = True
        return native.OK

    try:
        for use, error in ((consumer.get, ConnectionClosed), (consumer.__next__, StopIteration)):
            consumer._ended = False
            script = Script(consumer, [native.EMPTY, native.DELETED], [])
            consumer._core.wait = end
            with pytest.raises(error):
                use()
            assert script.status == native.DELETED
        with pytest.raises(StopIteration):
            next(consumer)
        assert script._takes == []
    finally:
        consumer._ended = False


@pytest.mark.usefixtures("clock")
def test_a_signal_handler_that_closes_the_consumer_may_raise(consumer: Any) -> None:  # noqa: ANN401
    """What it raises comes out of the iteration: SystemExit ends the program instead of the loop."""

    def close_and_exit(_until: int) -> int:
        consumer._ended = True
        sys.exit(3)

    try:
        Script(consumer, [native.EMPTY], [])
        consumer._core.wait = close_and_exit
        with pytest.raises(SystemExit):
            next(consumer)
    finally:
        consumer._ended = False


def test_an_iteration_has_the_time_of_its_consumer(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is over when nothing came for so long, and can go on."""
    with queue.consume(timeout=0.001) as consumer:
        times: list[float | None] = []
        get = consumer.get
        monkeypatch.setattr(consumer, "get", lambda timeout: times.append(timeout) or get(timeout))
        with pytest.raises(StopIteration):
            next(consumer)
        assert times == [0.001]


def test_what_is_held_after_a_cancel_goes_back_with_the_close(queue: shmbroker.Queue) -> None:
    """A second cancel does nothing."""
    put_each(queue, "AB")
    consumer = queue.consume(prefetch=1)
    held = consumer.get()
    consumer.cancel()
    consumer.cancel()
    assert_counts(queue, delivering=1, ready=1, consumers=0)
    consumer.close()
    assert_counts(queue, delivering=0, ready=2)
    assert text(held) == "A"
    consumer.cancel()
    with pytest.raises(ConnectionClosed):
        consumer.get(timeout=0)


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_a_consumer_ends_after_its_connection(broker: shmbroker.Broker, end: str) -> None:
    """Without an error; its descriptor is closed."""
    connection = broker.connect()
    consumer = connection.queue("q").consume()
    descriptor = consumer.fileno()
    connection.close()
    getattr(consumer, end)()
    assert consumer._ended
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_the_core_is_asked_once_to_end_a_consumer(queue: shmbroker.Queue) -> None:
    """And told first that the descriptor is gone."""
    consumer: Any = queue.consume()
    consumer.fileno()
    calls: list[object] = []
    cancel, event = consumer._core.cancel, consumer._core.event
    consumer._core.cancel = lambda **how: calls.append(how) or cancel(**how)
    consumer._core.event = lambda descriptor: calls.append(descriptor) or event(descriptor)
    for _ in range(2):
        consumer.cancel()
    assert calls == [{"return_everything": False}, -1]
    for _ in range(2):
        consumer.close()
    assert calls[2:] == [{"return_everything": True}]
    assert consumer._core.descriptor == -1


def test_a_consumer_has_one_descriptor(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    """Two threads that ask for it at the same time get the same one; the other one is closed."""
    made: list[int] = []
    closed: list[int] = []

    def eventfd(*given: int) -> int:
        one = os.eventfd(*given)
        made.append(one)
        if len(made) == 1:
            assert consumer.fileno() == made[1]
        return one

    monkeypatch.setattr(
        module, "os", Replaced(os, eventfd=eventfd, close=lambda one: closed.append(one) or os.close(one))
    )
    assert consumer.fileno() == made[1]
    assert (len(made), closed) == (2, made[:1])


def test_a_descriptor_that_is_asked_for_has_a_thread_that_pulls(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that writes the descriptor; it is no longer inherited by programs, and never blocks."""
    asked: list[str] = []
    with queue.consume() as consumer:
        monkeypatch.setattr(type(session_of(queue)), "start_io", lambda _: asked.append("started"))
        descriptor = consumer.fileno()
        assert asked == ["started"]
        assert not os.get_inheritable(descriptor)
        assert not os.get_blocking(descriptor)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(descriptor)


def test_the_descriptor_of_a_dropped_consumer(queue: shmbroker.Queue) -> None:
    """It is closed with the consumer, which nobody has closed."""
    consumer = queue.consume()
    descriptor = consumer.fileno()
    os.fstat(descriptor)
    del consumer
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_statistics_tell_what_waits(queue: shmbroker.Queue) -> None:
    """Beside what the application was ever given, and what is unsettled of both."""
    put_each(queue, "ABC")
    with queue.consume(prefetch=4) as consumer:
        await_counts(queue, delivering=3)
        assert consumer.statistics() == ConsumerStatistics(prefetch=4, delivered=0, unacked=3, waiting=3)
        message = consumer.get()
        assert consumer.statistics() == ConsumerStatistics(prefetch=4, delivered=1, unacked=3, waiting=2)
        message.ack()
        assert consumer.statistics() == ConsumerStatistics(prefetch=4, delivered=1, unacked=2, waiting=2)
