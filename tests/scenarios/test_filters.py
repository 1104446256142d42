# SPDX-License-Identifier: Apache-2.0
"""Filters: bindings that lead only the messages that a selector selects to their queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.observing import assert_counts, listing, take, texts
from scenario_support.processes import Actor
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import BasicProperties, NackError, UnroutableError
from shmbroker.exceptions import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable

FILTER = "x-filter-jms-selector"


def publish(channel: shmbroker.Channel, exchange: str, *bodies: str, key: str = "", **more: Any) -> None:  # noqa: ANN401
    """Publish each body with the body as header `name`."""
    for body in bodies:
        channel.basic_publish(exchange, key, body.encode(), BasicProperties(headers={"name": body}, **more))


def test_r20_what_the_filter_rejects_is_never_routed(
    connection: shmbroker.Connection, channel: shmbroker.Channel
) -> None:
    """Ring of 2, a filter that rejects x: after a, b, x the ring has a and b, and nothing was replaced."""
    ring = connection.queue("ring", ring_size=2)
    channel.queue_bind("ring", "amq.fanout", arguments={FILTER: "name <> 'x'"})
    publish(channel, "amq.fanout", "a", "b", "x")
    assert listing(ring) == ["a", "b"]
    assert_counts(ring, added=2, replaced=0, ready=2)
    publish(channel, "amq.fanout", "c", "x")
    assert listing(ring) == ["b", "c"]
    assert_counts(ring, added=3, replaced=1)


@pytest.mark.parametrize(
    ("exchange", "bound", "key", "other"),
    [("amq.direct", "k", "k", "l"), ("amq.topic", "a.*", "a.b", "b.a"), ("amq.fanout", "", "", None)],
)
def test_r20_the_filter_comes_after_the_rule_of_the_exchange(  # noqa: PLR0917 - the cases
    connection: shmbroker.Connection,
    channel: shmbroker.Channel,
    exchange: str,
    bound: str,
    key: str,
    other: str | None,
) -> None:
    """A message must match the key or pattern, and then the filter; a queue without filter gets all that match."""
    chosen, everything = connection.queue("chosen"), connection.queue("everything")
    channel.queue_bind("chosen", exchange, bound, {FILTER: "name LIKE 'x%'"})
    channel.queue_bind("everything", exchange, bound)
    for _ in range(2):  # the second time, the route is known
        publish(channel, exchange, "x1", "y", key=key)
        channel.basic_publish(exchange, key, b"plain")
        if other is not None:
            publish(channel, exchange, "x2", key=other)
    assert listing(chosen) == ["x1", "x1"]
    assert listing(everything) == ["x1", "y", "plain"] * 2


def test_r20_the_filter_of_an_exchange_of_type_headers(
    connection: shmbroker.Connection, channel: shmbroker.Channel
) -> None:
    """The criteria of x-match come first; the filter is none of them, not even with x."""
    for name, match in (("plain", "all"), ("with-x", "all-with-x"), ("any", "any-with-x")):
        connection.queue(name)
        channel.queue_bind(name, "amq.headers", "", {"x-match": match, "kind": "order", FILTER: "total > 10"})
    for total in (5, 50):
        channel.basic_publish(
            "amq.headers", "", str(total).encode(), BasicProperties(headers={"kind": "order", "total": total})
        )
    channel.basic_publish("amq.headers", "", b"60", BasicProperties(headers={"kind": "other", "total": 60}))
    for name in ("plain", "with-x", "any"):
        assert listing(connection.queue(name)) == ["50"], name


def test_r20_filters_read_properties(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """The priority, fields of JMS, and properties that a message does not have."""
    for name, condition in (
        ("high", "JMSPriority > 4"),
        ("typed", "JMSType = 't'"),
        ("plain", "type IS NULL"),
        ("new", "JMSTimestamp > 1500000000000"),
    ):
        connection.queue(name)
        channel.queue_bind(name, "amq.fanout", arguments={FILTER: condition})
    channel.basic_publish("amq.fanout", "", b"A", BasicProperties(priority=5))
    channel.basic_publish("amq.fanout", "", b"B", BasicProperties(type="t"))
    channel.basic_publish("amq.fanout", "", b"C")
    found = {name: listing(connection.queue(name)) for name in ("high", "typed", "plain", "new")}
    assert found == {"high": ["A"], "typed": ["B"], "plain": ["A", "C"], "new": ["A", "B", "C"]}


def test_r20_a_filter_between_exchanges(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """A binding to an exchange has a filter, too; the alternate exchange gets what no binding leads anywhere."""
    channel.exchange_declare("rest", "fanout")
    channel.exchange_declare("first", "fanout", arguments={"alternate-exchange": "rest"})
    channel.exchange_bind("amq.direct", "first", arguments={FILTER: "name = 'x'"})
    there, rest = connection.queue("there"), connection.queue("rest")
    channel.queue_bind("there", "amq.direct", "k")
    channel.queue_bind("rest", "rest")
    publish(channel, "first", "x", "y", key="k")
    assert (listing(there), listing(rest)) == (["x"], ["y"])


def test_r20_a_rejected_message_is_not_routed(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """With `mandatory`, it comes back."""
    connection.queue("q")
    channel.queue_bind("q", "amq.fanout", arguments={FILTER: "name = 'x'"})
    channel.confirm_delivery()
    returned: list[bytes] = []
    channel.add_on_return_callback(lambda _channel, _method, _properties, body: returned.append(body))
    for name in ("x", "y"):
        properties = BasicProperties(headers={"name": name})
        future = channel.publish_confirmed("amq.fanout", "", name.encode(), properties, mandatory=True)
        if name == "x":
            future.result(60)
        else:
            with pytest.raises((UnroutableError, NackError)):
                future.result(60)
    eventually(lambda: returned == [b"y"])
    assert listing(connection.queue("q")) == ["x"]


def test_r20_bindings_with_filters_come_and_go(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """A queue with two bindings gets a message once if either leads to it; a change takes effect immediately."""
    queue = connection.queue("q")
    first, second = {FILTER: "name = 'x' OR name = 'y'"}, {FILTER: "name = 'y'"}
    for arguments in (first, second, first):
        channel.queue_bind("q", "amq.direct", "k", arguments)
    publish(channel, "amq.direct", "x", "y", "z", key="k")
    assert take(queue, 2) == ["x", "y"]
    channel.queue_unbind("q", "amq.direct", "k", first)
    publish(channel, "amq.direct", "x", "y", "z", key="k")
    assert take(queue, 1) == ["y"]
    channel.queue_bind("q", "amq.direct", "k")
    publish(channel, "amq.direct", "x", "y", key="k")
    assert take(queue, 2) == ["x", "y"]
    channel.queue_unbind("q", "amq.direct", "k")
    channel.queue_unbind("q", "amq.direct", "k", second)
    publish(channel, "amq.direct", "y", key="k")
    assert_counts(queue, message_count=0, added=5)
    assert [one for one in connection.bindings() if one.source == "amq.direct"] == []


def test_r20_other_processes_filter_as_well(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A publisher that was there before the binding evaluates it, and so does one whose binder was killed."""
    queue = connection.queue("q")
    with Actor(broker.name) as binder, connection.channel() as channel:
        publish(channel, "amq.fanout", "early")
        binder.do("on_channel", method="queue_bind", queue="q", exchange="amq.fanout", arguments={FILTER: "name = 'x'"})
        binder.kill()
        publish(channel, "amq.fanout", "x", "y")
        assert listing(queue) == ["x"]


def test_r20_dead_letters_are_filtered(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """The dead-letter exchange leads each dead message only where the filter lets it, by the headers of its death."""
    channel.exchange_declare("dlx", "fanout")
    for name in ("rejected", "expired"):
        connection.queue(f"dead {name}")
        channel.queue_bind(f"dead {name}", "dlx", arguments={FILTER: f"\"x-last-death-reason\" = '{name}'"})
    queue = connection.queue("q", dead_letter_exchange="dlx")
    queue.put_many([b"A", b"B"])
    queue.get().reject()
    queue.expire()
    for name, body in (("rejected", b"A"), ("expired", b"B")):
        dead = connection.queue(f"dead {name}")
        assert bytes(dead.get(timeout=60)) == body
        assert_counts(dead, added=1)


def test_r20_a_transaction_filters(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """What a transaction publishes goes the same ways."""
    queue = connection.queue("q")
    channel.queue_bind("q", "amq.fanout", arguments={FILTER: "name = 'x'"})
    channel.tx_select()
    publish(channel, "amq.fanout", "x", "y")
    assert listing(queue) == []
    channel.tx_commit()
    assert texts(queue.browse()) == ["x"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("name =", "name ="),
        ("JMSPriority = 'high'", "JMSPriority"),
        ("", ""),
        (3, "expected a string, got 3"),
        (None, "expected a string, got None"),
    ],
)
def test_r20_a_filter_that_is_no_condition_is_refused(
    connection: shmbroker.Connection,
    channel_of: Callable[[], shmbroker.Channel],
    given: Any,  # noqa: ANN401
    why: str,
) -> None:
    """The binding is not made, and the channel closes with 406."""
    connection.queue("q")
    with pytest.raises(PreconditionFailed) as caught:
        channel_of().queue_bind("q", "amq.fanout", arguments={FILTER: given})
    assert f"invalid arg '{FILTER}' for a binding" in str(caught.value)
    assert why in str(caught.value)
    assert [one for one in connection.bindings() if one.source] == []


@pytest.fixture
def channel_of(connection: shmbroker.Connection) -> Callable[[], shmbroker.Channel]:
    """Return a function that opens a channel."""
    return connection.channel
