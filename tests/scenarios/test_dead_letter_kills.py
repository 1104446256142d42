# SPDX-License-Identifier: Apache-2.0
"""Dead letters when processes are killed: each message is in its queue or in the dead-letter queues, once."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from scenario_support.dead_letters import EXCHANGE, dead_letter_queue, next_dead, reject_next
from scenario_support.observing import (
    assert_balanced,
    assert_counts,
    await_counts,
    nothing_to_get,
    numbered,
    put_each,
    take,
    text,
)
from scenario_support.processes import Actor
from scenario_support.waiting import eventually

if TYPE_CHECKING:
    import shmbroker


def deaths_in_queue(connection: shmbroker.Connection, reason: str, bodies: list[str]) -> shmbroker.Queue:
    """Have every body die in a queue for the reason."""
    settings = {"maxlen": {"max_length": 1, "overflow": "drop-head"}, "expired": {"message_ttl": 0.02}}.get(reason, {})
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE, **settings)
    put_each(queue, bodies)
    if reason == "maxlen":
        put_each(queue, ["stays"])
    elif reason == "rejected":
        for _ in bodies:
            reject_next(queue)
    return queue


@pytest.mark.parametrize("reason", ["rejected", "expired", "maxlen"])
def test_a_killed_housekeeper_loses_and_doubles_no_dead_letter(
    broker: shmbroker.Broker, connection: shmbroker.Connection, reason: str
) -> None:
    """The housekeeper is killed again and again while it carries out thousands: each arrives once in each queue."""
    targets = [dead_letter_queue(connection, name) for name in ("dead", "dead too")]
    bodies = [f"{body}{'x' * 500}" for body in numbered(20_000)]
    with connection.channel() as channel:  # its connection notices that the housekeeper is gone
        channel.basic_consume(channel.queue_declare("").queue, lambda *_: None)
        before = eventually(lambda: broker.statistics().housekeeper_pid)
        os.kill(before, signal.SIGSTOP)
        try:
            queue = deaths_in_queue(connection, reason, bodies)
        finally:
            os.kill(before, signal.SIGCONT)
        kills = 0
        for done in range(20, len(bodies), 6000):
            eventually(lambda done=done: targets[0].statistics().added >= done)
            keeper = eventually(lambda: broker.statistics().housekeeper_pid)
            kills += targets[0].statistics().added < len(bodies)
            os.kill(keeper, signal.SIGKILL)
            eventually(lambda keeper=keeper: broker.statistics().housekeeper_pid not in {0, keeper})
    for target in targets:
        await_counts(target, ready=len(bodies), added=len(bodies))
        assert sorted(take(target, len(bodies))) == bodies
        assert_counts(target, message_count=0, added=len(bodies))
    stays = int(reason == "maxlen")
    await_counts(queue, message_count=stays, dead_lettered=len(bodies), dropped=0, expired=0)
    assert_balanced(queue)
    assert kills > 0
    assert connection.doctor() == []


def test_a_killed_housekeeper_leaves_what_waits_for_room(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Killed while dead messages wait for room in the target: the next one carries them out, each once."""
    dead = dead_letter_queue(connection, max_length=5)
    bodies = numbered(20)
    received = []
    queue = deaths_in_queue(connection, "rejected", bodies)
    with connection.channel() as channel:  # its connection notices that the housekeeper is gone
        channel.basic_consume(channel.queue_declare("").queue, lambda *_: None)
        for done in range(5, len(bodies) + 1, 5):
            await_counts(dead, ready=5)
            await_counts(queue, dead_lettered=done, message_count=len(bodies) - done)
            keeper = eventually(lambda: broker.statistics().housekeeper_pid)
            os.kill(keeper, signal.SIGKILL)
            received += take(dead, 5)
    assert sorted(received) == bodies
    await_counts(queue, message_count=0, dead_lettered=len(bodies))
    assert nothing_to_get(dead)
    assert_balanced(queue)


@pytest.mark.parametrize("settle", ["reject", "transaction"])
def test_a_process_that_is_killed_after_it_rejected(
    broker: shmbroker.Broker, connection: shmbroker.Connection, settle: str
) -> None:
    """What it rejected is dead; what it held returns; what it rejected in an open transaction returns, too."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    bodies = numbered(20)
    put_each(queue, bodies)
    with Actor(broker.name) as victim:
        if settle == "reject":
            victim.do("get", queue="q", count=10, settle="reject")
        else:
            victim.do("on_channel", method="tx_select")
            victim.do("on_channel", method="basic_get", queue="q")
            victim.do("on_channel", method="basic_reject", delivery_tag=1, requeue=False)
        victim.do("get", queue="q", count=5)
        victim.kill()
    rejected = bodies[:10] if settle == "reject" else []
    assert [text(next_dead(dead)) for _ in rejected] == rejected
    await_counts(queue, ready=len(bodies) - len(rejected), delivering=0, scheduled=0, dead_lettered=len(rejected))
    assert take(queue, len(bodies) - len(rejected)) == bodies[len(rejected) :]
    assert nothing_to_get(dead)
    assert_balanced(queue)
