# SPDX-License-Identifier: Apache-2.0
"""What a channel gets when it asks, and what becomes of that: acknowledged, returned, dropped, recovered."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import assert_closed, content, count, publish, refused, taken
from scenario_support.core_calls import Noted, Replaced, answering
from scenario_support.inside import connection_of, core_of, session_of

from shmbroker._core import native
from shmbroker.exceptions import ChannelClosed, ConnectionClosed, NotFound, PreconditionFailed
from shmbroker.message import ACK, REJECT, REQUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

    Operation = Callable[[shmbroker.Channel], object]

MOST = (1 << 64) - 1  # the highest delivery tag there may be


@pytest.fixture
def channel(connection: shmbroker.Connection) -> shmbroker.Channel:
    """Open a channel, and declare its queue."""
    opened = connection.channel()
    opened.queue_declare("q")
    return opened


# ---- getting ----


@pytest.mark.parametrize("timeout", [0, 60, None])
@pytest.mark.parametrize("auto_ack", [False, True])
def test_what_was_got_says_where_it_came_from(
    channel: shmbroker.Channel, timeout: float | None, *, auto_ack: bool
) -> None:
    """Its queue, how many are left there, and whether it was settled by that."""
    publish(channel, "q", "AB")
    first = channel.basic_get("q", auto_ack, timeout=timeout)
    second = channel.basic_get("", auto_ack, timeout=timeout)
    assert first is not None
    assert second is not None
    for message, body, left in ((first, b"A", 1), (second, b"B", 0)):
        assert (bytes(message), message.message_count, message.settled) == (body, left, auto_ack)
        assert (message._got_from, message.queue, message.consumer_tag) == ("q", "q", "")  # noqa: SLF001
    assert (first.delivery_tag, second.delivery_tag) == (1, 2)
    if not auto_ack:
        first.ack()
        channel.basic_ack(2)
        assert first.settled
    channel.close()
    assert connection_of(channel).queue("q").statistics().ready == 0


def test_a_get_whose_time_is_up_does_not_wait(channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks once, in the nanosecond in which it was called; no thread is started for it, but it is noted."""
    now = time.monotonic_ns()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    polled = Noted(channel._core_connection.polled)  # noqa: SLF001
    monkeypatch.setattr(channel._core_connection, "polled", polled)  # noqa: SLF001
    started = Noted(session_of(channel).start_io)
    monkeypatch.setattr(session_of(channel), "start_io", started)
    assert channel.basic_get("q") is None
    assert (polled.calls, started.calls) == ([()], [])


def test_a_get_that_waits_has_an_io_thread(channel: shmbroker.Channel) -> None:
    """It hears of the end of the broker by that. Here the message comes between the look and the wait."""
    name = f"shmbroker-io-{channel._core_connection.id}"  # noqa: SLF001
    publish(channel, "q", "A")
    assert name not in {one.name for one in threading.enumerate()}
    receiver = core_of(channel) and channel._taker  # noqa: SLF001
    channel._taker = Replaced(receiver, get=answering(receiver.get, native.EMPTY))  # type: ignore[assignment]  # noqa: SLF001
    message = channel.basic_get("q", timeout=None)
    assert message is not None
    assert (bytes(message), message.settled) == (b"A", False)
    assert name in {one.name for one in threading.enumerate()}


def test_a_get_goes_on_when_memory_was_added(channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has grown is mapped, and the message comes."""
    publish(channel, "q", "A")
    core = core_of(channel)
    grown = Noted(core.connection.attachment.grow)
    monkeypatch.setattr(core.connection.attachment, "grow", grown)
    receiver = channel._taker  # noqa: SLF001
    channel._taker = Replaced(receiver, get=answering(receiver.get, native.GROW))  # type: ignore[assignment]  # noqa: SLF001
    message = channel.basic_get("q", timeout=None)
    assert message is not None
    assert (bytes(message), len(grown.calls)) == (b"A", 1)


def test_a_get_that_waited_in_vain_ends(channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its time is up; it does not wait a second time."""
    times = [time.monotonic_ns()]
    monkeypatch.setattr(time, "monotonic_ns", lambda: times[-1])

    def wait(*arguments: Any) -> int:  # noqa: ANN401
        assert len(times) == 1
        times.append(arguments[-1])
        return native.TIMEOUT

    receiver = core_of(channel) and channel._taker  # noqa: SLF001
    channel._taker = Replaced(receiver, get_wait=wait)  # type: ignore[assignment]  # noqa: SLF001
    assert channel.basic_get("q", timeout=60) is None
    assert times[1] - times[0] == 60_000_000_000


@pytest.mark.parametrize("end", ["channel", "core"])
def test_a_get_that_finds_it_closed_says_what_was(channel: shmbroker.Channel, end: str) -> None:
    """The channel with its error, or else the connection."""
    assert core_of(channel).unacked() == 0

    def close(*_: object) -> int:
        if end == "channel":
            channel.close(200, "over")
        return native.CLOSED

    channel._taker = Replaced(channel._taker, get=close)  # type: ignore[assignment]  # noqa: SLF001
    with pytest.raises(ChannelClosed if end == "channel" else ConnectionClosed) as caught:
        channel.basic_get("q")
    assert ("over" in caught.value.text) == (end == "channel")


def test_a_get_whose_queue_was_deleted_says_so(channel: shmbroker.Channel) -> None:
    """Also if the channel is closed just then."""
    assert core_of(channel).unacked() == 0

    def close(*_: object) -> int:
        channel.close()
        return native.DELETED

    channel._taker = Replaced(channel._taker, get=close)  # type: ignore[assignment]  # noqa: SLF001
    with pytest.raises(NotFound, match="no queue 'q' in vhost '/'"):
        channel.basic_get("q")


def test_a_deleted_queue_has_no_messages_left(channel: shmbroker.Channel) -> None:
    """What was got from it before says 0, not the number of an error."""
    publish(channel, "q", "A")
    assert core_of(channel).unacked() == 0
    receiver = channel._taker  # noqa: SLF001

    def delete(*arguments: Any) -> object:  # noqa: ANN401
        message = receiver.get(*arguments)
        channel.queue_delete("q")
        return message

    channel._taker = Replaced(receiver, get=delete)  # type: ignore[assignment]  # noqa: SLF001
    message = channel.basic_get("q", auto_ack=True)
    assert message is not None
    assert message.message_count == 0


# ---- settling ----


@pytest.mark.parametrize(
    ("settle", "left"),
    [
        (lambda c: c.basic_ack(2), ["AR", "CR"]),
        (lambda c: c.basic_ack(2, multiple=True), ["CR"]),
        (lambda c: c.basic_ack(0, multiple=True), []),
        (lambda c: c.basic_nack(2, requeue=False), ["AR", "CR"]),
        (lambda c: c.basic_nack(2, multiple=True, requeue=False), ["CR"]),
        (lambda c: c.basic_nack(0, multiple=True, requeue=False), []),
        (lambda c: c.basic_nack(0, multiple=True), ["AR", "BR", "CR"]),
        (lambda c: c.basic_nack(2), ["AR", "BR", "CR"]),
        (lambda c: c.basic_reject(2), ["AR", "BR", "CR"]),
        (lambda c: c.basic_reject(2, requeue=False), ["AR", "CR"]),
    ],
)
def test_deliveries_are_settled_by_their_tags(channel: shmbroker.Channel, settle: Operation, left: list[str]) -> None:
    """One, all up to it, or all; what is not settled when the channel is closed goes back."""
    publish(channel, "q", "ABC")
    taken(channel, "q", 3)
    settle(channel)
    channel.close()
    assert content(connection_of(channel).channel(), "q") == left


@pytest.mark.parametrize("how", [REQUEUE, REJECT])
@pytest.mark.parametrize("multiple", [False, True])
def test_an_unacknowledged_delivery_goes_back_or_is_dropped(
    channel: shmbroker.Channel, how: int, *, multiple: bool
) -> None:
    """At that moment, not when the channel is closed."""
    publish(channel, "q", "AB")
    taken(channel, "q", 2)
    if multiple:
        channel.basic_nack(2, multiple, how == REQUEUE)
    else:
        channel.basic_reject(2, how == REQUEUE)
    statistics = connection_of(channel).queue("q").statistics()
    settled = 2 if multiple else 1
    assert (statistics.delivering, statistics.ready) == (2 - settled, settled if how == REQUEUE else 0)


@pytest.mark.parametrize("tag", [True, False, "1", None, 1.0])
@pytest.mark.parametrize("name", ["basic_ack", "basic_nack", "basic_reject"])
def test_a_tag_is_an_integer(channel: shmbroker.Channel, name: str, tag: object) -> None:
    """Everything else is refused with its value, and the channel goes on."""
    publish(channel, "q", "A")
    taken(channel, "q", 1)
    with pytest.raises(TypeError, match=rf"^delivery_tag={tag!r}: an integer is needed$"):
        getattr(channel, name)(tag)
    assert channel.is_open
    assert core_of(channel).unacked() == 1


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("tag", [-MOST - 1, -1, 0, 1, 2, MOST, MOST + 1, 1 << 65])
@pytest.mark.parametrize("name", ["basic_ack", "basic_nack", "basic_reject"])
def test_an_unknown_tag_closes_the_channel(channel: shmbroker.Channel, name: str, tag: int, *, used: bool) -> None:
    """Whatever number it is, and whether or not the channel ever took a message."""
    text = f"PRECONDITION_FAILED - unknown delivery tag {tag}"
    if used:
        assert channel.basic_get("q") is None
    with refused(PreconditionFailed, text):
        getattr(channel, name)(tag)
    assert_closed(channel, because=text)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("name", ["basic_ack", "basic_nack"])
def test_of_several_none_may_be_unacknowledged(channel: shmbroker.Channel, name: str, *, used: bool) -> None:
    """All are settled if there are none; a tag that there is not is refused."""
    if used:
        assert channel.basic_get("q") is None
    getattr(channel, name)(0, multiple=True)
    assert channel.is_open
    with refused(PreconditionFailed, "PRECONDITION_FAILED - unknown delivery tag 1"):
        getattr(channel, name)(1, multiple=True)


def test_what_the_core_said_of_a_tag_counts(channel: shmbroker.Channel) -> None:
    """An ack is tried once: what comes with that tag afterwards is not meant. One that was done is done."""
    publish(channel, "q", "AB")
    taken(channel, "q", 2)
    settle_known = channel._settle_known  # noqa: SLF001 (nothing else comes between the two)

    def close(*arguments: Any) -> int:  # noqa: ANN401
        status = settle_known(*arguments)
        channel.close()
        return status

    channel._settle_known = close  # noqa: SLF001
    channel.basic_ack(1)
    again = connection_of(channel).channel()
    taken(again, "q", 1)
    again._settle_known = answering(again._settle_known, native.SETTLED)  # noqa: SLF001
    with refused(PreconditionFailed, "PRECONDITION_FAILED - unknown delivery tag 1"):
        again.basic_ack(1)
    assert content(connection_of(channel).channel(), "q") == ["BR"]


def test_a_core_that_is_closed_is_no_unknown_tag(channel: shmbroker.Channel) -> None:
    """The error is that of the connection, and the channel is not closed for it."""
    core_of(channel).settle_tag = lambda *_: native.CLOSED
    with pytest.raises(ConnectionClosed, match="the channel"):
        channel.basic_nack(1)
    assert channel.is_open


def test_after_an_error_that_was_not_told_settling_is_ignored(channel: shmbroker.Channel) -> None:
    """Until the next method with an answer; then it raises, as on every closed channel."""
    channel.basic_publish("missing", "k", b"")
    channel.basic_ack(1)
    channel.basic_nack(0, multiple=True)
    with refused(NotFound):
        channel.basic_qos(prefetch_count=1)
    for settle in (lambda: channel.basic_ack(1), lambda: channel.basic_nack(0, multiple=True)):
        with pytest.raises(ChannelClosed):
            settle()


# ---- transactions ----


def test_settling_waits_for_the_commit(channel: shmbroker.Channel) -> None:
    """By the message itself and by its tag; a rollback takes it back, and then it can be settled again."""
    publish(channel, "q", "AB")
    channel.tx_select()
    first, second = taken(channel, "q", 2)
    first.ack()
    channel.basic_ack(second.delivery_tag)
    assert (first.settled, second.settled) == (True, False)
    assert core_of(channel).unacked() == 2
    channel.tx_rollback()
    assert not first.settled
    first.reject()
    channel.tx_commit()
    assert (first.settled, core_of(channel).unacked()) == (True, 1)
    channel.close()
    assert content(connection_of(channel).channel(), "q") == ["BR"]


@pytest.mark.parametrize("used", [False, True])
def test_recovery_leaves_alone_what_a_transaction_settles(channel: shmbroker.Channel, *, used: bool) -> None:
    """The rest goes back without a commit; a channel that took no message has nothing to recover."""
    channel.tx_select()
    if not used:
        channel.basic_recover()
        assert channel.is_open
        return
    publish(channel, "q", "AB")
    channel.tx_commit()
    taken(channel, "q", 2)
    channel.basic_ack(1)
    channel.basic_recover()
    assert count(channel, "q") == 1
    channel.tx_commit()
    assert content(channel, "q") == ["BR"]


@pytest.mark.parametrize("used", [False, True])
def test_recovery_returns_all_that_is_unacknowledged(channel: shmbroker.Channel, *, used: bool) -> None:
    """With the mark of a message that was delivered before."""
    publish(channel, "q", "AB")
    if used:
        taken(channel, "q", 2)
    channel.basic_recover()
    assert content(channel, "q") == (["AR", "BR"] if used else ["A", "B"])


def test_the_core_is_told_how_a_delivery_is_settled(channel: shmbroker.Channel) -> None:
    """What an ack, a nack and a reject are for it."""
    publish(channel, "q", "ABCDE")
    taken(channel, "q", 5)
    noted = Noted(core_of(channel).settle_tag)
    core_of(channel).settle_tag = noted
    channel._settle_known = answering(noted, -1)  # noqa: SLF001 (as of a tag that compiled code does not know)
    channel.basic_ack(1)
    channel.basic_nack(2)
    channel.basic_nack(3, requeue=False)
    channel.basic_reject(4)
    channel.basic_reject(5, requeue=False)
    tags = [(1, ACK), (2, REQUEUE), (3, REJECT), (4, REQUEUE), (5, REJECT)]
    assert noted.calls == [(tag, False, how) for tag, how in tags]
