# SPDX-License-Identifier: Apache-2.0
"""Queues that a publish or a consume makes: by which calls, with which settings, and when not."""

from __future__ import annotations

import queue as standard_queue
import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import refused
from scenario_support.inside import core_of
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import BasicProperties
from shmbroker._core.journal import topology_lock
from shmbroker.exceptions import NotFound, Timeout, UnroutableError

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def auto_create(connection: shmbroker.Connection) -> None:
    """Let `auto.#` make queues, which stay."""
    connection.settings.set("auto.#", auto_create_queues=True, auto_delete_queues=False, default_max_length=7)


def queues(connection: shmbroker.Connection) -> list[str]:
    """Return the names of the queues."""
    return connection.queue_names()


# ---- publishing ----


def test_a_publish_makes_the_queue(channel: shmbroker.Channel, connection: shmbroker.Connection) -> None:
    """The message is in a new queue, which has the settings of its address; further messages follow."""
    channel.basic_publish("", "auto.a", b"1")
    channel.basic_publish("", "auto.a", b"2", BasicProperties(headers={"a": 1}))
    found = connection.queue("auto.a", passive=True)
    assert [bytes(message) for message in found.browse()] == [b"1", b"2"]
    assert found.settings == shmbroker.QueueSettings(max_length=7)


def test_a_mandatory_publish_is_routed(channel: shmbroker.Channel, connection: shmbroker.Connection) -> None:
    """A message that made its queue does not come back."""
    assert channel.publish_confirmed("", "auto.a", b"1", mandatory=True).result() == 1
    assert queues(connection) == ["auto.a"]


def test_elsewhere_a_publish_makes_no_queue(channel: shmbroker.Channel, connection: shmbroker.Connection) -> None:
    """Without the setting a message for no queue is dropped, or comes back if it is mandatory."""
    channel.basic_publish("", "other", b"1")
    with pytest.raises(UnroutableError):
        channel.publish_confirmed("", "other", b"1", mandatory=True).result()
    assert queues(connection) == []


def test_other_exchanges_make_no_queue(channel: shmbroker.Channel, connection: shmbroker.Connection) -> None:
    """A routing key of an exchange is no address: only the default exchange routes to queues by their names."""
    channel.exchange_declare("e", "direct")
    channel.basic_publish("e", "auto.a", b"1")
    assert queues(connection) == []


def test_copies_make_their_queues_too(channel: shmbroker.Channel, connection: shmbroker.Connection) -> None:
    """The keys of the headers CC and BCC are addresses as the routing key is; those of existing queues are used."""
    connection.queue("there")
    headers = {"CC": ["auto.b", "other"], "BCC": ["auto.c"]}
    channel.basic_publish("", "there", b"1", BasicProperties(headers=headers))
    assert queues(connection) == ["auto.b", "auto.c", "there"]
    assert [len(connection.queue(name)) for name in queues(connection)] == [1, 1, 1]


def test_a_commit_makes_the_queues(channel: shmbroker.Channel, connection: shmbroker.Connection) -> None:
    """A transaction makes its queues when it is committed, not before."""
    channel.tx_select()
    channel.basic_publish("", "auto.a", b"1")
    channel.basic_publish("", "auto.b", b"2")
    assert queues(connection) == []
    channel.tx_commit()
    assert queues(connection) == ["auto.a", "auto.b"]
    assert [len(connection.queue(name)) for name in queues(connection)] == [1, 1]


def test_a_deleted_queue_is_made_again(channel: shmbroker.Channel, connection: shmbroker.Connection) -> None:
    """A route that was known does not outlive its queue."""
    for _ in range(3):
        channel.basic_publish("", "auto.a", b"1")
        assert connection.queue("auto.a", passive=True).delete() == 1


def test_names_that_no_client_may_declare(channel: shmbroker.Channel, connection: shmbroker.Connection) -> None:
    """A reserved name, and what is no name, make no queue even if a match covers them."""
    connection.settings.set("#", auto_create_queues=True)
    for key in ("", "amq.gen-x", "a\0b"):
        if "\0" not in key:
            channel.basic_publish("", key, b"1")
        assert not connection._session.addresses.auto_create(key)  # noqa: SLF001
    assert queues(connection) == []


def test_a_publish_waits_for_the_topology_lock(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Without the lock in time the message is not published, and the error says what held it."""
    with broker.connect(operation_timeout=0) as hasty:
        channel = hasty.channel()
        found: list[str] = []

        def attempt() -> None:
            try:
                channel.basic_publish("", "auto.a", b"1")
            except Timeout as error:
                found.append(str(error))

        with topology_lock(core_of(connection), 1 << 62, "test"):
            thread = threading.Thread(target=attempt)
            thread.start()
            thread.join()
        assert len(found) == 1
        assert "topology lock" in found[0]
        channel.basic_publish("", "auto.a", b"2")
    assert [bytes(one) for one in connection.queue("auto.a", passive=True).browse()] == [b"2"]


# ---- consuming ----

CONSUMES: dict[str, Callable[[shmbroker.Connection, str], object]] = {
    "basic_get": lambda connection, name: connection.channel().basic_get(name),
    "basic_consume": lambda connection, name: connection.channel().basic_consume(name, lambda *_: None),
    "consumer": lambda connection, name: connection.consumer([name]),
}


@pytest.mark.parametrize("how", CONSUMES)
def test_a_consume_makes_the_queue(connection: shmbroker.Connection, how: str) -> None:
    """A call that gets messages makes the queue that it names, with the settings of its address."""
    CONSUMES[how](connection, "auto.a")
    assert connection.queue("auto.a", passive=True).settings.max_length == 7


@pytest.mark.parametrize("how", CONSUMES)
def test_elsewhere_a_consume_finds_no_queue(connection: shmbroker.Connection, how: str) -> None:
    """Without the setting the error is that of a queue that does not exist."""
    with pytest.raises(NotFound):
        CONSUMES[how](connection, "other")
    assert queues(connection) == []


def test_a_message_reaches_a_consumer_that_made_its_queue(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """The producer of another connection finds the queue by its name."""
    with connection.consumer(["auto.a"]) as consumer:
        other.channel().basic_publish("", "auto.a", b"1")
        with consumer.get(timeout=None) as message:
            assert bytes(message) == b"1"
    with pytest.raises(standard_queue.Empty):
        connection.queue("auto.a").get_nowait()


# ---- what makes none ----


def test_passive_calls_make_no_queue(connection: shmbroker.Connection) -> None:
    """A passive declaration asks whether there is a queue; purging and binding are no use of one either."""
    for attempt in (
        lambda: connection.queue("auto.a", passive=True),
        lambda: connection.channel().queue_declare("auto.a", passive=True),
        lambda: connection.channel().queue_purge("auto.a"),
        lambda: connection.channel().queue_bind("auto.a", "amq.topic", "k"),
    ):
        with refused(NotFound):
            attempt()
    assert queues(connection) == []


def test_two_that_make_a_queue_make_one(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """Messages of several connections that all found no queue are in the same one."""
    for number in range(20):
        name = f"auto.{number}"
        for one in (connection, other):
            one.channel().basic_publish("", name, b"x")
        eventually(lambda name=name: len(connection.queue(name, passive=True)) == 2, "both messages")
