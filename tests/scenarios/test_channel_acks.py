# SPDX-License-Identifier: Apache-2.0
"""Delivery tags, acks, and what goes back (scenarios B35 to B43)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import Inbox, Rounds, assert_closed, content, count, publish, refused, taken
from scenario_support.observing import assert_balanced, assert_counts, await_counts, numbered, put_each
from scenario_support.processes import Actor, actors
from scenario_support.waiting import becomes

from shmbroker.exceptions import NotImplementedByBroker, PreconditionFailed

if TYPE_CHECKING:
    import shmbroker


def unknown(tag: int) -> str:
    """Return what a broker says of a delivery tag it does not know."""
    return f"PRECONDITION_FAILED - unknown delivery tag {tag}"


@pytest.mark.parametrize("how", ["basic_nack", "basic_reject", "Message.nack"])
def test_b35_what_is_returned_takes_its_old_place(channel: shmbroker.Channel, how: str) -> None:
    """Of five get three and return them as 3, 1, 2: the next gets are 1R, 2R, 3R, 4, 5."""
    channel.queue_declare("q")
    publish(channel, "q", "12345")
    messages = taken(channel, "q", 3)
    for index in (2, 0, 1):
        if how == "Message.nack":
            messages[index].nack()
        else:
            getattr(channel, how)(messages[index].delivery_tag)
    assert content(channel, "q") == ["1R", "2R", "3R", "4", "5"]


def test_b35_several_are_returned_at_once(channel: shmbroker.Channel) -> None:
    """A nack of multiple returns all up to its tag, in their order; without requeue they are dropped."""
    channel.queue_declare("q")
    publish(channel, "q", "12345")
    messages = taken(channel, "q", 4)
    channel.basic_nack(messages[2].delivery_tag, multiple=True)
    assert count(channel, "q") == 4
    channel.basic_nack(0, multiple=True, requeue=False)
    assert content(channel, "q") == ["1R", "2R", "3R", "5"]


def test_b36_delivery_tags_count_the_channels_deliveries(connection: shmbroker.Connection) -> None:
    """From 1, over gets and consumers of all queues; auto-acked ones count; every channel has its own."""
    channel, second = connection.channel(), connection.channel()
    for name in ("a", "b"):
        channel.queue_declare(name)
        publish(channel, name, "123")
    tags = []
    for name, auto_ack in (("a", False), ("b", True), ("a", True), ("b", False)):
        message = channel.basic_get(name, auto_ack=auto_ack)
        assert message is not None
        tags.append(message.delivery_tag)
    assert channel.basic_get("a", auto_ack=True) is not None
    assert channel.basic_get("a") is None
    inbox = Inbox()
    channel.basic_consume("b", inbox)
    tags.append(inbox.wait(1)[0].delivery_tag)
    assert tags == [1, 2, 3, 4, 6]
    publish(channel, "a", "4")
    assert taken(second, "a", 1)[0].delivery_tag == 1


@pytest.mark.parametrize("how", ["basic_ack", "basic_nack", "basic_reject"])
def test_b36_a_tag_is_settled_once(connection: shmbroker.Connection, how: str) -> None:
    """To settle it again is refused with 406 and closes the channel."""
    channel = connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", "A")
    (message,) = taken(channel, "q", 1)
    channel.basic_ack(message.delivery_tag)
    with refused(PreconditionFailed, unknown(1)):
        getattr(channel, how)(message.delivery_tag)
    assert_closed(channel, because="unknown delivery tag 1")
    with connection.channel() as again:
        assert count(again, "q") == 0


@pytest.mark.parametrize("how", ["basic_ack", "basic_nack", "basic_reject"])
def test_b36_a_tag_is_its_channels(connection: shmbroker.Connection, how: str) -> None:
    """The tag of another channel is unknown: 406, and that other one's message stays unacked."""
    channel, second = connection.channel(), connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", "A")
    (message,) = taken(channel, "q", 1)
    with refused(PreconditionFailed, unknown(1)):
        getattr(second, how)(message.delivery_tag)
    assert channel.is_open
    assert_counts(connection.queue("q", passive=True), ready=0, delivering=1)
    channel.basic_ack(message.delivery_tag)
    assert_counts(connection.queue("q", passive=True), message_count=0, acked=1)


def test_b36_nothing_to_ack(connection: shmbroker.Connection) -> None:
    """ack(0, multiple) means all there are, none is no error; ack(0) alone is a tag that nobody gave."""
    channel = connection.channel()
    channel.basic_ack(0, multiple=True)
    channel.basic_nack(0, multiple=True)
    assert channel.is_open
    with refused(PreconditionFailed, unknown(0)):
        channel.basic_ack(0)
    with connection.channel() as again, refused(PreconditionFailed, unknown(99)):
        again.basic_ack(99, multiple=True)


def test_b36_ack_of_multiple(connection: shmbroker.Connection) -> None:
    """It acks all unacked ones up to its tag, over the channel's gets and consumers, and no later ones."""
    channel = connection.channel()
    for name in ("a", "b"):
        channel.queue_declare(name)
        publish(channel, name, "12")
    taken(channel, "a", 1)
    inbox = Inbox()
    channel.basic_consume("b", inbox)
    inbox.wait(2)
    last = taken(channel, "a", 1)[0]
    channel.basic_ack(last.delivery_tag - 1, multiple=True)
    assert_counts(connection.queue("a", passive=True), acked=1, delivering=1)
    assert_counts(connection.queue("b", passive=True), acked=2, delivering=0)
    channel.basic_ack(0, multiple=True)
    assert_counts(connection.queue("a", passive=True), acked=2, delivering=0)
    with refused(PreconditionFailed, unknown(last.delivery_tag)):
        channel.basic_ack(last.delivery_tag, multiple=True)


def test_b36_a_message_and_its_tag_are_one(connection: shmbroker.Connection) -> None:
    """What was acked as a message is unknown as a tag."""
    channel = connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", "AB")
    first, second = taken(channel, "q", 2)
    first.ack()
    channel.basic_ack(second.delivery_tag)
    assert_counts(connection.queue("q", passive=True), acked=2, message_count=0)
    with refused(PreconditionFailed, unknown(first.delivery_tag)):
        channel.basic_ack(first.delivery_tag)


@pytest.mark.parametrize("end", ["close", "an error", "connection close"])
def test_b38_what_a_channel_left_unacked_is_redelivered(
    broker: shmbroker.Broker, connection: shmbroker.Connection, end: str
) -> None:
    """When a channel closes, its unacked messages go to another consumer, redelivered and in their order."""
    with broker.connect() as leaving:
        channel = leaving.channel()
        channel.queue_declare("q")
        publish(channel, "q", "ABCDE")
        inbox = Inbox()
        tag = channel.basic_consume("q", inbox)
        inbox.wait(5)
        channel.basic_cancel(tag)
        publish(channel, "q", "FG")
        taken(channel, "q", 1)
        channel.basic_ack(2)
        if end == "close":
            channel.close()
        elif end == "an error":
            with refused(PreconditionFailed):
                channel.basic_ack(99)
        else:
            leaving.close()
        successor = Inbox(ack=True)
        connection.channel().basic_consume("q", successor)
        received = successor.wait(6)
    assert [(delivery.text, delivery.redelivered) for delivery in received] == [
        ("A", True), ("C", True), ("D", True), ("E", True), ("F", True), ("G", False),
    ]  # fmt: skip
    await_counts(connection.queue("q", passive=True), message_count=0, acked=7)


def test_b38_what_a_killed_process_left_unacked_is_redelivered(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """The same when the consuming process is killed."""
    channel = connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", "ABC")
    inbox = Inbox(ack=True)
    with Actor(broker.name) as actor:
        assert actor.do("consume_on_channel", queue="q", count=3) == list("ABC")
        actor.kill()
        channel.basic_consume("q", inbox)
        received = inbox.wait(3)
    assert [(delivery.text, delivery.redelivered) for delivery in received] == [(text, True) for text in "ABC"]
    queue = connection.queue("q", passive=True)
    await_counts(queue, message_count=0, acked=3)
    assert_balanced(queue)


def test_b40_what_a_killed_auto_ack_consumer_got_is_not_redelivered(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Messages are settled when they are sent to it; what comes after its death stays for others."""
    channel = connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", numbered(10))
    with Actor(broker.name) as actor:
        assert actor.do("consume_on_channel", queue="q", auto_ack=True, count=10) == numbered(10)
        actor.kill()
        becomes(lambda: channel.queue_declare("q", passive=True).consumer_count, 0)
        publish(channel, "q", ["later"])
        assert content(channel, "q") == ["later"]
    queue = connection.queue("q", passive=True)
    await_counts(queue, message_count=0, acked=11, redelivered=0)
    assert_balanced(queue)


def test_b41_what_was_delivered_can_be_acked_after_cancel(connection: shmbroker.Connection) -> None:
    """A cancel keeps the unacked messages with the channel: they can be acked there, or returned."""
    channel = connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", "ABC")
    inbox = Inbox()
    tag = channel.basic_consume("q", inbox)
    tags = [delivery.delivery_tag for delivery in inbox.wait(3)]
    channel.basic_cancel(tag)
    queue = connection.queue("q", passive=True)
    assert_counts(queue, ready=0, delivering=3)
    channel.basic_ack(tags[0])
    channel.basic_nack(tags[1])
    assert_counts(queue, ready=1, delivering=1, acked=1)
    assert content(channel, "q") == ["BR"]
    channel.basic_reject(tags[2])
    assert content(channel, "q") == ["CR"]


def test_b41_after_cancel_nothing_comes(connection: shmbroker.Connection) -> None:
    """When cancel has returned no callback is made for what is published then."""
    channel = connection.channel()
    channel.queue_declare("q")
    inbox = Inbox()
    tag = channel.basic_consume("q", inbox, auto_ack=True)
    publish(channel, "q", "A")
    inbox.wait(1)
    channel.basic_cancel(tag)
    publish(channel, "q", "B")
    Rounds(connection).go()
    assert inbox.texts() == ["A"]
    assert content(channel, "q") == ["B"]


def test_b41_what_was_delivered_keeps_the_names_of_its_consumer(channel: shmbroker.Channel) -> None:
    """After that has ended, and whoever consumes then, a delivery says which consumer and queue it is of."""
    kept: list[Any] = []
    for name in "abcdefgh":
        channel.queue_declare(name)
    publish(channel, "a", "A")
    channel.basic_consume("a", lambda _channel, method, *_: kept.append(method), consumer_tag="of a")
    becomes(lambda: len(kept), 1)
    channel.basic_cancel("of a")
    for name in "bcdefgh":
        channel.basic_consume(name, Inbox(), consumer_tag=name)
        channel.basic_cancel(name)
    channel.basic_consume("b", Inbox())
    (delivery,) = kept
    assert (delivery.consumer_tag, delivery.queue) == ("of a", "a")
    delivery.ack()


def test_b42_recover_returns_all_unacked(channel: shmbroker.Channel) -> None:
    """All the channel's unacked messages return, those of gets too; their tags are unknown then."""
    channel.queue_declare("q")
    publish(channel, "q", "ABC")
    taken(channel, "q", 2)
    channel.basic_recover(requeue=True)
    assert content(channel, "q") == ["AR", "BR", "C"]
    channel.basic_recover(requeue=True)
    with refused(PreconditionFailed, unknown(1)):
        channel.basic_ack(1)


def test_b42_recovered_messages_may_return_to_the_same_consumer(channel: shmbroker.Channel) -> None:
    """They come again to the only consumer, redelivered, in order, with new tags."""
    channel.queue_declare("q")
    publish(channel, "q", "AB")
    inbox = Inbox()
    channel.basic_consume("q", inbox)
    inbox.wait(2)
    channel.basic_recover(requeue=True)
    found = [(delivery.text, delivery.redelivered, delivery.delivery_tag) for delivery in inbox.wait(4)]
    assert found == [("A", False, 1), ("B", False, 2), ("A", True, 3), ("B", True, 4)]
    channel.basic_ack(0, multiple=True)


def test_b42_recover_without_requeue(broker: shmbroker.Broker, other: shmbroker.Connection) -> None:
    """It is refused with 540, which closes the connection; what was unacked returns."""
    with broker.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        publish(channel, "q", "A")
        taken(channel, "q", 1)
        with refused(NotImplementedByBroker, "NOT_IMPLEMENTED - requeue=false"):
            channel.basic_recover(requeue=False)
        assert not connection.is_open
        assert not channel.is_open
    with other.channel() as again:
        becomes(lambda: count(again, "q"), 1)
        assert content(again, "q") == ["AR"]


def test_q80_recovered_messages_come_before_those_published_meanwhile(
    connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """One thread recovers while another publishes, fifty times: the recovered come first, both in their order."""
    returned, published = numbered(20), numbered(20, first=50_000)
    with connection.channel() as recovers, connection.channel() as publishes, ThreadPoolExecutor(1) as pool:
        for _ in range(50):
            publish(publishes, "q", returned)
            assert [bytes(message).decode() for message in taken(recovers, "q", 20)] == returned
            both = threading.Barrier(2)

            def put(both: threading.Barrier = both) -> None:
                both.wait()
                publish(publishes, "q", published)

            publishing = pool.submit(put)
            both.wait()
            recovers.basic_recover()
            publishing.result()
            assert content(recovers, "q") == [f"{body}R" for body in returned] + published
    assert_balanced(queue)


def test_q80_what_a_killed_process_had_comes_before_what_is_published_meanwhile(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """A process dies while another publishes: what is recovered comes first, both in their order.

    The victim may have prefetched some of what was published; that keeps its order, too.
    """
    returned, published = numbered(20), numbered(200, first=50_000)
    with actors(broker.name, 4) as (producer, *victims), connection.channel() as channel:
        for victim in victims:
            put_each(queue, returned)
            assert victim.do("consume_on_channel", queue="q", count=20) == returned
            producer.begin("put_storm", queue="q", bodies=published)
            victim.kill()
            producer.result()
            await_counts(queue, ready=220, delivering=0, consumers=0)
            found = content(channel, "q")
            assert found[:20] == [f"{body}R" for body in returned]
            assert [body.removesuffix("R") for body in found[20:]] == published
    assert_balanced(queue)


def test_b43_a_get_beside_consumers(connection: shmbroker.Connection) -> None:
    """A get takes the oldest ready message though there are consumers, and says how many remain ready."""
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox()
    channel.basic_consume("q", inbox)
    publish(channel, "q", "ABCD")
    assert [delivery.text for delivery in inbox.wait(1)] == ["A"]
    for text, remaining in (("B", 2), ("C", 1), ("D", 0)):
        message = channel.basic_get("q")
        assert message is not None
        assert (bytes(message).decode(), message.message_count) == (text, remaining)
        channel.basic_ack(message.delivery_tag)
    assert channel.basic_get("q") is None
    assert inbox.texts() == ["A"]


def test_b43_a_message_says_where_it_came_from(channel: shmbroker.Channel) -> None:
    """A message has the exchange and key it was published with, and its properties."""
    channel.queue_declare("q")
    channel.queue_bind("q", "amq.topic", "a.#")
    channel.basic_publish("amq.topic", "a.b", b"A")
    publish(channel, "q", "B")
    first, second = taken(channel, "q", 2)
    assert (first.exchange, first.routing_key, first.redelivered) == ("amq.topic", "a.b", False)
    assert (second.exchange, second.routing_key, second.redelivered) == ("", "q", False)
    channel.basic_nack(first.delivery_tag)
    inbox = Inbox(ack=True)
    tag = channel.basic_consume("q", inbox, consumer_tag="mine")
    (delivery,) = inbox.wait(1)
    assert tag == "mine"
    assert (delivery.consumer_tag, delivery.exchange, delivery.routing_key) == ("mine", "amq.topic", "a.b")
    assert (delivery.redelivered, delivery.delivery_tag) == (True, 3)
