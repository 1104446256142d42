# SPDX-License-Identifier: Apache-2.0
"""Queues with last values: of the messages with one key only the newest stays (as those of Qpid and Artemis)."""

from __future__ import annotations

import random
from queue import Full
from typing import TYPE_CHECKING

import pytest
from scenario_support.dead_letters import without_housekeeper
from scenario_support.observing import (
    arrived,
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    take,
    text,
    texts,
)
from scenario_support.processes import Actor, actors
from scenario_support.waiting import eventually

from shmbroker import BasicProperties
from shmbroker.exceptions import PreconditionFailed, PublishRejected

if TYPE_CHECKING:
    import shmbroker

HEADER = "symbol"


def latest(connection: shmbroker.Connection, **settings: object) -> shmbroker.Queue:
    """Declare a queue whose key is the header `symbol`."""
    return connection.queue("latest", last_value_key=HEADER, **settings)


def put_values(queue: shmbroker.Queue, *values: str, **options: object) -> None:
    """Put each body; what lies before its hyphen is its key."""
    for value in values:
        queue.put(value.encode(), headers={HEADER: value.partition("-")[0]}, **options)


def test_q76_a_new_value_replaces_the_one_that_is_ready(connection: shmbroker.Connection) -> None:
    """The same key twice: one message, the new one, at the tail."""
    queue = latest(connection)
    put_values(queue, "a-1", "b-1", "a-2")
    assert listing(queue) == ["b-1", "a-2"]
    assert_counts(queue, message_count=2, added=3, replaced=1)
    assert take(queue, 2) == ["b-1", "a-2"]
    put_values(queue, "a-3")
    assert_counts(queue, message_count=1, replaced=1)
    assert connection.doctor() == []


def test_q76_a_value_that_is_held_ends_when_it_returns(connection: shmbroker.Connection) -> None:
    """The old value is held: two messages until it is returned; then the old one is replaced, wherever it was."""
    queue = latest(connection)
    put_values(queue, "a-1")
    held = queue.get(timeout=60)
    put_values(queue, "a-2", "b-1")
    assert_counts(queue, message_count=3, delivering=1, replaced=0)
    held.nack()
    assert listing(queue) == ["a-2", "b-1"]
    assert_counts(queue, message_count=2, replaced=1)
    assert_balanced(queue)
    assert connection.doctor() == []


def test_a_value_that_returns_after_the_newer_one_was_acknowledged_is_the_latest(
    connection: shmbroker.Connection,
) -> None:
    """The newer value was consumed: nothing is newer than the old one, which is ready again, and can be replaced."""
    queue = latest(connection)
    put_values(queue, "a-1")
    held = queue.get(timeout=60)
    put_values(queue, "a-2")
    assert take(queue, 1) == ["a-2"]
    held.nack()
    assert listing(queue) == ["a-1"]
    put_values(queue, "a-3")
    assert listing(queue) == ["a-3"]
    assert_counts(queue, message_count=1, replaced=1, acked=1)


def test_a_held_value_is_newer_than_one_that_returns(connection: shmbroker.Connection) -> None:
    """Both values are held, and both return, the older one first: it is replaced, although the newer one is held."""
    queue = latest(connection)
    put_values(queue, "a-1")
    older = queue.get(timeout=60)
    put_values(queue, "a-2")
    newer = queue.get(timeout=60)
    older.nack()
    assert_counts(queue, message_count=1, delivering=1, replaced=1)
    newer.nack()
    assert listing(queue) == ["a-2"]


def test_q77_the_last_value_received_of_a_key_is_the_last_one_sent(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Two producers and a consumer at the same time: whatever the consumer misses, of each key the last one comes last.

    Each producer has its own keys.
    """
    queue = latest(connection)
    chance = random.Random(77)
    with actors(broker.name, 3) as (first, second, consumer):
        sent: dict[str, str] = {}
        for producer, keys in ((first, "abcde"), (second, "vwxyz")):
            values = [[key, f"{key}-{n}"] for n in range(600) for key in chance.sample(keys, 2)]
            sent.update(dict(values))
            producer.begin("put_values", queue="latest", values=values, header=HEADER)
        received: list[str] = []
        while True:
            received += consumer.do("get_what_is_there", queue="latest")
            statistics = queue.statistics()
            if statistics.added == 2400 and statistics.message_count == 0:
                break
        first.result()
        second.result()
        received += consumer.do("get_what_is_there", queue="latest")
    assert {body.partition("-")[0]: body for body in received} == sent
    of_key = [[int(body[2:]) for body in received if body.startswith(key)] for key in sent]
    assert all(numbers == sorted(numbers) for numbers in of_key)
    assert_counts(queue, added=2400, acked=len(received), replaced=2400 - len(received), message_count=0)
    assert connection.doctor() == []


def test_q77_two_producers_of_one_key_leave_one_value(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Four processes put values of the same three keys at the same time: three messages stay, each the last of one."""
    queue = latest(connection)
    with actors(broker.name, 4) as producers:
        for number, producer in enumerate(producers):
            values = [[key, f"{key}-{number}-{n}"] for n in range(500) for key in "abc"]
            producer.begin("put_values", queue="latest", values=values, header=HEADER)
        for producer in producers:
            producer.result()
    left = listing(queue)
    assert sorted(body[0] for body in left) == ["a", "b", "c"]
    assert all(body.endswith("-499") for body in left)
    assert_counts(queue, added=6000, replaced=5997, message_count=3)
    assert connection.doctor() == []


def test_t35_a_consumer_gets_the_newest_value_of_each_key(connection: shmbroker.Connection) -> None:
    """m1, m2 of one key: count 1, replaced 1, m2 is received; of two keys put in turn, m3 and m4 are, in that order."""
    queue = latest(connection)
    put_values(queue, "K-m1", "K-m2")
    assert_counts(queue, message_count=1, replaced=1)
    assert take(queue, 1) == ["K-m2"]
    put_values(queue, "K-m1", "L-m2", "K-m3", "L-m4")
    with queue.consume(prefetch=10) as consumer:
        assert texts(consumer.get(timeout=60) for _ in range(2)) == ["K-m3", "L-m4"]
        assert arrived(consumer) is None


@pytest.mark.parametrize(
    "headers",
    [None, {}, {HEADER: None}, {"other": "a"}, {HEADER: ["a"]}, {HEADER: {"a": 1}}],
    ids=["no headers", "empty", "none", "other", "a list", "a table"],
)
def test_t37_messages_without_a_key_are_all_delivered(
    connection: shmbroker.Connection, headers: dict[str, object] | None
) -> None:
    """No key, or one that is no single value: no message replaces another; a key that is None is no key."""
    queue = latest(connection)
    for body in ("1", "2", "3"):
        queue.put(body.encode(), headers=headers)
    assert_counts(queue, message_count=3, replaced=0)
    assert take(queue, 3) == ["1", "2", "3"]


@pytest.mark.parametrize("key", ["", "a", "ä" * 500, 0, -1, 2**40, 1.5, True, b"", b"\0a"], ids=repr)
def test_any_single_value_is_a_key(connection: shmbroker.Connection, key: object) -> None:
    """Strings, numbers, booleans and bytes are keys; the last of three values stays, beside all other keys."""
    queue = latest(connection)
    others = ["b", 1, 2.5, False, b"a", "1", "True", 5]
    for other in others:
        queue.put(b"other", headers={HEADER: other})
    for body in (b"1", b"2", b"3"):
        queue.put(body, headers={HEADER: key, "more": "x"})
    assert listing(queue) == ["other"] * len(others) + ["3"]


@pytest.mark.parametrize("way", ["nack", "rollback"])
def test_t38_a_value_that_was_rolled_back_often_is_replaced_once(
    connection: shmbroker.Connection, channel: shmbroker.Channel, way: str
) -> None:
    """Received and returned ten times, then a new value: exactly one message is left."""
    queue = latest(connection)
    put_values(queue, "K-1")
    if way == "rollback":
        channel.tx_select()
    for _ in range(10):
        tag = channel.basic_get("latest").delivery_tag
        if way == "nack":
            channel.basic_nack(tag)
        else:
            channel.basic_ack(tag)
            channel.tx_rollback()
            channel.basic_recover()
    assert_counts(queue, message_count=1, replaced=0)
    put_values(queue, "K-2")
    assert listing(queue) == ["K-2"]
    assert_counts(queue, message_count=1, replaced=1)


def test_t38_values_of_a_transaction_that_is_rolled_back_replace_nothing(
    connection: shmbroker.Connection, channel: shmbroker.Channel
) -> None:
    """Ten times a new value is published and rolled back: the old one stays; after a commit only the new one does."""
    queue = latest(connection)
    put_values(queue, "K-1")
    channel.tx_select()
    for number in range(10):
        for _ in range(2):
            channel.basic_publish("", "latest", f"K-{number}".encode(), BasicProperties(headers={HEADER: "K"}))
        channel.tx_rollback()
    assert listing(queue) == ["K-1"]
    for body in ("K-2", "L-2", "K-3"):
        channel.basic_publish("", "latest", body.encode(), BasicProperties(headers={HEADER: body[0]}))
    assert listing(queue) == ["K-1"]
    channel.tx_commit()
    assert listing(queue) == ["L-2", "K-3"]
    assert_counts(queue, message_count=2, replaced=2)
    assert_balanced(queue)


def test_t39_after_a_purge_the_same_key_is_delivered(connection: shmbroker.Connection) -> None:
    """Purge, delete the messages of a selector, or get them: the next value of the key stays, and is delivered."""
    queue = latest(connection)
    put_values(queue, "K-1")
    queue.purge()
    put_values(queue, "K-2")
    queue.purge(selector=f"{HEADER} = 'K'")
    put_values(queue, "K-3")
    assert take(queue, 1) == ["K-3"]
    put_values(queue, "K-4", "K-5")
    assert take(queue, 1) == ["K-5"]
    assert_counts(queue, message_count=0, replaced=1)


def test_t40_of_values_that_become_due_the_last_one_is_left(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Five delayed values of one key: all are scheduled; when all were due, the last one is left, and four replaced."""
    queue = latest(connection)
    with without_housekeeper(broker):
        put_values(queue, *(f"K-{n}" for n in range(5)), delay=0.05)
        assert_counts(queue, scheduled=5, replaced=0)
    await_counts(queue, message_count=1, scheduled=0, added=5, replaced=4)
    assert listing(queue) == ["K-4"]


def test_a_value_that_becomes_due_after_a_newer_one_came_is_replaced(connection: shmbroker.Connection) -> None:
    """Newer is what was put later: a delayed value loses to one that was put while it waited."""
    queue = latest(connection)
    put_values(queue, "K-1", delay=0.05)
    put_values(queue, "K-2")
    await_counts(queue, message_count=1, scheduled=0, replaced=1)
    assert listing(queue) == ["K-2"]


def test_a_value_that_expires_ends_its_key(connection: shmbroker.Connection) -> None:
    """A value with a time to live vanishes: the key has no message, and its next value replaces nothing."""
    queue = latest(connection)
    put_values(queue, "K-1")
    put_values(queue, "K-gone", ttl=0.02)
    await_counts(queue, message_count=0, replaced=1, expired=1)
    put_values(queue, "K-2")
    assert_counts(queue, message_count=1, replaced=1)


def test_a_ring_of_last_values_evicts_what_is_oldest(connection: shmbroker.Connection) -> None:
    """ring_size 2: a new value of a key that is there replaces that key's; a third key replaces the oldest."""
    queue = latest(connection, ring_size=2)
    put_values(queue, "a-1", "b-1", "a-2")
    assert listing(queue) == ["b-1", "a-2"]
    put_values(queue, "c-1")
    assert listing(queue) == ["a-2", "c-1"]
    assert_counts(queue, message_count=2, replaced=2)
    assert connection.doctor() == []


@pytest.mark.parametrize("overflow", ["block", "drop", "reject-publish"])
@pytest.mark.parametrize("limit", [{"max_length": 2}, {"max_bytes": 6}])
def test_a_new_value_takes_the_room_of_the_one_that_it_replaces(
    connection: shmbroker.Connection, overflow: str, limit: dict[str, int]
) -> None:
    """A full queue takes the next values of the keys that it has, and no further key."""
    queue = latest(connection, overflow=overflow, **limit)
    put_values(queue, "a-1", "b-1")
    put_values(queue, "a-2", "b-2", "a-3", timeout=0)
    assert listing(queue) == ["b-2", "a-3"]
    if overflow == "drop":
        put_values(queue, "c-1")
    else:
        with pytest.raises(Full if overflow == "block" else PublishRejected):
            put_values(queue, "c-1", timeout=0)
    assert listing(queue) == ["b-2", "a-3"]
    assert_counts(queue, message_count=2, replaced=3, dropped=int(overflow == "drop"))
    assert_balanced(queue)
    assert connection.doctor() == []


def test_a_value_that_is_held_gives_no_room(connection: shmbroker.Connection) -> None:
    """Held messages need no room, so they give none; a larger value waits if the limit of bytes has no room for it."""
    queue = latest(connection, max_bytes=6)
    put_values(queue, "a-1", "b-1")
    with pytest.raises(Full):
        put_values(queue, "a-22", timeout=0)
    assert listing(queue) == ["a-1", "b-1"]
    queue.get(timeout=60)
    put_values(queue, "a-2", timeout=0)
    with pytest.raises(Full):
        put_values(queue, "a-33", timeout=0)
    assert_counts(queue, ready=2, delivering=1, replaced=0)
    assert connection.doctor() == []


def test_values_that_are_moved_are_new_values(connection: shmbroker.Connection) -> None:
    """Messages that are moved into the queue, in rows or alone, replace what is there; the last one of a key stays."""
    queue = latest(connection)
    plain = connection.queue("plain")
    put_values(queue, "0-old", "1-old", "z-old")
    put_values(plain, *(f"{n % 10}-{n}" for n in range(300)))
    assert plain.move(queue) == 300
    assert sorted(listing(queue)) == sorted(["z-old", *(f"{n % 10}-{n}" for n in range(290, 300))])
    assert_counts(queue, message_count=11, replaced=292)
    assert_balanced(queue)
    assert queue.move(plain, limit=1) == 1
    put_values(queue, "z-new")
    assert_counts(queue, message_count=11, replaced=292)
    assert connection.doctor() == []


def test_many_keys_at_a_time(connection: shmbroker.Connection) -> None:
    """20,000 keys, each put three times in another order: the newest value of each stays; nothing leaks."""
    queue = latest(connection)
    chance = random.Random(1)
    keys = [f"key {n}" for n in range(20_000)]
    for turn in range(3):
        chance.shuffle(keys)
        for key in keys:
            queue.put(str(turn).encode(), headers={HEADER: key})
    assert_counts(queue, message_count=20_000, replaced=40_000)
    assert listing(queue) == ["2"] * 20_000
    assert connection.doctor() == []
    queue.delete()
    assert connection.doctor() == []


def test_a_body_in_parts_has_a_key(connection: shmbroker.Connection) -> None:
    """A message that is larger than any free piece of memory is stored in parts: its key is found there."""
    queue = latest(connection)
    body = b"x" * (5 << 20)
    for _ in range(3):
        queue.put(body, headers={HEADER: "big", "filler": "y" * 3000})
    assert_counts(queue, message_count=1, replaced=2)


def test_a_selector_finds_the_newest_values(connection: shmbroker.Connection) -> None:
    """A consumer with a selector gets the newest values that it selects; each that is replaced is not delivered."""
    queue = latest(connection)
    for value in ("a-1", "b-1", "a-2", "c-1", "b-2"):
        queue.put(value.encode(), headers={HEADER: value[0], "n": int(value[2:])})
    with queue.consume(selector="n = 2", prefetch=10) as consumer:
        assert texts(consumer.get(timeout=60) for _ in range(2)) == ["a-2", "b-2"]
    assert sorted(listing(queue)) == ["a-2", "b-2", "c-1"]


def test_the_death_of_a_consumer_returns_values_that_are_replaced(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A consumer is killed with values that were superseded meanwhile: they are replaced when its messages return."""
    queue = latest(connection)
    keys = [f"k{n}" for n in range(40)]
    put_values(queue, *(f"{key}-old" for key in keys))
    with Actor(broker.name) as victim:
        victim.do("get", queue="latest", count=40)
        put_values(queue, *(f"{key}-new" for key in keys[:25]))
        victim.kill()
    await_counts(queue, message_count=40, delivering=0, replaced=25)
    assert sorted(listing(queue)) == sorted([f"{k}-new" for k in keys[:25]] + [f"{k}-old" for k in keys[25:]])
    assert_balanced(queue)
    assert connection.doctor() == []


def test_producers_that_are_killed_leave_one_value_of_each_key(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Producers of the same keys are killed at any moment, twelve times: each key has one message."""
    queue = latest(connection)
    keys = [f"k{n}" for n in range(7)]
    values = [[key, f"{key}-{n}"] for n in range(4000) for key in keys]
    for _ in range(12):
        with actors(broker.name, 2) as pair:
            for producer in pair:
                producer.begin("put_values", queue="latest", values=values, header=HEADER)
            before = queue.statistics().added
            eventually(lambda before=before: queue.statistics().added > before + 200)
            pair[0].kill()
            pair[1].kill()
    eventually(lambda: connection.doctor() == [])
    assert sorted(body.partition("-")[0] for body in listing(queue)) == keys
    assert_balanced(queue)
    put_values(queue, *(f"{key}-end" for key in keys))
    assert sorted(listing(queue)) == [f"{key}-end" for key in keys]


@pytest.mark.parametrize(
    ("more", "named"),
    [({"message_groups": "sticky"}, "message_groups='sticky'"), ({"max_priority": 3}, "max_priority=3")],
)
def test_last_values_with_groups_or_priorities_are_refused(
    connection: shmbroker.Connection, more: dict[str, object], named: str
) -> None:
    """Both together have no meaning: the error names both settings and their values."""
    with pytest.raises(ValueError, match=f"last_value_key='symbol', {named}: only one of them may be set"):
        latest(connection, **more)


@pytest.mark.parametrize("key", ["", 5, "x\0", "y" * 256])
def test_a_last_value_key_that_is_no_name_is_refused(connection: shmbroker.Connection, key: object) -> None:
    """The error names the setting, the value and what is allowed."""
    with pytest.raises(ValueError, match=r"last_value_key=.*bytes of UTF-8"):
        connection.queue("q", last_value_key=key)


def test_x_last_value_key_of_a_channel(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """`x-last-value-key` of a declaration does the same; another value of it is refused."""
    channel.queue_declare("latest", arguments={"x-last-value-key": HEADER})
    queue = connection.queue("latest", passive=True)
    put_values(queue, "a-1", "a-2")
    assert text(queue.get(timeout=60)) == "a-2"
    with pytest.raises(PreconditionFailed, match="x-last-value-key"):
        channel.queue_declare("latest", arguments={"x-last-value-key": "other"})
