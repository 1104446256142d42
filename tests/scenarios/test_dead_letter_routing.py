# SPDX-License-Identifier: Apache-2.0
"""Where dead letters go: exchanges of all types, routing keys, several queues, queues without room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import refused
from scenario_support.dead_letters import (
    DEAD,
    EXCHANGE,
    dead_letter_queue,
    death,
    deaths_of,
    next_dead,
    reasons,
    reject_next,
)
from scenario_support.observing import (
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    nothing_to_get,
    numbered,
    put_each,
    take,
    text,
)
from scenario_support.waiting import eventually

from shmbroker import BasicProperties
from shmbroker.exceptions import PreconditionFailed

if TYPE_CHECKING:
    import shmbroker

LONG_TTL = 600.0
"""A life that no test waits for the end of."""


@pytest.fixture
def dead(connection: shmbroker.Connection) -> shmbroker.Queue:
    """Declare a dead-letter exchange and the queue behind it."""
    return dead_letter_queue(connection)


def test_b67_an_exchange_that_is_deleted_and_comes_back(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue
) -> None:
    """Without its dead-letter exchange a dead message is dropped; declared anew, the exchange gets the next ones."""
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    channel.exchange_delete(EXCHANGE)
    put_each(queue, "AB")
    assert reject_next(queue) == "A"
    await_counts(queue, dropped=1, scheduled=0, dead_lettered=0)
    channel.exchange_declare(EXCHANGE, "fanout")
    channel.queue_bind(DEAD, EXCHANGE)
    assert reject_next(queue) == "B"
    assert text(next_dead(dead)) == "B"
    await_counts(queue, dropped=1, dead_lettered=1, message_count=0)
    assert_balanced(queue)


def test_an_exchange_that_is_declared_later(connection: shmbroker.Connection) -> None:
    """The dead-letter exchange need not exist; what dies before it does is dropped."""
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    put_each(queue, "AB")
    assert reject_next(queue) == "A"
    await_counts(queue, dropped=1, message_count=1)
    dead = dead_letter_queue(connection)
    assert reject_next(queue) == "B"
    assert text(next_dead(dead)) == "B"
    assert_balanced(queue)


def test_q73_what_a_dead_letter_exchange_may_be(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """Any exchange or none: it is looked up when a message dies, so it may be missing, be deleted, or lead back.

    Broker-J refuses such alternates, and the deletion of one that is in use. RabbitMQ allows them, as B67 says. A queue
    that leads to itself gets back what a consumer rejected, and does not get back what died without one.
    """
    channel.exchange_declare(EXCHANGE, "fanout")
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    channel.queue_bind("q", EXCHANGE)
    queue.put(b"A")
    assert reject_next(queue) == "A"
    message = next_dead(queue)
    assert (text(message), reasons(message)) == ("A", [("q", "rejected", 1)])
    queue.put(b"B", ttl=0.02)
    await_counts(queue, message_count=0, dropped=1)
    channel.exchange_delete(EXCHANGE)
    queue.put(b"C")
    assert reject_next(queue) == "C"
    await_counts(queue, message_count=0, dropped=2)
    dead = dead_letter_queue(connection)
    queue.put(b"D")
    assert reject_next(queue) == "D"
    assert text(next_dead(dead)) == "D"
    assert_balanced(queue)


def test_q73_a_queue_that_gets_dead_letters_may_be_deleted(
    connection: shmbroker.Connection, dead: shmbroker.Queue
) -> None:
    """The deletion is not refused; what dies afterwards is dropped, until a queue is bound again."""
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    assert dead.delete() == 0
    put_each(queue, "AB")
    assert reject_next(queue) == "A"
    await_counts(queue, dropped=1, dead_lettered=0, message_count=1)
    again = dead_letter_queue(connection)
    assert reject_next(queue) == "B"
    assert text(next_dead(again)) == "B"
    assert_balanced(queue)


def test_q72_each_copy_dies_for_itself(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue
) -> None:
    """A fanout to three queues: the copy that dies in one of them comes once; without an exchange it is discarded."""
    channel.exchange_declare("work", "fanout")
    queues = {name: connection.queue(name, dead_letter_exchange=to) for name, to in (("a", EXCHANGE), ("b", EXCHANGE))}
    queues["c"] = connection.queue("c")
    for name in queues:
        channel.queue_bind(name, "work")
    channel.basic_publish("work", "k", b"A")
    assert reject_next(queues["a"]) == "A"
    assert reasons(next_dead(dead)) == [("a", "rejected", 1)]
    assert reject_next(queues["c"]) == "A"
    assert_counts(queues["c"], message_count=0, dropped=1, dead_lettered=0)
    assert_counts(queues["b"], message_count=1)
    assert nothing_to_get(dead)
    assert take(queues["b"], 1) == ["A"]


def test_every_queue_behind_the_exchange_gets_a_copy(
    connection: shmbroker.Connection, channel: shmbroker.Channel
) -> None:
    """Three queues, one reached over a second exchange, one with a time to live: each gets each dead message once."""
    names = ["first", "second", "third"]
    queues = [connection.queue(name, message_ttl=LONG_TTL if name == "second" else None) for name in names]
    channel.exchange_declare(EXCHANGE, "fanout")
    channel.exchange_declare("further", "fanout")
    channel.exchange_bind("further", EXCHANGE)
    for name, exchange in zip(names, (EXCHANGE, EXCHANGE, "further"), strict=True):
        channel.queue_bind(name, exchange)
    channel.queue_bind("third", EXCHANGE)  # reached twice, it gets one copy
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    bodies = numbered(20)
    put_each(queue, bodies)
    for _ in bodies:
        reject_next(queue)
    for one in queues:
        assert take(one, len(bodies)) == bodies
        assert_counts(one, message_count=0, added=len(bodies))
    await_counts(queue, message_count=0, dead_lettered=len(bodies), dropped=0)


def test_a_topic_exchange_gets_the_key_of_the_message(
    connection: shmbroker.Connection, channel: shmbroker.Channel
) -> None:
    """The routing key of a publish, the key of a put, and the queue's name where a put has none, choose the queue."""
    channel.exchange_declare(EXCHANGE, "topic")
    for name, pattern in ("orders", "order.#"), ("errors", "*.error"), ("own", "q"):
        channel.queue_declare(name)
        channel.queue_bind(name, EXCHANGE, pattern)
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    channel.exchange_declare("work", "fanout")
    channel.queue_bind("q", "work")
    channel.basic_publish("work", "order.error", b"published")
    queue.put(b"put", key="order.new")
    queue.put(b"bare")
    queue.put(b"nowhere", key="else")
    assert [reject_next(queue) for _ in range(4)] == ["published", "put", "bare", "nowhere"]
    await_counts(queue, message_count=0, dead_lettered=3, dropped=1)
    got = {name: listing(connection.queue(name, passive=True)) for name in ("orders", "errors", "own")}
    assert got == {"orders": ["published", "put"], "errors": ["published"], "own": ["bare"]}


def test_a_headers_exchange_gets_the_headers_of_the_message(
    connection: shmbroker.Connection, channel: shmbroker.Channel
) -> None:
    """A headers exchange routes by the headers of the message, and by those that the death added."""
    channel.exchange_declare(EXCHANGE, "headers")
    for name, arguments in (
        ("red", {"x-match": "all", "colour": "red"}),
        ("rejected", {"x-match": "all-with-x", "x-first-death-reason": "rejected"}),
    ):
        channel.queue_declare(name)
        channel.queue_bind(name, EXCHANGE, arguments=arguments)
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    queue.put(b"A", headers={"colour": "red"})
    queue.put(b"B", headers={"colour": "blue"})
    queue.put(b"C", headers={"colour": "red"}, ttl=0.05)
    assert [reject_next(queue), reject_next(queue)] == ["A", "B"]
    await_counts(queue, message_count=0, dead_lettered=3)
    assert sorted(listing(connection.queue("red", passive=True))) == ["A", "C"]
    assert listing(connection.queue("rejected", passive=True)) == ["A", "B"]


@pytest.mark.parametrize("key", ["errors", "", "ключ"])
def test_the_routing_key_of_the_queue_wins(
    connection: shmbroker.Connection, channel: shmbroker.Channel, key: str
) -> None:
    """dead_letter_routing_key takes the place of the message's key, also an empty one; x-death keeps the message's."""
    channel.exchange_declare(EXCHANGE, "direct")
    dead = connection.queue(DEAD)
    channel.queue_bind(DEAD, EXCHANGE, key)
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE, dead_letter_routing_key=key)
    queue.put(b"A", key="own")
    reject_next(queue)
    message = next_dead(dead)
    assert (message.exchange, message.routing_key) == (EXCHANGE, key)
    assert deaths_of(message) == [death("q", "rejected", "own")]


def test_the_default_exchange_leads_to_a_queue_by_name(connection: shmbroker.Connection) -> None:
    """dead_letter_exchange="" with the name of a queue as key needs no exchange."""
    dead = connection.queue("tot-ß")
    queue = connection.queue("schlange-ß", dead_letter_exchange="", dead_letter_routing_key="tot-ß")
    queue.put(b"A")
    reject_next(queue)
    message = next_dead(dead)
    assert (message.exchange, message.routing_key) == ("", "tot-ß")
    assert deaths_of(message) == [death("schlange-ß", "rejected", "schlange-ß")]


@pytest.mark.parametrize("keeps", [True, False], ids=["own keys", "a key of the queue"])
def test_the_header_cc_gives_further_keys(
    connection: shmbroker.Connection, channel: shmbroker.Channel, *, keeps: bool
) -> None:
    """The keys of CC lead a dead message, too, and are in x-death; a key of the queue removes CC."""
    channel.exchange_declare(EXCHANGE, "direct")
    for name in "one", "two", "all":
        channel.queue_declare(name)
        channel.queue_bind(name, EXCHANGE, name)
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE, dead_letter_routing_key=None if keeps else "all")
    channel.exchange_declare("work", "direct")
    channel.queue_bind("q", "work", "one")
    channel.basic_publish("work", "one", b"A", BasicProperties(headers={"CC": ["two"]}))
    reject_next(queue)
    await_counts(queue, message_count=0, dead_lettered=1)
    for name, expected in ("one", keeps), ("two", keeps), ("all", not keeps):
        target = connection.queue(name, passive=True)
        assert_counts(target, message_count=int(expected))
        if expected:
            message = next_dead(target)
            assert deaths_of(message) == [death("q", "rejected", "one", "two", exchange="work")]
            assert ("CC" in message.headers) is keeps


def test_b69_a_key_needs_an_exchange(connection: shmbroker.Connection) -> None:
    """x-dead-letter-routing-key without x-dead-letter-exchange: 406; as a keyword: ValueError."""
    with connection.channel() as channel, refused(PreconditionFailed):
        channel.queue_declare("q", arguments={"x-dead-letter-routing-key": "k"})
    with pytest.raises(ValueError, match="dead_letter_routing_key='k'"):
        connection.queue("q", dead_letter_routing_key="k")
    assert connection.queue_names() == []


# ---- queues without room ----


def test_a_full_queue_lets_dead_messages_wait(connection: shmbroker.Connection) -> None:
    """overflow=block: they count as scheduled where they died, and come in order as the target gets room."""
    dead = dead_letter_queue(connection, max_length=1)
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    bodies = numbered(4)
    put_each(queue, bodies)
    for _ in bodies:
        reject_next(queue)
    await_counts(queue, scheduled=3, delivering=0, ready=0, dead_lettered=1)
    assert queue.purge() == 0
    assert queue.move(DEAD) == 0
    assert nothing_to_get(queue)
    with pytest.raises(PreconditionFailed):
        queue.delete(if_empty=True)
    assert sorted(take(dead, len(bodies))) == bodies
    await_counts(queue, message_count=0, dead_lettered=len(bodies))
    assert_balanced(queue)
    assert_balanced(dead)


def test_deleting_a_queue_ends_its_dead_messages(connection: shmbroker.Connection) -> None:
    """A queue that is deleted takes the dead messages that wait with it; the target gets none of them later."""
    dead = dead_letter_queue(connection, max_length=1)
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    put_each(queue, "ABC")
    assert [reject_next(queue) for _ in range(3)] == ["A", "B", "C"]
    await_counts(queue, scheduled=2, dead_lettered=1)
    assert queue.delete() == 2
    anew = connection.queue("q", dead_letter_exchange=EXCHANGE)
    assert take(dead, 1) == ["A"]
    put_each(anew, "D")
    reject_next(anew)
    assert take(dead, 1) == ["D"]
    assert_counts(dead, added=2, message_count=0)


@pytest.mark.parametrize(
    ("settings", "stays", "gone"),
    [
        ({"max_length": 2, "overflow": "drop"}, ["m00000", "m00001"], {}),
        ({"max_length": 2, "overflow": "drop-head"}, ["m00003", "m00004"], {"dropped": 3}),
        ({"ring_size": 2}, ["m00003", "m00004"], {"replaced": 3}),
    ],
    ids=["drop", "drop-head", "ring"],
)
def test_a_full_queue_that_drops_never_lets_wait(
    connection: shmbroker.Connection, settings: dict[str, object], stays: list[str], gone: dict[str, int]
) -> None:
    """The target drops, as for each other publish: the new message, or its oldest."""
    dead = dead_letter_queue(connection, **settings)
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    bodies = numbered(5)
    put_each(queue, bodies)
    for number, _ in enumerate(bodies, start=1):
        reject_next(queue)
        await_counts(queue, dead_lettered=number)
    await_counts(queue, message_count=0, dropped=0)
    assert listing(dead) == stays
    assert_counts(dead, **gone)


def test_what_the_target_drops_dies_again(connection: shmbroker.Connection) -> None:
    """A target with drop-head and a dead-letter exchange of its own: what it evicts goes on, with two deaths."""
    last = connection.queue("last")
    middle = connection.queue(
        "middle", max_length=1, overflow="drop-head", dead_letter_exchange="", dead_letter_routing_key="last"
    )
    queue = connection.queue("q", dead_letter_exchange="", dead_letter_routing_key="middle")
    put_each(queue, "AB")
    assert reject_next(queue) == "A"
    await_counts(middle, ready=1)
    assert reject_next(queue) == "B"
    message = next_dead(last)
    assert (text(message), reasons(message)) == ("A", [("middle", "maxlen", 1), ("q", "rejected", 1)])
    assert message.headers["x-first-death-queue"] == "q"
    assert message.headers["x-last-death-reason"] == "maxlen"
    assert listing(middle) == ["B"]


# ---- properties that leave no room ----


@pytest.mark.parametrize(
    "headers",
    [
        {"long": "x" * 59_900},
        {"CC": ["k" * 200] * 280},
        {"x-death": [{"queue": "q", "reason": "rejected", "count": 2**63 - 1}]},
        {"x-death": [{"queue": "q", "reason": "rejected", "count": "many", "routing-keys": ["x" * 100] * 500}]},
        {"x-death": [{"queue": f"q{number}", "reason": "expired"} for number in range(1500)]},
        {"x-death": "nonsense", "x-first-death-queue": 5},
        {"x-death": [[], None, 7]},
    ],
    ids=["long header", "many keys", "count", "no count", "many deaths", "no list", "no deaths"],
)
def test_no_headers_keep_a_message_from_dying(
    broker: shmbroker.Broker, connection: shmbroker.Connection, headers: dict[str, Any]
) -> None:
    """Whatever headers the publisher gave, the message arrives, its latest death comes first, and the keeper lives."""
    dead = dead_letter_queue(connection)
    keeper = eventually(lambda: broker.statistics().housekeeper_pid)
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    queue.put(b"A", headers=headers)
    reject_next(queue)
    message = next_dead(dead)
    assert text(message) == "A"
    latest = message.headers["x-death"][0]
    assert (latest["queue"], latest["reason"]) == ("q", "rejected")
    assert latest["count"] >= 1
    assert {name for name in headers if not name.startswith("x-")} <= {*message.headers}
    assert broker.statistics().housekeeper_pid == keeper
    assert_balanced(queue)
