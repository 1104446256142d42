# SPDX-License-Identifier: Apache-2.0
"""What channels do in compiled code for every message is what Python would do, or is left to it."""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import Inbox, Rounds, content
from scenario_support.inside import connection_of, core_of, session_of
from scenario_support.waiting import becomes

import shmbroker
from shmbroker import BasicProperties, _native_message
from shmbroker._core import native
from shmbroker._session.dispatch import BATCH
from shmbroker._topology import changes
from shmbroker.message import ACK

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = BATCH + BATCH // 2
MOST_QUEUES = 128


class Tag(enum.IntEnum):
    """A number that is an integer of another type."""

    FIRST = 1


def fan_out(channel: shmbroker.Channel, queues: int, **arguments: Any) -> list[str]:  # noqa: ANN401
    """Bind so many queues to an exchange "x"; return their names."""
    channel.exchange_declare("x", "fanout")
    names = [f"q{number}" for number in range(queues)]
    for name in names:
        channel.queue_declare(name, arguments=arguments.get(name))
        channel.queue_bind(name, "x")
    return names


def one(channel: shmbroker.Channel, queue: str) -> shmbroker.Message:
    """Return the next message of a queue."""
    message = channel.basic_get(queue, auto_ack=True)
    assert message is not None
    return message


# ---- publishing ----


@pytest.mark.parametrize("queues", [1, 3, MOST_QUEUES, MOST_QUEUES + 1])
def test_every_queue_of_an_exchange_gets_every_message(channel: shmbroker.Channel, queues: int) -> None:
    """Whether its route is known or not, and whatever number of queues it leads to."""
    names = fan_out(channel, queues)
    for body in (b"unknown", b"known", b"k" * 20_000):
        channel.basic_publish("x", "key", body)
    for name in names:
        messages = [one(channel, name) for _ in range(3)]
        assert [bytes(message) for message in messages] == [b"unknown", b"known", b"k" * 20_000]
        assert [(message.exchange, message.routing_key) for message in messages] == [("x", "key")] * 3
        assert channel.basic_get(name) is None


@pytest.mark.parametrize("queues", [1, 3])
def test_properties_arrive_on_a_known_route(channel: shmbroker.Channel, queues: int) -> None:
    """All of them, and what they mean: priority and expiration; a message without any has none."""
    names = fan_out(channel, queues)
    given = BasicProperties(content_type="text/plain", priority=7, expiration="60000", headers={"n": 1}, message_id="m")
    for properties in (None, given, None):
        channel.basic_publish("x", "", b"body", properties)
    for name in names:
        before, message, after = (one(channel, name) for _ in range(3))
        assert (message.properties, message.priority) == (given, 7)
        assert message.expires_at is not None
        assert before.properties == after.properties == BasicProperties()
        assert before.expires_at is after.expires_at is None


def test_headers_that_change_are_published_as_they_are_then(channel: shmbroker.Channel) -> None:
    """The same properties may be given again; only what cannot change in them is kept."""
    channel.queue_declare("q")
    headers: dict[str, Any] = {"n": 1}
    properties = BasicProperties(headers=headers)
    plain = BasicProperties(app_id="a")
    for number, given in enumerate((properties, properties, plain, plain, properties)):
        headers["n"] = number
        channel.basic_publish("", "q", b"", given)
    found = [one(channel, "q").properties for _ in range(5)]
    assert found == [BasicProperties(headers={"n": 0}), BasicProperties(headers={"n": 1}), plain, plain, properties]


def test_headers_and_copies_are_looked_at_on_a_known_route(channel: shmbroker.Channel) -> None:
    """Where they decide, the route of exchange and key alone is not taken."""
    for name in ("all", "some", "copy"):
        channel.queue_declare(name)
    channel.queue_bind("all", "amq.headers", "", {"x-match": "all"})
    channel.queue_bind("some", "amq.headers", "", {"n": 1})
    for properties in (None, None, BasicProperties(headers={"n": 1})):
        channel.basic_publish("amq.headers", "", b"by headers", properties)
    channel.basic_publish("", "all", b"a copy", BasicProperties(headers={"CC": ["copy"]}))
    assert content(channel, "all") == ["by headers"] * 3 + ["a copy"]
    assert content(channel, "some") == ["by headers"]
    assert content(channel, "copy") == ["a copy"]


def test_a_binding_that_looks_at_headers_comes_between(
    channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread sees it first, and finds the route of messages without headers: others do not take it."""
    channel.exchange_declare("x", "fanout")
    channel.exchange_declare("h", "headers")
    for name in ("plain", "counted"):
        channel.queue_declare(name)
    channel.queue_bind("plain", "x")
    channel.exchange_bind("h", "x")
    given = BasicProperties(headers={"n": 1, "list": []})  # Python encodes these: compiled code keeps the GIL
    channel.basic_publish("x", "key", b"", given)  # its route is known now
    assert one(channel, "plain").headers == given.headers
    publishing = session_of(channel).publishing
    publish = publishing._publish_with  # noqa: SLF001

    def beside(*arguments: Any) -> int:  # noqa: ANN401
        monkeypatch.undo()
        channel.queue_bind("counted", "h", arguments={"n": 1})
        channel.basic_publish("x", "key", b"none")
        return publish(*arguments)

    monkeypatch.setattr(publishing, "_publish_with", beside)
    channel.basic_publish("x", "key", b"some", given)
    assert [bytes(one(channel, "plain")) for _ in range(2)] == [b"none", b"some"]
    assert bytes(one(channel, "counted")) == b"some"


@pytest.mark.parametrize("queues", [1, 3])
def test_a_route_does_not_reach_the_next_queue_of_a_name(
    channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch, queues: int
) -> None:
    """A binding is of one queue: left over by a process that was killed while it deleted that, it leads nowhere."""
    fan_out(channel, queues)
    channel.basic_publish("x", "known", b"before")
    with monkeypatch.context() as killed:
        killed.setattr(changes, "queue_gone", lambda *_: b"")
        channel.queue_delete("q0")
    channel.queue_declare("q0")
    assert any(one.destination == "q0" for one in connection_of(channel).bindings() if one.source == "x")
    for key in ("known", "unknown"):
        channel.basic_publish("x", key, b"after")
    assert channel.basic_get("q0") is None
    for number in range(1, queues):
        assert [bytes(one(channel, f"q{number}").body) for _ in range(3)] == [b"before", b"after", b"after"]


def test_a_queue_that_limits_the_life_of_messages_limits_that_of_its_own(channel: shmbroker.Channel) -> None:
    """Of several queues that get a message one may have a limit: there it expires, in the others it does not."""
    names = fan_out(channel, 3, q1={"x-message-ttl": 60_000})
    for properties in (None, None, BasicProperties(app_id="a")):
        channel.basic_publish("x", "", b"", properties)
    for name in names:
        assert {one(channel, name).expires_at is not None for _ in range(3)} == {name == "q1"}


def test_properties_are_properties(channel: shmbroker.Channel) -> None:
    """An object that looks like them is refused, on a known route, too."""
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"")
    twin = types.SimpleNamespace(**{name: getattr(BasicProperties(), name) for name in BasicProperties.__slots__})
    with pytest.raises(TypeError, match="BasicProperties are needed"):
        channel.basic_publish("", "q", b"", twin)  # type: ignore[arg-type] # that is the point
    assert content(channel, "q") == [""]


def test_confirmed_messages_are_numbered_in_order(channel: shmbroker.Channel) -> None:
    """From 1, whichever way they take: a new route, a known one, properties, nowhere, with a future."""
    channel.queue_declare("q")
    channel.confirm_delivery()
    numbers = [channel.basic_publish("", "q", b"") for _ in range(2)]
    numbers += [channel.basic_publish("", "q", b"", BasicProperties(app_id="a")) for _ in range(2)]
    numbers += [channel.basic_publish("", "nowhere", b"", mandatory=True)]
    numbers += [channel.publish_confirmed("", "q", b"").result()]
    numbers += [channel.basic_publish("", "q", b"")]
    assert numbers == list(range(1, 8))
    assert channel.wait_for_confirms()


def test_a_message_with_a_future_takes_a_known_route(
    channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With properties or without, in compiled code; a message that is routed to no queue is returned as before."""
    names = fan_out(channel, 2)
    channel.publish_confirmed("x", "", b"new")

    def slowly(*_: object) -> None:
        pytest.fail("the route is known")

    kinds = None, BasicProperties(app_id="a", priority=3), None, BasicProperties(headers={"n": 1})
    with monkeypatch.context() as patched:
        patched.setattr(session_of(channel).publishing, "publish", slowly)
        futures = [channel.publish_confirmed("x", "", b"A", kind, mandatory=True) for kind in kinds]
    assert [future.result(0) for future in futures] == [2, 3, 4, 5]
    for name in names:
        found = [one(channel, name) for _ in range(5)]
        assert [message.properties for message in found[1:]] == [kind or BasicProperties() for kind in kinds]
        assert [bytes(message) for message in found] == [b"new", *[b"A"] * 4]
        assert channel.basic_get(name) is None
    assert isinstance(channel.publish_confirmed("", "no", b"", None, True).exception(0), shmbroker.UnroutableError)  # noqa: FBT003


def test_a_closed_channel_publishes_nothing_with_a_future(
    connection: shmbroker.Connection, channel: shmbroker.Channel
) -> None:
    """On a known route, too, after an error, which the future has, and after a close."""
    queue = connection.queue("q")
    for _ in range(2):
        channel.publish_confirmed("", "q", b"before")
    channel.basic_publish("nowhere", "", b"")
    assert isinstance(channel.publish_confirmed("", "q", b"").exception(0), shmbroker.NotFound)
    channel.close()
    with pytest.raises(shmbroker.BrokerError):
        channel.wait_for_confirms()
    with pytest.raises(shmbroker.ChannelClosed):
        channel.publish_confirmed("", "q", b"")
    assert len(queue) == 2


# ---- callbacks ----


def test_a_callback_that_raises_stops_nobody(broker: shmbroker.Broker) -> None:
    """Of more messages than one turn has, every third raises: all come in order, and each error is told."""
    errors: list[BaseException] = []
    inbox = Inbox(ack=True)

    def callback(channel: shmbroker.Channel, method: Any, properties: BasicProperties, body: bytes) -> None:  # noqa: ANN401
        inbox(channel, method, properties, body)
        if int(body) % 3 == 0:
            raise ValueError(body)

    with broker.connect(on_callback_error=errors.append) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_consume("q", callback)
        for number in range(MANY):
            channel.basic_publish("", "q", str(number).encode())
        inbox.wait(MANY)
        becomes(lambda: len(errors), MANY // 3)
        assert inbox.texts() == [str(number) for number in range(MANY)]
        assert [delivery.delivery_tag for delivery in inbox.deliveries] == list(range(1, MANY + 1))


def test_a_callback_may_end_its_consumer(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """What it was not called for goes back."""
    channel.queue_declare("q")
    for number in range(MANY):
        channel.basic_publish("", "q", str(number).encode())
    seen = []

    def callback(mine: shmbroker.Channel, method: Any, _: object, body: bytes) -> None:  # noqa: ANN401
        seen.append(body)
        mine.basic_cancel(method.consumer_tag)
        mine.basic_ack(method.delivery_tag)

    rounds = Rounds(connection)
    channel.basic_consume("q", callback)
    becomes(lambda: len(seen), 1)
    rounds.go()
    assert seen == [b"0"]
    becomes(lambda: channel.queue_declare("q", passive=True).message_count, MANY - 1)


def test_properties_of_deliveries_are_their_own(channel: shmbroker.Channel) -> None:
    """A message with properties between some without."""
    channel.queue_declare("q")
    inbox = Inbox()
    channel.basic_consume("q", inbox, auto_ack=True)
    given = [None, BasicProperties(headers={"n": 1}), None]
    for properties in given:
        channel.basic_publish("", "q", b"", properties)
    found = [delivery.properties for delivery in inbox.wait(3)]
    assert found == [BasicProperties(), given[1], BasicProperties()]


def test_a_delivery_tag_is_given(channel: shmbroker.Channel) -> None:
    """It cannot be changed; any integer is one."""
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"")
    message = channel.basic_get("q")
    assert message is not None
    with pytest.raises(AttributeError):
        message.delivery_tag = 2  # type: ignore[misc] # that is the point
    channel.basic_ack(Tag.FIRST)
    assert channel.basic_get("q") is None
    with pytest.raises(shmbroker.PreconditionFailed, match="unknown delivery tag 1"):
        channel.basic_ack(1)


# ---- the compiled part alone ----


def calls(channel: shmbroker.Channel, queue: shmbroker.Queue) -> list[Callable[[], object]]:
    """Return calls of the compiled part that are wrong."""
    receiver = core_of(channel) and channel._taker  # noqa: SLF001
    publisher = native.Publisher(0, None)
    return [
        lambda: queue._taker.deliver(queue, {}, (), None, 1),  # noqa: SLF001
        lambda: receiver.deliver(channel, (), (), None, 1),  # type: ignore[arg-type]
        lambda: receiver.deliver(channel, {}, (), None, -1),
        lambda: receiver.deliver(channel, {}, 5, None, 1),
        lambda: receiver.deliver(channel, {}),  # type: ignore[call-arg]
        lambda: receiver.settle(1),  # type: ignore[call-arg]
        lambda: publisher.publish_with("", "", b""),  # type: ignore[call-arg]
        lambda: publisher.publish_with("", "", b"", "", 0, 0),  # type: ignore[arg-type]
        lambda: publisher.publish_with("", "", b"", b"", 0, 256),
        lambda: _native_message.Route([1], 0, None),  # type: ignore[arg-type]
        lambda: _native_message.Route(("1",), 0, None),  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("number", range(11))
def test_wrong_arguments_are_refused(channel: shmbroker.Channel, queue: shmbroker.Queue, number: int) -> None:
    """The compiled part says that they are wrong, and does nothing."""
    with pytest.raises(TypeError):
        calls(channel, queue)[number]()


@pytest.mark.parametrize("queues", [0, MOST_QUEUES + 1])
def test_a_route_leads_to_some_queues(queues: int) -> None:
    """At least one, and so few that they are served in one go."""
    with pytest.raises(ValueError, match="128"):
        _native_message.Route((1,) * queues, 0, None)


@pytest.mark.parametrize("tag", [True, -1, 1 << 64, "1", None])
def test_a_strange_tag_is_left_to_python(channel: shmbroker.Channel, tag: Any) -> None:  # noqa: ANN401
    """Which says what is wrong with it."""
    assert core_of(channel).unacked() == 0
    assert channel._taker.settle(tag, False, ACK) == -1  # noqa: FBT003, SLF001
