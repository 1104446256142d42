# SPDX-License-Identifier: Apache-2.0
"""What a channel refuses: the codes and texts, what they close, and what never reaches the broker.

The texts are RabbitMQ's (3.10.8, where it was asked; of exchange types 4.x).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import assert_closed, content, exists, publish, refused, taken
from scenario_support.observing import await_counts
from scenario_support.waiting import WATCHDOG_SECONDS

import shmbroker
from shmbroker import BasicProperties
from shmbroker.exceptions import (
    AccessRefused,
    BrokerError,
    ChannelClosed,
    ChannelClosedByBroker,
    ConnectionClosed,
    ConnectionClosedByBroker,
    NotAllowed,
    NotFound,
    NotImplementedByBroker,
    PreconditionFailed,
    ResourceLocked,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Operation = Callable[[shmbroker.Channel], object]

NO_QUEUE = "NOT_FOUND - no queue 'missing' in vhost '/'"
NO_EXCHANGE = "NOT_FOUND - no exchange 'missing' in vhost '/'"
NO_LAST_QUEUE = "NOT_FOUND - no previously declared queue"
DEFAULT_EXCHANGE = "ACCESS_REFUSED - operation not permitted on the default exchange"
SETTLED = "PRECONDITION_FAILED - unknown delivery tag 99"
INVALID = "PRECONDITION_FAILED - invalid arg '{}' for queue 'new' in vhost '/': {{{},{}}}"
LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. "
    "It could be originally declared on another connection or the exclusive property value "
    "does not match that of the original declaration."
)


def take(*_: object) -> None:
    """Do nothing with a delivery."""


def inequivalent(argument: str, kind: str, name: str, received: str, current: str) -> str:
    """Return what a broker says of a declaration that differs."""
    return (
        f"PRECONDITION_FAILED - inequivalent arg '{argument}' for {kind} '{name}' in vhost '/': "
        f"received '{received}' but current is '{current}'"
    )


def transact(channel: shmbroker.Channel) -> None:
    """Try to make a channel with confirms transactional."""
    channel.confirm_delivery()
    channel.tx_select()


def confirm(channel: shmbroker.Channel) -> None:
    """Try to make a transactional channel one with confirms."""
    channel.tx_select()
    channel.confirm_delivery()


# ruff: noqa: E501 (a table)
SOFT: list[tuple[str, Operation, type[BrokerError], str | None]] = [
    # 404
    ("passive declare", lambda c: c.queue_declare("missing", passive=True), NotFound, NO_QUEUE),
    ("bind a queue", lambda c: c.queue_bind("missing", "amq.direct", "k"), NotFound, NO_QUEUE),
    ("purge", lambda c: c.queue_purge("missing"), NotFound, NO_QUEUE),
    ("get", lambda c: c.basic_get("missing"), NotFound, NO_QUEUE),
    ("consume", lambda c: c.basic_consume("missing", take), NotFound, NO_QUEUE),
    ("passive exchange", lambda c: c.exchange_declare("missing", passive=True), NotFound, NO_EXCHANGE),
    ("bind to an exchange", lambda c: c.queue_bind("q", "missing", "k"), NotFound, NO_EXCHANGE),
    ("bind a destination", lambda c: c.exchange_bind("missing", "amq.direct", "k"), NotFound, NO_EXCHANGE),
    ("bind a source", lambda c: c.exchange_bind("amq.direct", "missing", "k"), NotFound, NO_EXCHANGE),
    ("bind ''", lambda c: c.queue_bind("", "amq.direct", "k"), NotFound, NO_LAST_QUEUE),
    ("purge ''", lambda c: c.queue_purge(""), NotFound, NO_LAST_QUEUE),
    ("get ''", lambda c: c.basic_get(""), NotFound, NO_LAST_QUEUE),
    ("consume ''", lambda c: c.basic_consume("", take), NotFound, NO_LAST_QUEUE),
    ("delete ''", lambda c: c.queue_delete(""), NotFound, NO_LAST_QUEUE),
    # 403
    ("reserved queue", lambda c: c.queue_declare("amq.z"), AccessRefused, "ACCESS_REFUSED - queue name 'amq.z' contains reserved prefix 'amq.*'"),
    ("reserved exchange", lambda c: c.exchange_declare("amq.z"), AccessRefused, "ACCESS_REFUSED - exchange name 'amq.z' contains reserved prefix 'amq.*'"),
    ("bind to the default exchange", lambda c: c.queue_bind("q", "", "k"), AccessRefused, DEFAULT_EXCHANGE),
    ("unbind from the default exchange", lambda c: c.queue_unbind("q", "", "q"), AccessRefused, DEFAULT_EXCHANGE),
    ("declare the default exchange", lambda c: c.exchange_declare("", "direct"), AccessRefused, DEFAULT_EXCHANGE),
    ("delete the default exchange", lambda c: c.exchange_delete(""), AccessRefused, DEFAULT_EXCHANGE),
    ("delete a system exchange", lambda c: c.exchange_delete("amq.direct"), AccessRefused, "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed"),
    ("exclusive use", lambda c: c.basic_consume("used", take), AccessRefused, "ACCESS_REFUSED - queue 'used' in vhost '/' in exclusive use"),
    ("exclusive consume", lambda c: c.basic_consume("consumed", take, exclusive=True), AccessRefused, "ACCESS_REFUSED - queue 'consumed' in vhost '/' in exclusive use"),
    # 405
    ("locked", lambda c: c.basic_get("mine"), ResourceLocked, LOCKED),
    ("exclusive what is not", lambda c: c.queue_declare("q", exclusive=True), ResourceLocked, LOCKED.replace("mine", "q")),
    # 406
    ("durable", lambda c: c.queue_declare("q", durable=True), PreconditionFailed, inequivalent("durable", "queue", "q", "true", "false")),
    ("auto_delete", lambda c: c.queue_declare("q", auto_delete=True), PreconditionFailed, inequivalent("auto_delete", "queue", "q", "true", "false")),
    ("an argument less", lambda c: c.queue_declare("limited"), PreconditionFailed, None),
    ("an argument more", lambda c: c.queue_declare("q", arguments={"x-max-length": 5}), PreconditionFailed, None),
    ("another argument", lambda c: c.queue_declare("limited", arguments={"x-max-length": 6}), PreconditionFailed, inequivalent("x-max-length", "queue", "limited", "6", "5")),
    ("exchange type", lambda c: c.exchange_declare("x", "topic"), PreconditionFailed, inequivalent("type", "exchange", "x", "topic", "direct")),
    ("exchange durable", lambda c: c.exchange_declare("x", "direct", durable=True), PreconditionFailed, inequivalent("durable", "exchange", "x", "true", "false")),
    ("exchange auto_delete", lambda c: c.exchange_declare("x", "direct", auto_delete=True), PreconditionFailed, inequivalent("auto_delete", "exchange", "x", "true", "false")),
    ("exchange internal", lambda c: c.exchange_declare("x", "direct", internal=True), PreconditionFailed, inequivalent("internal", "exchange", "x", "true", "false")),
    ("alternate exchange", lambda c: c.exchange_declare("x", "direct", arguments={"alternate-exchange": "u"}), PreconditionFailed, None),
    ("unknown exchange type", lambda c: c.exchange_declare("new", "zz"), PreconditionFailed, "PRECONDITION_FAILED - unknown exchange type 'zz'"),
    ("x-expires 0", lambda c: c.queue_declare("new", arguments={"x-expires": 0}), PreconditionFailed, INVALID.format("x-expires", "value_zero", "0")),
    ("x-expires -1", lambda c: c.queue_declare("new", arguments={"x-expires": -1}), PreconditionFailed, INVALID.format("x-expires", "value_negative", "-1")),
    ("x-expires text", lambda c: c.queue_declare("new", arguments={"x-expires": "1000"}), PreconditionFailed, "PRECONDITION_FAILED - invalid arg 'x-expires' for queue 'new' in vhost '/': \"expected integer, got longstr\""),
    ("x-expires too long", lambda c: c.queue_declare("new", arguments={"x-expires": 315_360_000_001}), PreconditionFailed, None),
    ("x-message-ttl -1", lambda c: c.queue_declare("new", arguments={"x-message-ttl": -1}), PreconditionFailed, INVALID.format("x-message-ttl", "value_negative", "-1")),
    ("x-message-ttl 10.0", lambda c: c.queue_declare("new", arguments={"x-message-ttl": 10.0}), PreconditionFailed, None),
    ("x-message-ttl too long", lambda c: c.queue_declare("new", arguments={"x-message-ttl": 315_360_000_001}), PreconditionFailed, None),
    ("x-max-length", lambda c: c.queue_declare("new", arguments={"x-max-length": "5"}), PreconditionFailed, None),
    ("x-max-length 2**63", lambda c: c.queue_declare("new", arguments={"x-max-length": 2**63}), PreconditionFailed, INVALID.format("x-max-length", "value_too_large", str(2**63))),
    ("x-max-length-bytes", lambda c: c.queue_declare("new", arguments={"x-max-length-bytes": -5}), PreconditionFailed, None),
    ("x-overflow", lambda c: c.queue_declare("new", arguments={"x-overflow": "spill"}), PreconditionFailed, None),
    ("x-match", lambda c: c.queue_bind("q", "amq.headers", "", {"x-match": "zz"}), PreconditionFailed, 'PRECONDITION_FAILED - Invalid x-match field value <<"zz">>; expected all, any, all-with-x, or any-with-x'),
    ("x-priority", lambda c: c.basic_consume("q", take, arguments={"x-priority": "high"}), PreconditionFailed, None),
    ("if_unused", lambda c: c.queue_delete("consumed", if_unused=True), PreconditionFailed, "PRECONDITION_FAILED - queue 'consumed' in vhost '/' in use"),
    ("if_empty", lambda c: c.queue_delete("full", if_empty=True), PreconditionFailed, "PRECONDITION_FAILED - queue 'full' in vhost '/' not empty"),
    ("exchange if_unused", lambda c: c.exchange_delete("bound", if_unused=True), PreconditionFailed, "PRECONDITION_FAILED - exchange 'bound' in vhost '/' in use"),
    ("ack", lambda c: c.basic_ack(99), PreconditionFailed, SETTLED),
    ("ack multiple", lambda c: c.basic_ack(99, multiple=True), PreconditionFailed, SETTLED),
    ("nack", lambda c: c.basic_nack(99), PreconditionFailed, SETTLED),
    ("reject", lambda c: c.basic_reject(99), PreconditionFailed, SETTLED),
    ("commit", lambda c: c.tx_commit(), PreconditionFailed, "PRECONDITION_FAILED - channel is not transactional"),
    ("rollback", lambda c: c.tx_rollback(), PreconditionFailed, "PRECONDITION_FAILED - channel is not transactional"),
    ("confirm, then tx", transact, PreconditionFailed, "PRECONDITION_FAILED - cannot switch from confirm to tx mode"),
    ("tx, then confirm", confirm, PreconditionFailed, "PRECONDITION_FAILED - cannot switch from tx to confirm mode"),
]  # fmt: skip


@pytest.fixture
def furnished(connection: shmbroker.Connection, other: shmbroker.Connection) -> shmbroker.Connection:
    """Declare what the operations meet; the other connection owns `mine` and uses `used`."""
    channel = connection.channel()
    for name in ("q", "consumed", "full", "used"):
        channel.queue_declare(name)
    channel.queue_declare("limited", arguments={"x-max-length": 5})
    publish(channel, "full", "A")
    channel.basic_consume("consumed", take)
    channel.exchange_declare("x", "direct")
    channel.exchange_declare("bound", "fanout")
    channel.queue_bind("q", "bound")
    owner = other.channel()
    owner.queue_declare("mine", exclusive=True)
    owner.basic_consume("used", take, exclusive=True)
    return connection


@pytest.mark.parametrize(("operation", "kind", "text"), [row[1:] for row in SOFT], ids=[row[0] for row in SOFT])
def test_a_soft_error_closes_its_channel(
    furnished: shmbroker.Connection, operation: Operation, kind: type[BrokerError], text: str | None
) -> None:
    """It has RabbitMQ's code and text, is a ChannelClosedByBroker, and leaves the connection and its channels alone."""
    channel, beside = furnished.channel(), furnished.channel()
    with refused(kind, text):
        operation(channel)
    assert issubclass(kind, ChannelClosedByBroker)
    assert_closed(channel, because=text or "")
    assert furnished.is_open
    assert beside.is_open
    assert beside.queue_declare("q", passive=True).queue == "q"
    assert not exists(furnished, queue="new")
    assert not exists(furnished, exchange="new")


ASYNCHRONOUS: list[tuple[str, Operation, type[BrokerError], str | None]] = [
    ("missing exchange", lambda c: c.basic_publish("missing", "k", b"A"), NotFound, NO_EXCHANGE),
    ("internal exchange", lambda c: c.basic_publish("internal", "", b"A"), AccessRefused, "ACCESS_REFUSED - cannot publish to internal exchange 'internal' in vhost '/'"),
    ("expiration", lambda c: c.basic_publish("", "q", b"A", BasicProperties(expiration="abc")), PreconditionFailed, "PRECONDITION_FAILED - invalid expiration 'abc': no_integer"),
    ("negative expiration", lambda c: c.basic_publish("", "q", b"A", BasicProperties(expiration="-1")), PreconditionFailed, None),
    ("expiration in seconds", lambda c: c.basic_publish("", "q", b"A", BasicProperties(expiration="1.5")), PreconditionFailed, None),
    ("user_id", lambda c: c.basic_publish("", "q", b"A", BasicProperties(user_id="\0nobody")), PreconditionFailed, None),
    ("CC", lambda c: c.basic_publish("", "q", b"A", BasicProperties(headers={"CC": 5})), PreconditionFailed, None),
    ("BCC", lambda c: c.basic_publish("", "q", b"A", BasicProperties(headers={"BCC": "q"})), PreconditionFailed, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("publishing", "kind", "text"), [row[1:] for row in ASYNCHRONOUS], ids=[row[0] for row in ASYNCHRONOUS]
)
def test_a_bad_publish_is_reported_by_the_next_answer(
    connection: shmbroker.Connection, publishing: Operation, kind: type[BrokerError], text: str | None
) -> None:
    """It returns; what follows is ignored until an operation that has an answer has said why, once."""
    channel = connection.channel()
    channel.queue_declare("q")
    channel.exchange_declare("internal", "fanout", internal=True)
    channel.queue_bind("q", "internal")
    publishing(channel)
    publish(channel, "q", "ignored")
    with refused(kind, text):
        channel.queue_declare("q", passive=True)
    assert_closed(channel, because=text or "")
    with connection.channel() as again:
        assert content(again, "q") == []


def test_the_answer_may_be_that_of_an_ack(connection: shmbroker.Connection) -> None:
    """An ack after a bad publish is ignored: it has no answer. The message returns."""
    channel = connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", "A")
    (message,) = taken(channel, "q", 1)
    channel.basic_publish("missing", "k", b"B")
    channel.basic_ack(message.delivery_tag)
    channel.basic_nack(12345)
    with refused(NotFound, NO_EXCHANGE):
        channel.basic_get("q")
    with connection.channel() as again:
        assert content(again, "q") == ["AR"]


def reuse_tag(channel: shmbroker.Channel) -> None:
    """Consume twice with one tag."""
    for _ in range(2):
        channel.basic_consume("q", take, consumer_tag="x")


HARD: list[tuple[str, Operation, type[BrokerError], str]] = [
    ("consumer tag", reuse_tag, NotAllowed, "NOT_ALLOWED - attempt to reuse consumer tag 'x'"),
    ("recover", lambda c: c.basic_recover(requeue=False), NotImplementedByBroker, "NOT_IMPLEMENTED - requeue=false"),
    ("flow", lambda c: c.flow(False), NotImplementedByBroker, "NOT_IMPLEMENTED - active=false"),  # noqa: FBT003 (the contract)
    ("prefetch_size", lambda c: c.basic_qos(prefetch_size=10), NotImplementedByBroker, "NOT_IMPLEMENTED - prefetch_size!=0 (10)"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "kind", "text"), [row[1:] for row in HARD], ids=[row[0] for row in HARD])
def test_a_hard_error_closes_the_connection(
    broker: shmbroker.Broker,
    connection: shmbroker.Connection,
    operation: Operation,
    kind: type[BrokerError],
    text: str,
) -> None:
    """It is a ConnectionClosedByBroker; all channels of the connection end, and what was unacked returns."""
    with broker.connect() as victim:
        closed: list[str] = []
        victim.add_close_callback(lambda: closed.append("closed"))
        channel, beside = victim.channel(), victim.channel()
        channel.queue_declare("q")
        channel.queue_declare("other")
        publish(beside, "other", "A")
        taken(beside, "other", 1)
        with refused(kind, text):
            operation(channel)
        assert issubclass(kind, ConnectionClosedByBroker)
        assert (victim.is_open, channel.is_open, beside.is_open) == (False, False, False)
        for use in (lambda: beside.queue_declare("q"), lambda: channel.queue_declare("q"), victim.channel):
            with pytest.raises((ConnectionClosed, ChannelClosed)):
                use()
        assert closed == ["closed"]
    await_counts(connection.queue("other", passive=True), ready=1, delivering=0)
    with connection.channel() as again:
        assert content(again, "other") == ["AR"]


def test_attributes_are_taken_for_what_they_count_as(channel: shmbroker.Channel) -> None:
    """As auto_ack and multiple are: 1 is as good as True, in the declaration that makes it and in one that compares."""
    for durable in (1, "yes", True):
        channel.queue_declare("q", durable=durable, auto_delete=0)  # type: ignore[arg-type]
        channel.exchange_declare("x", durable=durable, internal=[])  # type: ignore[arg-type]


def test_flow_that_is_active_is_no_error(channel: shmbroker.Channel) -> None:
    """To ask for the flow that there is changes nothing."""
    channel.flow(active=True)
    assert channel.is_open


def test_what_is_missing_need_not_be_removed(channel: shmbroker.Channel) -> None:
    """To delete, unbind or cancel what is not there is no error, and neither is an unknown argument."""
    channel.queue_declare("q")
    channel.exchange_declare("x", "direct")
    channel.queue_delete("missing")
    channel.exchange_delete("missing")
    channel.queue_unbind("q", "amq.direct", "never bound")
    channel.queue_unbind("q", "missing", "k")
    channel.queue_unbind("missing", "amq.direct", "k")
    channel.exchange_unbind("x", "missing", "k")
    channel.exchange_unbind("missing", "x", "k")
    channel.basic_cancel("missing")
    assert channel.is_open


WRONG_TYPES: list[tuple[str, Operation]] = [
    ("queue_declare 5", lambda c: c.queue_declare(5)),
    ("queue_declare None", lambda c: c.queue_declare(None)),
    ("queue_declare list", lambda c: c.queue_declare(["q"])),
    ("queue_declare bytes", lambda c: c.queue_declare(b"q")),
    ("queue_declare arguments", lambda c: c.queue_declare("new", arguments=[("x-expires", 5)])),
    ("queue_declare arguments' names", lambda c: c.queue_declare("new", arguments={5: "x"})),
    ("queue_bind queue", lambda c: c.queue_bind(5, "amq.direct", "k")),
    ("queue_bind exchange", lambda c: c.queue_bind("q", 5, "k")),
    ("queue_bind key", lambda c: c.queue_bind("q", "amq.direct", 5)),
    ("queue_bind arguments", lambda c: c.queue_bind("q", "amq.direct", "k", "arguments")),
    ("queue_unbind", lambda c: c.queue_unbind("q", None, "k")),
    ("queue_purge", lambda c: c.queue_purge(5)),
    ("queue_delete", lambda c: c.queue_delete(5)),
    ("exchange_declare name", lambda c: c.exchange_declare(5)),
    ("exchange_declare type", lambda c: c.exchange_declare("new", 5)),
    ("exchange_declare arguments", lambda c: c.exchange_declare("new", "direct", arguments=5)),
    ("exchange_delete", lambda c: c.exchange_delete(None)),
    ("exchange_bind", lambda c: c.exchange_bind("amq.direct", 5, "k")),
    ("exchange_unbind", lambda c: c.exchange_unbind(5, "amq.direct", "k")),
    ("basic_publish exchange", lambda c: c.basic_publish(None, "q", b"A")),
    ("basic_publish key", lambda c: c.basic_publish("", 5, b"A")),
    ("basic_publish str", lambda c: c.basic_publish("", "q", "text")),
    ("basic_publish None", lambda c: c.basic_publish("", "q", None)),
    ("basic_publish int", lambda c: c.basic_publish("", "q", 5)),
    ("basic_publish properties", lambda c: c.basic_publish("", "q", b"A", {"priority": 1})),
    ("basic_publish header", lambda c: c.basic_publish("", "q", b"A", BasicProperties(headers={"a": object()}))),
    ("basic_publish headers", lambda c: c.basic_publish("", "q", b"A", BasicProperties(headers=["CC"]))),
    ("basic_publish priority", lambda c: c.basic_publish("", "q", b"A", BasicProperties(priority="1"))),
    ("publish_confirmed str", lambda c: c.publish_confirmed("", "q", "text")),
    ("basic_get queue", lambda c: c.basic_get(5)),
    ("basic_get timeout", lambda c: c.basic_get("q", timeout="soon")),
    ("basic_consume queue", lambda c: c.basic_consume(5, take)),
    ("basic_consume callback", lambda c: c.basic_consume("q", "take")),
    ("basic_consume no callback", lambda c: c.basic_consume("q", None)),
    ("basic_consume tag", lambda c: c.basic_consume("q", take, consumer_tag=5)),
    ("basic_consume arguments", lambda c: c.basic_consume("q", take, arguments=5)),
    ("basic_cancel", lambda c: c.basic_cancel(5)),
    ("basic_ack", lambda c: c.basic_ack("1")),
    ("basic_ack None", lambda c: c.basic_ack(None)),
    ("basic_nack", lambda c: c.basic_nack(1.0)),
    ("basic_reject", lambda c: c.basic_reject("1")),
    ("basic_qos count", lambda c: c.basic_qos(prefetch_count="5")),
    ("basic_qos size", lambda c: c.basic_qos(prefetch_size=None)),
    ("add_on_return_callback", lambda c: c.add_on_return_callback("f")),
    ("add_on_cancel_callback", lambda c: c.add_on_cancel_callback(None)),
    ("wait_for_confirms", lambda c: c.wait_for_confirms("soon")),
]


@pytest.mark.parametrize("operation", [row[1] for row in WRONG_TYPES], ids=[row[0] for row in WRONG_TYPES])
def test_a_wrong_type_never_reaches_the_channel(channel: shmbroker.Channel, operation: Operation) -> None:
    """It is a TypeError; the channel can be used on, nothing was declared, published or settled."""
    channel.queue_declare("q")
    publish(channel, "q", "A")
    (message,) = taken(channel, "q", 1)
    with pytest.raises(TypeError):
        operation(channel)
    assert channel.is_open
    found = channel.queue_declare("q", passive=True)
    assert (found.message_count, found.consumer_count) == (0, 0)
    channel.basic_ack(message.delivery_tag)


def test_a_get_with_a_time_limit_waits_for_a_message(channel: shmbroker.Channel, other: shmbroker.Connection) -> None:
    """With timeout= a get waits for a message, or gives None when none came."""
    channel.queue_declare("q")
    assert channel.basic_get("q", timeout=0.01) is None
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(channel.basic_get, "q", auto_ack=True, timeout=None)
        await_counts(other.queue("q", passive=True), interested=1)
        publish(other.channel(), "q", "A")
        message = waiting.result(WATCHDOG_SECONDS)
    assert bytes(message) == b"A"
