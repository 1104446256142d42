# SPDX-License-Identifier: Apache-2.0
"""Address settings with several processes: what queues take, live changes, auto-created and auto-deleted queues."""

from __future__ import annotations

import time

import pytest
from scenario_support.observing import assert_counts, await_counts
from scenario_support.processes import Actor
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import BasicProperties

DELAY = 1.5


def settings_of(connection: shmbroker.Connection, queue: str) -> shmbroker.QueueSettings:
    """Return the settings of an existing queue."""
    return connection.queue(queue, passive=True).settings


def is_there(connection: shmbroker.Connection, queue: str) -> bool:
    """Whether a queue exists."""
    return queue in connection.queue_names()


# ---- new queues ----


def test_r31_a_default_ring_size(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """Two queues that a publish makes: the one whose address has a ring size of 100 is such a ring, the other none."""
    connection.settings.set("#", auto_create_queues=True)
    connection.settings.set("RingQueueTestAddress", default_ring_size=100)
    for name in ("RingQueueTestAddress", "other"):
        for number in range(101):
            channel.basic_publish("", name, b"%d" % number)
    assert settings_of(connection, "RingQueueTestAddress").ring_size == 100
    assert settings_of(connection, "other").ring_size == -1
    assert_counts(connection.queue("RingQueueTestAddress"), message_count=100, replaced=1)
    assert_counts(connection.queue("other"), message_count=101, replaced=0)


def test_r32_a_ring_size_of_the_queue_precedes(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """The queue's own ring size wins; a later change of the default touches no queue that exists, only new ones."""
    connection.settings.set("a.#", default_ring_size=10)
    other.queue("a.own", ring_size=3)
    other.queue("a.default")
    connection.settings.set("a.#", default_ring_size=20)
    connection.settings.remove("a.#")
    connection.settings.set("a.*", default_ring_size=30)
    found = [settings_of(other, name).ring_size for name in ("a.own", "a.default")]
    assert found == [3, 10]
    assert other.queue("a.new").settings.ring_size == 30


def test_t68_a_match_that_is_not_allowed(connection: shmbroker.Connection) -> None:
    """`x.#.y` is refused; the text says where `#` may be."""
    with pytest.raises(ValueError, match="is allowed as the last word only"):
        connection.settings.set("x.#.y", default_ring_size=1)


def test_t69_a_partial_update(connection: shmbroker.Connection, broker: shmbroker.Broker) -> None:
    """An update changes the given fields only; an unknown one raises; all survive the end of every other process."""
    connection.settings.set("a", default_ring_size=1, default_max_length=2)
    connection.settings.set("a", default_max_length=3)
    with pytest.raises(TypeError, match="no address setting 'default_rings'"):
        connection.settings.set("a", default_rings=1)
    broker.stop()
    broker.start()
    with Actor(broker.name) as actor:
        actor.kill()
    with broker.connect() as later:
        assert later.settings.list() == [("a", {"default_max_length": 3, "default_ring_size": 1})]


# ---- live changes, seen by other processes ----


def test_a_producer_in_another_process_meets_a_new_limit(
    connection: shmbroker.Connection, broker: shmbroker.Broker
) -> None:
    """A process that has the queue open is bound by a default that is set later, without any call to tell it."""
    queue = connection.queue("q", overflow="drop")
    with Actor(broker.name) as actor:
        actor.do("put", queue="q", bodies=["a"] * 3)
        connection.settings.set("q", default_max_length=5)
        actor.do("put", queue="q", bodies=["b"] * 7)
    assert_counts(queue, ready=5, dropped=5)


def test_a_message_ttl_of_a_fanout_is_live(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """A route to several queues that is known already gives messages the life that an address gets later."""
    channel.exchange_declare("e", "fanout")
    for name in ("a", "b"):
        channel.queue_declare(name)
        channel.queue_bind(name, "e")
    channel.basic_publish("e", "", b"before")
    connection.settings.set("a", default_message_ttl=0.001)
    channel.basic_publish("e", "", b"after")
    await_counts(connection.queue("a"), expired=1, ready=1)
    assert_counts(connection.queue("b"), expired=0, ready=2)


# ---- auto-created, and deleted when nothing needs it ----


@pytest.fixture
def auto(connection: shmbroker.Connection) -> shmbroker.AddressSettings:
    """Let each publish and consume make its queue."""
    connection.settings.set("#", auto_create_queues=True)
    return connection.settings


@pytest.mark.usefixtures("auto")
def test_t62_the_last_consumer_of_an_empty_queue(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """The queue that a publish made stays while a consumer has it, and is deleted after the last one has left."""
    channel.basic_publish("", "q", b"x")
    with connection.consumer(["q"]) as consumer:
        consumer.get(timeout=None).ack()
        with connection.consumer(["q"]):
            pass
        assert is_there(connection, "q")
    eventually(lambda: not is_there(connection, "q"), "the queue to be deleted")


def leave_by_consumer(connection: shmbroker.Connection, name: str, *, empty: bool) -> None:
    """Publish a message to a queue that makes itself, attach a consumer and leave; `empty`: after it took it."""
    connection.channel().basic_publish("", name, b"x")
    with connection.consumer([name]) as consumer:
        message = consumer.get(timeout=None)
        message.ack() if empty else message.nack()


@pytest.mark.usefixtures("auto")
def test_t62_the_last_consumer_of_a_queue_with_a_message(connection: shmbroker.Connection) -> None:
    """A queue whose last consumer leaves a message behind stays until that is gone, while one beside it is deleted."""
    leave_by_consumer(connection, "stays", empty=False)
    leave_by_consumer(connection, "goes", empty=True)
    eventually(lambda: not is_there(connection, "goes"), "the other queue to be deleted")
    assert is_there(connection, "stays")
    connection.queue("stays", passive=True).get(timeout=60).ack()
    eventually(lambda: not is_there(connection, "stays"), "the queue to be deleted after all")


def test_t62_a_queue_that_is_not_to_be_deleted(
    connection: shmbroker.Connection, channel: shmbroker.Channel, auto: shmbroker.AddressSettings
) -> None:
    """With auto_delete_queues=False the queue stays, while one beside it is deleted."""
    auto.set("stays", auto_delete_queues=False)
    for name in ("stays", "goes"):
        channel.basic_publish("", name, b"x")
        assert channel.basic_get(name, auto_ack=True) is not None
        leave_by_consumer(connection, name, empty=True)
    eventually(lambda: not is_there(connection, "goes"), "the other queue to be deleted")
    assert is_there(connection, "stays")
    auto.set("stays", auto_delete_queues=True)
    eventually(lambda: not is_there(connection, "stays"), "the queue to be deleted after all")


@pytest.mark.usefixtures("auto")
@pytest.mark.parametrize("how", ["purged", "expired"])
def test_t62_the_last_message_goes_without_a_consumer(
    connection: shmbroker.Connection, channel: shmbroker.Channel, how: str
) -> None:
    """The end of the last message deletes the queue, although it never had a consumer."""
    properties = BasicProperties(expiration="1") if how == "expired" else None
    channel.basic_publish("", "q", b"x", properties)
    if how == "purged":
        assert connection.queue("q").purge() == 1
    eventually(lambda: not is_there(connection, "q"), "the queue to be deleted")


def test_t62_an_unused_queue(
    connection: shmbroker.Connection, channel: shmbroker.Channel, auto: shmbroker.AddressSettings
) -> None:
    """A queue without a use stays, while a used one beside it is deleted; not with the usage check skipped."""
    assert channel.basic_get("unused") is None
    channel.basic_publish("", "used", b"x")
    assert channel.basic_get("used", auto_ack=True) is not None
    eventually(lambda: not is_there(connection, "used"), "the used queue to be deleted")
    assert is_there(connection, "unused")
    auto.set("#", auto_delete_queues_skip_usage_check=True)
    eventually(lambda: not is_there(connection, "unused"), "the unused queue to be deleted")


def test_t62_with_a_delay_never_earlier(
    connection: shmbroker.Connection, channel: shmbroker.Channel, auto: shmbroker.AddressSettings
) -> None:
    """The queue exists at each look until 1.5 s after its last use."""
    auto.set("#", auto_delete_queues_delay=DELAY)
    channel.basic_publish("", "q", b"x")
    assert channel.basic_get("q", auto_ack=True) is not None
    used = time.monotonic()
    eventually(lambda: not is_there(connection, "q"), "the queue to be deleted")
    assert time.monotonic() - used >= DELAY


def test_a_queue_that_is_deleted_again_and_again_loses_no_message(
    connection: shmbroker.Connection, broker: shmbroker.Broker, auto: shmbroker.AddressSettings
) -> None:
    """A producer and a consumer that use a queue beside its deletions exchange each message once."""
    auto.set("q", auto_delete_queues_skip_usage_check=True)
    with broker.connect() as producer:
        sending, getting = producer.channel(), connection.channel()
        for number in range(200):
            sending.basic_publish("", "q", b"%d" % number)
            found: list[bytes] = []
            if number % 50 == 0:
                eventually(lambda: is_there(connection, "q"), "the message's queue")
            while not found:
                delivery = getting.basic_get("q")
                if delivery is not None:
                    found.append(bytes(delivery))
                    getting.basic_ack(delivery.delivery_tag)
            assert found == [b"%d" % number]
            if number % 50 == 0:
                eventually(lambda: not is_there(connection, "q"), "the queue to be deleted")


@pytest.mark.usefixtures("auto")
def test_a_killed_consumer_deletes_no_message(
    connection: shmbroker.Connection, broker: shmbroker.Broker, channel: shmbroker.Channel
) -> None:
    """A message that a killed process held returns to the auto-created queue, which is there."""
    channel.basic_publish("", "q", b"x")
    with Actor(broker.name) as actor:
        actor.do("get", queue="q")
        actor.kill()
    await_counts(connection.queue("q", passive=True), ready=1, delivering=0)
    delivery = channel.basic_get("q", auto_ack=True)
    assert delivery is not None
    assert bytes(delivery) == b"x"


def test_other_processes_see_the_settings(connection: shmbroker.Connection, broker: shmbroker.Broker) -> None:
    """A queue that another process declares takes settings that were set before that process began, or since."""
    connection.settings.set("a", default_max_length=1)
    with Actor(broker.name) as actor:
        actor.do("on_channel", method="queue_declare", queue="a")
        connection.settings.set("b", default_max_length=2)
        actor.do("on_channel", method="queue_declare", queue="b")
    assert [settings_of(connection, name).max_length for name in ("a", "b")] == [1, 2]
