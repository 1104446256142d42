# SPDX-License-Identifier: Apache-2.0
"""What the features of queues cost: in one process, with the calls that an application makes, for each message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.samples import Sample
from benchmarks.shm.broker import connected

if TYPE_CHECKING:
    from collections.abc import Generator

    import shmbroker

    Steps = Generator[Sample | None, None, None]

BODY = b"x" * 64
HEADER = "key"
DEPTH = 1000  # what lies in a queue while messages are put and taken
DELAY_SECONDS = 2.0
PAUSE_SECONDS = 0.001


def _sample(elapsed_ns: float, count: int, wrong: str) -> Sample:
    return Sample(value=elapsed_ns / count, count=count, checksum=count, verified=not wrong, fault=wrong)


def _expected(queue: shmbroker.Queue, **counts: int) -> str:
    """Return how the queue's statistics differ from those expected; nothing if they do not."""
    statistics = queue.statistics()
    found = {name: getattr(statistics, name) for name in counts}
    return "" if found == counts else f"{found} instead of {counts}"


def puts(broker: str, settings: dict[str, object], keys: int, count: int) -> Steps:
    """Put messages with a key in a header; each step puts `count`, and empties the queue unless it replaces them.

    Args:
        broker: Name of the running broker.
        settings: Of the queue. With a `last_value_key` or a `ring_size` the queue is full before the first step.
        keys: How many different keys there are; the messages have them in turn.
        count: Messages of a step.
    """
    with connected(broker) as connection:
        queue = connection.queue("puts", **settings)
        replaces = "last_value_key" in settings or "ring_size" in settings
        for number in range(keys if replaces else 0):
            queue.put(BODY, headers={HEADER: number})
        before, done = queue.statistics().message_count, 0
        yield None
        while True:
            start_ns = time.perf_counter_ns()
            for number in range(done, done + count):
                queue.put(BODY, headers={HEADER: number % keys})
            elapsed_ns = time.perf_counter_ns() - start_ns
            done += count
            wrong = _expected(queue, message_count=before if replaces else count)
            if not replaces:
                queue.purge()
            yield _sample(elapsed_ns, count, wrong)


def ranked(broker: str, levels: int, count: int) -> Steps:
    """Put and get in turn, beside messages of all levels.

    Args:
        broker: Name of the running broker.
        levels: Of priority; 0: the queue has none.
        count: Messages of a step.
    """
    with connected(broker) as connection:
        queue = connection.queue("ranked", max_priority=max(levels - 1, 0))
        priorities = [number * 7 % levels if levels else 0 for number in range(count)]
        for priority in priorities[:DEPTH]:
            queue.put(BODY, priority=priority)
        yield None
        while True:
            start_ns = time.perf_counter_ns()
            for priority in priorities:
                queue.put(BODY, priority=priority)
                queue.get_nowait(auto_ack=True)
            elapsed_ns = time.perf_counter_ns() - start_ns
            yield _sample(elapsed_ns, count, _expected(queue, message_count=DEPTH))


def grouped(broker: str, settings: dict[str, object], groups: int, count: int) -> Steps:
    """Get and acknowledge messages of many groups, which were put before.

    Args:
        broker: Name of the running broker.
        settings: Of the queue.
        groups: How many groups there are.
        count: Messages of a step.
    """
    with connected(broker) as connection:
        queue = connection.queue("grouped", **settings)
        yield None
        while True:
            for number in range(count):
                queue.put(BODY, group=f"group-{number % groups}")
            start_ns = time.perf_counter_ns()
            for _ in range(count):
                queue.get_nowait().ack()
            elapsed_ns = time.perf_counter_ns() - start_ns
            yield _sample(elapsed_ns, count, _expected(queue, message_count=0))


def dead(broker: str, count: int) -> Steps:
    """Reject messages, and wait until all lie in the dead-letter queue.

    Args:
        broker: Name of the running broker.
        count: Messages of a step.
    """
    with connected(broker) as connection:
        letters = connection.queue("dead")
        queue = connection.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
        yield None
        while True:
            for _ in range(count):
                queue.put(BODY)
            start_ns = time.perf_counter_ns()
            for _ in range(count):
                queue.get_nowait().reject()
            while len(letters) < count:
                time.sleep(PAUSE_SECONDS)
            elapsed_ns = time.perf_counter_ns() - start_ns
            wrong = _expected(letters, message_count=count)
            letters.purge()
            yield _sample(elapsed_ns, count, wrong)


def _delay(queue: shmbroker.Queue, count: int) -> tuple[float, float, str]:
    """Put messages that are delayed, and wait until all are ready.

    Returns:
        The nanoseconds of the puts, those from the end of the last delay until the last message was ready, and how the
        queue's statistics differ from those expected.
    """
    start_ns = time.perf_counter_ns()
    for _ in range(count):
        queue.put(BODY, delay=DELAY_SECONDS)
    end_ns = time.perf_counter_ns()
    due_ns = end_ns + round(DELAY_SECONDS * 1e9)
    while queue.statistics().scheduled:
        time.sleep(PAUSE_SECONDS)
    late_ns = max(time.perf_counter_ns() - due_ns, 0)
    wrong = _expected(queue, ready=count)
    queue.purge()
    return end_ns - start_ns, late_ns, wrong


def delayed(broker: str, count: int) -> Steps:
    """Put messages that are delayed, and wait until all are ready.

    The value is the time that the delay adds to a put, and that passes from the end of the last delay until the last
    message is ready.

    Args:
        broker: Name of the running broker.
        count: Messages of a step.
    """
    with connected(broker) as connection:
        queue = connection.queue("delayed")
        yield None
        while True:
            start_ns = time.perf_counter_ns()
            for _ in range(count):
                queue.put(BODY)
            plain_ns = time.perf_counter_ns() - start_ns
            queue.purge()
            put_ns, late_ns, wrong = _delay(queue, count)
            yield _sample(max(put_ns - plain_ns, 0) + late_ns, count, wrong)


def delayed_whole(broker: str, count: int) -> Steps:
    """Put messages that are delayed, and wait until all are ready; the value is the time of both beyond the delay.

    Args:
        broker: Name of the running broker.
        count: Messages of a step.
    """
    with connected(broker) as connection:
        queue = connection.queue("delayed")
        yield None
        while True:
            put_ns, late_ns, wrong = _delay(queue, count)
            yield _sample(put_ns + late_ns, count, wrong)
