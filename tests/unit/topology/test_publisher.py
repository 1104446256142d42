# SPDX-License-Identifier: Apache-2.0
"""Publishing to exchanges: the routes that are kept, and what the core is given for a message.

`publish_known` and `publish_described` return 0 where the message is published, and -1 where compiled code does not
know the route of exchange and key.
"""

from __future__ import annotations

import gc
import queue as standard_queue
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import content as bodies
from scenario_support.core_calls import Noted
from scenario_support.inside import core_of, session_of

from shmbroker import exceptions
from shmbroker._core import journal, native
from shmbroker._topology import publisher as module
from shmbroker._topology.publisher import PLAIN, Content, Publishing
from shmbroker.properties import BasicProperties

if TYPE_CHECKING:
    import shmbroker
    from shmbroker._core.transaction import Publication

MOST_QUEUES = 128
INTERNAL = "ACCESS_REFUSED - cannot publish to internal exchange 'internal' in vhost '/'"
FOR_EVER = native.deadline(None)


@pytest.fixture
def publisher(connection: shmbroker.Connection) -> Publishing:
    """What the connection publishes."""
    return session_of(connection).publishing


def find(publisher: Publishing, exchange: str, key: str) -> int:
    """Publish a message, so that the route is found and there is memory; return how many queues got it."""
    return publisher.publish(exchange, key, b"first", 5, PLAIN, FOR_EVER)


def publish_known(publisher: Publishing, exchange: str, key: str, body: bytes) -> int:
    """Publish a message without properties, by compiled code alone."""
    return publisher.compiled.publish_with(exchange, key, body, b"", 0, 0, False)  # noqa: FBT003 - no headers


def fan_out(channel: shmbroker.Channel, queues: int, **arguments: Any) -> list[str]:  # noqa: ANN401
    """Bind so many queues to an exchange "x"; return their names."""
    channel.exchange_declare("x", "fanout")
    names = [f"q{number}" for number in range(queues)]
    for name in names:
        channel.queue_declare(name, arguments=arguments.get(name))
        channel.queue_bind(name, "x")
    return names


def names_of(publisher: Publishing, exchange: str, key: str, content: Content = PLAIN) -> list[str]:
    """Return the names of the queues that get a message."""
    return [queue.name for queue in publisher.targets(exchange, key, content)]


# ---- routes are kept ----


def test_the_first_queue_of_a_broker_has_a_route(publisher: Publishing, connection: shmbroker.Connection) -> None:
    """With the first message it is found, and the next ones take it."""
    assert names_of(publisher, "", "q") == []
    queue = connection.queue("q")
    assert journal.version(core_of(connection)) == 1
    assert publish_known(publisher, "", "q", b"A") == -1
    assert publisher.publish("", "q", b"B", 1, PLAIN, FOR_EVER) == 1
    assert publish_known(publisher, "", "q", b"C") == 0
    assert [bytes(message) for message in queue.browse()] == [b"B", b"C"]


def test_targets_are_found_once(publisher: Publishing, connection: shmbroker.Connection) -> None:
    """Until the topology changes: then they are found anew."""
    channel = connection.channel()
    fan_out(channel, 2)
    found = publisher.targets("x", "k", PLAIN)
    assert [queue.name for queue in found] == ["q0", "q1"]
    assert publisher.targets("x", "k", PLAIN) is found
    assert publisher.targets("x", "k", Content(BasicProperties(headers={"n": 1}))) is found
    channel.queue_unbind("q0", "x")
    assert names_of(publisher, "x", "k") == ["q1"]


def test_a_signal_handler_binds_and_publishes_during_a_routing(
    publisher: Publishing, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publish that the handler interrupts keeps no route from before the change: later messages reach the queue."""
    channel = connection.channel()
    fan_out(channel, 2)
    channel.queue_unbind("q1", "x")
    exchanges = session_of(connection).administration.exchanges
    route = exchanges.route

    def then_handled(*given: Any) -> Any:  # noqa: ANN401
        found = route(*given)
        monkeypatch.undo()
        channel.queue_bind("q1", "x")
        assert find(publisher, "x", "k") == 2
        return found

    monkeypatch.setattr(exchanges, "route", then_handled)
    assert find(publisher, "x", "k") == 1
    assert publish_known(publisher, "x", "k", b"A") == 0
    assert names_of(publisher, "x", "k") == ["q0", "q1"]
    assert [len(connection.queue(name)) for name in ("q0", "q1")] == [3, 2]


@pytest.mark.parametrize("queues", [1, 2, 3, MOST_QUEUES])
def test_a_route_to_up_to_128_queues_is_known(
    publisher: Publishing, connection: shmbroker.Connection, queues: int
) -> None:
    """Compiled code publishes there from the second message on, with properties or without."""
    names = fan_out(connection.channel(), queues)
    assert find(publisher, "x", "k") == queues
    assert publish_known(publisher, "x", "k", b"A") == 0
    assert publisher.publish_described("x", "k", b"B", BasicProperties(app_id="a")) == 0
    assert publish_known(publisher, "x", "other", b"C") == -1
    for name in (names[0], names[-1]):
        assert [bytes(message) for message in connection.queue(name).browse()] == [b"first", b"A", b"B"]


@pytest.mark.parametrize("queues", [0, MOST_QUEUES + 1])
def test_a_route_to_no_queue_or_very_many_is_not_known(
    publisher: Publishing, connection: shmbroker.Connection, queues: int
) -> None:
    """It is for Python."""
    fan_out(connection.channel(), queues)
    assert find(publisher, "x", "k") == queues
    assert publish_known(publisher, "x", "k", b"A") == -1


@pytest.mark.parametrize("queues", [1, 2, 3])
def test_a_route_to_a_queue_that_limits_the_life_of_messages(
    publisher: Publishing, connection: shmbroker.Connection, queues: int
) -> None:
    """It is known if it leads to that queue only: to several the message is stored more than once."""
    fan_out(connection.channel(), queues, q0={"x-message-ttl": 60_000})
    assert find(publisher, "x", "k") == queues
    assert publish_known(publisher, "x", "k", b"A") == (0 if queues == 1 else -1)


@pytest.mark.parametrize("queues", [2, 3])
def test_a_queue_that_was_configured_meanwhile(
    publisher: Publishing, connection: shmbroker.Connection, other: shmbroker.Connection, queues: int
) -> None:
    """Of several queues the one that limits the life of its messages since then does so, and no other one."""
    names = fan_out(connection.channel(), queues)
    assert publisher.publish("x", "k", b"A", 1, PLAIN, FOR_EVER) == queues
    other.queue("q1").configure(message_ttl=60.0)
    assert publisher.publish("x", "k", b"B", 1, PLAIN, FOR_EVER) == queues
    for name in names:
        limited = [message.expires_at is not None for message in connection.queue(name).browse()]
        assert limited == [False, name == "q1"]


def test_a_message_with_further_keys_is_routed_by_itself(
    publisher: Publishing, connection: shmbroker.Connection
) -> None:
    """Its route is not kept for the others of that key, and theirs is not taken for it."""
    for name in ("a", "b", "c"):
        connection.queue(name)
    assert names_of(publisher, "", "a", Content(BasicProperties(headers={"CC": ["b"]}))) == ["a", "b"]
    assert publish_known(publisher, "", "a", b"") == -1
    assert find(publisher, "", "a") == 1
    assert publish_known(publisher, "", "a", b"") == 0
    assert names_of(publisher, "", "a", Content(BasicProperties(headers={"BCC": ["c"]}))) == ["a", "c"]
    assert names_of(publisher, "", "a") == ["a"]


def test_a_message_whose_headers_count_is_routed_by_itself(
    publisher: Publishing, connection: shmbroker.Connection
) -> None:
    """Where a binding looks at headers, only the routes of messages without headers are kept."""
    channel = connection.channel()
    for name in ("all", "some"):
        channel.queue_declare(name)
    channel.queue_bind("all", "amq.headers", "", {"x-match": "all"})
    channel.queue_bind("some", "amq.headers", "", {"n": 1})
    one, two = (Content(BasicProperties(headers={"n": number})) for number in (1, 2))
    assert names_of(publisher, "amq.headers", "", one) == ["all", "some"]
    assert publish_known(publisher, "amq.headers", "", b"") == -1
    assert find(publisher, "amq.headers", "") == 1
    assert publish_known(publisher, "amq.headers", "", b"") == 0
    assert publisher.publish_described("amq.headers", "", b"", BasicProperties(headers={})) == 0
    assert publisher.publish_described("amq.headers", "", b"", BasicProperties(headers={"n": 1})) == -1
    assert names_of(publisher, "amq.headers", "", two) == ["all"]
    assert names_of(publisher, "amq.headers", "", one) == ["all", "some"]
    assert names_of(publisher, "amq.headers", "", Content(BasicProperties(headers={}))) == ["all"]


def test_too_many_routes_are_forgotten(
    publisher: Publishing, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When there are more than the most, all are forgotten, by compiled code too, although the topology is the same."""
    monkeypatch.setattr(module, "_MAX_ROUTES", 3)
    connection.queue("q")
    assert journal.version(core_of(connection)) == 1
    assert find(publisher, "", "q") == 1
    found = publisher.targets("", "q", PLAIN)
    for key in ("a", "b"):
        assert publisher.targets("", key, PLAIN) == ()
    assert publisher.targets("", "q", PLAIN) is found
    assert publisher.targets("", "c", PLAIN) == ()
    assert publish_known(publisher, "", "q", b"") == 0
    publisher.targets("", "d", PLAIN)
    assert publish_known(publisher, "", "q", b"") == -1
    again = publisher.targets("", "q", PLAIN)
    assert again == found
    assert again is not found
    assert publish_known(publisher, "", "q", b"") == 0


class Chameleon(str):
    """A name that says that it equals another one, and does what it likes when it is asked."""

    __slots__ = ("asked",)

    def __eq__(self, other: object) -> bool:
        self.asked()
        return other == "b"

    def __hash__(self) -> int:
        self.asked()
        return hash("b")


def test_each_message_takes_its_own_route(publisher: Publishing, connection: shmbroker.Connection) -> None:
    """Whatever the route of the one before was: to the same exchange, by the same key, or by a name that changed."""
    channel = connection.channel()
    names = [("", "a"), ("x", "a"), ("x", "b"), ("", "b")]
    channel.exchange_declare("x", "direct")
    for name in ("a", "b"):
        channel.queue_declare(name)
        channel.queue_declare(f"x-{name}")
        channel.queue_bind(f"x-{name}", "x", name)
    for exchange, key in names:
        assert publisher.publish(exchange, key, b"first", 5, PLAIN, FOR_EVER) == 1
    for exchange, key in names * 2:
        assert publish_known(publisher, exchange, key, f"{exchange} {key}".encode()) == 0
    for exchange, key in names:
        queue = connection.queue(f"{exchange}-{key}".strip("-"))
        assert [bytes(message) for message in queue.browse()] == [b"first", *[f"{exchange} {key}".encode()] * 2]


def test_a_name_is_what_it_consists_of(publisher: Publishing, connection: shmbroker.Connection) -> None:
    """Whatever its class says that it equals, which is not asked: it could change the routes meanwhile."""
    queue = connection.queue("a")
    connection.queue("b")
    assert find(publisher, "", "a") == find(publisher, "", "b") == 1
    name, asked = Chameleon("a"), []
    name.asked = lambda: asked.append(True)
    for exchange, key in [("", name), ("", name), (Chameleon(""), "a")]:
        assert publish_known(publisher, exchange, key, b"x") == 0
    assert asked == []
    assert len(queue) == 4
    assert publish_known(publisher, "", ["a"], b"x") == publish_known(publisher, 7, "a", b"x") == -1  # type: ignore[arg-type]


def test_what_was_published_to_keeps_no_connection(broker: shmbroker.Broker) -> None:
    """A connection that published, and that nobody has any more, is collected, although its routes lead back to it."""
    connection = broker.connect()
    connection.queue("q")
    channel = connection.channel()
    for _ in range(3):
        channel.basic_publish("", "q", b"x")
    gone = weakref.ref(core_of(connection))
    del connection, channel
    gc.collect()
    assert gone() is None


# ---- what is not there ----


def test_where_nobody_may_publish(publisher: Publishing, connection: shmbroker.Connection) -> None:
    """An exchange that is missing or internal is told of, by a check, by a search and by a publish."""
    connection.channel().exchange_declare("internal", "fanout", internal=True)
    for exchange, kind, text in (
        ("missing", exceptions.NotFound, "NOT_FOUND - no exchange 'missing' in vhost '/'"),
        ("internal", exceptions.AccessRefused, INTERNAL),
    ):
        for use in (
            lambda exchange=exchange: publisher.check(exchange),
            lambda exchange=exchange: publisher.targets(exchange, "k", PLAIN),
            lambda exchange=exchange: publisher.publish(exchange, "k", b"", 0, PLAIN, FOR_EVER),
        ):
            with pytest.raises(kind) as caught:
                use()
            assert caught.value.text == text
    publisher.check("")
    publisher.check("amq.topic")


def test_no_queue_gets_it(publisher: Publishing) -> None:
    """A message without a route is no error."""
    assert publisher.publish("", "nowhere", b"A", 1, PLAIN, FOR_EVER) == 0


@pytest.mark.parametrize("queues", [1, 2])
def test_a_queue_that_is_deleted_before_the_topology_says_so(
    publisher: Publishing,
    connection: shmbroker.Connection,
    other: shmbroker.Connection,
    monkeypatch: pytest.MonkeyPatch,
    queues: int,
) -> None:
    """The route is found anew, without the queue that is gone."""
    for number in range(queues):
        connection.queue(f"q{number}")
    headers = None if queues == 1 else {"CC": ["q1"]}
    content = Content(BasicProperties(headers=headers))
    assert publisher.publish("", "q0", b"A", 1, content, FOR_EVER) == queues
    version = journal.version(core_of(connection))
    assert version == queues
    monkeypatch.setattr(journal, "version", lambda _: version)
    other.queue("q0").delete()
    assert publisher.publish("", "q0", b"B", 1, content, FOR_EVER) == queues - 1
    if queues == 2:
        assert [bytes(message) for message in connection.queue("q1").browse()] == [b"A", b"B"]


# ---- properties ----


def test_the_same_properties_are_encoded_once(
    publisher: Publishing, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many messages have the same ones; those with headers are encoded for each, since headers can change."""
    connection.queue("q")
    find(publisher, "", "q")
    encoded = Noted(module.basic.encode)
    monkeypatch.setattr(module.basic, "encode", encoded)
    plain, headers = BasicProperties(app_id="a"), BasicProperties(headers={"n": 1})
    for given in (plain, plain, headers, plain, headers, headers):
        assert publisher.publish_described("", "q", b"", given) == 0
    assert encoded.calls == [(plain,), (headers,), (headers,), (headers,)]


def test_what_properties_mean_on_a_known_route(publisher: Publishing, connection: shmbroker.Connection) -> None:
    """The message has their priority, and lives as long as they say."""
    queue = connection.queue("q")
    find(publisher, "", "q")
    before = time.time()
    given = BasicProperties(priority=7, expiration="60000", headers={"n": 1})
    assert publisher.publish_described("", "q", b"A", given) == 0
    _, message = queue.browse()
    assert (message.priority, message.properties) == (7, given)
    assert message.expires_at is not None
    assert message.expires_at >= before + 59.9


@pytest.mark.parametrize(
    "given",
    [
        {"priority": 256},
        {"priority": "1"},
        {"app_id": "a" * 256},
        {"headers": {"CC": 5}},
        {"headers": {"CC": ["q"]}},
        {"headers": {"BCC": ["q"]}},
    ],
)
def test_properties_that_are_left_to_python(
    publisher: Publishing, connection: shmbroker.Connection, given: dict[str, Any]
) -> None:
    """Compiled code is given none that are not right, or that add keys."""
    queue = connection.queue("q")
    find(publisher, "", "q")
    assert publisher.publish_described("", "q", b"", BasicProperties(**given)) == -1
    assert len(queue) == 1


def test_only_properties_are_properties(publisher: Publishing) -> None:
    """Anything else is refused before it is looked into."""
    for given in (None, {"priority": 1}, "text"):
        assert publisher.publish_described("", "q", b"", given) == -1  # type: ignore[arg-type] # that is the point
        with pytest.raises(TypeError, match="BasicProperties are needed"):
            module._content(given)  # noqa: SLF001


# ---- one message, several queues ----


def shape(publications: list[Publication]) -> list[tuple[object, list[str], int, int, bytes]]:
    """Return body, names, life, priority and key of each publication."""
    return [
        (
            one.body,
            [queue.name for queue in one.targets],
            one.options.pointer.ttl_ns,
            one.options.pointer.priority,
            one.options.key,
        )
        for one in publications
    ]


@pytest.mark.parametrize("limited", [[], [1], [0, 2], [0, 1, 2]])
def test_a_message_is_stored_once_for_all_that_do_not_limit_its_life(
    publisher: Publishing, connection: shmbroker.Connection, limited: list[int]
) -> None:
    """And once more for each queue that does, which makes its own life of that of the message."""
    lives = {f"q{number}": {"x-message-ttl": 10_000 * (number + 1)} for number in limited}
    names = fan_out(connection.channel(), 3, **lives)
    content = Content(BasicProperties(priority=4, expiration="20000"))
    found = publisher.publications("x", "k", b"A", content, publisher.targets("x", "k", content))
    others = [name for name in names if name not in lives]
    shared = [(b"A", others, 20 * 10**9, 4, b"k")] if others else []
    assert shape(found) == shared + [(b"A", [f"q{number}"], 20 * 10**9, 4, b"k") for number in limited]


def test_a_message_for_several_queues_waits_until_a_moment(
    publisher: Publishing, connection: shmbroker.Connection
) -> None:
    """Where one of them blocks, none gets it."""
    channel = connection.channel()
    fan_out(channel, 2, q1={"x-max-length": 1, "x-overflow": "block"})
    assert publisher.publish("x", "k", b"A", 1, PLAIN, 0) == 2
    with pytest.raises(standard_queue.Full):
        publisher.publish("x", "k", b"B", 1, PLAIN, 0)
    assert (bodies(channel, "q0"), bodies(channel, "q1")) == (["A"], ["A"])
