# SPDX-License-Identifier: Apache-2.0
"""Consumers: their options, their end, and what they hold."""

from __future__ import annotations

import itertools
import math
import threading
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import (
    Gathered,
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    numbered,
    put_each,
    take,
    text,
    texts,
)
from scenario_support.processes import Actor, run_python
from scenario_support.waiting import eventually

from shmbroker.exceptions import BrokerError, ConnectionClosed, NotFound

if TYPE_CHECKING:
    import shmbroker


@pytest.mark.parametrize("prefetch", [-1, 0, 1.5, "x", 2**40, True])
def test_a_bad_prefetch_is_refused(queue: shmbroker.Queue, prefetch: object) -> None:
    """A prefetch is a number of messages, at least one."""
    with pytest.raises(ValueError, match="prefetch"):
        queue.consume(prefetch=prefetch)
    assert_counts(queue, consumers=0, interested=0)


@pytest.mark.parametrize("priority", [1.5, "high", 2**40, -(2**40)])
def test_a_bad_priority_is_refused(queue: shmbroker.Queue, priority: object) -> None:
    """A consumer's priority is an integer of 32 bits."""
    with pytest.raises((ValueError, TypeError), match="priority"):
        queue.consume(priority=priority)


@pytest.mark.parametrize(
    "options",
    [
        {"ack_batch": 0},
        {"ack_batch": -1},
        {"ack_batch": "x"},
        {"ack_interval": -1},
        {"ack_interval": math.nan},
        {"timeout": "x"},
    ],
    ids=str,
)
def test_other_bad_options_are_refused(queue: shmbroker.Queue, options: dict[str, object]) -> None:
    """Nonsense among the options is refused, and leaves no consumer."""
    with pytest.raises((ValueError, TypeError)):
        queue.consume(**options)
    assert_counts(queue, consumers=0)


@pytest.mark.parametrize("prefetch", [1, 7, 64])
def test_no_more_than_prefetch_is_held(queue: shmbroker.Queue, prefetch: int) -> None:
    """Unacked messages of a consumer never exceed its prefetch."""
    bodies = numbered(200)
    put_each(queue, bodies)
    with queue.consume(prefetch=prefetch) as consumer:
        received = []
        while len(received) < 200:
            message = consumer.get(timeout=60)
            received.append(text(message))
            assert queue.statistics().delivering <= prefetch
            message.ack()
    assert received == bodies


def test_the_last_place_is_enough(queue: shmbroker.Queue) -> None:
    """A consumer that holds all it may goes on as soon as one is settled."""
    put_each(queue, "ABCDEFGH")
    with queue.consume(prefetch=3) as consumer:
        gathered = Gathered([consumer])
        gathered.wait(3)
        for total, settle in enumerate(("ack", "reject", "ack"), start=4):
            message = gathered.messages[0].pop(0)
            getattr(message, settle)()
            gathered.wait(total)
        assert [body for _, body in gathered.order] == list("ABCDEF")


def test_iteration_ends_when_nothing_comes(queue: shmbroker.Queue) -> None:
    """With timeout= the loop ends when no message came for so long."""
    put_each(queue, "AB")
    received = []
    with queue.consume(timeout=0.05) as consumer:
        for message in consumer:
            received.append(text(message))
            message.ack()
    assert received == ["A", "B"]
    assert_counts(queue, consumers=0, message_count=0)


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_iteration_ends_with_the_consumer(queue: shmbroker.Queue, end: str) -> None:
    """A loop in another thread ends when the consumer is closed or cancelled."""
    consumer = queue.consume()
    received: list[str] = []

    def loop() -> None:
        for message in consumer:
            received.append(text(message))
            message.ack()

    thread = threading.Thread(target=loop)
    thread.start()
    put_each(queue, "A")
    await_counts(queue, acked=1)
    getattr(consumer, end)()
    thread.join()
    assert received == ["A"]
    assert_counts(queue, consumers=0, message_count=0)
    consumer.close()


def test_get_waits_no_longer_than_asked(queue: shmbroker.Queue) -> None:
    """Empty is raised when the time is up, and the consumer stays."""
    with queue.consume() as consumer:
        for timeout in (0, 0.02):
            with pytest.raises(Empty):
                consumer.get(timeout=timeout)
        put_each(queue, "A")
        assert text(consumer.get(timeout=60)) == "A"


def test_use_after_close(queue: shmbroker.Queue) -> None:
    """A closed consumer gives nothing; closing again is without effect."""
    consumer = queue.consume()
    put_each(queue, "A")
    await_counts(queue, delivering=1)
    consumer.close()
    consumer.close()
    consumer.cancel()
    with pytest.raises(ConnectionClosed):
        consumer.get(timeout=0)
    assert list(consumer) == []
    assert listing(queue) == ["A"]


def test_close_returns_everything(queue: shmbroker.Queue) -> None:
    """close() gives back what was taken and what was not, in its place."""
    put_each(queue, "ABCDE")
    consumer = queue.consume(prefetch=4)
    held = consumer.get(timeout=60)
    await_counts(queue, delivering=4)
    consumer.close()
    assert_counts(queue, delivering=0, ready=5)
    assert listing(queue) == list("ABCDE")
    with pytest.raises(BrokerError):
        held.ack()
    assert_counts(queue, acked=0, ready=5)
    first, second = queue.get(), queue.get()
    assert first.redelivered
    assert [first.delivery_count, second.delivery_count] == [1, 1]


def test_cancel_returns_what_was_not_taken(queue: shmbroker.Queue) -> None:
    """cancel() gives back what was pulled; what is in hand can be settled."""
    put_each(queue, "ABCDE")
    consumer = queue.consume(prefetch=4)
    held = consumer.get(timeout=60)
    await_counts(queue, delivering=4)
    consumer.cancel()
    await_counts(queue, delivering=1, ready=4, consumers=0)
    held.ack()
    assert_counts(queue, acked=1, delivering=0)
    assert take(queue, 4) == list("BCDE")


def test_auto_ack_consumer(queue: shmbroker.Queue) -> None:
    """With auto_ack every message that is handed out is done with."""
    bodies = numbered(300)
    with queue.consume(auto_ack=True, prefetch=10, timeout=0.2) as consumer:
        put_each(queue, bodies)
        assert texts(consumer) == bodies
    await_counts(queue, acked=300, message_count=0)
    assert_balanced(queue)


def test_acks_are_sent_together(queue: shmbroker.Queue) -> None:
    """With ack_batch acks wait for the batch, for flush() and for close()."""
    put_each(queue, numbered(10))
    consumer = queue.consume(ack_batch=4, ack_interval=3600)
    for number in range(1, 11):
        consumer.get(timeout=60).ack()
        assert_counts(queue, acked=number // 4 * 4)
    consumer.flush()
    assert_counts(queue, acked=10)
    put_each(queue, numbered(3))
    for _ in range(3):
        consumer.get(timeout=60).ack()
    assert_counts(queue, acked=10)
    consumer.close()
    assert_counts(queue, acked=13, message_count=0)


def test_acks_are_sent_after_the_interval(queue: shmbroker.Queue) -> None:
    """An incomplete batch is sent after ack_interval, with nobody calling."""
    with queue.consume(ack_batch=50) as consumer:
        put_each(queue, "ABC")
        for _ in range(3):
            consumer.get(timeout=60).ack()
        await_counts(queue, acked=3, message_count=0)


def test_an_ack_batch_larger_than_prefetch_does_not_stall(
    queue: shmbroker.Queue,
) -> None:
    """Acks that wait never keep the consumer from its next message."""
    bodies = numbered(50)
    put_each(queue, bodies)
    with queue.consume(prefetch=3, ack_batch=1000, ack_interval=3600) as consumer:
        received = []
        for _ in bodies:
            message = consumer.get(timeout=60)
            received.append(text(message))
            message.ack()
    assert received == bodies
    assert_counts(queue, acked=50, message_count=0)


def test_acks_that_wait_are_lost_with_the_process(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """A crash before a batch of acks is sent redelivers its messages."""
    put_each(queue, "ABC")
    with Actor(broker.name) as victim:
        victim.do("consume", queue="q", ack_batch=64, ack_interval=3600)
        victim.do("receive", count=3, settle="ack")
        assert_counts(queue, acked=0, delivering=3)
        victim.kill()
        await_counts(queue, ready=3, delivering=0, consumers=0)
    message = queue.get()
    assert text(message) == "A"
    assert message.redelivered


FORGETS = """
    import gc, sys, time
    import shmbroker

    with shmbroker.connect(sys.argv[1], create=False) as connection:
        queue = connection.queue("q")
        for number in range(20):
            queue.consume(prefetch=2)
            gc.collect()
            rubbish = [bytes([255]) * size for size in range(1, 2000)]
            queue.put(b"A")
        time.sleep(float(sys.argv[2]))  # the sleepers' bounded waits are what is tested
        for _ in range(20):
            queue.put(b"B")
        consumers = connection.consumers()
        doctor = connection.doctor()
    print("survived", doctor)
"""


@pytest.mark.parametrize("seconds", ["0", "5.5"])
def test_a_forgotten_consumer_does_no_harm(broker: shmbroker.Broker, queue: shmbroker.Queue, seconds: str) -> None:
    """A consumer whose object is dropped unclosed: no crash, and nothing is stuck.

    It must survive a wait that times out: then the IO thread looks at all consumers.
    """
    done = run_python(FORGETS, broker.name, seconds)
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    assert done.stdout == "survived []\n"
    await_counts(queue, ready=40, delivering=0, consumers=0)


def test_the_queue_is_deleted(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """A consumer whose queue is deleted ends with NotFound."""
    with queue.consume() as consumer:
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                consumer.get(timeout=None)
            except BaseException as error:  # noqa: BLE001 (it is what we look at)
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        await_counts(queue, interested=1)
        connection.queue("q").delete()
        thread.join()
        assert [type(error) for error in errors] == [NotFound]


def test_a_consumer_that_has_ended_has_no_descriptor(queue: shmbroker.Queue) -> None:
    """Whoever wants to wait with one is told, and no descriptor is left behind."""
    consumer = queue.consume()
    consumer.fileno()
    consumer.close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ConnectionClosed, match="consumer"):
        consumer.fileno()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before  # that of another test may be closed meanwhile


def test_statistics_of_a_consumer(queue: shmbroker.Queue) -> None:
    """Delivered, unacked and prefetch are those of this consumer."""
    put_each(queue, "ABCDE")
    with queue.consume(prefetch=3) as consumer:
        await_counts(queue, delivering=3)
        message = consumer.get(timeout=60)
        statistics = consumer.statistics()
        assert statistics.prefetch == 3
        assert statistics.delivered == 1
        assert statistics.unacked == 3
        message.ack()


def test_consumers_of_several_threads_and_one_connection(
    queue: shmbroker.Queue,
) -> None:
    """Consumers of one connection, each in its thread, get each message once."""
    bodies = numbered(3000)
    received: list[list[str]] = [[] for _ in range(4)]
    consumers = [queue.consume(prefetch=5) for _ in received]

    def loop(index: int) -> None:
        for message in consumers[index]:
            received[index].append(text(message))
            message.ack()

    threads = [threading.Thread(target=loop, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    put_each(queue, bodies)
    eventually(lambda: queue.statistics().acked == len(bodies))
    for consumer in consumers:
        consumer.close()
    for thread in threads:
        thread.join()
    assert sorted(itertools.chain(*received)) == bodies
    assert all(part == sorted(part) for part in received)
    assert_balanced(queue)


def test_a_consumer_over_several_queues(connection: shmbroker.Connection) -> None:
    """One consumer over several queues: each message says where it came from."""
    queues = [connection.queue(name) for name in ("a", "b")]
    for queue in queues:
        put_each(queue, [f"of {queue.name}"])
    with connection.consumer(queues, prefetch=4) as consumer:
        messages = [consumer.get(timeout=60) for _ in queues]
        found = {getattr(m.queue, "name", m.queue): text(m) for m in messages}
        assert found == {"a": "of a", "b": "of b"}
        for message in messages:
            message.ack()
    for queue in queues:
        assert_counts(queue, acked=1, message_count=0, consumers=0)
