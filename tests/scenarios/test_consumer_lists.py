# SPDX-License-Identifier: Apache-2.0
"""The lists a queue keeps of its consumers: members, sizes, and comings and goings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import (
    STRUCTURE_BYTES,
    Gathered,
    assert_balanced,
    assert_counts,
    await_counts,
    numbered,
    put_each,
    take,
    text,
)
from scenario_support.processes import actors
from scenario_support.waiting import eventually

if TYPE_CHECKING:
    import shmbroker

LISTS = ("interested", "notified", "not_interested", "non_acquiring")


def listed(queue: shmbroker.Queue) -> int:
    """Return how many consumers are in the lists by state, taken together."""
    statistics = queue.statistics()
    return sum(getattr(statistics, name) for name in LISTS)


@pytest.mark.parametrize("closed", [[0], [2], [1, 2, 3], [4], [0, 4], [0, 1, 2, 3]], ids=str)
def test_q22_closed_consumers_are_skipped(connection: shmbroker.Connection, closed: list[int]) -> None:
    """First, middle, a run, or last closed: only the others are ever chosen."""
    queue = connection.queue("q")
    consumers = [queue.consume(prefetch=1) for _ in range(5)]
    await_counts(queue, consumers=5, interested=5)
    for index in closed:
        consumers[index].close()
    alive = [c for index, c in enumerate(consumers) if index not in closed]
    await_counts(queue, consumers=len(alive), interested=len(alive))
    bodies = numbered(len(alive))
    put_each(queue, bodies)
    gathered = Gathered(alive)
    gathered.wait(len(alive))
    assert sorted(body for _, body in gathered.order) == bodies
    assert [len(messages) for messages in gathered.messages] == [1] * len(alive)
    gathered.ack()
    for consumer in alive:
        consumer.close()
    assert_counts(queue, consumers=0, message_count=0)
    assert listed(queue) == 0


def test_q23_sizes_are_exact_after_each_removal(
    connection: shmbroker.Connection,
) -> None:
    """Middle, tail, twice, of another queue: each size changes by what was removed."""
    queue, other = connection.queue("q"), connection.queue("other")
    consumers = [queue.consume() for _ in range(4)]
    foreign = other.consume()
    await_counts(queue, consumers=4, interested=4)
    consumers[1].close()
    await_counts(queue, consumers=3, interested=3)
    consumers[3].close()
    await_counts(queue, consumers=2, interested=2)
    consumers[3].close()
    consumers[1].close()
    foreign.close()
    assert_counts(queue, consumers=2, interested=2)
    assert_counts(other, consumers=0, interested=0)
    assert len(connection.consumers("q")) == 2
    assert connection.consumers("other") == []
    for consumer in consumers:
        consumer.close()
    assert_counts(queue, consumers=0, interested=0, notified=0, not_interested=0)
    assert connection.consumers() == []


def test_q24_a_consumer_behind_a_removed_last_one_is_found(
    queue: shmbroker.Queue,
) -> None:
    """The last consumer closed, a new one appended: it is chosen in its turn."""
    busy, last = queue.consume(prefetch=1), queue.consume(prefetch=1)
    await_counts(queue, interested=2)
    put_each(queue, "AB")
    gathered = Gathered([busy, last])
    gathered.wait(2)
    for message in gathered.messages[1]:
        message.ack()
    last.close()
    await_counts(queue, consumers=1, not_interested=1)
    new = queue.consume(prefetch=1)
    await_counts(queue, interested=1)
    queue.put(b"C")
    message = new.get(timeout=60)
    assert text(message) == "C"
    message.ack()
    busy.close()
    new.close()


def test_q25_a_removed_consumer_leaves_nothing_behind(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Consumers that come and go by the hundred take no memory that stays."""
    queue = connection.queue("q")

    def come_and_go(times: int) -> None:
        for _ in range(times):
            consumer = queue.consume(prefetch=1)
            queue.put(b"A")
            consumer.get(timeout=60).ack()
            consumer.close()

    come_and_go(200)
    baseline = broker.statistics().memory_used
    come_and_go(1000)
    assert_counts(queue, consumers=0, message_count=0, acked=1200)
    assert listed(queue) == 0
    eventually(
        lambda: broker.statistics().memory_used <= baseline + STRUCTURE_BYTES,
        f"back to {baseline} bytes",
    )


def test_q26_listing_while_consumers_and_messages_go(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Lists read while others empty them: no error, nothing twice, order kept."""
    queue = connection.queue("q")
    watched = connection.queue("watched")
    bodies = numbered(3000)
    with actors(broker.name, 2) as workers:
        queue.put_many([body.encode() for body in bodies])
        for seed, worker in enumerate(workers):
            worker.begin("come_and_go", queue="q", until=len(bodies), seed=seed, watched="watched")
        while queue.statistics().acked < len(bodies) or not watched.statistics().message_count:
            shown = [bytes(message).decode() for message in queue.browse()]
            assert shown == sorted(set(shown))
            for consumer in connection.consumers("q"):
                assert isinstance(consumer.state, str)
            watched.put(b"looked")
        received = [body for worker in workers for body in worker.result()]
        assert sorted(received) == bodies
    await_counts(queue, consumers=0, message_count=0)
    assert_balanced(queue)


def test_q27_comings_and_goings_under_a_storm_of_notifications(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Consumers attach, return and leave while others publish: all is consumed once."""
    queue = connection.queue("q")
    bodies = numbered(2000)
    with actors(broker.name, 5) as workers:
        producers, consumers = workers[:2], workers[2:]
        for seed, consumer in enumerate(consumers):
            consumer.begin("come_and_go", queue="q", until=len(bodies), seed=seed)
        producers[0].begin("put_storm", queue="q", bodies=bodies[:1000])
        producers[1].begin("put_storm", queue="q", bodies=bodies[1000:])
        for producer in producers:
            producer.result()
        received = [body for consumer in consumers for body in consumer.result()]
    assert sorted(received) == bodies
    await_counts(queue, consumers=0, message_count=0, acked=len(bodies))
    assert listed(queue) == 0
    assert_balanced(queue)


def test_q27_consumers_killed_under_a_storm_of_notifications(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """The same while consumers are killed: what they held is consumed by the others."""
    queue = connection.queue("q")
    bodies = numbered(2000)
    with actors(broker.name, 5) as workers:
        producer, survivor, *victims = workers
        for seed, consumer in enumerate([survivor, *victims]):
            consumer.begin("come_and_go", queue="q", until=len(bodies), seed=seed)
        producer.begin("put_storm", queue="q", bodies=bodies)
        for number, victim in enumerate(victims, start=1):
            eventually(lambda goal=number: queue.statistics().acked >= 300 * goal)
            victim.kill()
        producer.result()
        survivor.result()
    await_counts(queue, consumers=0, message_count=0, acked=len(bodies))
    assert_counts(queue, added=len(bodies), ready=0, delivering=0)
    assert_balanced(queue)


def test_q28_interest_declared_again_changes_nothing(queue: shmbroker.Queue) -> None:
    """However often credit runs out and comes back, each consumer is listed once."""
    with queue.consume(prefetch=1) as consumer, queue.consume(prefetch=1) as other:
        await_counts(queue, consumers=2, interested=2, not_interested=0)
        queue.put(b"kept")
        gathered = Gathered([consumer, other])
        gathered.wait(1)
        holder = gathered.order[0][0]
        worker = [other, consumer][holder]
        for number in range(200):
            queue.put(b"work")
            message = worker.get(timeout=60)
            await_counts(queue, not_interested=2, interested=0, notified=0)
            message.ack()
            await_counts(queue, not_interested=1, interested=1, notified=0)
            assert_counts(queue, consumers=2, acked=number + 1)
        gathered.ack()
        await_counts(queue, not_interested=0, interested=2, notified=0)
    assert_counts(queue, consumers=0, interested=0, notified=0, not_interested=0)


def test_q28_pausing_twice_is_pausing_once(queue: shmbroker.Queue) -> None:
    """A second pause or resume is without effect."""
    with queue.consume() as consumer:
        queue.pause()
        queue.pause()
        queue.put(b"A")
        assert_counts(queue, ready=1, delivering=0, consumers=1)
        queue.resume()
        message = consumer.get(timeout=60)
        assert text(message) == "A"
        message.ack()
        queue.resume()
        queue.put(b"B")
        message = consumer.get(timeout=60)
        assert text(message) == "B"
        message.ack()
    queue.put(b"C")
    assert take(queue, 1) == ["C"]
    assert_counts(queue, message_count=0, acked=3)
