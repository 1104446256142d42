# SPDX-License-Identifier: Apache-2.0
"""The work of a channel, step by step: an executor keeps what is submitted, and the test does it."""

from __future__ import annotations

import concurrent.futures
import errno
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import Inbox, count, publish
from scenario_support.core_calls import Noted, Replaced
from scenario_support.inside import connection_of, core_of, session_of
from scenario_support.waiting import becomes, eventually

import shmbroker
from shmbroker import BasicProperties
from shmbroker._core import native
from shmbroker.channel.deliveries import Names, Subscription
from shmbroker.exceptions import (
    ChannelClosed,
    ConnectionClosed,
    CorruptSegment,
    MessageSettled,
    NotAllowed,
    NotFound,
    OutOfMemory,
    UnroutableError,
)
from shmbroker.message import FRESH
from shmbroker.properties import NO_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLOSED = "CHANNEL_ERROR - channel 1 is closed"
TAG, QUEUE = "tag", "q"


class Kept(concurrent.futures.Executor):
    """Keeps what is submitted."""

    def __init__(self) -> None:
        """With nothing."""
        self.runnables: list[Any] = []

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Any:  # noqa: ANN401 (as its base has it)
        """Keep it."""
        self.runnables.append((fn, args))

    def run_one(self) -> None:
        """Do what came first."""
        fn, args = self.runnables.pop(0)
        fn(*args)

    def run(self) -> None:
        """Do all of it."""
        while self.runnables:
            self.run_one()


@pytest.fixture
def kept() -> Kept:
    """Have callbacks wait for the test."""
    return Kept()


@pytest.fixture
def told() -> list[BaseException]:
    """What the hook for errors of callbacks is told."""
    return []


@pytest.fixture
def channel(broker: shmbroker.Broker, kept: Kept, told: list[BaseException]) -> Iterator[shmbroker.Channel]:
    """Open a channel, declare its queue, and see at the end that the hook was told of nothing more."""
    with broker.connect(executor=kept, on_callback_error=told.append) as connection:
        opened = connection.channel()
        opened.queue_declare(QUEUE)
        yield opened
    assert told == []


def with_status(channel: shmbroker.Channel, *statuses: int, meanwhile: Any = None) -> None:  # noqa: ANN401
    """Have the channel find no message, for these reasons, one each time."""
    assert core_of(channel).unacked() == 0
    left = list(statuses)

    class Receiver(Replaced):
        status = native.EMPTY

        def deliver(self, *_: object) -> int:
            if meanwhile is not None:
                meanwhile()
            self.status = left.pop(0) if left else native.EMPTY
            return 0

    channel._taker = Receiver(channel._taker)  # type: ignore[assignment]  # noqa: SLF001


# ---- looking ----


def test_messages_are_handed_over_as_many_as_are_wanted(channel: shmbroker.Channel) -> None:
    """The number says how many; 0 that there is nothing."""
    inbox = Inbox()
    channel.basic_consume(QUEUE, inbox)
    publish(channel, QUEUE, "ABC")
    assert (channel._work(2), channel._done, inbox.texts()) == (2, 2, ["A", "B"])  # noqa: SLF001
    assert (channel._work(), channel._done, inbox.texts()) == (1, 1, ["A", "B", "C"])  # noqa: SLF001
    assert (channel._work(2), channel._done) == (0, 0)  # noqa: SLF001


def test_a_channel_rests_when_nothing_is_there(channel: shmbroker.Channel, kept: Kept) -> None:
    """A message that comes wakes it; before that it was asked again by nobody."""
    channel.basic_consume(QUEUE, Inbox())
    kept.run()
    assert channel._rest()  # noqa: SLF001
    publish(channel, QUEUE, "A")
    becomes(lambda: len(kept.runnables), 1)
    assert not channel._rest()  # noqa: SLF001
    assert channel._work() == 1  # noqa: SLF001
    assert channel._rest()  # noqa: SLF001


def test_an_event_comes_before_messages(channel: shmbroker.Channel, kept: Kept) -> None:
    """It is one thing; until it is done the channel does not rest."""
    returned: list[bytes] = []
    inbox = Inbox()
    channel.add_on_return_callback(lambda _channel, _method, _properties, body: returned.append(body))
    channel.basic_consume(QUEUE, inbox)
    kept.run()
    channel.basic_publish("", "nowhere", b"B", mandatory=True)
    assert len(kept.runnables) == 1
    assert not channel._rest()  # noqa: SLF001
    publish(channel, QUEUE, "A")
    assert (channel._work(5), channel._done, returned, inbox.texts()) == (1, 1, [b"B"], [])  # noqa: SLF001
    assert (channel._work(5), channel._done, inbox.texts()) == (1, 1, ["A"])  # noqa: SLF001
    assert channel._rest()  # noqa: SLF001


def test_an_event_that_raises_counts(channel: shmbroker.Channel) -> None:
    """As one thing, whatever was done before it."""

    def stop(*_: object) -> None:
        raise SystemExit

    channel.basic_consume(QUEUE, Inbox())
    publish(channel, QUEUE, "ABC")
    assert channel._work(3) == 3  # noqa: SLF001
    channel.add_on_return_callback(stop)
    channel.basic_publish("", "nowhere", b"", mandatory=True)
    with pytest.raises(SystemExit):
        channel._work(3)  # noqa: SLF001
    assert channel._done == 1  # noqa: SLF001
    assert channel._work(3) == 0  # noqa: SLF001


def test_a_broker_that_has_grown_is_looked_at_again(
    channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is a thing that was done, so the channel does not rest."""
    grown = Noted(channel._core_connection.attachment.grow)  # noqa: SLF001
    monkeypatch.setattr(channel._core_connection.attachment, "grow", grown)  # noqa: SLF001
    with_status(channel, native.GROW)
    assert (channel._work(), len(grown.calls)) == (1, 1)  # noqa: SLF001
    assert (channel._work(), len(grown.calls), channel._rest()) == (0, 1, True)  # noqa: SLF001


def test_missing_memory_is_told_and_the_channel_rests(channel: shmbroker.Channel, told: list[BaseException]) -> None:
    """The IO thread wakes it later. It is not over: what comes keeps it from its rest."""
    with_status(channel, native.NO_MEMORY)
    core_of(channel).connection.let_go()  # a moment ago, so that there is nothing to let go of now
    assert channel._work() == 0  # noqa: SLF001
    assert [type(error) for error in told] == [OutOfMemory]
    told.clear()
    assert channel._rest()  # noqa: SLF001
    channel.add_on_return_callback(lambda *_: None)
    channel.basic_publish("", "nowhere", b"", mandatory=True)
    assert not channel._rest()  # noqa: SLF001


@pytest.mark.parametrize("status", [native.GROW, native.SYSTEM, native.LIMIT])
def test_an_error_that_stays_is_told_and_the_channel_rests(
    channel: shmbroker.Channel, told: list[BaseException], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """As missing memory: the dispatcher would get the same error again at once."""

    def grow() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(channel._core_connection.attachment, "grow", grow)  # noqa: SLF001
    with_status(channel, status)
    assert channel._work() == 0  # noqa: SLF001
    assert [type(error) for error in told] == [
        {native.GROW: OSError, native.SYSTEM: shmbroker.BrokerError, native.LIMIT: NotAllowed}[status]
    ]
    told.clear()
    assert channel._rest()  # noqa: SLF001


def test_a_closed_channel_does_not_look(channel: shmbroker.Channel, told: list[BaseException]) -> None:
    """Another thread may close it while it looks for a message: what that came to is no news then."""
    with_status(channel, native.NO_MEMORY, meanwhile=channel.close)
    assert (channel._work(), told, channel._rest()) == (0, [], True)  # noqa: SLF001


@pytest.mark.parametrize("status", [native.CLOSED, native.STOPPING, native.FORKED])
def test_a_channel_whose_connection_is_over_rests(
    channel: shmbroker.Channel, told: list[BaseException], status: int
) -> None:
    """For ever, whatever comes; the hook is not told: whoever calls something is."""
    with_status(channel, status)
    assert (channel._work(), channel.is_open) == (0, True)  # noqa: SLF001
    channel.add_on_return_callback(lambda *_: None)
    channel.basic_publish("", "nowhere", b"", mandatory=True)
    assert channel._rest()  # noqa: SLF001
    assert told == []


def test_damage_is_raised(channel: shmbroker.Channel) -> None:
    """The dispatcher tells the hook of it."""
    with_status(channel, 0xFFFF)
    with pytest.raises(shmbroker.BrokerError, match="operation failed"):
        channel._work()  # noqa: SLF001


# ---- what keeps a channel from its messages ----


def without_growth(channel: shmbroker.Channel, fail: Any) -> None:  # noqa: ANN401
    """Have the core need memory for its next message, and the broker not grow."""

    class Receiver(Replaced):
        status = native.GROW

        def deliver(self, *_: object) -> int:
            return 0

    channel._core_connection.attachment.grow = fail  # type: ignore[method-assign]  # noqa: SLF001
    channel._taker = Receiver(channel._taker)  # type: ignore[assignment]  # noqa: SLF001


def without_a_view(channel: shmbroker.Channel, fail: Any) -> None:  # noqa: ANN401
    """Have the body of the next message be not readable."""
    channel._core_connection.copy_body = fail  # type: ignore[method-assign]  # noqa: SLF001


@pytest.mark.parametrize("hinder", [without_growth, without_a_view])
def test_an_error_that_stays_is_told_once(
    channel: shmbroker.Channel,
    kept: Kept,
    told: list[BaseException],
    hinder: Callable[..., None],
) -> None:
    """The channel rests between its looks, which the executor does not do at once; another error is news."""
    inbox, body, errors = Inbox(), "A" * 5000, [OSError(), OSError(), MemoryError(), MemoryError()]
    publish(channel, QUEUE, [body])
    views = []
    with pytest.raises(NotAllowed):  # noqa: PT012 - one of many
        while True:  # until the body has every view that it can have
            message = channel.basic_get(QUEUE)
            assert message is not None
            try:
                views.append(message.body)
            finally:
                message.nack()
    channel.basic_consume(QUEUE, inbox)
    eventually(core_of(channel).waiting, "the message to be pulled")
    taker, attachment = channel._taker, channel._core_connection.attachment  # noqa: SLF001

    def fail(*_: object) -> None:
        raise errors.pop(0)

    hinder(channel, fail)
    while errors:
        becomes(lambda: len(kept.runnables), 1)
        kept.run_one()
        assert [type(error) for error in told] == [OSError, MemoryError][: 1 if len(errors) > 1 else 2]
    told.clear()
    channel._taker = taker  # noqa: SLF001
    vars(attachment).pop("grow", None)
    vars(channel._core_connection).pop("copy_body", None)  # noqa: SLF001
    becomes(lambda: len(kept.runnables), 1)
    kept.run_one()
    assert (inbox.texts(), core_of(channel).waiting(), len(views)) == ([body], 0, 23)


def test_what_is_returned_is_told_meanwhile(channel: shmbroker.Channel, kept: Kept, told: list[BaseException]) -> None:
    """It needs no message to be read."""
    returned: list[bytes] = []
    channel.add_on_return_callback(lambda _channel, _method, _properties, body: returned.append(body))
    channel.basic_consume(QUEUE, Inbox())
    publish(channel, QUEUE, "A")
    eventually(core_of(channel).waiting, "the message to be pulled")

    looks: list[int] = []

    def fail() -> None:
        looks.append(1)
        channel.basic_publish("", "nowhere", b"B", mandatory=True)
        raise OSError

    without_growth(channel, fail)
    assert channel._work() == 0  # noqa: SLF001
    assert [type(error) for error in told] == [OSError]
    assert not channel._rest()  # noqa: SLF001
    assert (channel._work(), returned, channel._work(), len(looks)) == (1, [b"B"], 0, 1)  # noqa: SLF001
    assert channel._rest()  # noqa: SLF001
    kept.runnables.clear()
    told.clear()
    channel.close()


# ---- consumers that end ----


def test_a_consumer_ends_with_its_queue_while_memory_is_missing(
    channel: shmbroker.Channel, told: list[BaseException]
) -> None:
    """Else the channel would not rest, as the end of the consumer is still to be told."""
    ended: list[str] = []
    channel.add_on_cancel_callback(ended.append)
    channel.basic_consume(QUEUE, Inbox(), consumer_tag=TAG)
    connection_of(channel).queue(QUEUE).delete()
    assert channel._taker.deliver(channel, {}, channel._events, NO_PROPERTIES, 1) == 0  # noqa: SLF001 - sees the end
    with_status(channel, native.SYSTEM, native.SYSTEM)
    assert (channel._work(), ended) == (1, [TAG])  # noqa: SLF001
    assert (channel._work(), channel._rest(), len(told)) == (0, True, 1)  # noqa: SLF001
    told.clear()


def test_a_consumer_ends_with_its_queue(channel: shmbroker.Channel) -> None:
    """It is one thing to do; the callbacks are told its tag, each once, and its loop ends."""
    ended: list[str] = []
    channel.add_on_cancel_callback(ended.append)
    channel._consume_until(QUEUE, lambda *_: None, lambda: ended.append("loop"), consumer_tag=TAG)  # noqa: SLF001
    connection_of(channel).queue(QUEUE).delete()
    assert channel._work() == 1  # noqa: SLF001
    assert (ended, channel.consumer_tags) == (["loop", TAG], [])
    assert (channel._work(), ended) == (0, ["loop", TAG])  # noqa: SLF001


def test_a_consumer_may_be_cancelled_beside_its_queue(channel: shmbroker.Channel) -> None:
    """Then nobody is told: the application has ended it."""
    told: list[str] = []
    channel.add_on_cancel_callback(told.append)
    tag = channel.basic_consume(QUEUE, Inbox())
    core, next_cancelled = core_of(channel), core_of(channel).next_cancelled

    def cancel() -> int | None:
        number = next_cancelled()
        channel.basic_cancel(tag)
        return number

    connection_of(channel).queue(QUEUE).delete()
    core.next_cancelled = cancel  # type: ignore[method-assign]
    assert (channel._work(), told) == (1, [])  # noqa: SLF001


def test_a_consumer_that_ends_is_not_taken_for_its_successor(channel: shmbroker.Channel) -> None:
    """The core gives the number of a consumer to the next one once it has reported the end: also just then."""
    told: list[str] = []
    inbox = Inbox()
    channel.add_on_cancel_callback(told.append)
    channel.queue_declare("other")
    channel._consume_until(QUEUE, lambda *_: None, lambda: told.append("loop"), consumer_tag=TAG)  # noqa: SLF001
    (number,) = channel._subscriptions  # noqa: SLF001
    for _ in range(3):  # the next consumer gets the first number again, if that is free
        channel.basic_cancel(channel.basic_consume("other", Inbox()))
    core, next_cancelled = core_of(channel), core_of(channel).next_cancelled

    def succeed() -> None:
        if channel._registry.acquire(blocking=False):  # noqa: SLF001 - else a consumer that begins waits here
            channel.basic_consume("other", inbox, consumer_tag="successor")
            channel._registry.release()  # noqa: SLF001

    def report() -> int | None:
        reported = next_cancelled()
        beside = threading.Thread(target=succeed)
        beside.start()
        beside.join()
        return reported

    connection_of(channel).queue(QUEUE).delete()
    core.next_cancelled = report  # type: ignore[method-assign]
    assert channel._work() == 1  # noqa: SLF001
    core.next_cancelled = next_cancelled  # type: ignore[method-assign]
    if not channel.consumer_tags:
        succeed()
    assert (told, list(channel._subscriptions)) == (["loop", TAG], [number])  # noqa: SLF001
    publish(channel, "other", "A")
    assert (channel._work(), inbox.texts()) == (1, ["A"])  # noqa: SLF001


def test_callbacks_that_raise_stop_no_other(channel: shmbroker.Channel, told: list[BaseException]) -> None:
    """The hook is told of each; a callback that is added meanwhile is called the next time."""
    errors, called = [LookupError("1"), ValueError("2")], list[str]()

    def fail(_tag: str) -> None:
        raise errors[len(told)]

    for callback in (fail, called.append, lambda _: channel.add_on_cancel_callback(called.append), fail):
        channel.add_on_cancel_callback(callback)
    channel.basic_consume(QUEUE, Inbox(), consumer_tag=TAG)
    connection_of(channel).queue(QUEUE).delete()
    assert channel._work() == 1  # noqa: SLF001
    assert (told, called) == (errors, [TAG])
    told.clear()


# ---- messages whose consumer is not known ----


def fresh(channel: shmbroker.Channel, *, auto_ack: bool = False) -> Any:  # noqa: ANN401
    """Return a message that no callback was given yet."""
    publish(channel, QUEUE, "A")
    assert core_of(channel).unacked() == 0
    return channel._taker.get(channel, session_of(channel).queues.routed(QUEUE).address, auto_ack)  # type: ignore[union-attr]  # noqa: SLF001


def known(channel: shmbroker.Channel, message: Any, callback: Any) -> None:  # noqa: ANN401
    """Have the channel know the consumer of a message."""
    channel._subscriptions[message._subscription] = Subscription(Names(TAG, "other"), callback, None)  # noqa: SLF001


def test_a_message_that_came_too_late_goes_back(channel: shmbroker.Channel) -> None:
    """Its consumer was cancelled just then."""
    message = fresh(channel)
    channel._deliver_late(message)  # noqa: SLF001
    assert message._state == FRESH  # noqa: SLF001 (so that it goes back when it is dropped)
    del message
    assert count(channel, QUEUE) == 1


def test_a_consumer_that_is_not_registered_ends_with_its_first_message(channel: shmbroker.Channel) -> None:
    """Two interrupts can leave one in the core; it does not get the message again and again."""
    queue = connection_of(channel).queue(QUEUE)
    core_of(channel).consume(core_of(queue), 0, 0, 0)
    queue.put(b"A")
    assert channel._work(9) == 1  # noqa: SLF001
    assert (queue.statistics().consumers, queue.statistics().ready, core_of(channel).unacked()) == (0, 1, 0)


@pytest.mark.parametrize("auto_ack", [False, True])
def test_a_message_that_came_too_early_has_its_callback(channel: shmbroker.Channel, *, auto_ack: bool) -> None:
    """Its consumer is registered by then: it is a delivery like any other."""
    message, calls = fresh(channel, auto_ack=auto_ack), []
    known(channel, message, lambda *given: calls.append(given))
    channel._deliver_late(message)  # noqa: SLF001
    assert calls == [(channel, message, BasicProperties(), b"A")]
    assert (message.consumer_tag, message.queue, message.settled) == (TAG, "other", auto_ack)
    if not auto_ack:
        message.nack(requeue=False)
    assert count(channel, QUEUE) == 0


@pytest.mark.parametrize(
    "error",
    [MessageSettled(), ConnectionClosed(), CorruptSegment(), NotFound(), NotAllowed(), OutOfMemory(), OSError()],
)
def test_a_message_without_a_body_has_no_callback(
    channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It is no error that it went back meanwhile, or that all is over; everything else is raised. It was not given."""

    def fail(_: object) -> bytes:
        raise error

    message, calls = fresh(channel), []
    known(channel, message, lambda *given: calls.append(given))
    monkeypatch.setattr(shmbroker.Delivery, "__bytes__", fail)
    for use in (lambda: channel._deliver_late(message), lambda: channel._not_handed_over(error)):  # noqa: SLF001
        if isinstance(error, (MessageSettled, ConnectionClosed)):
            use()
        else:
            with pytest.raises(type(error)):
                use()
    assert (calls, message._state) == ([], FRESH)  # noqa: SLF001


# ---- the end of the channel ----


def test_only_an_open_channel_in_use_is_woken(channel: shmbroker.Channel, kept: Kept) -> None:
    """One that only declared has nothing to do, and one that is closed neither."""
    channel._wake()  # noqa: SLF001
    assert kept.runnables == []
    channel.basic_consume(QUEUE, Inbox())
    assert len(kept.runnables) == 1
    kept.run()
    channel._wake()  # noqa: SLF001
    assert len(kept.runnables) == 1
    kept.run()
    channel.close()
    channel._wake()  # noqa: SLF001
    assert kept.runnables == []


@pytest.mark.parametrize("given", [(), (200, "over")])
def test_what_is_not_confirmed_when_a_channel_is_closed_never_is(
    channel: shmbroker.Channel, kept: Kept, given: tuple[Any, ...]
) -> None:
    """Its future says why, whoever waits is told, and the message that came back is not told any more."""
    returned: list[object] = []
    channel.add_on_return_callback(lambda *of: returned.append(of))
    future = channel.publish_confirmed("", "nowhere", b"", mandatory=True)
    assert not future.done()
    channel.close(*given)
    error = future.exception()
    assert type(error) is ChannelClosed
    assert error.args == (given or (504, CLOSED))
    kept.run()
    assert returned == []


def test_an_error_is_told_to_what_is_not_confirmed(channel: shmbroker.Channel, kept: Kept) -> None:
    """The one that closed the channel. A future that was told why its message came back keeps that."""
    channel.add_on_return_callback(lambda *_: None)
    before = channel.publish_confirmed("", "nowhere", b"", mandatory=True)
    kept.run()
    after = channel.publish_confirmed("", "nowhere", b"", mandatory=True)
    channel.basic_publish("missing", "", b"")
    assert type(before.exception()) is UnroutableError
    assert type(after.exception()) is NotFound
