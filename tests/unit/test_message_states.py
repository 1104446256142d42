# SPDX-License-Identifier: Apache-2.0
"""What a message and a batch say of themselves, and what they do when the core refuses to settle them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.observing import assert_counts, listing, put_each
from scenario_support.processes import run_python

import shmbroker.testing
from shmbroker import MessageBatch, MessageSettled
from shmbroker.exceptions import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Callable

LONG = 5000  # bytes of a body that is read in place
SETTLE: dict[str, Callable[[shmbroker.Message], object]] = {
    "nack": lambda message: message.nack(),
    "drop": lambda message: message.nack(requeue=False),
    "reject": lambda message: message.reject(),
    "give back": lambda message: message.give_back(),
    "ack": lambda message: message.ack(),
}


def test_a_message_shows_its_state(queue: shmbroker.Queue) -> None:
    """Sequence, queue, length, and whether it is unsettled, settled or browsed."""
    queue.put(b"ABC")
    (browsed,) = queue.browse()
    message = queue.get()
    assert repr(browsed) == "<Message 0 of 'q', 3 bytes, browsed>"
    assert repr(message) == "<Message 0 of 'q', 3 bytes, unsettled>"
    assert not browsed.settled
    message.ack()
    assert repr(message) == "<Message 0 of 'q', 3 bytes, settled>"
    assert message.settled
    assert bool(message)


def test_an_empty_message_is_true(queue: shmbroker.Queue) -> None:
    """`while message := ...` goes on."""
    queue.put(b"")
    message = queue.get(auto_ack=True)
    assert len(message) == 0
    assert bool(message)


@pytest.mark.parametrize("how", SETTLE)
def test_a_long_body_goes_with_its_message(queue: shmbroker.Queue, how: str) -> None:
    """Once that is settled the body cannot be asked for, unless a view was kept, also where it was looked at before."""
    for look in (False, True):
        queue.put(bytes(LONG))
        message = queue.get()
        if look:
            assert len(message.body) == LONG
        SETTLE[how](message)
        with pytest.raises(MessageSettled):
            message.body  # noqa: B018 - looking is what is refused
        with pytest.raises(MessageSettled):
            bytes(message)
        queue.purge()


def test_a_short_body_stays(queue: shmbroker.Queue) -> None:
    """It is a private copy."""
    queue.put(b"A")
    message = queue.get()
    message.reject()
    assert (bytes(message), bytes(message.body)) == (b"A", b"A")


def test_given_back_as_if_nobody_had_taken_it(queue: shmbroker.Queue) -> None:
    """It counts as no delivery, but is marked; also one that has not reached the application yet."""
    queue.put(b"A")
    message = queue.get()
    message.give_back()
    assert message.settled
    taken = queue._taker.take(queue, False)  # noqa: FBT003, SLF001
    assert taken is not None
    assert not taken.settled
    taken.give_back()
    assert taken.settled
    again = queue.get()
    assert (again.redelivered, again.delivery_count) == (True, 1)
    assert_counts(queue, delivering=1)


def test_what_is_settled_or_browsed_is_not_given_back(queue: shmbroker.Queue) -> None:
    """Nothing happens, and there is no error."""
    put_each(queue, "A")
    (browsed,) = queue.browse()
    message = queue.get()
    message.ack()
    for one in (browsed, message):
        before = one.settled
        one.give_back()
        assert one.settled == before
    batch = queue_of_two(queue)
    batch.ack()
    batch.give_back()
    assert_counts(queue, acked=3, ready=0, delivering=0)


def queue_of_two(queue: shmbroker.Queue) -> MessageBatch:
    """Return a batch of two messages, B and C."""
    put_each(queue, "BC")
    return queue.get_many(2)


@pytest.mark.parametrize("how", [how for how in SETTLE if how != "ack"])
def test_a_settlement_that_does_not_go(broker: shmbroker.Broker, queue: shmbroker.Queue, how: str) -> None:
    """Over a closed connection it is an error, and the message is not settled; it is there for others."""
    queue.put(b"A")
    other = broker.connect()
    message = other.queue("q").get()
    other.close()
    for _ in range(2):
        with pytest.raises(ConnectionClosed, match="closed"):
            SETTLE[how](message)
        assert not message.settled
    assert listing(queue) == ["A"]


@pytest.mark.parametrize("how", SETTLE)
def test_what_was_settled_through_another_object(queue: shmbroker.Queue, how: str) -> None:
    """It is an error, and the message says that it is settled."""
    queue.put(b"A")
    message = queue.get()
    twin = queue._taker.message(queue, message._record, 0)  # noqa: SLF001 - its own parts
    message.ack()
    with pytest.raises(MessageSettled, match="acknowledged, rejected or returned already"):
        SETTLE[how](twin)
    assert twin.settled
    assert_counts(queue, acked=1, ready=0)


def test_a_with_block_leaves_what_was_settled_in_it(queue: shmbroker.Queue) -> None:
    """Also when the block raises."""
    put_each(queue, "AB")
    with queue.get() as message:
        message.reject()
    with pytest.raises(KeyError), queue.get() as message:  # noqa: PT012 - its block raises
        message.ack()
        raise KeyError
    assert_counts(queue, ready=0, delivering=0, acked=1, dropped=1)


def test_what_a_message_was_published_with(connection: shmbroker.Connection) -> None:
    """Exchange, routing key and key, also where one of them is empty."""
    channel = connection.channel()
    channel.exchange_declare("fan", "fanout")
    queue = connection.queue("q")
    channel.queue_bind("q", "fan")
    channel.basic_publish("fan", "", b"A")
    channel.basic_publish("fan", "é.key", b"B")
    channel.basic_publish("", "q", b"C")
    queue.put(b"D", key="k")
    queue.put(b"E")
    found = [(one.exchange, one.routing_key, one.key) for one in queue.get_many(9)]
    assert found == [("fan", "", None), ("fan", "é.key", "é.key"), ("", "q", "q"), ("", "k", "k"), ("", "q", None)]
    channel.close()


def test_the_facts_of_a_message(queue: shmbroker.Queue) -> None:
    """Priority, place, deliveries, properties; they stay when it is settled."""
    put_each(queue, "A")
    queue.put(b"BC", priority=7, key="k", headers={"h": [1]})
    first, second = queue.get_many(2)
    assert (first.priority, first.sequence, first.key, first.headers, first.queue) == (0, 0, None, {}, "q")
    assert (second.priority, second.sequence, second.key, second.headers) == (7, 1, "k", {"h": [1]})
    assert second.properties.priority == 7
    assert (second.redelivered, second.delivery_count) == (False, 1)
    second.nack()
    assert (second.redelivered, second.delivery_count, second.priority) == (False, 1, 7)
    again = queue.get()
    assert (again.redelivered, again.delivery_count, again.sequence) == (True, 2, 1)


def test_when_a_message_was_published(queue: shmbroker.Queue) -> None:
    """In POSIX seconds; and when it expires, if it does."""
    before = time.time()
    queue.put(b"A", ttl=1000)
    after = time.time()
    queue.put(b"B")
    first, second = queue.get(), queue.get()
    assert before - 1 <= first.timestamp <= after + 1
    assert first.expires_at is not None
    assert before + 999 <= first.expires_at <= after + 1001
    assert second.expires_at is None


def test_a_batch_shows_its_state(queue: shmbroker.Queue) -> None:
    """How many there are, and whether they are settled."""
    batch = queue_of_two(queue)
    assert repr(batch) == "<MessageBatch of 2>"
    batch.ack()
    assert repr(batch) == "<MessageBatch of 2, settled>"


def test_a_batch_is_a_sequence(queue: shmbroker.Queue) -> None:
    """Indexes from both ends, slices, iteration; each message is made once."""
    put_each(queue, "ABCD")
    batch = queue.get_many(4)
    assert [bytes(batch[at]) for at in (0, 3, -1, -4)] == [b"A", b"D", b"D", b"A"]
    assert batch[1] is batch[1]
    assert batch[-3] is batch[1]
    assert [bytes(one) for one in batch[1:3]] == [b"B", b"C"]
    assert [bytes(one) for one in batch[::-2]] == [b"D", b"B"]
    assert batch[9:] == []
    assert list(batch) == [batch[at] for at in range(4)]
    for at in (4, -5):
        with pytest.raises(IndexError, match=f"batch index {at} is out of range: the batch holds 4 messages"):
            batch[at]


@pytest.mark.parametrize(
    ("how", "counts"),
    [
        ("ack", {"acked": 3, "ready": 1}),
        ("nack", {"acked": 0, "ready": 4, "redelivered": 0}),
        ("drop", {"dropped": 3, "ready": 1}),
        ("give_back", {"acked": 0, "ready": 4}),
    ],
)
def test_a_batch_settles_what_is_left_of_it(queue: shmbroker.Queue, how: str, counts: dict[str, int]) -> None:
    """Not what was settled alone; messages that were made are settled with it."""
    put_each(queue, "ABCD")
    batch = queue.get_many(4)
    batch[1].nack()
    made = batch[2]
    if how == "drop":
        batch.nack(requeue=False)
    else:
        getattr(batch, how)()
    assert made.settled
    assert_counts(queue, delivering=0, **counts)
    for again in (batch.ack, batch.nack):
        with pytest.raises(MessageSettled):
            again()
    redelivered = {bytes(one): one.redelivered for one in queue.get_many(9)}
    assert redelivered.pop(b"B")
    assert set(redelivered.values()) <= {how in {"nack", "give_back"}}


def test_messages_of_a_batch_with_auto_ack(queue: shmbroker.Queue) -> None:
    """All are settled, and readable as long as the batch is there."""
    bodies = [b"short", b"x" * LONG, b"y" * LONG]
    queue.put_many(bodies)
    batch = queue.get_many(3, auto_ack=True)
    assert repr(batch) == "<MessageBatch of 3, settled>"
    queue.put_many([b"z" * LONG] * 200)
    assert [bytes(one) for one in batch] == bodies
    assert all(one.settled for one in batch)
    with pytest.raises(MessageSettled):
        batch.ack()
    batch.give_back()
    assert_counts(queue, acked=3, ready=200, delivering=0)


def test_a_batch_of_a_closed_connection(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """It cannot be settled; its messages are there for others."""
    other = broker.connect()
    other.queue("q")
    batch = queue_of_two(other.queue("q"))
    other.close()
    with pytest.raises(ConnectionClosed):
        batch.nack()
    assert listing(queue) == ["B", "C"]


# Interrupts a settlement wherever a signal's handler may raise. If the object says that it is not settled, the program
# settles it again. In between it takes another message, which gets the holding of one that was settled.
SETTLE_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    def batch():
        return queue.get_many(3)

    def looked_at():
        batch = queue.get_many(3)
        batch[1]
        return batch

    def message():
        return queue.get()

    def consumed():
        return consumer.get(timeout=None)

    def delivery():
        return channel.basic_get("q")

    name, source, how = sys.argv[1:]
    gc.disable()  # finalizers are not interrupted
    connection = shmbroker.connect(name, create=False)
    queue, other, channel = connection.queue("q"), connection.queue("other"), connection.channel()
    consumer = queue.consume(prefetch=1, ack_batch=1) if source == "consumed" else None
    deeds = dict(
        ack=lambda taken: taken.ack(),
        nack=lambda taken: taken.nack(),
        drop=lambda taken: taken.nack(requeue=False),
        give_back=lambda taken: taken.give_back(),
    )
    bodies, number, more, wrong = ([b"A", b"B", b"C"] if source in ("batch", "looked_at") else [b"A"]), 0, True, []
    while more:
        queue.put_many(bodies)
        other.put_many([b"X"] * 3)
        taken = globals()[source]()
        more = signalled_at(number, lambda: deeds[how](taken))
        kept = other.get_many(3)
        settled = taken.settled if hasattr(taken, "settled") else taken._state == 1
        if not settled:
            deeds[how](taken)
        if consumer is not None:
            consumer.close()
        left, held = queue.statistics(), other.statistics()
        if [left.delivering, left.ready, held.delivering] != [0, len(bodies) * (how in ("nack", "give_back")), 3]:
            wrong.append([number, left.delivering, left.ready, held.delivering])
        kept.ack()
        connection.close()
        connection = shmbroker.connect(name, create=False)
        queue, other, channel = connection.queue("q"), connection.queue("other"), connection.channel()
        queue.purge()
        other.purge()
        consumer = queue.consume(prefetch=1, ack_batch=1) if source == "consumed" else None
        number += 1
    print(json.dumps([number, wrong]))
"""


@pytest.mark.parametrize("how", ["ack", "nack", "drop", "give_back"])
@pytest.mark.parametrize("source", ["batch", "looked_at", "message", "consumed", "delivery"])
def test_an_interrupted_settlement_happened_or_can_be_done_again(broker_name: str, source: str, how: str) -> None:
    """Wherever a signal's handler raises: the object says which, and a repetition settles no other message."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(SETTLE_WHERE_SIGNALS_COME, broker.name, source, how)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number >= 1
    assert wrong == []
