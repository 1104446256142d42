# SPDX-License-Identifier: Apache-2.0
"""What one message costs while something else grows: depth, consumers, queues.

Each function is the generator of a standing worker: it prepares once, yields, and
then yields one `Sample` per step. The cost is the time of put, get and ack of one
message in one process, one at a time.
"""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from queue import Empty
from typing import TYPE_CHECKING

from benchmarks.payload import CountedTally, OrderedTally, Pool, Receipt
from benchmarks.samples import Sample
from benchmarks.shm.broker import opened

if TYPE_CHECKING:
    from collections.abc import Generator

    import shmbroker

SIZE = 64
PREFETCH = 16
BATCH = 256
WARM_UP_ROUNDS = 4


def _sample(elapsed_ns: int, receipt: Receipt, expected: Receipt) -> Sample:
    verified = receipt == expected
    return Sample(
        value=elapsed_ns / max(1, receipt.count),
        count=receipt.count,
        checksum=receipt.checksum,
        verified=verified,
        fault="" if verified else f"{receipt} instead of {expected}",
    )


def fill(queue: shmbroker.Queue, pool: Pool, rounds: int) -> None:
    """Put whole pools into a queue."""
    for _ in range(rounds):
        sent = 0
        while sent < pool.period:
            sent += queue.put_many(pool.bodies[sent:])


def _hold(queue: shmbroker.Queue, rounds: int) -> list[shmbroker.MessageBatch]:
    """Take whole rounds out of the queue without acknowledging them."""
    held: list[shmbroker.MessageBatch] = []
    missing = rounds * BATCH
    while missing:
        batch = queue.get_many(min(missing, BATCH))
        held.append(batch)
        missing -= len(batch)
    return held


def _cycles(queue: shmbroker.Queue, pool: Pool, rounds: int) -> Sample:
    """Put, get and ack, one at a time; the depth stays what it is."""
    tally = OrderedTally(pool)
    put, get = queue.put, queue.get
    now = time.perf_counter_ns
    elapsed_ns = 0
    for _ in range(rounds):
        window = []
        start_ns = now()
        for body in pool.bodies:
            put(body)
            message = get()
            window.append(bytes(message))
            message.ack()
        elapsed_ns += now() - start_ns
        tally.add(window)
    return _sample(elapsed_ns, tally.receipt(), pool.receipt(rounds * pool.period))


def depth(broker: str, ready: int, unacked: int, rounds: int) -> Generator[Sample | None, None, None]:
    """Cost at a depth.

    Args:
        broker: Name of the running broker.
        ready: Messages that lie in the queue, rounded up to whole pools.
        unacked: Messages held unacknowledged meanwhile.
        rounds: Pools of 256 messages to send in each step.
    """
    pool = Pool(SIZE)
    with opened(broker, f"depth-{ready}-{unacked}") as (_, queue):
        fill(queue, pool, -(-unacked // BATCH))
        held = _hold(queue, unacked // BATCH)
        few = [queue.get() for _ in range(unacked % BATCH)]
        holding = sum(map(len, held)) + len(few)
        for _ in range(-unacked % BATCH):
            queue.get(auto_ack=True)
        fill(queue, pool, -(-ready // BATCH))
        _cycles(queue, pool, WARM_UP_ROUNDS)
        yield None
        while True:
            sample = _cycles(queue, pool, rounds)
            yield _with_depth(sample, queue, -(-ready // BATCH) * BATCH, holding)


def _with_depth(sample: Sample, queue: shmbroker.Queue, ready: int, unacked: int) -> Sample:
    """Check that the depth is still what it should be."""
    facts = queue.statistics()
    if (facts.ready, facts.delivering) == (ready, unacked):
        return sample
    fault = f"ready {facts.ready}, delivering {facts.delivering}; {sample.fault}"
    return Sample(sample.value, sample.count, sample.checksum, verified=False, fault=fault)


def queues(broker: str, number: int, rounds: int) -> Generator[Sample | None, None, None]:
    """Cost when many queues are used in turn.

    Args:
        broker: Name of the running broker.
        number: Of queues, all open in one connection.
        rounds: Pools of 256 messages to send in each step.
    """
    pool = Pool(SIZE)
    now = time.perf_counter_ns
    with ExitStack() as stack:
        connection, first = stack.enter_context(opened(broker, "turn-0"))
        turn = [first]
        turn += [connection.queue(f"turn-{index}") for index in range(1, number)]
        for queue in turn:
            queue.put(pool.bodies[0])
            queue.get(auto_ack=True)
        endless = itertools.cycle(turn)
        yield None
        while True:
            tally = OrderedTally(pool)
            elapsed_ns = 0
            for _ in range(rounds):
                window = []
                start_ns = now()
                for body, queue in zip(pool.bodies, endless, strict=False):
                    queue.put(body)
                    message = queue.get()
                    window.append(bytes(message))
                    message.ack()
                elapsed_ns += now() - start_ns
                tally.add(window)
            expected = pool.receipt(rounds * pool.period)
            yield _sample(elapsed_ns, tally.receipt(), expected)


def _drain(consumers: list[shmbroker.Consumer], total: int) -> CountedTally:
    """Take `total` messages from whichever consumers hold them."""
    tally = CountedTally()
    endless = itertools.cycle(consumers)
    while total:
        consumer = next(endless)
        window = []
        try:
            for _ in range(min(PREFETCH, total)):
                message = consumer.get(timeout=0)
                window.append(bytes(message))
                message.ack()
        except Empty:
            pass
        tally.add(window)
        total -= len(window)
    return tally


def consumers(broker: str, number: int, rounds: int) -> Generator[Sample | None, None, None]:
    """Cost when many consumers of one process compete for one queue.

    The backlog, and so the memory in use, is the same for every number of consumers.

    Args:
        broker: Name of the running broker.
        number: Of consumers, all in one connection.
        rounds: Pools of 256 messages to send in each step.
    """
    pool = Pool(SIZE)
    total = rounds * pool.period
    with opened(broker, f"consumers-{number}") as (_, queue), ExitStack() as stack:
        crowd = [stack.enter_context(queue.consume(prefetch=PREFETCH)) for _ in range(number)]
        fill(queue, pool, 1)
        _drain(crowd, pool.period)
        yield None
        while True:
            start_ns = time.perf_counter_ns()
            for _ in range(rounds):
                for body in pool.bodies:
                    queue.put(body)
            tally = _drain(crowd, total)
            elapsed_ns = time.perf_counter_ns() - start_ns
            yield _sample(elapsed_ns, tally.receipt(), pool.receipt(total))
