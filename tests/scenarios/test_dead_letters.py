# SPDX-License-Identifier: Apache-2.0
"""Dead letters: where rejected, expired and evicted messages go, and what their headers say (as RabbitMQ's)."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.dead_letters import (
    EXCHANGE,
    dead_letter_queue,
    death,
    deaths_of,
    next_dead,
    reasons,
    reject_next,
    without_housekeeper,
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
from scenario_support.waiting import until_clock

from shmbroker import BasicProperties

if TYPE_CHECKING:
    import shmbroker

MEBIBYTE = 1024 * 1024
QUEUE_TTL = 0.1
OWN_TTL = 600.0
"""The life of a message that the time to live of its queue must cut short."""


@pytest.fixture
def dead(connection: shmbroker.Connection) -> shmbroker.Queue:
    """Declare a dead-letter exchange and the queue behind it."""
    return dead_letter_queue(connection)


# ---- the reasons ----


def test_b64_a_rejected_message_names_its_death(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue
) -> None:
    """reject(requeue=False): x-death[0] has queue, reason, count 1, exchange and routing keys; then count 2."""
    channel.exchange_declare("work", "direct")
    channel.queue_declare("q", arguments={"x-dead-letter-exchange": EXCHANGE})
    channel.queue_bind("q", "work", "k")
    before = dt.datetime.now(dt.UTC).replace(microsecond=0)
    channel.basic_publish("work", "k", b"A", BasicProperties(headers={"mine": 1}))
    message = channel.basic_get("q")
    assert message is not None
    channel.basic_reject(message.delivery_tag, requeue=False)
    first = next_dead(dead)
    assert (text(first), first.exchange, first.routing_key) == ("A", EXCHANGE, "k")
    assert deaths_of(first) == [death("q", "rejected", "k", exchange="work")]
    assert before <= first.headers["x-death"][0]["time"] <= dt.datetime.now(dt.UTC)
    assert {name: value for name, value in first.headers.items() if name != "x-death"} == {
        "mine": 1,
        "x-first-death-queue": "q",
        "x-first-death-reason": "rejected",
        "x-first-death-exchange": "work",
        "x-last-death-queue": "q",
        "x-last-death-reason": "rejected",
        "x-last-death-exchange": "work",
    }
    channel.basic_publish("", "q", b"A", first.properties)
    assert reject_next(connection.queue("q", passive=True)) == "A"
    second = next_dead(dead)
    assert deaths_of(second) == [death("q", "rejected", "k", exchange="work") | {"count": 2}]
    assert (second.exchange, second.routing_key) == (EXCHANGE, "q")


@pytest.mark.parametrize("way", ["expiration of a publish", "ttl of a put"])
def test_b65_the_copy_of_an_expired_message_does_not_expire(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue, way: str
) -> None:
    """The copy has no expiration; that of the message is in x-death as original-expiration."""
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    if way == "ttl of a put":
        queue.put(b"A", ttl=0.05)
    else:
        channel.basic_publish("", "q", b"A", BasicProperties(expiration="50"))
    message = next_dead(dead)
    assert message.properties.expiration is None
    assert message.expires_at is None
    assert reasons(message) == [("q", "expired", 1)]
    original = message.headers["x-death"][0].get("original-expiration")
    assert original == (None if way == "ttl of a put" else "50")
    assert_counts(queue, message_count=0, dead_lettered=1, expired=0)


def test_b57_the_shorter_time_to_live_counts(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue
) -> None:
    """Queue TTL 100 ms and a longer expiration: the message dies after 100 ms, and x-death has its own expiration."""
    channel.queue_declare("q", arguments={"x-message-ttl": 100, "x-dead-letter-exchange": EXCHANGE})
    own = str(int(OWN_TTL * 1000))
    published, before = time.time(), time.monotonic()
    channel.basic_publish("", "q", b"A", BasicProperties(expiration=own))
    connection.queue("q", passive=True).put(b"B", ttl=OWN_TTL)
    first = next_dead(dead)
    assert time.monotonic() - before >= QUEUE_TTL
    second = next_dead(dead)
    assert [text(first), text(second)] == ["A", "B"]
    assert first.timestamp >= published  # the copy is published anew
    assert deaths_of(first) == [death("q", "expired", "q", original_expiration=own)]


def test_an_expired_message_at_the_head_that_a_consumer_holds(
    connection: shmbroker.Connection, dead: shmbroker.Queue
) -> None:
    """It does not die while it is held; returned, it dies as expired. Acked in time, it never does (T27)."""
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    queue.put(b"returned", ttl=0.2)
    queue.put(b"acked", ttl=0.2)
    queue.put(b"stays")
    returned, acked = queue.get(timeout=60), queue.get(timeout=60)
    until_clock(time.monotonic() + 0.3)
    assert_counts(queue, delivering=2, scheduled=0, dead_lettered=0)
    acked.ack()
    returned.nack()
    message = next_dead(dead)
    assert (text(message), reasons(message)) == ("returned", [("q", "expired", 1)])
    assert take(queue, 1) == ["stays"]
    assert_counts(queue, acked=2, dead_lettered=1, message_count=0)
    assert_balanced(queue)


def test_b62_the_head_is_dropped_for_bytes(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """max-length-bytes 10, as a channel declares it: the oldest go until the rest fits."""
    channel.queue_declare("q", arguments={"x-max-length-bytes": 10})
    queue = connection.queue("q", passive=True)
    for body in (b"12345", b"67890", b"abcdef"):
        channel.basic_publish("", "q", body)
    assert listing(queue) == ["abcdef"]
    assert_counts(queue, dropped=2, bytes=6)
    channel.basic_publish("", "q", b"ghij")
    assert listing(queue) == ["abcdef", "ghij"]
    assert_balanced(queue)


def test_b60_the_head_is_dropped_when_the_queue_is_full(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue
) -> None:
    """max-length 2: the third publish drops the head, with reason maxlen; unacked messages do not count."""
    channel.queue_declare("q", arguments={"x-max-length": 2, "x-dead-letter-exchange": EXCHANGE})
    channel.basic_publish("", "q", b"held")
    held = channel.basic_get("q")
    assert held is not None
    for body in b"A", b"B", b"C":
        channel.basic_publish("", "q", body)
    message = next_dead(dead)
    assert text(message) == "A"
    assert deaths_of(message) == [death("q", "maxlen", "q")]
    queue = connection.queue("q", passive=True)
    assert listing(queue) == ["B", "C"]
    channel.basic_nack(held.delivery_tag)  # it returns to a full queue, and is the oldest
    assert text(next_dead(dead)) == "held"
    assert_counts(queue, ready=2, dead_lettered=2, dropped=0)
    assert nothing_to_get(dead)


def test_b60_by_bytes_and_by_put(connection: shmbroker.Connection, dead: shmbroker.Queue) -> None:
    """max_bytes with drop-head: the oldest go, as many as needed, in order."""
    queue = connection.queue("q", max_bytes=10, overflow="drop-head", dead_letter_exchange=EXCHANGE)
    put_each(queue, ["aaa", "bbb", "ccc"])
    put_each(queue, ["12345678"])
    assert [(text(one), reasons(one)) for one in (next_dead(dead), next_dead(dead), next_dead(dead))] == [
        (body, [("q", "maxlen", 1)]) for body in ("aaa", "bbb", "ccc")
    ]
    assert listing(queue) == ["12345678"]
    assert_balanced(queue)


def test_overflow_drop_has_no_dead_letters(connection: shmbroker.Connection, dead: shmbroker.Queue) -> None:
    """A message that a full queue never took does not die in it."""
    queue = connection.queue("q", max_length=1, overflow="drop", dead_letter_exchange=EXCHANGE)
    put_each(queue, "AB")
    assert reject_next(queue) == "A"
    assert text(next_dead(dead)) == "A"
    assert nothing_to_get(dead)
    assert_counts(queue, message_count=0, dead_lettered=1)


def test_t17_an_expired_head_of_a_ring_dies_as_expired(
    broker: shmbroker.Broker, connection: shmbroker.Connection, dead: shmbroker.Queue
) -> None:
    """ring=2, nobody reaped the head: what newer messages replace is replaced, an expired victim goes as expired."""
    ring = connection.queue("ring", ring_size=2, dead_letter_exchange=EXCHANGE)
    alone = connection.queue("alone", ring_size=2)
    with without_housekeeper(broker):
        for queue in (ring, alone):
            queue.put(b"expires", ttl=0.05)
            put_each(queue, "A")
        until_clock(time.monotonic() + 0.06)
        for queue in (ring, alone):
            put_each(queue, "BC")
        assert_counts(alone, message_count=2, replaced=1, expired=1)
    message = next_dead(dead)
    assert (text(message), reasons(message)) == ("expires", [("ring", "expired", 1)])
    assert listing(ring) == ["B", "C"]
    await_counts(ring, message_count=2, replaced=1, dead_lettered=1, expired=0)
    assert_balanced(ring)


def test_priorities_stay_and_order_the_dead(connection: shmbroker.Connection) -> None:
    """A dead message keeps its priority, and the dead-letter queue orders by it; the lowest is evicted first."""
    dead = dead_letter_queue(connection, max_priority=9)
    queue = connection.queue("q", max_priority=9, max_length=2, overflow="drop-head", dead_letter_exchange=EXCHANGE)
    for body, priority in ("low", 1), ("high", 9), ("middle", 5):
        queue.put(body.encode(), priority=priority)
    await_counts(dead, ready=1)
    queue.configure(max_length=-1)
    assert [reject_next(queue) for _ in range(2)] == ["high", "middle"]
    await_counts(dead, ready=3)
    messages = [next_dead(dead) for _ in range(3)]
    assert [(text(one), one.priority) for one in messages] == [("high", 9), ("middle", 5), ("low", 1)]
    assert [one.headers["x-first-death-reason"] for one in messages] == ["rejected", "rejected", "maxlen"]
    assert_balanced(queue)


# ---- circles ----


@pytest.mark.parametrize("hops", [1, 3])
def test_a_circle_without_a_rejection_is_cut(
    connection: shmbroker.Connection, channel: shmbroker.Channel, hops: int
) -> None:
    """Queues with a time to live that lead to each other in a circle: the message goes round once, and is dropped."""
    names = [f"q{number}" for number in range(hops)]
    for name, following in zip(names, names[1:] + names[:1], strict=True):
        channel.exchange_declare(f"to-{following}", "fanout")
        connection.queue(name, message_ttl=0.02, dead_letter_exchange=f"to-{following}")
    for name in names:
        channel.queue_bind(name, f"to-{name}")
    connection.queue("q0", passive=True).put(b"A")
    last = connection.queue(names[-1], passive=True)
    await_counts(last, added=1, dropped=1, message_count=0)
    for name in names:
        assert_counts(connection.queue(name, passive=True), added=1, message_count=0)


def test_a_circle_with_a_rejection_goes_on(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """A retry queue with a time to live leads back to the queue that rejects: the counts tell the rounds."""
    work = connection.queue("work", dead_letter_exchange="", dead_letter_routing_key="retry")
    connection.queue("retry", message_ttl=0.02, dead_letter_exchange="", dead_letter_routing_key="work")
    channel.basic_publish("", "work", b"A")
    for number in range(1, 4):
        assert reject_next(work) == "A"
        await_counts(work, added=number + 1, ready=1)
    message = work.get(timeout=60)
    assert reasons(message) == [("retry", "expired", 3), ("work", "rejected", 3)]
    assert message.headers["x-first-death-queue"] == "work"
    assert message.headers["x-last-death-queue"] == "retry"
    message.ack()
    assert_balanced(work)


# ---- bodies, settling ----


def test_long_bodies_arrive_whole(connection: shmbroker.Connection, dead: shmbroker.Queue) -> None:
    """Bodies in their record, in a slot and of 1 MiB arrive as they were, and nothing of them stays behind."""
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    bodies = [bytes([65 + number]) * size for number, size in enumerate((0, 1, 4096, 4097, 70_000, MEBIBYTE))]
    for body in bodies:
        queue.put(body, key="k", headers={"long": "x" * 5000})
        queue.get(timeout=60).reject()
    for body in bodies:
        message = dead.get(timeout=60)
        assert bytes(message) == body
        assert message.headers["long"] == "x" * 5000
        message.ack()
    await_counts(queue, message_count=0, dead_lettered=len(bodies), bytes=0)
    assert_counts(dead, message_count=0, bytes=0)


def test_properties_survive(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue
) -> None:
    """Every property besides headers and expiration stays as it was."""
    given = BasicProperties(
        content_type="a/b", content_encoding="e", delivery_mode=2, priority=3, correlation_id="c", reply_to="r",
        message_id="m", timestamp=dt.datetime(2026, 1, 2, tzinfo=dt.UTC), type="t", app_id="a",
    )  # fmt: skip
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    channel.basic_publish("", "q", b"A", given)
    reject_next(queue)
    found = next_dead(dead).properties
    for name in BasicProperties.__match_args__:
        if name != "headers":
            assert getattr(found, name) == getattr(given, name), name


@pytest.mark.parametrize("way", ["nack", "reject", "batch", "channel nack", "multiple", "transaction"])
def test_each_way_to_reject(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue, way: str
) -> None:
    """However messages are rejected, each comes once; their order stays where one call rejects them."""
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    bodies = numbered(5)
    put_each(queue, bodies)
    if way in {"nack", "reject"}:
        for message in [queue.get(timeout=60) for _ in bodies]:
            message.reject() if way == "reject" else message.nack(requeue=False)
    elif way == "batch":
        queue.get_many(len(bodies)).nack(requeue=False)
    else:
        if way == "transaction":
            channel.tx_select()
        tags = [message.delivery_tag for _ in bodies if (message := channel.basic_get("q")) is not None]
        if way == "multiple":
            channel.basic_nack(tags[-1], multiple=True, requeue=False)
        else:
            for tag in tags:
                channel.basic_nack(tag, requeue=False)
    if way == "transaction":
        assert_counts(queue, delivering=len(bodies), scheduled=0)
        channel.tx_commit()
    assert [text(next_dead(dead)) for _ in bodies] == bodies
    await_counts(queue, message_count=0, dead_lettered=len(bodies))
    assert_balanced(queue)


def test_a_rejection_that_is_rolled_back(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue
) -> None:
    """A rollback forgets the rejection: nothing dies."""
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    put_each(queue, "A")
    channel.tx_select()
    message = channel.basic_get("q")
    assert message is not None
    channel.basic_reject(message.delivery_tag, requeue=False)
    channel.tx_rollback()
    channel.basic_ack(message.delivery_tag)
    channel.tx_commit()
    await_counts(queue, acked=1, message_count=0, dead_lettered=0)
    assert nothing_to_get(dead)


def test_acks_purges_and_moves_make_no_dead_letters(connection: shmbroker.Connection, dead: shmbroker.Queue) -> None:
    """What is acked, purged, moved or deleted does not die."""
    queue, other = connection.queue("q", dead_letter_exchange=EXCHANGE), connection.queue("other")
    put_each(queue, "ABCD")
    assert take(queue, 1) == ["A"]
    assert queue.move("other", limit=1) == 1
    assert queue.purge() == 2
    put_each(queue, "E")
    assert queue.delete() == 1
    assert listing(other) == ["B"]
    assert nothing_to_get(dead)
    assert_counts(dead, added=0)
