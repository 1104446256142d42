# SPDX-License-Identifier: Apache-2.0
"""T28: the life that a queue gives its messages, and where they go when it ends (as in Artemis)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.dead_letters import dead_letter_queue, next_dead, reasons
from scenario_support.observing import assert_balanced, assert_counts, await_counts, listing, text
from scenario_support.processes import Actor

import shmbroker
from shmbroker.exceptions import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DELAY, LEAST, MOST = 100.0, 50.0, 200.0
CLOCKS = 5.0
"""Seconds by which a life may seem to differ: the machine is busy, and the clock of the day may be set."""
READS = 20


def by_put(connection: shmbroker.Connection, queue: str, ttl: float | None) -> None:
    """Put a message."""
    connection.queue(queue, passive=True).put(b"x", ttl=ttl)


def by_put_many(connection: shmbroker.Connection, queue: str, ttl: float | None) -> None:
    """Put a batch of one."""
    connection.queue(queue, passive=True).put_many([b"x"], ttl=ttl)


def by_reserve(connection: shmbroker.Connection, queue: str, ttl: float | None) -> None:
    """Write the body in place."""
    with connection.queue(queue, passive=True).reserve(1, ttl=ttl) as body:
        body[:] = b"x"


def _properties(ttl: float | None) -> shmbroker.BasicProperties:
    return shmbroker.BasicProperties(expiration=None if ttl is None else str(round(ttl * 1000)))


def by_channel(connection: shmbroker.Connection, queue: str, ttl: float | None) -> None:
    """Publish on a channel."""
    with connection.channel() as channel:
        channel.basic_publish("", queue, b"x", _properties(ttl))


def by_transaction(connection: shmbroker.Connection, queue: str, ttl: float | None) -> None:
    """Publish in a transaction."""
    with connection.channel() as channel:
        channel.tx_select()
        channel.basic_publish("", queue, b"x", _properties(ttl))
        channel.tx_commit()


def by_fanout(connection: shmbroker.Connection, queue: str, ttl: float | None) -> None:
    """Publish to the queue and to another one, in one step."""
    connection.queue("beside")
    with connection.channel() as channel:
        channel.exchange_declare("both", "fanout")
        channel.queue_bind(queue, "both")
        channel.queue_bind("beside", "both")
        channel.basic_publish("both", "", b"x", _properties(ttl))
    expires_at = connection.queue("beside", passive=True).get(timeout=0, auto_ack=True).expires_at
    assert (expires_at is None) == (ttl is None)  # the other queue has no such settings


def by_copy(connection: shmbroker.Connection, queue: str, ttl: float | None) -> None:
    """Copy it from another queue."""
    source = connection.queue("source")
    source.put(b"x", ttl=ttl)
    assert source.copy(queue) == 1


WAYS = [by_put, by_put_many, by_reserve, by_channel, by_transaction, by_fanout, by_copy]


def life_of(connection: shmbroker.Connection, queue: str, put: Callable[[], object]) -> float | None:
    """Put a message; return its life in seconds as the queue gave it, `None` = for ever."""
    before = time.time()
    put()
    message = connection.queue(queue, passive=True).get(timeout=0, auto_ack=True)
    if message.expires_at is None:
        return None
    return max(message.expires_at or 0 for _ in range(READS)) - before


CASES: list[tuple[dict[str, Any], float | None, float | None]] = [
    ({"expiry_delay": DELAY}, None, DELAY),
    ({"expiry_delay": DELAY}, 20.0, 20.0),
    ({"expiry_delay": DELAY}, 500.0, 500.0),
    ({"min_expiry_delay": LEAST}, None, None),  # Q56: for ever is no shorter than the least life
    ({"min_expiry_delay": LEAST}, 20.0, LEAST),
    ({"min_expiry_delay": LEAST}, 70.0, 70.0),
    ({"max_expiry_delay": MOST}, None, MOST),
    ({"max_expiry_delay": MOST}, 500.0, MOST),
    ({"max_expiry_delay": MOST}, 70.0, 70.0),
    ({"min_expiry_delay": LEAST, "max_expiry_delay": MOST}, 20.0, LEAST),
    ({"min_expiry_delay": LEAST, "max_expiry_delay": MOST}, 70.0, 70.0),
    ({"min_expiry_delay": LEAST, "max_expiry_delay": MOST}, 500.0, MOST),
    ({"min_expiry_delay": LEAST, "max_expiry_delay": MOST}, None, MOST),
    ({"min_expiry_delay": LEAST, "expiry_delay": 10.0}, None, LEAST),
    ({"max_expiry_delay": MOST, "expiry_delay": 500.0}, None, MOST),
    ({"min_expiry_delay": LEAST, "message_ttl": 30.0}, 20.0, 30.0),  # the longest life wins
    ({"no_expiry": True, "expiry_delay": DELAY, "max_expiry_delay": MOST, "message_ttl": 30.0}, None, None),
    ({"no_expiry": True}, 20.0, None),
]


@pytest.mark.parametrize(("settings", "ttl", "expected"), CASES)
def test_t28_delay_least_most_and_none(
    connection: shmbroker.Connection, settings: dict[str, Any], ttl: float | None, expected: float | None
) -> None:
    """expiry_delay is for messages without a life; the least and the most clamp; no_expiry overrides all of them."""
    connection.queue("q", **settings)
    found = life_of(connection, "q", lambda: by_put(connection, "q", ttl))
    assert found == (None if expected is None else pytest.approx(expected, abs=CLOCKS))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("settings", "ttl", "expected"),
    [
        ({"expiry_delay": DELAY}, None, DELAY),
        ({"min_expiry_delay": LEAST}, 20.0, LEAST),
        ({"max_expiry_delay": MOST}, 500.0, MOST),
        ({"no_expiry": True}, 20.0, None),
    ],
)
def test_t28_by_each_way_in(
    connection: shmbroker.Connection,
    way: Callable[[shmbroker.Connection, str, float | None], None],
    settings: dict[str, Any],
    ttl: float | None,
    expected: float | None,
) -> None:
    """It is the same for a put, a batch, a body written in place, a publish, a commit, a fanout and a copy."""
    connection.queue("q", **settings)
    found = life_of(connection, "q", lambda: way(connection, "q", ttl))
    assert found == (None if expected is None else pytest.approx(expected, abs=CLOCKS))


def test_t28_a_short_delay_ends_only_messages_without_a_life(connection: shmbroker.Connection) -> None:
    """expiry_delay=10 ms: a message without a life is gone, one with an hour stays."""
    queue = connection.queue("q", expiry_delay=0.01)
    queue.put(b"without")
    queue.put(b"with", ttl=3600)
    await_counts(queue, expired=1, ready=1)
    assert listing(queue) == ["with"]
    assert_balanced(queue)


def test_t28_another_process_gives_the_same_life(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """The life is that of the queue, whichever process puts; and it changes while that process is at work."""
    queue = connection.queue("q", expiry_delay=0.01)
    with Actor(broker.name) as producer:
        producer.do("put", queue="q", bodies=["short"])
        await_counts(queue, expired=1, message_count=0)
        queue.configure(no_expiry=True)
        producer.do("put", queue="q", bodies=["for ever"], ttl=0.01)
        queue.configure(no_expiry=False, expiry_delay=None)
        producer.do("put", queue="q", bodies=["without"])
    assert [message.expires_at for message in queue.browse()] == [None, None]
    assert_counts(queue, expired=1)


def test_t28_no_expiry_stops_a_shorter_message_ttl(connection: shmbroker.Connection) -> None:
    """With no_expiry, a message_ttl that is made shorter does not concern the messages that are there."""
    queue = connection.queue("q", no_expiry=True, message_ttl=100)
    queue.put(b"stays")
    queue.configure(message_ttl=0.001)
    assert [message.expires_at for message in queue.browse()] == [None]


# ---- where expired messages go ----


def test_t28_expired_messages_go_elsewhere(connection: shmbroker.Connection) -> None:
    """expiry_exchange gets what expires, dead_letter_exchange what a consumer rejects."""
    dead = dead_letter_queue(connection, "dead", "dlx")
    expired = dead_letter_queue(connection, "expired", "exp")
    queue = connection.queue(
        "q", dead_letter_exchange="dlx", expiry_exchange="exp", expiry_routing_key="why", expiry_delay=0.01
    )
    queue.put(b"late")
    found = next_dead(expired)
    assert (text(found), found.routing_key, reasons(found)) == ("late", "why", [("q", "expired", 1)])
    queue.put(b"bad", ttl=3600)
    queue.get(timeout=60).reject()
    found = next_dead(dead)
    assert (text(found), found.routing_key, reasons(found)) == ("bad", "q", [("q", "rejected", 1)])
    assert_counts(queue, dead_lettered=2, message_count=0)
    assert_balanced(queue)


def test_t28_only_expired_messages_have_an_exchange(connection: shmbroker.Connection) -> None:
    """Without a dead_letter_exchange, a rejected message ends, and an expired one goes to the expiry_exchange."""
    expired = dead_letter_queue(connection, "expired", "exp")
    queue = connection.queue("q", expiry_exchange="exp")
    queue.put(b"bad")
    queue.get(timeout=60).reject()
    assert_counts(queue, dropped=1, message_count=0)
    queue.put(b"late", ttl=0.001)
    assert text(next_dead(expired)) == "late"
    assert_counts(queue, dead_lettered=1, dropped=1, message_count=0)
    assert_balanced(queue)


def test_t28_dropped(connection: shmbroker.Connection) -> None:
    """drop_expired: what expires ends and counts as expired, and what is rejected still is a dead letter."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", dead_letter_exchange="dlx", drop_expired=True)
    queue.put(b"late", ttl=0.001)
    await_counts(queue, expired=1, message_count=0)
    queue.put(b"bad")
    queue.get(timeout=60).reject()
    assert text(next_dead(dead)) == "bad"
    assert_counts(queue, expired=1, dead_lettered=1, message_count=0)
    assert_counts(dead, added=1)
    assert_balanced(queue)


@pytest.mark.parametrize(
    ("mine", "to"), [({}, "expired"), ({"default_expiry_exchange": None}, None), ({"default_drop_expired": True}, None)]
)
def test_t28_unset_under_a_wildcard(
    connection: shmbroker.Connection, mine: Mapping[str, object], to: str | None
) -> None:
    """A wildcard gives an expiry exchange. An address that unsets it drops what expires; other dead letters stay."""
    settings = connection.settings
    dead, expired = dead_letter_queue(connection, "dead", "dlx"), dead_letter_queue(connection, "expired", "exp")
    settings.set("jobs.#", default_expiry_exchange="exp", default_dead_letter_exchange="dlx")
    settings.set("jobs.short.*", default_expiry_delay=0.01, **mine)
    queue = connection.queue("jobs.short.a")
    queue.put(b"late")
    if to is None:
        await_counts(queue, expired=1, message_count=0)
        assert_counts(queue, dead_lettered=0)
    else:
        assert text(next_dead(expired)) == "late"
    assert_counts(dead, added=0)
    settings.set("jobs.short.*", default_no_expiry=True)
    queue.put(b"bad")
    queue.get(timeout=60).reject()
    assert text(next_dead(dead)) == "bad"
    assert_balanced(queue)


def test_t28_a_more_specific_no_expiry_overrides(connection: shmbroker.Connection) -> None:
    """A wildcard gives a life, the address of the queue says no_expiry: its messages live for ever, also later ones."""
    settings = connection.settings
    settings.set("#", default_expiry_delay=0.01)
    queue = connection.queue("kept.a")
    settings.set("kept.#", default_no_expiry=True)
    queue.put(b"x")
    queue.put(b"y", ttl=0.001)
    assert [message.expires_at for message in queue.browse()] == [None, None]


# ---- errors ----


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"expiry_delay": 0}, r"expiry_delay=0: 0\.001 to 315360000 seconds, or None, are allowed"),
        ({"min_expiry_delay": "1"}, r"min_expiry_delay='1': 0\.001 to 315360000 seconds, or None, are allowed"),
        ({"max_expiry_delay": -1}, r"max_expiry_delay=-1: 0\.001 to 315360000 seconds, or None, are allowed"),
        ({"no_expiry": 1}, r"no_expiry=1: True or False is allowed"),
        (
            {"min_expiry_delay": 2, "max_expiry_delay": 1},
            r"min_expiry_delay=2\.0, max_expiry_delay=1\.0: the first must not be longer than the second",
        ),
        ({"expiry_routing_key": "k"}, r"expiry_routing_key='k': it needs an expiry_exchange"),
        (
            {"expiry_exchange": "", "expiry_routing_key": "q"},
            r"expiry_exchange='', expiry_routing_key='q': a queue cannot be its own expiry queue",
        ),
    ],
)
def test_t28_what_is_refused(connection: shmbroker.Connection, settings: dict[str, object], text: str) -> None:
    """An error names the settings, the values and what is allowed."""
    with pytest.raises(ValueError, match=f"^{text}$"):
        connection.queue("q", **settings)


def test_t28_by_arguments(channel: shmbroker.Channel, connection: shmbroker.Connection) -> None:
    """The x- arguments are milliseconds, switches and names; what is not allowed is 406."""
    channel.queue_declare(
        "a",
        arguments={
            "x-expiry-delay": 10,
            "x-min-expiry-delay": 20,
            "x-max-expiry-delay": 30,
            "x-no-expiry": True,
            "x-expiry-exchange": "exp",
            "x-expiry-routing-key": "k",
            "x-drop-expired": True,
        },
    )
    found = connection.queue("a", passive=True).settings
    assert (found.expiry_delay, found.min_expiry_delay, found.max_expiry_delay) == (0.01, 0.02, 0.03)
    assert (found.no_expiry, found.expiry_exchange, found.expiry_routing_key, found.drop_expired) == (
        True,
        "exp",
        "k",
        True,
    )
    with pytest.raises(PreconditionFailed, match="x-expiry-delay"):
        channel.queue_declare("b", arguments={"x-expiry-delay": 0})
