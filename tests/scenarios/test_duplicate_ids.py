# SPDX-License-Identifier: Apache-2.0
"""Duplicate ids: a message that is put twice is stored once (as Artemis's duplicate detection)."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.dead_letters import dead_letter_queue
from scenario_support.observing import assert_balanced, assert_counts, await_counts, listing, numbered, take
from scenario_support.processes import Actor, actors

from shmbroker import BasicProperties
from shmbroker.exceptions import DuplicateId

if TYPE_CHECKING:
    import shmbroker

ROUNDS = 12
EACH = 400


def put_ids(queue: shmbroker.Queue, *ids: str) -> None:
    """Put a message for each id, whose body is the id."""
    for one in ids:
        queue.put(one.encode(), duplicate_id=one)


def known(queue: shmbroker.Queue, *ids: str) -> list[str]:
    """Which of the ids the queue knows; those that it does not know, it knows afterwards."""
    found = []
    for one in ids:
        before = queue.statistics().duplicates
        queue.put(b"asked", duplicate_id=one)
        if queue.statistics().duplicates > before:
            found.append(one)
    return found


def with_id(given: str | bytes) -> BasicProperties:
    """Return properties with a duplicate id."""
    return BasicProperties(headers={"x-duplicate-id": given})


@pytest.fixture
def orders(connection: shmbroker.Connection) -> shmbroker.Queue:
    """Declare a queue that remembers ten ids."""
    return connection.queue("orders", duplicate_ids=10)


# ---- one message ----


def test_t60_the_same_id_twice_is_one_message(orders: shmbroker.Queue, other: shmbroker.Connection) -> None:
    """The second put returns, and stores nothing; over another connection as well, and also after the ack."""
    put_ids(orders, "a", "b", "a")
    other.queue("orders").put(b"again", duplicate_id="b")
    assert listing(orders) == ["a", "b"]
    assert take(orders, 2) == ["a", "b"]
    put_ids(orders, "a", "c")
    assert listing(orders) == ["c"]
    assert_counts(orders, added=3, dropped=0, duplicates=3)
    assert_balanced(orders)


def test_t60_a_text_is_its_bytes(orders: shmbroker.Queue) -> None:
    """The ids "ö" and its UTF-8 bytes are one id; the consumer sees the header as it was put."""
    orders.put(b"1", duplicate_id="ö")
    orders.put(b"2", duplicate_id="ö".encode())
    orders.put(b"3", duplicate_id=b"\xff")
    assert listing(orders) == ["1", "3"]
    assert [message.headers["x-duplicate-id"] for message in orders.browse()] == ["ö", b"\xff"]


def test_t60_messages_without_an_id_are_never_duplicates(orders: shmbroker.Queue) -> None:
    """Neither are those whose header is no text and no bytes, or is empty."""
    for headers in (None, {"other": "a"}, {"x-duplicate-id": 7}, {"x-duplicate-id": ""}, {"x-duplicate-id": b""}):
        orders.put(b"1", headers=headers)
        orders.put(b"2", headers=headers)
    assert_counts(orders, message_count=10, duplicates=0)


def test_t60_each_way_to_put_knows_the_id(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """put, put_many, reserve, and a publish through an exchange, whose confirm is an ack."""
    orders = connection.queue("orders", duplicate_ids=10)
    assert orders.put_many([b"1", b"2"], duplicate_id="many") == 2
    with orders.reserve(1, duplicate_id="reserved") as body:
        body[:] = b"3"
    with orders.reserve(1, duplicate_id="many") as body:
        body[:] = b"4"
    channel.exchange_declare("fan", "fanout")
    channel.queue_bind("orders", "fan", "")
    channel.confirm_delivery()
    channel.basic_publish("", "orders", b"5", with_id("published"))
    for exchange in ("", "fan"):
        channel.basic_publish(exchange, "orders", b"6", with_id("published"))
        channel.basic_publish(exchange, "orders", b"7", with_id("reserved"))
    assert channel.wait_for_confirms(60)
    orders.put(b"8", duplicate_id="published", delay=3600)
    orders.put(b"9" * 200_000, duplicate_id="published")
    assert listing(orders) == ["1", "3", "5"]
    assert_counts(orders, scheduled=0, duplicates=8)


def test_t60_a_publish_goes_to_the_queues_that_do_not_know_its_id(
    connection: shmbroker.Connection, channel: shmbroker.Channel
) -> None:
    """Of three queues of an exchange, one knows the id, one does not, and one remembers no ids."""
    queues = [connection.queue(name, duplicate_ids=number) for name, number in (("a", 5), ("b", 5), ("c", 0))]
    channel.exchange_declare("fan", "fanout")
    for queue in queues:
        channel.queue_bind(queue.name, "fan", "")
    put_ids(queues[0], "x")
    for body in (b"1", b"2"):
        channel.basic_publish("fan", "", body, with_id("x"))
    assert [listing(queue) for queue in queues] == [["x"], ["1"], ["1", "2"]]
    assert [queue.statistics().duplicates for queue in queues] == [2, 1, 0]


def test_t60_a_full_queue_has_no_room_to_wait_for(connection: shmbroker.Connection) -> None:
    """A put of a known id returns though the queue is full; a message that a full queue drops leaves no id."""
    full = connection.queue("full", duplicate_ids=10, max_length=1)
    put_ids(full, "a", "a")
    full.configure(overflow="drop")
    put_ids(full, "b")
    assert_counts(full, added=2, dropped=1, duplicates=1)
    assert take(full, 1) == ["a"]
    put_ids(full, "b")
    assert listing(full) == ["b"]


def test_t60_a_message_that_expired_stays_known(connection: shmbroker.Connection) -> None:
    """Its id is remembered after it became a dead letter; the queue of dead letters gets it whatever ids it knows."""
    dead = dead_letter_queue(connection, duplicate_ids=10)
    work = connection.queue("work", duplicate_ids=10, dead_letter_exchange="dlx")
    put_ids(dead, "a")
    put_ids(work, "a")
    work.get(timeout=60).reject()
    await_counts(dead, message_count=2)
    put_ids(work, "a")
    await_counts(work, message_count=0, duplicates=1)  # the dead letter is there before the message has ended


# ---- transactions ----


def test_t60_an_id_of_a_rolled_back_transaction_is_reusable(
    orders: shmbroker.Queue, channel: shmbroker.Channel
) -> None:
    """Published and rolled back, then put: the message is stored."""
    channel.tx_select()
    channel.basic_publish("", "orders", b"1", with_id("a"))
    channel.tx_rollback()
    channel.basic_publish("", "orders", b"2", with_id("a"))
    channel.tx_commit()
    put_ids(orders, "a")
    assert listing(orders) == ["2"]


@pytest.mark.parametrize("ids", [["new", "old"], ["old", "new"], ["new", "twice", "twice"]])
def test_t60_a_transaction_with_a_duplicate_is_rejected_with_its_acks(
    connection: shmbroker.Connection, channel: shmbroker.Channel, orders: shmbroker.Queue, ids: list[str]
) -> None:
    """The commit raises DuplicateId; nothing is published, and what was acknowledged is unacked after the rollback."""
    source = connection.queue("source")
    source.put(b"input")
    put_ids(orders, "old")
    channel.tx_select()
    found = channel.basic_get("source")
    assert found is not None
    channel.basic_ack(found.delivery_tag)
    for one in ids:
        channel.basic_publish("", "orders", one.encode(), with_id(one))
    with pytest.raises(DuplicateId, match="'orders' knows the id") as raised:
        channel.tx_commit()
    assert raised.value.queue_name == "orders"
    assert listing(orders) == ["old"]
    assert_counts(source, acked=0, delivering=1)
    channel.tx_rollback()
    channel.basic_nack(found.delivery_tag)
    channel.tx_commit()
    assert listing(source) == ["input"]
    assert known(orders, "new", "twice") == []


# ---- the size of the memory ----


def test_t60_the_next_id_evicts_the_oldest(connection: shmbroker.Connection) -> None:
    """A queue that remembers 3 ids: a fourth one, and "a" is forgotten, "b" is not."""
    small = connection.queue("small", duplicate_ids=3)
    put_ids(small, "a", "b", "c")
    assert known(small, "a") == ["a"]
    put_ids(small, "d")
    assert known(small, "b", "c", "d") == ["b", "c", "d"]
    assert known(small, "a") == []
    assert known(small, "b", "a", "d", "c") == ["a", "d"]  # "a" evicted "b", which then evicted "c"
    assert_counts(small, ready=4 + 1 + 2)


@pytest.mark.parametrize("size", [1, 1000])
def test_t60_exactly_the_last_ids_are_known(connection: shmbroker.Connection, size: int) -> None:
    """After three times as many ids as a queue remembers, it knows the last ones, and none before."""
    queue = connection.queue("queue", duplicate_ids=size)
    ids = numbered(3 * size)
    put_ids(queue, *ids)
    assert known(queue, *ids[-size:]) == ids[-size:]
    assert known(queue, ids[-size - 1]) == []


def test_t60_more_ids_than_a_block_of_memory(connection: shmbroker.Connection) -> None:
    """Twenty thousand ids, the number of Artemis, take several blocks, and all are known."""
    queue = connection.queue("queue", duplicate_ids=20_000)
    ids = numbered(25_000)
    put_ids(queue, *ids)
    put_ids(queue, *reversed(ids[-20_000:]))
    assert_counts(queue, message_count=25_000, duplicates=20_000)


def test_t60_size_0_disables(connection: shmbroker.Connection, orders: shmbroker.Queue) -> None:
    """A queue without the setting remembers nothing; 0 forgets what a queue remembered."""
    plain = connection.queue("plain")
    assert plain.settings.duplicate_ids == 0
    put_ids(plain, "a", "a")
    assert_counts(plain, message_count=2, duplicates=0)
    put_ids(orders, "a")
    orders.configure(duplicate_ids=0)
    put_ids(orders, "a", "a")
    orders.configure(duplicate_ids=10)
    assert known(orders, "a", "a") == ["a"]


def test_t60_a_smaller_memory_keeps_the_newest(connection: shmbroker.Connection) -> None:
    """From 150 to 100: the newest 100 are known; back at 150, the first 50 stay forgotten."""
    queue = connection.queue("queue", duplicate_ids=150)
    ids = numbered(150)
    put_ids(queue, *ids)
    queue.configure(duplicate_ids=100)
    assert known(queue, *ids[50:]) == ids[50:]
    queue.configure(duplicate_ids=150)
    assert known(queue, *ids[50:]) == ids[50:]
    assert known(queue, *ids[:50]) == []


def test_t60_the_default_of_an_address_is_live(connection: shmbroker.Connection) -> None:
    """default_duplicate_ids holds for a queue that was declared without the setting, also if it is set later."""
    queue = connection.queue("jobs.a")
    connection.settings.set("jobs.#", default_duplicate_ids=5)
    assert queue.settings.duplicate_ids == 5
    put_ids(queue, "a", "a")
    assert_counts(queue, message_count=1, duplicates=1)


# ---- several processes ----


def test_t60_processes_that_put_the_same_ids_store_each_once(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Four processes put the same ids in random orders at the same time."""
    queue = connection.queue("queue", duplicate_ids=1000)
    ids = numbered(EACH)
    with actors(broker.name, 4) as putters:
        for number, putter in enumerate(putters):
            putter.begin("put_ids", queue="queue", ids=random.Random(number).sample(ids, EACH))
        for putter in putters:
            putter.result()
    assert sorted(listing(queue)) == sorted(ids)
    assert_counts(queue, added=EACH, duplicates=3 * EACH)


@pytest.mark.timeout(900)
def test_t60_what_a_killed_producer_put_is_not_put_again(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Two producers of the same ids are killed at any moment; a third one puts all again: each is there once."""
    chance = random.Random(60)
    queue = connection.queue("queue", duplicate_ids=1000)
    for _ in range(ROUNDS):
        ids = numbered(EACH)
        with actors(broker.name, 2) as victims:
            for victim in victims:
                victim.begin("put_ids", queue="queue", ids=ids)
            wanted = chance.randrange(EACH)
            while queue.statistics().message_count < wanted:
                time.sleep(0)
            for victim in victims:
                victim.kill()
        put_ids(queue, *ids)
        assert sorted(listing(queue)) == sorted(ids)
        queue.delete()
        queue = connection.queue("queue", duplicate_ids=1000)


@pytest.mark.timeout(900)
def test_t60_a_killed_transaction_takes_its_id_along(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A process moves inputs to ids in transactions, and is killed: what its successor commits again is there once."""
    chance = random.Random(61)
    for _ in range(ROUNDS):
        source, queue = connection.queue("source"), connection.queue("queue", duplicate_ids=1000)
        ids = numbered(EACH)
        source.put_many([one.encode() for one in ids])
        with Actor(broker.name) as victim:
            victim.begin("commit_ids", source="source", queue="queue", ids=ids)
            wanted = chance.randrange(EACH)
            while queue.statistics().message_count < wanted:
                time.sleep(0)
            victim.kill()
        await_counts(source, delivering=0)
        done = queue.statistics().message_count
        assert source.statistics().message_count + done == EACH
        put_ids(queue, *ids)
        assert sorted(listing(queue)) == sorted(ids)
        assert queue.statistics().duplicates == done
        source.delete()
        queue.delete()


def test_t60_the_id_of_a_process_that_is_gone_is_free(broker: shmbroker.Broker, orders: shmbroker.Queue) -> None:
    """An id that a killed process published, and did not commit, is put by another one."""
    with Actor(broker.name) as victim:
        victim.do("publish_in_transaction", queue="orders", one="a")
        victim.kill()
    put_ids(orders, "a")
    assert listing(orders) == ["a"]
