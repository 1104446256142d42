# SPDX-License-Identifier: Apache-2.0
"""Ring queues: the newest pending messages survive (as those of Artemis)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
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
    texts,
)
from scenario_support.processes import actors

if TYPE_CHECKING:
    import shmbroker

DELAY_SECONDS = 5.0
"""Long enough to look at the queue before a delayed message is due, on a machine that is busy with others too."""


@pytest.fixture
def ring(connection: shmbroker.Connection, request: pytest.FixtureRequest) -> object:
    """Declare a ring of the size given as parameter."""
    return connection.queue("ring", ring_size=request.param)


def of_size(size: int) -> pytest.MarkDecorator:
    """Give the test a ring of that size."""
    return pytest.mark.parametrize("ring", [size], indirect=True, ids=["ring"])


def put_one_by_one(ring: shmbroker.Queue, bodies: str) -> None:
    """Put each body when the one before has reached the consumer."""
    before = ring.statistics().delivering
    for number, body in enumerate(bodies, start=before + 1):
        ring.put(body.encode())
        await_counts(ring, delivering=number, ready=0)


@of_size(3)
def test_r1_the_newest_three_survive(ring: shmbroker.Queue) -> None:
    """R=3, send A to D: B, C, D are listed; one was replaced."""
    put_each(ring, "ABC")
    assert_counts(ring, message_count=3, replaced=0)
    ring.put(b"D")
    assert_counts(ring, message_count=3, replaced=1)
    assert listing(ring) == list("BCD")
    assert take(ring, 3) == list("BCD")
    assert_balanced(ring)


@of_size(4)
def test_q61_the_fifth_message_replaces_the_oldest(ring: shmbroker.Queue) -> None:
    """RING of 4: the fifth message replaces the oldest, and the depth stays 4; a consumer gets the newest four."""
    put_each(ring, "ABCD")
    assert_counts(ring, message_count=4, replaced=0)
    put_each(ring, "E")
    assert_counts(ring, message_count=4, replaced=1)
    assert take(ring, 4) == list("BCDE")


@of_size(3)
def test_t01_browse_and_counters(ring: shmbroker.Queue) -> None:
    """R=3, send A to D: browse gives B, C, D; count 3, replaced 1, added 4."""
    put_each(ring, "ABCD")
    assert listing(ring) == list("BCD")
    assert_counts(ring, message_count=3, ready=3, replaced=1, added=4)
    assert len(ring) == 3


@of_size(3)
def test_t01_put_many_into_a_ring(ring: shmbroker.Queue) -> None:
    """Many put in one call lose by age just so."""
    bodies = numbered(100)
    assert ring.put_many([body.encode() for body in bodies]) == 100
    assert listing(ring) == bodies[-3:]
    assert_counts(ring, message_count=3, replaced=97, added=100)


@pytest.mark.parametrize("way", ["get", "consume"])
@of_size(1)
def test_r2_always_the_second_of_two(ring: shmbroker.Queue, way: str) -> None:
    """R=1, 250 times: send two, receive one: the second; replaced grows by one."""
    for loop in range(250):
        put_each(ring, [f"m{2 * loop}", f"m{2 * loop + 1}"])
        assert_counts(ring, message_count=1, replaced=loop + 1)
        if way == "get":
            message = ring.get(timeout=60)
            assert text(message) == f"m{2 * loop + 1}"
            message.ack()
        else:
            with ring.consume() as consumer:
                message = consumer.get(timeout=60)
                assert text(message) == f"m{2 * loop + 1}"
                message.ack()
    assert_counts(ring, message_count=0, replaced=250, acked=250)


@of_size(1)
def test_t02_replaced_counts_the_loops(ring: shmbroker.Queue) -> None:
    """R=1, 250 times: send two, receive one; replaced is the number of the loop."""
    for loop in range(1, 251):
        put_each(ring, ["first", "second"])
        assert_counts(ring, replaced=loop)
        assert take(ring, 1) == ["second"]
    assert_balanced(ring)


@of_size(3)
def test_r3_what_is_in_delivery_is_not_evicted(ring: shmbroker.Queue) -> None:
    """R=3, a consumer with credit for all: four in delivery, none replaced."""
    with ring.consume() as consumer:
        await_counts(ring, interested=1)
        put_one_by_one(ring, "ABCD")
        assert_counts(ring, message_count=4, delivering=4, replaced=0)
        received = [consumer.get(timeout=60) for _ in range(4)]
        assert texts(received) == list("ABCD")
        for message in received:
            message.ack()
    assert_counts(ring, message_count=0, delivering=0, replaced=0, acked=4)


@pytest.mark.parametrize("seen", ["unseen", "seen"])
@of_size(3)
def test_r4_what_comes_back_to_a_full_ring_loses_by_age(ring: shmbroker.Queue, seen: str) -> None:
    """A to D in delivery, consumer closed without ack: B, C, D stay, A is replaced."""
    consumer = ring.consume()
    await_counts(ring, interested=1)
    put_one_by_one(ring, "ABCD")
    if seen == "seen":
        assert [text(consumer.get(timeout=60)) for _ in range(4)] == list("ABCD")
    consumer.close()
    await_counts(ring, message_count=3, delivering=0, ready=3, replaced=1)
    assert listing(ring) == list("BCD")
    assert take(ring, 3) == list("BCD")
    assert_balanced(ring)


@pytest.mark.parametrize("order", ["ABCD", "DCBA", "CADB"])
@of_size(3)
def test_r4_whatever_the_order_of_return(ring: shmbroker.Queue, order: str) -> None:
    """Returned one by one in any order, the oldest of those pending is replaced."""
    put_each(ring, "AB")
    held = {text(message): message for message in (ring.get(), ring.get())}
    put_each(ring, "CD")
    held |= {text(message): message for message in (ring.get(), ring.get())}
    assert_counts(ring, message_count=4, delivering=4, replaced=0)
    for body in order:
        held[body].nack()
    assert_counts(ring, message_count=3, delivering=0, replaced=1)
    assert listing(ring) == list("BCD")


def test_r4_what_a_killed_process_held_loses_by_age(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """The same where the consumer's process is killed; the survivors are marked."""
    ring = connection.queue("ring", ring_size=3)
    with actors(broker.name, 1) as (victim,):
        victim.do("consume", queue="ring")
        put_one_by_one(ring, "ABCD")
        assert [m["body"] for m in victim.do("receive", count=4)] == list("ABCD")
        victim.kill()
        await_counts(ring, message_count=3, delivering=0, ready=3, replaced=1)
    assert listing(ring) == list("BCD")
    for expected in "BCD":
        message = ring.get(timeout=60)
        assert text(message) == expected
        assert message.redelivered
        assert message.delivery_count == 2
        message.ack()
    await_counts(ring, consumers=0, message_count=0)
    assert_balanced(ring)


@of_size(1)
def test_r6_direct_deliveries_then_close(ring: shmbroker.Queue) -> None:
    """R=1, consumer first, h0 and h1 in delivery; close: h1 stays; replaced stays 1."""
    consumer = ring.consume()
    await_counts(ring, interested=1)
    put_one_by_one(ring, "01")
    assert_counts(ring, message_count=2, delivering=2, replaced=0)
    consumer.close()
    await_counts(ring, message_count=1, delivering=0, replaced=1)
    with ring.consume() as new:
        message = new.get(timeout=60)
        assert text(message) == "1"
        message.ack()
    await_counts(ring, message_count=0, acked=1, replaced=1)
    assert_balanced(ring)


@of_size(3)
def test_r7_due_into_a_full_ring(ring: shmbroker.Queue) -> None:
    """R=3, A delayed, then B, C, D: four until A is due; then A is the victim."""
    ring.put(b"A", delay=DELAY_SECONDS)
    put_each(ring, "BCD")
    assert_counts(ring, message_count=4, scheduled=1, ready=3, replaced=0)
    assert listing(ring) == list("BCD")
    await_counts(ring, message_count=3, scheduled=0, ready=3, replaced=1)
    assert listing(ring) == list("BCD")
    assert_balanced(ring)


@of_size(3)
def test_t05_a_delayed_one_due_into_a_full_ring_is_never_delivered(
    ring: shmbroker.Queue,
) -> None:
    """R=3, A due later, B, C, D: after due count 3, replaced 1, A never delivered."""
    ring.put(b"A", delay=DELAY_SECONDS)
    put_each(ring, "BCD")
    assert_counts(ring, message_count=4, scheduled=1)
    await_counts(ring, message_count=3, scheduled=0, replaced=1)
    assert take(ring, 3) == list("BCD")
    assert nothing_to_get(ring)


@of_size(3)
def test_r7_due_into_a_full_ring_the_oldest_of_all_loses(
    ring: shmbroker.Queue,
) -> None:
    """A, B pending, C delayed, D pending: when C is due, A is the victim, by age.

    "The victim is always the pending message with the lowest sequence, whoever returns
    it, and by whatever path" (the decisions at the top of queues.md).
    """
    put_each(ring, "AB")
    ring.put(b"C", delay=0.3)
    ring.put(b"D")
    await_counts(ring, message_count=3, scheduled=0, ready=3, replaced=1)
    assert listing(ring) == list("BCD")
    assert take(ring, 3) == list("BCD")


@of_size(3)
def test_r8_due_into_a_ring_with_room_comes_first(ring: shmbroker.Queue) -> None:
    """R=3, A delayed and sent before B: when due, A is delivered before B."""
    ring.put(b"A", delay=DELAY_SECONDS)
    ring.put(b"B")
    assert_counts(ring, message_count=2, scheduled=1, ready=1)
    await_counts(ring, message_count=2, scheduled=0, ready=2, replaced=0)
    assert take(ring, 2) == ["A", "B"]


def test_r10_a_shrunk_ring_shrinks_by_consumption(
    connection: shmbroker.Connection,
) -> None:
    """100 pending, R=10: nothing is removed; the ring gets smaller as it is read."""
    queue = connection.queue("ring")
    put_each(queue, numbered(100))
    queue.configure(ring_size=10)
    assert_counts(queue, message_count=100, replaced=0)
    assert take(queue, 95) == numbered(95)
    assert_counts(queue, message_count=5, replaced=0)
    put_each(queue, numbered(5, first=100))
    assert_counts(queue, message_count=10, replaced=0)
    put_each(queue, numbered(5, first=105))
    assert_counts(queue, message_count=10, replaced=5)
    assert take(queue, 1) == numbered(1, first=100)
    assert_counts(queue, message_count=9, replaced=5)
    assert listing(queue) == numbered(9, first=101)
    assert_balanced(queue)


def test_r12_an_overfull_ring_does_not_grow(connection: shmbroker.Connection) -> None:
    """R=10 with 20 pending, just shrunk: one more replaces one; 20 stay."""
    queue = connection.queue("ring")
    put_each(queue, numbered(20))
    queue.configure(ring_size=10)
    queue.put(b"m00020")
    assert_counts(queue, message_count=20, replaced=1)
    assert listing(queue) == numbered(20, first=1)
    assert take(queue, 5) == numbered(5, first=1)
    put_each(queue, numbered(3, first=21))
    assert_counts(queue, message_count=15, replaced=4)
    assert listing(queue) == numbered(15, first=9)
    assert_balanced(queue)


@of_size(1)
def test_r14_readers_that_take_nothing_see_only_the_latest(
    ring: shmbroker.Queue,
) -> None:
    """R=1, read without taking: each send replaces one, each reader sees the latest."""
    ring.put(b"m0")
    for number in range(1, 6):
        ring.put(f"m{number}".encode())
        assert_counts(ring, message_count=1, replaced=number)
        assert listing(ring) == [f"m{number}"]
    assert take(ring, 1) == ["m5"]


@pytest.mark.parametrize("seen", ["unseen", "seen"])
@of_size(1)
def test_r15_returned_to_an_empty_ring_it_stays(ring: shmbroker.Queue, seen: str) -> None:
    """R=1, delivered, consumer closed without ack: it is there, nothing replaced."""
    ring.put(b"A")
    consumer = ring.consume()
    await_counts(ring, delivering=1, message_count=1)
    if seen == "seen":
        assert text(consumer.get(timeout=60)) == "A"
    consumer.close()
    await_counts(ring, delivering=0, message_count=1, ready=1, replaced=0)
    assert take(ring, 1) == ["A"]


@of_size(2)
def test_r18_a_paused_ring_replaces_too(ring: shmbroker.Queue) -> None:
    """R=2, paused, send A, B, C: B, C are listed, one replaced."""
    ring.pause()
    put_each(ring, "ABC")
    assert_counts(ring, message_count=2, replaced=1)
    assert listing(ring) == ["B", "C"]


@of_size(2)
def test_t15_a_paused_ring_resumes_with_the_newest(ring: shmbroker.Queue) -> None:
    """R=2, paused with a consumer waiting; send 3; resume: the two newest come."""
    with ring.consume() as consumer:
        await_counts(ring, interested=1)
        ring.pause()
        put_each(ring, "ABC")
        assert_counts(ring, message_count=2, ready=2, delivering=0)
        assert nothing_to_get(ring)
        ring.resume()
        received = [consumer.get(timeout=60) for _ in range(2)]
        assert texts(received) == ["B", "C"]
        for message in received:
            message.ack()
    assert_counts(ring, message_count=0, replaced=1, acked=2)


@of_size(3)
def test_t03_counts_of_those_that_come_back_are_taken_back(
    ring: shmbroker.Queue,
) -> None:
    """R=3, window 4: close without ack; B, C, D stay, delivered as if never before."""
    consumer = ring.consume(prefetch=4)
    await_counts(ring, interested=1)
    put_one_by_one(ring, "ABCD")
    assert_counts(ring, message_count=4, delivering=4, replaced=0)
    consumer.close()
    await_counts(ring, message_count=3, delivering=0, replaced=1)
    shown = list(ring.browse())
    assert texts(shown) == list("BCD")
    for body in "BCD":
        message = ring.get()
        assert (text(message), message.delivery_count) == (body, 1)
        message.ack()


def test_t07_lazy_shrink(connection: shmbroker.Connection) -> None:
    """100 pending, resized to 10: still 100; one more: 100, one replaced."""
    queue = connection.queue("ring")
    put_each(queue, numbered(100))
    queue.configure(ring_size=10)
    assert_counts(queue, message_count=100, replaced=0)
    queue.put(b"m00100")
    assert_counts(queue, message_count=100, replaced=1)
    assert listing(queue) == numbered(100, first=1)


def test_t07_shrink_with_trim(connection: shmbroker.Connection) -> None:
    """100 pending, resized to 10 with trim: the ten newest at once, 90 replaced."""
    queue = connection.queue("ring")
    put_each(queue, numbered(100))
    queue.configure(ring_size=10, trim=True)
    assert_counts(queue, message_count=10, replaced=90)
    assert listing(queue) == numbered(10, first=90)
    assert_balanced(queue)


def test_t07_a_wider_ring_takes_more(connection: shmbroker.Connection) -> None:
    """A ring made wider, or unbounded again, keeps what it may."""
    queue = connection.queue("ring", ring_size=2)
    put_each(queue, "ABC")
    queue.configure(ring_size=4)
    put_each(queue, "DEF")
    assert listing(queue) == list("CDEF")
    queue.configure(ring_size=-1)
    put_each(queue, "GH")
    assert listing(queue) == list("CDEFGH")
    assert_counts(queue, replaced=2)


@pytest.mark.parametrize("max_priority", [0, 2])
def test_t08_shrunk_read_filled_and_widened(connection: shmbroker.Connection, max_priority: int) -> None:
    """R10, then the same ring goes on: read, filled beyond its bound, widened, filled; replaced 7, count 10."""
    queue = connection.queue("ring", max_priority=max_priority)
    put_each(queue, numbered(100))
    queue.configure(ring_size=10)
    assert take(queue, 95) == numbered(95)
    put_each(queue, numbered(10, first=100))
    assert_counts(queue, message_count=10, replaced=5)
    assert take(queue, 1) == numbered(1, first=100)
    put_each(queue, numbered(3, first=110))
    assert_counts(queue, message_count=10, replaced=7)
    assert listing(queue) == numbered(10, first=103)
    queue.configure(ring_size=12)
    assert take(queue, 2) == numbered(2, first=103)
    put_each(queue, numbered(2, first=113))
    queue.configure(ring_size=10)
    assert_counts(queue, message_count=10, replaced=7, added=115, acked=98)
    assert take(queue, 10) == numbered(10, first=105)
    assert_balanced(queue)


def test_t09_twenty_five_processes_into_one_ring(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """R=25, 25 processes with 25 sends: 25 stay, 600 replaced; each left a suffix."""
    ring = connection.queue("ring", ring_size=25)
    with actors(broker.name, 25) as producers:
        for number, producer in enumerate(producers):
            bodies = [f"{number:02d}-{index:02d}" for index in range(25)]
            producer.begin("put_storm", queue="ring", bodies=bodies)
        for producer in producers:
            producer.result()
    assert_counts(ring, message_count=25, added=625, replaced=600, ready=25)
    survivors = listing(ring)
    assert len(survivors) == 25
    for number in range(25):
        left = [body for body in survivors if body.startswith(f"{number:02d}-")]
        sent = [f"{number:02d}-{index:02d}" for index in range(25)]
        assert left == sent[len(sent) - len(left) :]
    assert_balanced(ring)


@pytest.mark.parametrize("way", ["get", "consume"])
def test_t12_a_waiting_consumer_gets_the_last_of_a_burst(
    broker: shmbroker.Broker, connection: shmbroker.Connection, way: str
) -> None:
    """R=1, a consumer waits, a burst of 100: the last arrives; the rest is counted."""
    ring = connection.queue("ring", ring_size=1)
    bodies = numbered(100)
    with actors(broker.name, 1) as (producer,):
        received: list[str] = []
        if way == "get":
            producer.begin("put", queue="ring", bodies=bodies)
            while not received or received[-1] != bodies[-1]:
                received += take(ring, 1)
        else:
            with ring.consume() as consumer:
                await_counts(ring, interested=1)
                producer.begin("put", queue="ring", bodies=bodies)
                while not received or received[-1] != bodies[-1]:
                    message = consumer.get(timeout=60)
                    received.append(text(message))
                    message.ack()
        producer.result()
    assert received == sorted(set(received))
    assert_counts(ring, message_count=0, acked=len(received))
    assert_counts(ring, replaced=100 - len(received), added=100)
    assert_balanced(ring)


@pytest.mark.parametrize("size", [0, -2, 1.5, "x"])
def test_t20_no_such_ring(connection: shmbroker.Connection, size: object) -> None:
    """R of 0, -2, 1.5 or "x" is refused, and leaves no queue and no change behind."""
    with pytest.raises(ValueError, match="ring_size"):
        connection.queue("bad", ring_size=size)
    queue = connection.queue("bad", ring_size=2)
    with pytest.raises(ValueError, match="ring_size"):
        queue.configure(ring_size=size)
    put_each(queue, "ABC")
    assert listing(queue) == ["B", "C"]


def test_t20_minus_one_is_no_limit(connection: shmbroker.Connection) -> None:
    """R of -1 means a queue without limit."""
    queue = connection.queue("free", ring_size=-1)
    put_each(queue, numbered(500))
    assert_counts(queue, message_count=500, replaced=0)
