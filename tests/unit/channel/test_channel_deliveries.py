# SPDX-License-Identifier: Apache-2.0
"""What a channel hands out: where it came from, and how it is settled by itself, now or at the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import Inbox, content, count, publish, taken
from scenario_support.inside import core_of, session_of
from scenario_support.waiting import becomes

from shmbroker._core import native
from shmbroker.channel.deliveries import Names, Subscription, TransactionalDelivery
from shmbroker.exceptions import ChannelClosed, ConnectionClosed, MessageSettled, NotAllowed

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

    Settle = Callable[[Any], object]


@pytest.fixture
def channel(connection: shmbroker.Connection) -> shmbroker.Channel:
    """Open a channel, and declare its queue."""
    opened = connection.channel()
    opened.queue_declare("q")
    return opened


def got(channel: shmbroker.Channel) -> Any:  # noqa: ANN401
    """Publish a message, and get it."""
    publish(channel, "q", "A")
    if channel._transaction is not None:  # noqa: SLF001
        channel.tx_commit()
    (message,) = taken(channel, "q", 1)
    return message


def test_a_delivery_knows_its_consumer_and_its_queue(channel: shmbroker.Channel) -> None:
    """One that was got has no consumer; one that no consumer was found for has no queue."""
    publish(channel, "q", "ABC")
    (by_get,) = taken(channel, "q", 1)
    unknown: Any = channel._taker.get(channel, session_of(channel).queues.routed("q").address, True)  # type: ignore[union-attr]  # noqa: SLF001
    loop = channel.consume("q")
    by_consumer = next(loop)[0]
    assert by_consumer is not None
    (tag,) = channel.consumer_tags
    found = [(one.consumer_tag, one.queue) for one in (by_get, unknown, by_consumer)]
    assert found == [("", "q"), ("", ""), (tag, "q")]
    assert repr(by_consumer) == "<Message 2 of 'q', 1 bytes, unsettled>"
    loop.close()


SETTLE: dict[str, tuple[Settle, list[str]]] = {
    "ack": (lambda one: one.ack(), []),
    "nack": (lambda one: one.nack(), ["AR"]),
    "drop": (lambda one: one.nack(requeue=False), []),
    "reject": (lambda one: one.reject(), []),
    "give back": (lambda one: one.give_back(), ["AR"]),
}


@pytest.mark.parametrize("how", SETTLE)
def test_a_delivery_is_settled_by_itself(channel: shmbroker.Channel, how: str) -> None:
    """Once; its tag is unknown after that. To give back what is settled is no error."""
    settle, left = SETTLE[how]
    message = got(channel)
    settle(message)
    assert (message.settled, core_of(channel).unacked()) == (True, 0)
    for again in (message.ack, message.nack, message.reject):
        with pytest.raises(MessageSettled):
            again()
    message.give_back()
    assert content(channel, "q") == left


@pytest.mark.parametrize("how", SETTLE)
def test_a_delivery_may_be_settled_by_its_tag(channel: shmbroker.Channel, how: str) -> None:
    """What settles it then says so, and it is settled; only to give it back is no error."""
    settle, _ = SETTLE[how]
    message = got(channel)
    channel.basic_nack(message.delivery_tag, requeue=False)
    if how == "give back":
        settle(message)
    else:
        with pytest.raises(MessageSettled):
            settle(message)
    assert message.settled
    assert channel.is_open
    assert count(channel, "q") == 0


@pytest.mark.parametrize("how", SETTLE)
@pytest.mark.parametrize("end", ["channel", "connection"])
def test_a_delivery_outlives_its_channel(broker: shmbroker.Broker, how: str, end: str) -> None:
    """Then it is not settled, says what was closed, and has gone back."""
    settle, _ = SETTLE[how]
    with broker.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        message = got(channel)
        if end == "channel":
            channel.close()
        else:
            core_of(connection).close()  # the channel does not know it yet
        with pytest.raises(ChannelClosed if end == "channel" else ConnectionClosed):
            settle(message)
        assert not message.settled
    with broker.connect() as connection, connection.channel() as channel:
        assert content(channel, "q") == ["AR"]


# ---- transactions ----


@pytest.fixture
def transactional(channel: shmbroker.Channel) -> shmbroker.Channel:
    """Have the channel do everything at a commit."""
    channel.tx_select()
    return channel


@pytest.mark.parametrize("how", ["ack", "nack", "drop", "reject"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_delivery_is_settled_at_the_commit(transactional: shmbroker.Channel, how: str, end: str) -> None:
    """It says that it is settled, and cannot be settled twice; a rollback takes that back."""
    settle, left = SETTLE[how]
    message = got(transactional)
    assert type(message) is TransactionalDelivery
    settle(message)
    assert (message.settled, core_of(transactional).unacked(), count(transactional, "q")) == (True, 1, 0)
    for again in (message.ack, message.nack, message.reject):
        with pytest.raises(MessageSettled):
            again()
    if end == "commit":
        transactional.tx_commit()
        assert (message.settled, core_of(transactional).unacked()) == (True, 0)
    else:
        transactional.tx_rollback()
        assert (message.settled, core_of(transactional).unacked()) == (False, 1)
        settle(message)
        transactional.tx_commit()
    assert content(transactional, "q") == left


def test_what_is_given_back_waits_for_no_commit(transactional: shmbroker.Channel) -> None:
    """Nobody had it. What was settled stays with the transaction."""
    message = got(transactional)
    message.give_back()
    assert (message.settled, count(transactional, "q")) == (True, 1)
    transactional.tx_rollback()
    again = taken(transactional, "q", 1)[0]
    assert again.delivery_count == 1
    again.ack()
    again.give_back()
    assert (count(transactional, "q"), core_of(transactional).unacked()) == (0, 1)


# ---- consumers ----


def test_a_consumer_says_that_it_has_ended() -> None:
    """If anything wants to know."""
    told: list[str] = []
    names = Names("tag", "q")
    Subscription(names, print, None).ended()
    assert told == []
    Subscription(names, print, lambda: told.append("ended")).ended()
    assert told == ["ended"]


# ---- bodies that cannot be viewed once more ----

LONG = "A" * 5000
OFTEN = 40
"""More often than a body of a queue can be viewed in its place."""


def viewed_often(channel: shmbroker.Channel) -> list[Any]:
    """Publishes a long body, and takes it again and again; what is returned keeps every view that it can have."""
    publish(channel, "q", [LONG])
    views = []
    with pytest.raises(NotAllowed, match="a limit of the broker"):  # noqa: PT012 - one of many
        for _ in range(OFTEN):
            (message,) = taken(channel, "q", 1)
            try:
                views.append(message.body)
            finally:
                message.give_back()
    assert [bytes(view).decode() for view in views] == [LONG] * len(views)
    return views


def test_a_body_is_read_however_often_it_was_requeued(channel: shmbroker.Channel) -> None:
    """The application keeps each delivery, which keeps a view of the body, though the tag was requeued."""
    kept: list[Any] = []

    def requeue(_channel: object, method: Any, _properties: object, body: bytes) -> None:  # noqa: ANN401
        assert body.decode() == LONG
        kept.append(method)
        if len(kept) < OFTEN:
            channel.basic_nack(method.delivery_tag)

    channel.basic_consume("q", requeue)
    publish(channel, "q", [LONG])
    becomes(lambda: len(kept), OFTEN)
    channel.basic_ack(kept[-1].delivery_tag)
    assert [bytes(one.body).decode() for one in kept] == [LONG] * OFTEN
    assert core_of(channel).unacked() == 0


def test_a_body_that_is_viewed_often_comes_settled(channel: shmbroker.Channel) -> None:
    """With auto-ack, too, and the messages behind it come after it."""
    views, inbox, methods = viewed_often(channel), Inbox(), list[Any]()

    def keep(*delivery: Any) -> None:  # noqa: ANN401
        methods.append(delivery[1])
        inbox(*delivery)

    publish(channel, "q", "BC")
    channel.basic_consume("q", keep, auto_ack=True)
    inbox.wait(3)
    assert inbox.texts() == [LONG, "B", "C"]
    assert [(one.settled, one.delivery_tag) for one in methods] == [(True, n) for n in (1, 2, 3)]
    assert bytes(methods[0].body).decode() == LONG
    assert (core_of(channel).unacked(), count(channel, "q"), len(views)) == (0, 0, 23)


@pytest.mark.parametrize("wait", [False, True])
def test_a_body_that_is_viewed_often_is_got_settled(channel: shmbroker.Channel, *, wait: bool) -> None:
    """The channel and its connection stay open."""
    views = viewed_often(channel)
    if wait:
        message: Any = channel._taker.get_wait(  # noqa: SLF001
            channel, session_of(channel).queues.routed("q").address, True, native.FOR_EVER  # type: ignore[union-attr]  # noqa: FBT003
        )  # fmt: skip
    else:
        message = channel.basic_get("q", auto_ack=True)
    assert (bytes(message).decode(), message.settled, message.delivery_tag) == (LONG, True, 1)
    assert (core_of(channel).unacked(), count(channel, "q"), len(views)) == (0, 0, 23)
