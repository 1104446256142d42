# SPDX-License-Identifier: Apache-2.0
"""Purging a queue while others use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import assert_balanced, assert_counts, await_counts, nothing_to_get, numbered, put_each
from scenario_support.processes import actors
from scenario_support.waiting import eventually

if TYPE_CHECKING:
    import shmbroker

MANY = 20_000
HELD = 100
SENT = 1000
SENDERS = 2


@pytest.mark.parametrize("max_priority", [0, 2])
def test_t65_a_purge_beside_a_consumer_and_senders(
    broker: shmbroker.Broker, connection: shmbroker.Connection, max_priority: int
) -> None:
    """20,000 messages, a consumer that holds some, senders at work: each purge returns what it removed.

    Delivered messages stay, all processes come to their end, and the counts add up.
    """
    queue = connection.queue("q", max_priority=max_priority)
    removed = []
    with actors(broker.name, SENDERS + 1) as (consumer, *senders):
        consumer.do("consume", queue="q", prefetch=HELD)
        for number in range(0, MANY, 1000):
            queue.put_many([body.encode() for body in numbered(1000, first=number)])
        await_counts(queue, delivering=HELD, ready=MANY - HELD)
        for number, sender in enumerate(senders):
            sender.begin("put", queue="q", bodies=numbered(SENT, first=MANY + number * SENT))
        removed.append(queue.purge())
        assert removed[0] >= MANY - HELD
        for sender in senders:
            while queue.statistics().added < MANY + SENT:
                removed.append(queue.purge())
            sender.result()
        removed.append(queue.purge())
        assert_counts(queue, added=MANY + SENDERS * SENT, killed=sum(removed), ready=0, delivering=HELD, acked=0)
        got = consumer.do("receive", count=HELD, timeout=60, settle="ack")
        assert [message["body"] for message in got] == numbered(HELD)
        consumer.do("close_consumer")
    assert nothing_to_get(queue)
    assert_counts(queue, acked=HELD, killed=MANY + SENDERS * SENT - HELD, message_count=0, bytes=0)
    assert_balanced(queue)


def test_t65_a_purge_beside_consumers_that_take_and_return(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """Two processes consume, return and close at random: what is neither acked nor returned by a purge is not there."""
    put_each(queue, numbered(2000))
    removed = 0
    with actors(broker.name, 2) as workers:
        for seed, worker in enumerate(workers):
            worker.begin("come_and_go", queue="q", until=2200, seed=seed)
        eventually(lambda: queue.statistics().acked > 200)
        for round_ in range(5):
            removed += queue.purge()
            put_each(queue, numbered(1000, first=10_000 + 1000 * round_))
        # the workers end when 2,200 messages are acked in all; these come if the purges left them too few
        while queue.statistics().acked < 2200:
            put_each(queue, numbered(10, first=90_000))
        acked = [body for worker in workers for body in worker.result()]
    await_counts(queue, consumers=0, delivering=0)
    removed += queue.purge()
    assert_counts(queue, acked=len(acked), killed=removed, message_count=0)
    assert_balanced(queue)
