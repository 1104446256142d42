# SPDX-License-Identifier: Apache-2.0
"""Publishing: confirms, what goes wrong, bodies, properties and names (scenarios B70 to B78)."""

from __future__ import annotations

import getpass
import queue
import threading
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from scenario_support.channels import Inbox, Returned, assert_closed, content, count, publish, refused, taken
from scenario_support.inside import core_of
from scenario_support.observing import assert_counts, numbered
from scenario_support.waiting import WATCHDOG_SECONDS, becomes

import shmbroker
from shmbroker import BasicProperties, properties
from shmbroker.exceptions import ChannelClosed, MessageSettled, NotFound, PreconditionFailed, UnroutableError

FRAME_MAX = 131072
MIB = 1 << 20


def test_b70_every_publish_is_confirmed_once(channel: shmbroker.Channel) -> None:
    """1,000 publishes are numbered from 1, and all of them are acked."""
    channel.queue_declare("q")
    assert channel.basic_publish("", "q", b"before") is None
    channel.confirm_delivery()
    numbers = [channel.basic_publish("", "q", body.encode()) for body in numbered(1000)]
    assert numbers == list(range(1, 1001))
    assert channel.wait_for_confirms(WATCHDOG_SECONDS) is True
    assert channel.wait_for_confirms(0) is True
    assert count(channel, "q") == 1001


def test_b70_every_future_is_done_once(channel: shmbroker.Channel) -> None:
    """Of 1,000 confirmed publishes each gets its confirm, and gets it once, whoever waits."""
    channel.queue_declare("q")
    channel.confirm_delivery()
    calls: list[int] = []
    done = threading.Semaphore(0)

    def note(number: int) -> None:
        calls.append(number)
        done.release()

    futures = [channel.publish_confirmed("", "q", body.encode()) for body in numbered(1000)]
    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, number=number: note(number))
    for future in futures:
        assert future.exception(WATCHDOG_SECONDS) is None
    for _ in futures:
        assert done.acquire(timeout=WATCHDOG_SECONDS)
    assert sorted(calls) == list(range(1000))
    assert channel.wait_for_confirms(WATCHDOG_SECONDS) is True
    assert content(channel, "q") == numbered(1000)


def test_b70_what_was_not_published_has_no_number(channel: shmbroker.Channel) -> None:
    """A publish that found no room, or was given what cannot be, is not counted."""
    channel.queue_declare("q", arguments={"x-max-length": 1, "x-overflow": "block"})
    channel.confirm_delivery()
    assert channel.basic_publish("", "q", b"A") == 1
    with pytest.raises(queue.Full):
        channel.basic_publish("", "q", b"B", timeout=0)
    with pytest.raises(TypeError):
        channel.basic_publish("", "q", b"B", BasicProperties(headers={"a": object()}))
    assert content(channel, "q") == ["A"]
    assert channel.basic_publish("", "q", b"B") == 2


def test_b70_a_future_cannot_be_cancelled(connection: shmbroker.Connection) -> None:
    """The message is published already; a future that was given up is no obstacle to closing the channel."""
    channel, shown, go_on = connection.channel(), threading.Event(), threading.Event()

    def show(*_: object) -> None:
        shown.set()
        go_on.wait(WATCHDOG_SECONDS)

    channel.add_on_return_callback(show)
    futures = [channel.publish_confirmed("", "nowhere", b"", mandatory=True) for _ in range(2)]
    assert shown.wait(WATCHDOG_SECONDS)
    assert not futures[0].cancel()
    channel.close()
    go_on.set()
    assert [type(future.exception(WATCHDOG_SECONDS)) for future in futures] == [ChannelClosed] * 2


def test_b70_what_was_dropped_is_confirmed_too(channel: shmbroker.Channel) -> None:
    """An unroutable message that is not mandatory is acked."""
    channel.confirm_delivery()
    assert channel.basic_publish("", "missing", b"A") == 1
    assert channel.wait_for_confirms(WATCHDOG_SECONDS) is True
    assert channel.publish_confirmed("", "missing", b"B").exception(WATCHDOG_SECONDS) is None


def test_b70_what_is_returned_is_returned_before_it_is_confirmed(channel: shmbroker.Channel) -> None:
    """When the confirm of a mandatory message without a route has come, the message has come back."""
    returned = Returned(channel)
    channel.confirm_delivery()
    for number in range(1, 51):
        channel.basic_publish("", "missing", b"A", mandatory=True)
        assert channel.wait_for_confirms(WATCHDOG_SECONDS) is True
        returned.wait(number)
    with pytest.raises(UnroutableError) as caught:
        channel.publish_confirmed("", "missing", b"B", mandatory=True).result(WATCHDOG_SECONDS)
    assert caught.value.code == 312
    assert channel.is_open


def test_b70_confirm_delivery_twice_goes_on_counting(channel: shmbroker.Channel) -> None:
    """To select confirms again is no error, and changes nothing."""
    channel.queue_declare("q")
    channel.confirm_delivery()
    assert channel.basic_publish("", "q", b"A") == 1
    channel.confirm_delivery()
    assert channel.basic_publish("", "q", b"B") == 2
    assert channel.wait_for_confirms(WATCHDOG_SECONDS) is True


def test_b72_a_publish_to_a_missing_exchange(connection: shmbroker.Connection) -> None:
    """It returns; the channel is closed with 404, which the next operation that has an answer says once.

    Till then what is published or acked on the channel is ignored.
    """
    channel = connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", "A")
    (message,) = taken(channel, "q", 1)
    channel.basic_publish("missing", "k", b"B")
    publish(channel, "q", "CD")
    channel.basic_ack(message.delivery_tag)
    with refused(NotFound, "NOT_FOUND - no exchange 'missing' in vhost '/'"):
        channel.queue_declare("q", passive=True)
    assert_closed(channel, because="no exchange 'missing'")
    with pytest.raises(shmbroker.ChannelClosed):
        channel.basic_publish("", "q", b"E")
    assert connection.is_open
    with connection.channel() as again:
        assert content(again, "q") == ["AR"]


def test_b72_its_future_gets_the_error(connection: shmbroker.Connection) -> None:
    """A confirmed publish to a missing exchange ends with 404, and so do those after it."""
    channel = connection.channel()
    channel.queue_declare("q")
    channel.confirm_delivery()
    good = channel.publish_confirmed("", "q", b"A")
    bad = channel.publish_confirmed("missing", "k", b"B")
    assert good.exception(WATCHDOG_SECONDS) is None
    with refused(NotFound, "NOT_FOUND - no exchange 'missing' in vhost '/'"):
        bad.result(WATCHDOG_SECONDS)
    with connection.channel() as again:
        assert content(again, "q") == ["A"]


def test_b74_confirms_or_transactions(connection: shmbroker.Connection) -> None:
    """A channel with confirms cannot become transactional, nor the other way round: 406."""
    with connection.channel() as channel:
        channel.confirm_delivery()
        with refused(PreconditionFailed, "PRECONDITION_FAILED - cannot switch from confirm to tx mode"):
            channel.tx_select()
        assert_closed(channel, because="cannot switch")
    with connection.channel() as channel:
        channel.tx_select()
        with refused(PreconditionFailed, "PRECONDITION_FAILED - cannot switch from tx to confirm mode"):
            channel.confirm_delivery()
        assert_closed(channel, because="cannot switch")


def test_b74_a_transaction_publishes_at_its_commit(connection: shmbroker.Connection) -> None:
    """Publishes are seen when they are committed, together, and never when they are rolled back."""
    channel = connection.channel()
    channel.queue_declare("q")
    channel.tx_select()
    publish(channel, "q", "AB")
    with connection.channel() as second:
        assert count(second, "q") == 0
        channel.tx_commit()
        assert count(second, "q") == 2
    publish(channel, "q", "C")
    channel.tx_rollback()
    channel.tx_commit()
    assert content(channel, "q") == ["A", "B"]


def test_b74_a_transaction_acks_at_its_commit(connection: shmbroker.Connection) -> None:
    """Rolled back, what was acked or returned is still unacked, and can be settled again; closed, it returns."""
    channel = connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", "ABC")
    channel.tx_select()
    first, second, third = taken(channel, "q", 3)
    channel.basic_ack(first.delivery_tag)
    channel.basic_nack(second.delivery_tag)
    assert count(channel, "q") == 0
    channel.tx_rollback()
    assert count(channel, "q") == 0
    channel.basic_ack(first.delivery_tag)
    channel.tx_commit()
    channel.basic_ack(third.delivery_tag)
    channel.close()
    with connection.channel() as again:
        assert content(again, "q") == ["BR", "CR"]


def test_b74_what_a_transaction_has_acked_is_not_there_to_ack_again(connection: shmbroker.Connection) -> None:
    """An ack of several takes what is left; a second ack of one tag is an unknown tag, before the commit too."""
    channel = connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", "ABC")
    channel.tx_select()
    first, second, _ = taken(channel, "q", 3)
    channel.basic_nack(first.delivery_tag)
    channel.basic_ack(second.delivery_tag, multiple=True)
    channel.tx_commit()
    (again,) = taken(channel, "q", 1)
    assert (bytes(again), again.redelivered) == (b"A", True)
    channel.basic_ack(again.delivery_tag)
    with refused(PreconditionFailed, f"PRECONDITION_FAILED - unknown delivery tag {again.delivery_tag}"):
        channel.basic_ack(again.delivery_tag)
    assert_closed(channel, because="unknown delivery tag")


@pytest.mark.parametrize("selected", ["before the first", "between them"])
def test_b74_a_message_is_settled_at_the_commit(connection: shmbroker.Connection, selected: str) -> None:
    """Messages that are settled by themselves are part of the transaction, as those settled by their tags."""
    channel, queue = connection.channel(), connection.queue("q")
    publish(channel, "q", "ABC")
    if selected == "between them":
        channel.basic_publish("", "q", b"D")
        (earlier,) = taken(channel, "q", 1)
        earlier.ack()
    channel.tx_select()
    first, second, third = taken(channel, "q", 3)
    first.ack()
    second.nack()
    assert (first.settled, third.settled) == (True, False)
    assert_counts(queue, delivering=3)
    channel.tx_rollback()
    assert_counts(queue, delivering=3)
    first.ack()
    with second:
        channel.basic_ack(third.delivery_tag)
    channel.tx_commit()
    assert_counts(queue, delivering=0, ready=0)
    with pytest.raises(MessageSettled):
        first.ack()


@pytest.mark.parametrize("before", ["acked in it", "acked before"])
def test_b74_a_transaction_acks_all(connection: shmbroker.Connection, before: str) -> None:
    """An ack of all takes what is left also when the last tag was settled, in the transaction or before it."""
    channel = connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", "ABC")
    channel.tx_select()
    _, _, last = taken(channel, "q", 3)
    channel.basic_ack(last.delivery_tag)
    if before == "acked before":
        channel.tx_commit()
    channel.basic_ack(0, multiple=True)
    channel.tx_commit()
    assert core_of(channel).unacked() == 0
    assert_counts(connection.queue("q"), delivering=0, acked=3)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_b74_recover_leaves_what_a_transaction_has_acked(connection: shmbroker.Connection, end: str) -> None:
    """What is unacknowledged goes back at once; what was acknowledged is for the commit, or to be acked again."""
    channel, queue = connection.channel(), connection.queue("q")
    publish(channel, "q", "ABCD")
    channel.tx_select()
    first, second, third, _ = taken(channel, "q", 4)
    channel.basic_ack(second.delivery_tag)
    third.ack()
    channel.basic_recover()
    assert_counts(queue, delivering=2, ready=2)
    assert [(bytes(one), one.redelivered) for one in taken(channel, "q", 2)] == [(b"A", True), (b"D", True)]
    if end == "commit":
        channel.tx_commit()
        assert_counts(queue, delivering=2, acked=2)
    else:
        channel.tx_rollback()
        third.ack()
        channel.basic_recover()
        assert_counts(queue, delivering=1, ready=3)
        channel.tx_commit()
        assert_counts(queue, delivering=0, ready=3, acked=1)
    with refused(PreconditionFailed, f"PRECONDITION_FAILED - unknown delivery tag {first.delivery_tag}"):
        channel.basic_ack(first.delivery_tag)


@pytest.mark.parametrize("limit", [{"x-max-length": 1}, {"x-max-length-bytes": 1}])
def test_b74_a_transaction_that_can_never_fit(channel: shmbroker.Channel, limit: dict[str, int]) -> None:
    """What is too much for an empty queue is refused at once; nothing of it happened, and it can be rolled back."""
    channel.queue_declare("q", arguments={**limit, "x-overflow": "block"})
    channel.tx_select()
    publish(channel, "q", "AB")
    with pytest.raises(queue.Full, match="2 messages of 2 bytes in total can never fit"):
        channel.tx_commit()
    assert count(channel, "q") == 0
    channel.tx_rollback()
    publish(channel, "q", "A")
    channel.tx_commit()
    assert content(channel, "q") == ["A"]


def test_b74_a_transaction_returns_at_its_commit(connection: shmbroker.Connection) -> None:
    """Whether a mandatory message has a route is asked when it is committed."""
    channel = connection.channel()
    returned = Returned(channel)
    channel.queue_declare("q")
    channel.tx_select()
    channel.basic_publish("", "q", b"A", mandatory=True)
    channel.queue_delete("q")
    assert returned.returns == []
    channel.tx_commit()
    assert returned.wait(1) == [(312, "NO_ROUTE", "", "q", b"A")]


def test_b75_a_user_id_is_the_publishers(connection: shmbroker.Connection) -> None:
    """The name of the operating system's user is accepted, another one refused with 406."""
    channel = connection.channel()
    channel.queue_declare("q")
    user = getpass.getuser()
    channel.basic_publish("", "q", b"A", BasicProperties(user_id=user))
    message = channel.basic_get("q", auto_ack=True)
    assert message is not None
    assert message.properties.user_id == user
    channel.basic_publish("", "q", b"B", BasicProperties(user_id="somebody else"))
    with refused(
        PreconditionFailed,
        f"PRECONDITION_FAILED - user_id property set to 'somebody else' but authenticated user was '{user}'",
    ):
        channel.queue_declare("q", passive=True)
    assert_closed(channel, because="somebody else")
    with connection.channel() as again:
        assert content(again, "q") == []


@pytest.mark.parametrize("size", [0, 1, FRAME_MAX - 8, FRAME_MAX - 7, 2 * FRAME_MAX, 20 * MIB])
@pytest.mark.parametrize("way", ["get", "consume"])
def test_b76_bodies_of_all_sizes(channel: shmbroker.Channel, size: int, way: str) -> None:
    """What makes two, three, four and many frames elsewhere comes through whole."""
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    channel.queue_declare("q")
    channel.basic_publish("", "q", body)
    if way == "get":
        message = channel.basic_get("q")
        assert message is not None
        assert len(message) == size
        assert bytes(message) == body
        message.ack()
    else:
        received: list[bytes] = []
        channel.basic_consume("q", lambda _channel, _method, _properties, found: received.append(found), auto_ack=True)
        becomes(lambda: len(received), 1)
        assert received == [body]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_b76_a_body_is_bytes_like(channel: shmbroker.Channel, kind: type) -> None:
    """Whatever has bytes may be published, and is copied: what becomes of it later changes nothing."""
    original = bytearray(b"body")
    channel.queue_declare("q")
    channel.basic_publish("", "q", kind(original))
    original[:] = b"else"
    assert content(channel, "q") == ["body"]


EVERY_TYPE: dict[str, Any] = {
    "t": True,
    "t false": False,
    "b": -5,
    "B": 200,
    "s": -300,
    "u": 60_000,
    "I": -70_000,
    "i": 4_000_000_000,
    "l": -(1 << 40),
    "l largest": (1 << 63) - 1,
    "l smallest": -(1 << 63),
    "d": 1.1,
    "d special": [0.0, -0.0, 1e300, 5e-324, float("inf"), float("-inf")],
    "D": Decimal("-12.345"),
    "S": "text, \u00fcmlaut, \u4e2d\u6587, \U0001f407 and a NUL: \0",
    "S empty": "",
    "A": [1, "two", [3.5, [None]], {"four": [True]}],
    "A empty": [],
    "T": datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC),
    "F": {"a": {"b": {"c": {}}}},
    "V": None,
    "x": b"\x00\xff bytes that are no text",
}
"""A value of each field type of a table, where Python has one; the names say how it goes over a wire."""


def test_b77_a_table_of_every_type_arrives_as_it_was_sent(channel: shmbroker.Channel) -> None:
    """Headers of all field types arrive with their values and types, and are encoded as they were."""
    sent = BasicProperties(headers=EVERY_TYPE)
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"A", sent)
    message = channel.basic_get("q")
    assert message is not None
    found = message.headers
    assert list(found) == list(EVERY_TYPE)
    for name, value in EVERY_TYPE.items():
        if name == "x":
            assert bytes(found[name]) == value
        else:
            assert (type(found[name]), found[name]) == (type(value), value), name
    assert str(found["d special"][1]) == "-0.0"
    assert properties.encode(message.properties) == properties.encode(sent)
    message.nack()
    inbox = Inbox(ack=True)
    channel.basic_consume("q", inbox)
    (delivery,) = inbox.wait(1)
    assert properties.encode(delivery.properties) == properties.encode(sent)


def test_b77_all_properties_arrive(channel: shmbroker.Channel) -> None:
    """The fourteen properties arrive, and those that were not given are None."""
    sent = BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"a": 1},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="100000",
        message_id="m",
        timestamp=datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC),
        type="t",
        user_id=getpass.getuser(),
        app_id="a",
        cluster_id="cl",
    )
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"A", sent)
    channel.basic_publish("", "q", b"B")
    first, second = taken(channel, "q", 2)
    assert first.properties == sent
    assert second.properties == BasicProperties()
    assert second.headers == {}


NAMES = [
    "caf\u00e9",
    "a*b",
    "#",
    "$x",
    "\u4e2d\u6587",
    "with spaces and / and .",
    "\U0001f407",
    "\u00e9" * 127 + "x",
]


@pytest.mark.parametrize("name", NAMES)
def test_b78_names_of_all_kinds(channel: shmbroker.Channel, name: str) -> None:
    """Queues, exchanges, keys and consumer tags may have any name of 1 to 255 bytes."""
    assert channel.queue_declare(name).queue == name
    channel.exchange_declare(name, "direct")
    channel.queue_bind(name, name, name)
    channel.basic_publish(name, name, b"through the exchange")
    channel.basic_publish("", name, b"directly")
    message = channel.basic_get(name, auto_ack=True)
    assert message is not None
    assert (message.exchange, message.routing_key, bytes(message)) == (name, name, b"through the exchange")
    inbox = Inbox()
    assert channel.basic_consume(name, inbox, auto_ack=True, consumer_tag=name) == name
    (delivery,) = inbox.wait(1)
    assert (delivery.consumer_tag, delivery.exchange, delivery.routing_key) == (name, "", name)
    channel.basic_cancel(name)
    with refused(NotFound, f"NOT_FOUND - no queue '{name}?' in vhost '/'" if len(name.encode()) < 255 else None):
        channel.queue_declare(name + "?" if len(name.encode()) < 255 else "missing", passive=True)
