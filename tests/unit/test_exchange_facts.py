# SPDX-License-Identifier: Apache-2.0
"""What a connection tells of the exchanges and bindings of its broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.waiting import becomes

from shmbroker import BindingInfo, ExchangeInfo
from shmbroker.exceptions import ConnectionClosed, NotFound

if TYPE_CHECKING:
    import shmbroker

PREDECLARED = ["", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic"]


def test_every_broker_has_some_exchanges(connection: shmbroker.Connection) -> None:
    """They are listed by name, and nothing is bound."""
    assert [one.name for one in connection.exchanges()] == PREDECLARED
    assert connection.bindings() == []


def test_an_exchange_tells_what_it_was_declared_with(channel: shmbroker.Channel, other: shmbroker.Connection) -> None:
    """Anybody sees it, with the bindings to it and from it counted."""
    arguments = {"alternate-exchange": "lost", "more": 1}
    channel.exchange_declare("events", "topic", durable=True, auto_delete=True, internal=True, arguments=arguments)
    channel.exchange_declare("other", "fanout")
    channel.queue_declare("q")
    channel.queue_bind("q", "events", "a.*")
    channel.queue_bind("q", "events", "b.*")
    channel.exchange_bind("events", "other")
    events, second = (one for one in other.exchanges() if one.name not in PREDECLARED)
    assert events == ExchangeInfo(
        name="events", type="topic", durable=True, auto_delete=True, internal=True, alternate="lost",
        arguments=arguments, bindings_in=1, bindings_out=2,
    )  # fmt: skip
    assert (second.name, second.alternate, second.bindings_in, second.bindings_out) == ("other", None, 0, 1)


def test_bindings_tell_where_they_lead(channel: shmbroker.Channel, other: shmbroker.Connection) -> None:
    """By their source, the oldest first; those of one exchange are those from it and to it."""
    channel.exchange_declare("b", "topic")
    channel.exchange_declare("a", "headers")
    channel.queue_declare("a")
    channel.queue_bind("a", "b", "z")
    channel.queue_bind("a", "b", "y")
    channel.queue_bind("a", "a", "", {"x-match": "any"})
    channel.exchange_bind("a", "b", "x")
    of_a = BindingInfo("a", "a", "queue", "", {"x-match": "any"})
    of_b = [
        BindingInfo("b", "a", "queue", "z", {}),
        BindingInfo("b", "a", "queue", "y", {}),
        BindingInfo("b", "a", "exchange", "x", {}),
    ]
    assert other.bindings() == [of_a, *of_b]
    assert other.bindings("b") == of_b
    assert other.bindings("a") == [of_a, of_b[2]]
    assert other.bindings("") == []


def test_the_bindings_of_a_queue_that_ended_by_itself_are_gone(connection: shmbroker.Connection) -> None:
    """And so is the exchange that goes with its last binding: nobody need look before."""
    channel = connection.channel()
    channel.exchange_declare("e", "fanout", auto_delete=True)
    channel.queue_declare("q", auto_delete=True)
    channel.queue_bind("q", "e")
    channel.basic_cancel(channel.basic_consume("q", print))
    becomes(connection.queue_names, [])
    assert connection.bindings() == []
    assert [one.name for one in connection.exchanges()] == PREDECLARED


def test_an_exchange_that_does_not_exist_has_no_bindings(connection: shmbroker.Connection) -> None:
    """It is an error, with RabbitMQ's text; a name that is no string is another one."""
    with pytest.raises(NotFound, match="no exchange 'nowhere' in vhost '/'"):
        connection.bindings("nowhere")
    with pytest.raises(TypeError, match="a string is needed"):
        connection.bindings(7)  # type: ignore[arg-type]


def test_a_closed_connection_tells_nothing(broker: shmbroker.Broker) -> None:
    """Neither exchanges, bindings nor channels."""
    connection = broker.connect()
    connection.close()
    for ask in (connection.exchanges, connection.bindings, connection.channels):
        with pytest.raises(ConnectionClosed):
            ask()
