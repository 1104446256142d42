# SPDX-License-Identifier: Apache-2.0
"""A channel that is open, closed or failed: who is told, when, and what is left of it."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import publish, taken
from scenario_support.core_calls import Noted, Replaced
from scenario_support.inside import connection_of, core_of

from shmbroker import BasicProperties
from shmbroker._core import native
from shmbroker.channel import channel_state
from shmbroker.exceptions import (
    BrokerError,
    ChannelClosed,
    ConnectionClosed,
    ConnectionClosedByBroker,
    ForkedConnectionError,
    NotAllowed,
    NotFound,
    PreconditionFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

    Operation = Callable[[shmbroker.Channel], object]

CLOSED = "CHANNEL_ERROR - channel {} is closed"


class Turn:
    """In the place of a channel's turn: it is free, and something is done while it is waited for."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Do this."""
        self._meanwhile = meanwhile
        self.taken = 0

    def __enter__(self) -> None:
        """Take it."""
        self.taken += 1
        self._meanwhile()

    def __exit__(self, *_: object) -> None:
        """Give it back."""


def closed_by(channel: shmbroker.Channel, use: Operation | None = None) -> BrokerError:
    """Return what a use of the channel raises."""
    with pytest.raises(BrokerError) as caught:
        (use or (lambda one: one.queue_declare("q")))(channel)
    return caught.value


def forked(channel: shmbroker.Channel) -> Any:  # noqa: ANN401
    """Have a channel find itself in a forked child; return what it had in the place of that."""
    core = channel._core_connection  # noqa: SLF001
    channel._core_connection = Replaced(core, attachment=types.SimpleNamespace(forked=True))  # type: ignore[assignment]  # noqa: SLF001
    return core


# ---- one at a time ----


def test_a_closed_channel_says_so_without_its_turn(channel: shmbroker.Channel) -> None:
    """Which another thread may have that waits for something."""
    channel._turn = Turn()  # noqa: SLF001
    channel.close()
    assert type(closed_by(channel)) is ChannelClosed
    assert channel._turn.taken == 0  # noqa: SLF001


def test_a_forked_channel_says_so_without_its_turn(channel: shmbroker.Channel) -> None:
    """In a child nobody gives it back. To close it does nothing."""
    channel._turn = Turn()  # noqa: SLF001
    core = forked(channel)
    for use in (lambda c: c.queue_declare("q"), lambda c: c.start_consuming(), lambda c: c.basic_publish("x", "", b"")):
        assert type(closed_by(channel, use)) is ForkedConnectionError
    assert channel._turn.taken == 0  # noqa: SLF001
    channel.close()
    channel._core_connection = core  # noqa: SLF001
    assert channel.is_open


@pytest.mark.parametrize("used", [False, True])
def test_a_channel_may_be_closed_while_its_turn_is_waited_for(channel: shmbroker.Channel, *, used: bool) -> None:
    """Then nothing is done any more."""
    if used:
        assert core_of(channel).unacked() == 0
    done: list[str] = []
    channel._turn = Turn(channel.close)  # noqa: SLF001
    change = channel_state.synchronous(lambda _channel: done.append("done"))  # type: ignore[var-annotated]
    assert type(closed_by(channel, change)) is ChannelClosed
    assert done == []


def test_a_channel_of_a_closed_core_is_closed(broker: shmbroker.Broker) -> None:
    """Also before it was told: its methods speak of the connection, also those that need no core."""
    connection = broker.connect()
    channel = connection.channel()
    core_of(connection).close()
    assert not channel.is_open
    assert type(closed_by(channel, lambda c: c.confirm_delivery())) is ConnectionClosed
    connection.close()


def failing(error: BaseException) -> Operation:
    """Return a method of a channel that raises."""

    def fail(_channel: shmbroker.Channel) -> None:
        raise error

    return channel_state.synchronous(fail)


def test_a_soft_error_closes_the_channel(channel: shmbroker.Channel) -> None:
    """Its method raises it; the next one says that the channel is closed, and why."""
    error = NotFound(404, "NOT_FOUND - it")
    assert closed_by(channel, failing(error)) is error
    assert not channel.is_open
    assert connection_of(channel).is_open
    for _ in range(2):
        again = closed_by(channel)
        assert (type(again), again.args) == (ChannelClosed, (504, f"{CLOSED.format(1)}: 404 NOT_FOUND - it"))


def test_a_hard_error_closes_the_connection_without_the_turn(broker: shmbroker.Broker) -> None:
    """Callbacks that the closing waits for may wait for it."""
    connection = broker.connect()
    channel, beside = connection.channel(), connection.channel()
    held: list[bool] = []

    class Held(Turn):
        def __exit__(self, *_: object) -> None:
            """Look."""
            held.append(connection.is_open)

    channel._turn = Held()  # noqa: SLF001
    error = NotAllowed(530, "NOT_ALLOWED - it")
    assert closed_by(channel, failing(error)) is error
    assert held == [True]
    assert not connection.is_open
    for one in (channel, beside):
        again = closed_by(one)
        assert type(again) in {ChannelClosed, ConnectionClosed}
        assert again.text.endswith("530 NOT_ALLOWED - it")


def test_another_error_closes_nothing(channel: shmbroker.Channel) -> None:
    """As that of an argument, or of a queue without a message."""
    with pytest.raises(LookupError):
        failing(LookupError())(channel)
    assert channel.is_open


# ---- its core ----


def test_there_is_one_core(channel: shmbroker.Channel) -> None:
    """Two threads may need it first; once there is one the turn is not needed for it."""
    turn, made = channel._turn, []  # noqa: SLF001

    def meanwhile() -> None:
        channel._turn = turn  # noqa: SLF001
        made.append(core_of(channel))

    channel._turn = Turn(meanwhile)  # noqa: SLF001
    assert core_of(channel) is made[0]
    channel._turn = again = Turn()  # noqa: SLF001
    assert (core_of(channel), channel._rest(), again.taken) == (made[0], True, 0)  # noqa: SLF001


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("transactional", [False, True])
def test_settling_is_for_now_or_for_the_commit(channel: shmbroker.Channel, *, used: bool, transactional: bool) -> None:
    """Whichever comes first, the first message or the transaction."""
    channel.queue_declare("q")
    publish(channel, "q", "ABC")
    if used:
        assert core_of(channel).unacked() == 0
    if transactional:
        channel.tx_select()
    first, second, third = taken(channel, "q", 3)
    channel.basic_ack(first.delivery_tag)
    second.ack()
    third.nack()
    assert core_of(channel).unacked() == (3 if transactional else 0)


# ---- its end ----


@pytest.mark.parametrize(
    ("given", "because"),
    [((), ""), ((0, ""), ""), ((200, ""), ": 200"), ((0, "over"), ": 0 over"), ((200, "over"), ": 200 over")],
)
def test_a_closed_channel_says_why(channel: shmbroker.Channel, given: tuple[Any, ...], because: str) -> None:
    """With the code and the text of the first who closed it, if one of them was given; each time the same."""
    channel.close(*given)
    channel.close(541, "again")
    channel._end(ConnectionClosedByBroker(320, "again"))  # noqa: SLF001
    channel._fail(NotFound(404, "again"), reported=True)  # noqa: SLF001
    for _ in range(2):
        error = closed_by(channel)
        assert (type(error), error.args) == (ChannelClosed, (504, CLOSED.format(1) + because))


def test_who_ended_it_is_told_once(channel: shmbroker.Channel) -> None:
    """The first method says why; then it is a closed channel like any other."""
    error = ConnectionClosedByBroker(320, "over")
    channel._end(error)  # noqa: SLF001
    assert closed_by(channel) is error
    assert closed_by(channel).args == (504, f"{CLOSED.format(1)}: 320 over")


def test_the_first_error_is_told(channel: shmbroker.Channel) -> None:
    """Not lost, if another one comes before a method has an answer; one that was told is not told again."""
    first = NotFound(404, "first")
    channel._fail(first, reported=False)  # noqa: SLF001
    channel._fail(PreconditionFailed(406, "second"), reported=True)  # noqa: SLF001
    assert closed_by(channel) is first
    channel._fail(PreconditionFailed(406, "third"), reported=False)  # noqa: SLF001
    assert type(closed_by(channel)) is ChannelClosed


def test_an_error_that_was_not_told_has_publishes_ignored(channel: shmbroker.Channel) -> None:
    """Until a method with an answer has told it; then they raise, as each other method does."""
    channel.basic_publish("missing", "", b"")
    channel.basic_publish("missing", "", b"")
    channel.basic_ack(1)
    assert type(closed_by(channel)) is NotFound
    for use in (lambda c: c.basic_publish("missing", "", b""), lambda c: c.basic_ack(1)):
        assert type(closed_by(channel, use)) is ChannelClosed


def test_what_was_quick_raises_on_a_closed_channel(channel: shmbroker.Channel) -> None:
    """A route that is known, with properties and without, and a tag: nothing is published, nothing settled."""
    channel.queue_declare("q")
    queue, given = connection_of(channel).queue("q"), BasicProperties(app_id="a")
    for _ in range(2):
        channel.basic_publish("", "q", b"A")
        channel.basic_publish("", "q", b"A", given)
    taken(channel, "q", 1)
    channel.close()
    for use in (
        lambda c: c.basic_publish("", "q", b"B"),
        lambda c: c.basic_publish("", "q", b"B", given),
        lambda c: c.basic_ack(1),
        lambda c: c.basic_ack(0, multiple=True),
    ):
        assert type(closed_by(channel, use)) is ChannelClosed
    assert queue.statistics().ready == 4


def test_a_closed_channel_leaves_nothing(channel: shmbroker.Channel) -> None:
    """Its consumers and whoever waits for its end hear of it, once; its number is free; `with` closes it."""
    ended: list[str] = []
    channel._on_end = lambda: ended.append("channel")  # noqa: SLF001
    channel.queue_declare("q")
    with channel as entered:
        assert entered is channel
        channel._consume_until("q", lambda *_: None, lambda: ended.append("consumer"))  # noqa: SLF001
    assert not channel.is_open
    channel.close()
    assert ended == ["consumer", "channel"]
    assert channel.consumer_tags == []
    assert connection_of(channel).consumers("q") == []
    assert connection_of(channel).channel(1).number == 1
    assert repr(channel) == f"<Channel 1 of {connection_of(channel)!r}, closed>"


# ---- checks ----


def test_arguments_are_a_dict_of_names(channel: shmbroker.Channel) -> None:
    """Or nothing; they are handed on as they are."""
    for good in (None, {}, {"a": 1}):
        assert channel_state.table(good) is good
    for bad in ([], ["a"], "a", "", 5, {5: 1}, {"a": 1, None: 2}):
        with pytest.raises(TypeError) as caught:
            channel_state.table(bad)
        assert str(caught.value) == f"arguments={bad!r}: a dict whose keys are strings, or None, is needed"
    assert channel.is_open


def test_a_deadline_is_of_seconds() -> None:
    """Of any number that is not negative; None is no end."""
    assert channel_state.deadline(None) == native.FOR_EVER
    assert 0 < channel_state.deadline(0) <= channel_state.deadline(0.0) < channel_state.deadline(1000)
    for bad in ("1", True, False, [1]):
        with pytest.raises(TypeError) as caught:
            channel_state.deadline(bad)  # type: ignore[arg-type]
        assert str(caught.value) == f"timeout={bad!r}: seconds, or None to wait for ever, are needed"
    with pytest.raises(ValueError, match="timeout"):
        channel_state.deadline(-1)


def test_a_callback_can_be_called() -> None:
    """It is handed on as it is; anything else is refused with its name."""
    noted = Noted(print)
    assert channel_state.callable_of(noted, "callback") is noted
    with pytest.raises(TypeError) as caught:
        channel_state.callable_of("print", "callback")
    assert str(caught.value) == "callback='print': a callable is needed"


def test_a_refusal_is_406() -> None:
    """With AMQP's name before the text."""
    error = channel_state.refused("it")
    assert (type(error), error.args) == (PreconditionFailed, (406, "PRECONDITION_FAILED - it"))
