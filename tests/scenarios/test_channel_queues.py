# SPDX-License-Identifier: Apache-2.0
"""Queues as channels declare and delete them (scenarios B12 to B25)."""

from __future__ import annotations

import functools
import math
import re
import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import Inbox, assert_closed, content, count, exists, publish, refused, taken
from scenario_support.processes import Actor
from scenario_support.waiting import becomes, eventually, until_clock

from shmbroker.exceptions import AccessRefused, NotFound, PreconditionFailed, ResourceLocked

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. "
    "It could be originally declared on another connection or the exclusive property value "
    "does not match that of the original declaration."
)


def test_b12_a_passive_declare_of_an_unknown_queue(connection: shmbroker.Connection) -> None:
    """It is refused with 404: the channel is closed, the connection open, and a new channel works."""
    channel = connection.channel()
    with refused(NotFound, "NOT_FOUND - no queue 'missing' in vhost '/'"):
        channel.queue_declare("missing", passive=True)
    assert_closed(channel, because="no queue 'missing'")
    assert connection.is_open
    assert connection.channel().queue_declare("missing").queue == "missing"


def test_b12_declare_says_what_is_there(channel: shmbroker.Channel) -> None:
    """DeclareOk has the name, the ready messages and the consumers; passive or not."""
    new = channel.queue_declare("q")
    assert (new.queue, new.message_count, new.consumer_count) == ("q", 0, 0)
    publish(channel, "q", "ABC")
    taken(channel, "q", 1)
    for passive in (False, True):
        found = channel.queue_declare("q", passive=passive)
        assert (found.queue, found.message_count, found.consumer_count) == ("q", 2, 0)
    channel.queue_declare("quiet")
    tag = channel.basic_consume("quiet", Inbox())
    assert channel.queue_declare("quiet", passive=True).consumer_count == 1
    channel.basic_cancel(tag)
    assert channel.queue_declare("quiet", passive=True).consumer_count == 0


def test_b13_redeclaring_with_another_durable(connection: shmbroker.Connection) -> None:
    """It is refused with 406, and the text names both values; the queue stays as it was."""
    channel = connection.channel()
    channel.queue_declare("q", durable=False)
    publish(channel, "q", "A")
    text = "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': "
    with refused(PreconditionFailed, text + "received 'true' but current is 'false'"):
        channel.queue_declare("q", durable=True)
    assert_closed(channel, because="inequivalent arg 'durable'")
    with connection.channel() as again:
        assert again.queue_declare("q", durable=False).message_count == 1


def test_b13_unknown_arguments_are_not_compared(channel: shmbroker.Channel) -> None:
    """Redeclaring with an argument that nobody knows is no difference."""
    channel.queue_declare("q")
    channel.queue_declare("q", arguments={"foo": "bar"})
    channel.queue_declare("q", arguments={"foo": 5, "x-something": True})
    assert channel.is_open


def test_b14_numbers_are_compared_by_value_whatever_their_width(channel: shmbroker.Channel) -> None:
    """x-message-ttl 10 is 10, of whichever integer type; 11 is not."""

    class Wide(int):
        """An integer of another type."""

    channel.queue_declare("q", arguments={"x-message-ttl": 10})
    channel.queue_declare("q", arguments={"x-message-ttl": Wide(10)})
    assert channel.is_open
    with refused(PreconditionFailed):
        channel.queue_declare("q", arguments={"x-message-ttl": 11})


def test_b14_a_float_is_no_integer(connection: shmbroker.Connection) -> None:
    """x-message-ttl 10.0 is refused with 406 where 10 is set, and for a new queue."""
    with connection.channel() as channel:
        channel.queue_declare("q", arguments={"x-message-ttl": 10})
        with refused(PreconditionFailed):
            channel.queue_declare("q", arguments={"x-message-ttl": 10.0})
    with connection.channel() as channel, refused(PreconditionFailed):
        channel.queue_declare("new", arguments={"x-message-ttl": 10.0})
    assert not exists(connection, queue="new")


def test_b15_the_broker_names_the_queue(channel: shmbroker.Channel) -> None:
    """Declaring '' gives a name `amq.gen-...`; then '' means that queue."""
    name = channel.queue_declare("").queue
    assert re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22}", name)
    inbox = Inbox(ack=True)
    channel.basic_consume("", inbox)
    publish(channel, name, "A")
    assert [delivery.text for delivery in inbox.wait(1)] == ["A"]


def test_b15_every_name_is_another(channel: shmbroker.Channel) -> None:
    """No name is given twice; '' is the last one declared, also by its name, but not for a passive declaration."""
    names = [channel.queue_declare().queue for _ in range(50)]
    assert len(set(names)) == 50
    publish(channel, names[-1], ["last"])
    assert content(channel, "") == ["last"]
    channel.queue_declare("named")
    publish(channel, "named", "AB")
    assert channel.queue_purge("") == 2
    with refused(NotFound, "NOT_FOUND - no queue '' in vhost '/'"):
        channel.queue_declare("", passive=True)


def test_b16_line_ends_are_taken_out_of_names(channel: shmbroker.Channel) -> None:
    """The names 'a<CR><LF>b' and 'ab' are one queue."""
    assert channel.queue_declare("a\r\nb").queue == "ab"
    publish(channel, "ab", "A")
    assert count(channel, "a\nb") == 1
    assert content(channel, "a\r\nb") == ["A"]
    channel.queue_delete("\nab\r")
    with refused(NotFound):
        channel.queue_declare("ab", passive=True)


def test_b17_names_that_are_the_brokers(connection: shmbroker.Connection) -> None:
    """To create 'amq.x' is refused with 403; to declare an existing 'amq.gen-..' passively is not."""
    channel = connection.channel()
    with refused(AccessRefused, "ACCESS_REFUSED - queue name 'amq.x' contains reserved prefix 'amq.*'"):
        channel.queue_declare("amq.x")
    assert_closed(channel, because="reserved prefix")
    with connection.channel() as again:
        name = again.queue_declare("").queue
        assert again.queue_declare(name, passive=True).queue == name
        with refused(NotFound, "NOT_FOUND - no queue 'amq.x' in vhost '/'"):
            again.queue_declare("amq.x", passive=True)


LOCKED_OPERATIONS: dict[str, Callable[[shmbroker.Channel], object]] = {
    "passive declare": lambda channel: channel.queue_declare("mine", passive=True),
    "declare": lambda channel: channel.queue_declare("mine"),
    "declare exclusive": lambda channel: channel.queue_declare("mine", exclusive=True),
    "consume": lambda channel: channel.basic_consume("mine", Inbox()),
    "purge": lambda channel: channel.queue_purge("mine"),
    "bind": lambda channel: channel.queue_bind("mine", "amq.fanout"),
    "unbind": lambda channel: channel.queue_unbind("mine", "amq.fanout"),
    "get": lambda channel: channel.basic_get("mine"),
    "delete": lambda channel: channel.queue_delete("mine"),
}


@pytest.mark.parametrize("operation", LOCKED_OPERATIONS)
def test_b18_an_exclusive_queue_is_its_connections(
    channel: shmbroker.Channel, other: shmbroker.Connection, operation: str
) -> None:
    """Whatever another connection does with it is refused with 405; the queue is untouched."""
    channel.queue_declare("mine", exclusive=True)
    channel.queue_bind("mine", "amq.fanout")
    publish(channel, "mine", "A")
    stranger = other.channel()
    with refused(ResourceLocked, LOCKED):
        LOCKED_OPERATIONS[operation](stranger)
    assert_closed(stranger, because="locked queue 'mine'")
    assert other.is_open
    assert content(channel, "mine") == ["A"]


def test_b18_everybody_may_publish_to_an_exclusive_queue(
    channel: shmbroker.Channel, other: shmbroker.Connection
) -> None:
    """What another connection publishes to it is delivered; its own channels share it."""
    channel.queue_declare("mine", exclusive=True)
    publish(other.channel(), "mine", "AB")
    assert content(channel, "mine") == ["A", "B"]
    channel.queue_declare("mine", exclusive=True)
    assert channel.is_open


def test_b18_an_exclusive_queue_goes_with_its_connection(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """It outlives its channel, and not its connection; then the name is free."""
    with broker.connect() as owner:
        owner.channel().queue_declare("mine", exclusive=True)
        with owner.channel() as second:
            publish(second, "mine", "A")
        assert count(owner.channel(), "mine") == 1
    eventually(lambda: "mine" not in connection.queue_names(), "the queue to go")
    assert connection.channel().queue_declare("mine").message_count == 0


def test_b18_an_exclusive_queue_goes_with_a_killed_process(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """When the owner is killed its queue is deleted, and the bindings with it."""
    channel = connection.channel()
    with Actor(broker.name) as owner:
        owner.do("on_channel", method="queue_declare", queue="mine", exclusive=True)
        owner.do("on_channel", method="queue_bind", queue="mine", exchange="amq.fanout")
        channel.basic_publish("amq.fanout", "", b"A")
        with connection.channel() as stranger, refused(ResourceLocked):
            stranger.queue_declare("mine", passive=True)
        owner.kill()
        eventually(lambda: "mine" not in connection.queue_names(), "the queue to go")
    assert not exists(connection, queue="mine")
    assert channel.queue_declare("mine").message_count == 0
    channel.basic_publish("amq.fanout", "", b"B")
    assert content(channel, "mine") == []


def test_b20_gets_do_not_make_a_queue_used(connection: shmbroker.Connection) -> None:
    """An auto-delete queue that had only gets stays, also when the channel ends."""
    with connection.channel() as channel:
        channel.queue_declare("q", auto_delete=True)
        publish(channel, "q", "A")
        assert content(channel, "q") == ["A"]
    assert exists(connection, queue="q")


def test_b20_a_queue_goes_with_its_last_consumer(connection: shmbroker.Connection) -> None:
    """An auto-delete queue is gone when cancel returns, but not before the last consumer's."""
    channel = connection.channel()
    channel.queue_declare("q", auto_delete=True)
    first, last = (channel.basic_consume("q", Inbox()) for _ in range(2))
    publish(channel, "q", "A")
    channel.basic_cancel(first)
    assert exists(connection, queue="q")
    channel.basic_cancel(last)
    with refused(NotFound, "NOT_FOUND - no queue 'q' in vhost '/'"):
        channel.queue_declare("q", passive=True)


@pytest.mark.parametrize("end", ["channel", "connection", "process"])
def test_b20_a_queue_goes_when_its_last_consumer_does(
    broker: shmbroker.Broker, connection: shmbroker.Connection, end: str
) -> None:
    """An auto-delete queue goes with the channel, the connection, or the killed process of its last consumer."""
    connection.channel().queue_declare("q", auto_delete=True)
    if end == "process":
        with Actor(broker.name) as actor:
            actor.do("consume_on_channel", queue="q")
            actor.kill()
    else:
        with broker.connect() as consuming, consuming.channel() as channel:
            channel.basic_consume("q", Inbox())
            if end == "channel":
                channel.close()
                assert not exists(connection, queue="q")
    eventually(lambda: not exists(connection, queue="q"), "the queue to go")


def test_b21_deleting_what_is_not_there(channel: shmbroker.Channel) -> None:
    """To delete a missing queue is no error: nothing was in it. Nor is it for an exchange."""
    assert channel.queue_delete("missing") == 0
    assert channel.queue_delete("missing", if_unused=True, if_empty=True) == 0
    channel.exchange_delete("missing")
    assert channel.is_open


def test_b21_delete_and_purge_say_how_many_were_ready(channel: shmbroker.Channel) -> None:
    """Purge takes the ready ones and leaves the unacked; delete takes all."""
    channel.queue_declare("q")
    publish(channel, "q", "ABCD")
    held = taken(channel, "q", 1)
    assert channel.queue_purge("q") == 3
    assert channel.queue_purge("q") == 0
    channel.basic_nack(held[0].delivery_tag)
    assert count(channel, "q") == 1
    publish(channel, "q", "E")
    assert channel.queue_delete("q") == 2


def test_b22_a_used_queue_is_not_deleted_if_unused(connection: shmbroker.Connection) -> None:
    """With a consumer if_unused is refused with 406; without one it deletes."""
    channel, consuming = connection.channel(), connection.channel()
    channel.queue_declare("q")
    tag = consuming.basic_consume("q", Inbox())
    with refused(PreconditionFailed, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use"):
        channel.queue_delete("q", if_unused=True)
    assert_closed(channel, because="in use")
    consuming.basic_cancel(tag)
    assert consuming.queue_delete("q", if_unused=True) == 0
    assert not exists(connection, queue="q")


def test_b22_a_full_queue_is_not_deleted_if_empty(connection: shmbroker.Connection) -> None:
    """With a ready message if_empty is refused with 406; with only unacked ones it deletes."""
    channel, second = connection.channel(), connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", "A")
    with refused(PreconditionFailed, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"):
        channel.queue_delete("q", if_empty=True)
    assert_closed(channel, because="not empty")
    taken(second, "q", 1)
    assert second.queue_delete("q", if_empty=True) == 0
    assert not exists(connection, queue="q")
    assert second.is_open


@pytest.mark.parametrize("arguments", [None, {"x-max-length": 2}, {"x-ring-size": 2}])
def test_b22_a_refused_delete_changes_nothing(
    connection: shmbroker.Connection, arguments: dict[str, object] | None
) -> None:
    """After a delete that was refused the queue counts what it has, bounded or not."""
    channel = connection.channel()
    channel.queue_declare("q", arguments=arguments)
    publish(channel, "q", "AB")
    with refused(PreconditionFailed):
        channel.queue_delete("q", if_empty=True)
    assert len(connection.queue("q", passive=True)) == 2
    with connection.channel() as again:
        assert count(again, "q") == 2
        first, second = taken(again, "q", 2)
        assert (first.message_count, second.message_count) == (1, 0)
        assert content(again, "q") == []


def test_b22_what_was_unacked_in_a_deleted_queue_can_be_settled(channel: shmbroker.Channel) -> None:
    """An ack of a message whose queue is gone is no error, and neither is a nack."""
    channel.queue_declare("q")
    publish(channel, "q", "AB")
    first, second = taken(channel, "q", 2)
    channel.queue_delete("q")
    channel.basic_ack(first.delivery_tag)
    channel.basic_nack(second.delivery_tag)
    assert channel.queue_declare("q").message_count == 0


@pytest.mark.parametrize("who", ["the same connection", "another connection"])
def test_b24_consumers_hear_that_their_queue_was_deleted(
    connection: shmbroker.Connection, other: shmbroker.Connection, who: str
) -> None:
    """The cancel callback gets the tag, once, and the channel stays open."""
    channel = connection.channel()
    cancelled: list[str] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.queue_declare("q")
    channel.queue_declare("stays")
    inbox = Inbox()
    tag = channel.basic_consume("q", Inbox())
    channel.basic_consume("stays", inbox, auto_ack=True)
    deleting = connection.channel() if who == "the same connection" else other.channel()
    deleting.queue_delete("q")
    becomes(lambda: list(cancelled), [tag])
    assert channel.is_open
    publish(channel, "stays", "A")
    inbox.wait(1)
    channel.basic_cancel(tag)
    assert channel.is_open
    assert cancelled == [tag]


def test_b24_a_consumer_that_cancels_hears_nothing(channel: shmbroker.Channel) -> None:
    """The cancel callback is for cancellations by the broker only; an unknown tag is no error."""
    cancelled: list[str] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.queue_declare("q")
    channel.queue_declare("sign")
    channel.basic_cancel(channel.basic_consume("q", Inbox()))
    channel.basic_cancel("never heard of")
    sign = channel.basic_consume("sign", Inbox())
    channel.queue_delete("sign")
    becomes(lambda: list(cancelled), [sign])


EXPIRES_SECONDS = 1.0
GONE_BY_SECONDS = 2.0
ALMOST_SECONDS = 0.75
ATTEMPTS = 10


class TooLateError(Exception):
    """The machine was busy: the queue had expired before it was used again."""


def goes_in_time(connection: shmbroker.Connection, attempt: Callable[[shmbroker.Channel], float]) -> None:
    """See that a queue goes after its time, and by that of the scenario; to look is no use of the queue.

    The maximum is the scenario's. On a busy machine the best of several attempts counts; each returns a moment before
    the last use of the queue.
    """
    seconds: list[float] = []
    while len(seconds) < ATTEMPTS and not any(one < GONE_BY_SECONDS for one in seconds):
        with connection.channel() as channel:
            try:
                since = attempt(channel)
            except TooLateError:
                since = -math.inf
        eventually(lambda: "q" not in connection.queue_names(), "the queue to expire")
        seconds.append(time.monotonic() - since)
        assert seconds[-1] >= EXPIRES_SECONDS, seconds
    assert min(seconds) < GONE_BY_SECONDS, seconds


def declared_to_expire(channel: shmbroker.Channel) -> float:
    """Declare a queue that is deleted when it was not used for a second; return a moment before its last use."""
    before = time.monotonic()
    channel.queue_declare("q", arguments={"x-expires": 1000})
    return before


def nearly_expired(before: float, use: Callable[[], object]) -> float:
    """Do something with the queue shortly before it expires; return a moment before that."""
    until_clock(before + ALMOST_SECONDS)
    again = time.monotonic()
    try:
        use()
    except NotFound:
        if time.monotonic() < before + EXPIRES_SECONDS:
            raise
    if time.monotonic() >= before + EXPIRES_SECONDS:
        raise TooLateError
    return again


def test_b25_an_unused_queue_expires(connection: shmbroker.Connection) -> None:
    """x-expires 1000: a queue that nobody uses is gone by 2 s, with what is in it."""

    def unused(channel: shmbroker.Channel) -> float:
        before = declared_to_expire(channel)
        publish(channel, "q", "A")
        return before

    goes_in_time(connection, unused)
    assert not exists(connection, queue="q")


@pytest.mark.parametrize("passive", [False, True])
def test_b25_a_declare_extends_the_life_of_a_queue(connection: shmbroker.Connection, *, passive: bool) -> None:
    """Declared again after 0.75 s, passively or not, it lives for a second more."""

    def declared_again(channel: shmbroker.Channel) -> float:
        arguments = None if passive else {"x-expires": 1000}
        again = functools.partial(channel.queue_declare, "q", passive=passive, arguments=arguments)
        return nearly_expired(declared_to_expire(channel), again)

    goes_in_time(connection, declared_again)


def test_b25_a_get_extends_the_life_of_a_queue(connection: shmbroker.Connection) -> None:
    """A get is a use, whether it finds something or not."""

    def asked(channel: shmbroker.Channel) -> float:
        found: list[object] = []
        again = nearly_expired(declared_to_expire(channel), lambda: found.append(channel.basic_get("q")))
        assert found == [None]
        return again

    goes_in_time(connection, asked)


def test_b25_a_publish_does_not_extend_the_life_of_a_queue(connection: shmbroker.Connection) -> None:
    """Publishes are no use of a queue."""

    def published(channel: shmbroker.Channel) -> float:
        before = declared_to_expire(channel)
        nearly_expired(before, lambda: publish(channel, "q", "A"))
        return before

    goes_in_time(connection, published)


def test_b25_a_queue_with_a_consumer_does_not_expire(connection: shmbroker.Connection) -> None:
    """As long as there is a consumer; when it has gone the time runs."""

    def consumed(channel: shmbroker.Channel) -> float:
        before = declared_to_expire(channel)
        try:
            tag = channel.basic_consume("q", Inbox())
        except NotFound:
            if time.monotonic() < before + EXPIRES_SECONDS:
                raise
            raise TooLateError from None
        until_clock(before + GONE_BY_SECONDS)
        assert "q" in connection.queue_names()
        cancelled = time.monotonic()
        channel.basic_cancel(tag)
        return cancelled

    goes_in_time(connection, consumed)
