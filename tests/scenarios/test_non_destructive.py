# SPDX-License-Identifier: Apache-2.0
"""Non-destructive queues: every consumer gets every message, and an acknowledged message stays (as in Artemis)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import Inbox
from scenario_support.dead_letters import dead_letter_queue
from scenario_support.observing import (
    Gathered,
    arrived,
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    numbered,
    put_each,
    text,
    texts,
)
from scenario_support.processes import Actor, actors
from scenario_support.waiting import eventually

from shmbroker import BasicProperties
from shmbroker.exceptions import MessageSettled, NotImplementedByBroker, PreconditionFailed

if TYPE_CHECKING:
    import shmbroker

HOUR = 3600.0
LONG = 100_000


def board(connection: shmbroker.Connection, **settings: object) -> shmbroker.Queue:
    """Declare a queue whose messages stay."""
    return connection.queue("board", non_destructive=True, **settings)


def read(consumer: shmbroker.Consumer, count: int, *, ack: bool = True) -> list[str]:
    """Take messages from a consumer; return their texts."""
    found = []
    for _ in range(count):
        message = consumer.get(timeout=60)
        found.append(text(message))
        if ack:
            message.ack()
    return found


# ---- every consumer gets every message ----


def test_t41_each_consumer_gets_all_messages_in_order(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Two processes get all three, a third one that comes later too; acks leave them; a purge ends them."""
    queue = board(connection)
    with actors(broker.name, 3) as (first, second, third):
        first.do("consume", queue="board")
        put_each(queue, ["A", "B", "C"])
        second.do("consume", queue="board")
        for one in (first, second):
            found = one.do("receive", count=3, timeout=60, settle="ack")
            assert [message["body"] for message in found] == ["A", "B", "C"]
            assert not any(message["redelivered"] for message in found)
        assert_counts(queue, message_count=3, ready=3, acked=0)
        third.do("consume", queue="board")
        assert [m["body"] for m in third.do("receive", count=3, timeout=60, settle="ack")] == ["A", "B", "C"]
        await_counts(queue, message_count=3, delivering=0)
        assert queue.purge() == 3
        assert_counts(queue, message_count=0, killed=3)
        put_each(queue, ["D"])
        for one in (first, second, third):
            assert [m["body"] for m in one.do("receive", timeout=60)] == ["D"]
    assert_balanced(queue)
    assert connection.doctor() == []


def test_the_same_object_gets_each_message_once(connection: shmbroker.Connection) -> None:
    """Unacked, as many as its prefetch allows, then no more; acks let it go on, and nothing comes twice."""
    queue = board(connection)
    put_each(queue, numbered(10))
    with queue.consume(prefetch=4) as consumer:
        held = [consumer.get(timeout=60) for _ in range(4)]
        assert texts(held) == numbered(4)
        assert arrived(consumer) is None
        await_counts(queue, delivering=4, message_count=10, ready=10)
        for message in held:
            message.ack()
        assert read(consumer, 6) == numbered(6, 4)
        assert arrived(consumer) is None
        put_each(queue, ["new"])
        assert read(consumer, 1) == ["new"]
        assert arrived(consumer) is None
    assert_counts(queue, message_count=11, delivering=0)


def test_an_acknowledgement_ends_only_the_reading(connection: shmbroker.Connection) -> None:
    """A message is settled once: a second ack fails, and the message is still in the queue."""
    queue = board(connection)
    put_each(queue, ["A"])
    with queue.consume() as consumer:
        message = consumer.get(timeout=60)
        message.ack()
        with pytest.raises(MessageSettled):
            message.ack()
    assert listing(queue) == ["A"]


def test_a_returned_message_comes_again_to_the_consumer_that_returned_it(connection: shmbroker.Connection) -> None:
    """Nack: the same consumer gets it once more, marked, before newer ones; the other one sees nothing of that."""
    queue = board(connection)
    put_each(queue, ["A", "B"])
    with queue.consume(prefetch=1) as consumer, queue.consume() as other:
        assert read(other, 2) == ["A", "B"]
        first = consumer.get(timeout=60)
        first.nack()
        again = consumer.get(timeout=60)
        assert (text(again), again.redelivered, again.delivery_count) == ("A", True, 2)
        again.ack()
        assert read(consumer, 1) == ["B"]
        assert arrived(consumer) is None
        assert arrived(other) is None


def test_a_rejected_message_stays_for_the_others(connection: shmbroker.Connection) -> None:
    """Reject: not dropped, no dead letter, and it does not come again."""
    dead = dead_letter_queue(connection)
    queue = board(connection, dead_letter_exchange="dlx")
    put_each(queue, ["A"])
    with queue.consume() as consumer:
        consumer.get(timeout=60).reject()
        assert arrived(consumer) is None
    with queue.consume() as later:
        assert read(later, 1) == ["A"]
    assert_counts(queue, message_count=1, dropped=0, dead_lettered=0)
    assert len(dead) == 0


def test_a_killed_consumer_leaves_the_queue_as_it_was(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """SIGKILL while it has short and long messages: nothing is lost, nothing is left, no delivery counts."""
    queue = board(connection)
    queue.put(b"short")
    queue.put(bytes(LONG))
    with Actor(broker.name) as victim:
        victim.do("consume", queue="board")
        victim.do("receive", count=2, timeout=60)
        await_counts(queue, delivering=2)
        victim.kill()
    eventually(lambda: queue.statistics().consumers == 0)
    assert_counts(queue, message_count=2, ready=2, delivering=0, redelivered=0)
    with queue.consume() as consumer:
        messages = [consumer.get(timeout=60) for _ in range(2)]
        assert [(len(m), m.redelivered, m.delivery_count) for m in messages] == [(5, False, 1), (LONG, False, 1)]
    assert queue.purge() == 2
    eventually(lambda: connection.doctor() == [])


# ---- what removes messages ----


def test_r14_a_ring_of_one_shows_each_consumer_the_latest(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Each send replaces one, whoever has it; the count stays 1."""
    queue = board(connection, ring_size=1)
    put_each(queue, ["m0"])
    with Actor(broker.name) as consumer:
        for n in range(1, 6):
            put_each(queue, [f"m{n}"])
            assert_counts(queue, message_count=1, replaced=n)
            consumer.do("consume", queue="board")
            assert [m["body"] for m in consumer.do("receive", timeout=60, settle="ack")] == [f"m{n}"]
            assert consumer.do("arrived") == []
            consumer.do("close_consumer")
            assert_counts(queue, message_count=1, replaced=n)
    assert_balanced(queue)


def test_r15_a_message_that_a_consumer_had_is_still_there(connection: shmbroker.Connection) -> None:
    """Ring of one: delivered and not acknowledged, then the consumer closes: nothing was replaced."""
    queue = board(connection, ring_size=1)
    put_each(queue, ["A"])
    with queue.consume() as consumer:
        consumer.get(timeout=60)
        assert_counts(queue, delivering=1, message_count=1)
    assert_counts(queue, delivering=0, message_count=1, replaced=0)
    assert listing(queue) == ["A"]


@pytest.mark.parametrize("size", [1, LONG])
def test_t14_a_held_message_that_is_replaced_leaks_nothing(connection: shmbroker.Connection, size: int) -> None:
    """Fifty times: a consumer has the one message of the ring, and another one comes; what it has stays whole."""
    queue = board(connection, ring_size=1)
    queue.put(b"0" * size)
    for n in range(1, 51):
        with queue.consume() as consumer:
            held = consumer.get(timeout=60)
            queue.put(str(n % 10).encode() * size)
            assert_counts(queue, message_count=1, replaced=n)
            assert bytes(held) == str((n - 1) % 10).encode() * size
        assert_counts(queue, message_count=1, delivering=0)
    assert_balanced(queue)
    assert connection.doctor() == []


def test_an_expired_message_is_not_delivered(connection: shmbroker.Connection) -> None:
    """It ends on time though a consumer has it; later consumers do not get it."""
    queue = board(connection)
    queue.put(b"short-lived", ttl=0.05)
    queue.put(b"lasting")
    with queue.consume() as consumer:
        assert read(consumer, 2, ack=False) == ["short-lived", "lasting"]
        await_counts(queue, expired=1, message_count=1)
    with queue.consume() as later:
        assert read(later, 1) == ["lasting"]
        assert arrived(later) is None


def test_a_purge_or_a_deletion_leaves_what_a_consumer_has(connection: shmbroker.Connection) -> None:
    """Bodies that were delivered stay readable; settling them does nothing, and fails for none."""
    queue = board(connection)
    put_each(queue, ["A"])
    queue.put(b"B" * LONG)
    consumer = queue.consume()
    held = [consumer.get(timeout=60) for _ in range(2)]
    assert queue.purge() == 2
    assert [len(message) for message in held] == [1, LONG]
    assert bytes(held[1]) == b"B" * LONG
    queue.delete()
    assert text(held[0]) == "A"
    view = held[1].body
    for message in held:
        message.ack()
    assert view.tobytes() == b"B" * LONG
    del view, held, message
    consumer.close()
    eventually(lambda: connection.doctor() == [])


# ---- messages that are not ready ----


def test_a_scheduled_message_comes_when_it_is_due(connection: shmbroker.Connection) -> None:
    """Before that, those put later come; afterwards, it comes once; to later consumers in its place."""
    queue = board(connection)
    queue.put(b"later", delay=0.1)
    queue.put(b"now")
    with queue.consume() as consumer:
        assert read(consumer, 2) == ["now", "later"]
        assert arrived(consumer) is None
    with queue.consume() as consumer:
        assert read(consumer, 2) == ["later", "now"]


def test_a_message_that_is_delivered_before_its_time_comes_at_once(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Of a thousand messages an hour away, an administrator delivers some now: an attached consumer gets just these."""
    queue = board(connection)
    put_each(queue, numbered(1000), delay=HOUR)
    with Actor(broker.name) as consumer:
        consumer.do("consume", queue="board")
        assert consumer.do("arrived") == []
        assert queue.deliver_scheduled(limit=3) == 3
        assert [m["body"] for m in consumer.do("receive", count=3, timeout=60, settle="ack")] == numbered(3)
        assert consumer.do("arrived") == []
        assert queue.deliver_scheduled(limit=2) == 2
        assert [m["body"] for m in consumer.do("receive", count=2, timeout=60)] == numbered(2, 3)


def test_a_killed_administrator_hides_nothing(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """SIGKILL while it delivers messages before their time: the consumer gets just those that are ready."""
    queue = board(connection)
    put_each(queue, numbered(300), delay=HOUR)
    with Actor(broker.name) as administrator, queue.consume(prefetch=300) as consumer:
        assert arrived(consumer) is None
        administrator.begin("manage", queue="board", how="deliver_scheduled", arguments=[], most=299)
        while administrator.item() < 40:
            pass
        administrator.kill()
        eventually(lambda: queue.statistics().ready == queue.statistics().delivering)
        ready = queue.statistics().ready
        assert ready >= 40
        assert read(consumer, ready) == numbered(ready)
        assert arrived(consumer) is None
    assert connection.doctor() == []


def test_the_messages_of_a_commit_come_once_and_in_order(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Three processes publish to two queues at once, each its own row: every consumer gets each row in its order."""
    queue = board(connection)
    connection.queue("beside", non_destructive=True)
    channel = connection.channel()
    for name in ("board", "beside"):
        channel.queue_bind(name, "amq.fanout")
    with actors(broker.name, 3) as producers, queue.consume(prefetch=50) as one, queue.consume(prefetch=50) as two:
        for n, producer in enumerate(producers):
            producer.begin("publish_row", exchange="amq.fanout", bodies=[f"{n}-{k:03d}" for k in range(100)])
        gathered = Gathered([one, two])
        acked = [0, 0]

        def look() -> bool:
            total = gathered.look()
            for index, messages in enumerate(gathered.messages):
                for message in messages[acked[index] :]:
                    message.ack()
                acked[index] = len(messages)
            return total == 600

        eventually(look)
        for producer in producers:
            producer.result()
        for row in gathered.texts():
            for n in range(3):
                assert [body for body in row if body.startswith(f"{n}-")] == [f"{n}-{k:03d}" for k in range(100)]
    assert_counts(queue, message_count=300)
    assert connection.doctor() == []


# ---- long bodies ----


def test_many_consumers_have_one_long_body_in_place(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Ten consumers of two processes have the same long messages at a time; the memory of one copy is used."""
    queue = board(connection)
    bodies = [bytes([65 + n]) * 300_000 for n in range(4)]
    for body in bodies:
        queue.put(body)
    used = broker.statistics().memory_used
    consumers = [queue.consume() for _ in range(8)]
    with actors(broker.name, 2) as others:
        for other in others:
            other.do("consume", queue="board")
            assert len(other.do("receive", count=4, timeout=60)) == 4
        held = [[consumer.get(timeout=60) for _ in range(4)] for consumer in consumers]
        views = [[message.body for message in row] for row in held]
        assert all([bytes(view) for view in row] == bodies for row in views)
        assert broker.statistics().memory_used < used + 300_000
        assert queue.purge() == 4
        assert all([bytes(view) for view in row] == bodies for row in views)
    del views, held
    for consumer in consumers:
        consumer.close()
    eventually(lambda: broker.statistics().memory_used < used - 4 * 300_000 + 64 * 1024)
    assert connection.doctor() == []


def test_more_consumers_than_a_body_has_views(connection: shmbroker.Connection) -> None:
    """Thirty consumers want one long message, more than can have it at a time: each gets it when others are done."""
    queue = board(connection)
    queue.put(b"A" * LONG)
    consumers = [queue.consume() for _ in range(30)]
    waiting = list(consumers)
    while waiting:
        still = []
        for consumer in waiting:
            message = arrived(consumer)
            if message is None:
                still.append(consumer)
            else:
                assert bytes(message) == b"A" * LONG
                message.ack()
        waiting = still
    assert_counts(queue, message_count=1, delivering=0)
    for consumer in consumers:
        consumer.close()


# ---- channels ----


def test_each_consumer_of_a_channel_gets_all(connection: shmbroker.Connection) -> None:
    """Two consumers of one channel and one that acknowledges by itself: all get all, long bodies too."""
    channel = connection.channel()
    queue = board(connection)
    bodies = ["A", "B", "C" * LONG]
    put_each(queue, bodies)
    inboxes = [Inbox(), Inbox(), Inbox()]
    for inbox in inboxes:
        channel.basic_consume("board", inbox, auto_ack=inbox is inboxes[2])
    for inbox in inboxes:
        assert [delivery.text for delivery in inbox.wait(3)] == bodies
    await_counts(queue, message_count=3, acked=0, delivering=6)
    channel.basic_ack(0, multiple=True)
    await_counts(queue, message_count=3, delivering=0)
    channel.close()
    assert connection.doctor() == []


def test_a_get_is_refused(connection: shmbroker.Connection) -> None:
    """540, as RabbitMQ answers for streams: a get cannot say where it stands. It closes a channel's connection."""
    queue = board(connection)
    put_each(queue, ["A"])
    for timeout in (0, 1, None):
        with pytest.raises(NotImplementedByBroker, match="non-destructive"):
            queue.get(timeout=timeout)
    with pytest.raises(NotImplementedByBroker, match="non-destructive"):
        queue.get_many(2, timeout=0)
    assert_counts(queue, message_count=1)
    assert connection.doctor() == []


def test_a_get_of_a_channel_closes_its_connection(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """540 is an error of the connection; the queue keeps what it has."""
    queue = board(connection)
    put_each(queue, ["A"])
    with pytest.raises(NotImplementedByBroker, match="non-destructive"):
        other.channel().basic_get("board")
    assert not other.is_open
    assert listing(queue) == ["A"]


def test_a_transaction_acknowledges_what_it_reads(connection: shmbroker.Connection) -> None:
    """A commit publishes, and ends the readings; a rollback leaves them unacked; the messages stay either way."""
    channel = connection.channel()
    queue, target = board(connection), connection.queue("target")
    put_each(queue, ["A", "B"])
    channel.tx_select()
    inbox = Inbox()
    channel.basic_consume("board", inbox)
    first, second = inbox.wait(2)
    channel.basic_publish("", "target", b"from A", BasicProperties())
    channel.basic_ack(first.delivery_tag)
    channel.tx_rollback()
    assert len(target) == 0
    await_counts(queue, delivering=2)
    channel.basic_publish("", "target", b"from A", BasicProperties())
    channel.basic_ack(first.delivery_tag)
    channel.basic_nack(second.delivery_tag, requeue=True)
    channel.tx_commit()
    assert listing(target) == ["from A"]
    again = inbox.wait(3)[2]
    assert (again.text, again.redelivered) == ("B", True)
    await_counts(queue, message_count=2, acked=0, delivering=1)
    channel.close()


# ---- beside other settings ----


def test_a_selector_chooses_what_a_consumer_reads(connection: shmbroker.Connection) -> None:
    """Each consumer reads what its own condition selects."""
    queue = board(connection)
    for n in range(6):
        queue.put(str(n).encode(), headers={"n": n})
    with queue.consume(selector="n > 3") as high, queue.consume(selector="n < 2") as low:
        assert read(high, 2) == ["4", "5"]
        assert read(low, 2) == ["0", "1"]
        assert arrived(high) is None
        assert arrived(low) is None


def test_only_the_single_active_consumer_reads(connection: shmbroker.Connection) -> None:
    """The next one takes over when it is gone, from the oldest message on."""
    queue = board(connection, single_active_consumer=True)
    put_each(queue, ["A", "B"])
    with queue.consume() as standby_after, queue.consume() as standby:
        assert read(standby_after, 2) == ["A", "B"]
        assert arrived(standby) is None
        standby_after.close()
        assert read(standby, 2) == ["A", "B"]


def test_a_paused_queue_shows_nothing(connection: shmbroker.Connection) -> None:
    """Pause and resume are as in any queue."""
    queue = board(connection)
    queue.pause()
    put_each(queue, ["A"])
    with queue.consume() as consumer:
        assert arrived(consumer) is None
        queue.resume()
        assert read(consumer, 1) == ["A"]


@pytest.mark.parametrize(("setting", "value"), [("max_priority", 5), ("message_groups", "shared")])
def test_settings_that_do_not_go_together(connection: shmbroker.Connection, setting: str, value: object) -> None:
    """The error names both settings and their values."""
    with pytest.raises(ValueError, match=rf"non_destructive=True, {setting}={value!r}: only one of them may be set"):
        board(connection, **{setting: value})


def test_a_queue_stays_what_it_was_declared_as(connection: shmbroker.Connection) -> None:
    """A second declaration that wants something else is refused with 406."""
    board(connection)
    with pytest.raises(PreconditionFailed, match="x-non-destructive"):
        connection.queue("board", non_destructive=False)
    with pytest.raises(ValueError, match="non_destructive"):
        connection.queue("board", passive=True).configure(non_destructive=False)


def test_a_stopped_process_does_not_keep_others_from_reading(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A consumer whose process is stopped while it has messages: the others go on, and the queue removes them."""
    queue = board(connection, ring_size=3)
    put_each(queue, ["A"])
    queue.put(b"B" * LONG)
    with Actor(broker.name) as stopped, queue.consume() as consumer:
        stopped.do("consume", queue="board")
        stopped.do("receive", count=2, timeout=60)
        stopped.stop()
        deadline = time.monotonic() + 240
        for n in range(20):
            assert time.monotonic() < deadline
            put_each(queue, [f"m{n}"])
        assert_counts(queue, message_count=3)
        assert read(consumer, 2) == ["A", "B" * LONG]  # they were in its row before
        stopped.resume()
