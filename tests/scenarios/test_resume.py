# SPDX-License-Identifier: Apache-2.0
"""Producers of a queue that was full: they continue when it has emptied to a share of its limits (as in Broker-J)."""

from __future__ import annotations

import queue as standard_queue
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import assert_balanced, assert_counts, listing, numbered, put_each, take
from scenario_support.processes import Actor, actors
from scenario_support.waiting import becomes

from shmbroker._session.queues import core_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import shmbroker

BODY = "x" * 10
TEN = [{"max_length": 10}, {"max_bytes": 100}]
"""Ten messages of ten bytes, by number and by size."""


def waiting(queue: shmbroker.Queue) -> int:
    """Return how many producers wait for room in a queue."""
    return core_of(queue).facts().room_waiting


def refuses(queue: shmbroker.Queue) -> bool:
    """Tell whether a put that does not wait finds no room."""
    try:
        queue.put(BODY.encode(), timeout=0)
    except standard_queue.Full:
        return True
    return False


@pytest.mark.parametrize("limit", TEN)
def test_q68_blocked_until_it_has_emptied(
    broker: shmbroker.Broker, connection: shmbroker.Connection, limit: Mapping[str, int]
) -> None:
    """An eleventh of ten messages stops the queue once: at nine its producer still waits, at eight it continues."""
    queue = connection.queue("q", resume_at=80, **limit)
    put_each(queue, [BODY] * 10, timeout=0)
    assert_counts(queue, stops=0)
    with actors(broker.name, 2) as producers:
        for producer in producers:
            producer.begin("put", queue="q", bodies=[BODY])
        becomes(lambda: waiting(queue), 2)
        assert_counts(queue, stops=1)
        take(queue, 1)
        assert refuses(queue)  # a producer that comes now waits, too, although there is room for its message
        assert waiting(queue) == 2
        take(queue, 1)
        for producer in producers:
            producer.result()
        assert_counts(queue, ready=10, stops=1)
    assert_balanced(queue)


@pytest.mark.parametrize("limit", TEN)
def test_q68_of_several_producers_none_is_forgotten(
    broker: shmbroker.Broker, connection: shmbroker.Connection, limit: Mapping[str, int]
) -> None:
    """Four processes put into a queue that is full again and again: each ends, and each message arrives once."""
    queue = connection.queue("q", resume_at=50, **limit)
    sent = [numbered(300, first * 1000) for first in range(4)]
    with actors(broker.name, 4) as producers:
        for producer, bodies in zip(producers, sent, strict=True):
            producer.begin("put", queue="q", bodies=bodies)
        received = take(queue, 1200)
        for producer in producers:
            producer.result()
    assert sorted(received) == sorted(body for bodies in sent for body in bodies)
    for bodies in sent:
        mine = set(bodies)
        assert [body for body in received if body in mine] == bodies
    assert queue.statistics().stops > 0
    assert_balanced(queue)


def test_q68_the_limit_stays_exact(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Eight processes put until they find no room: the queue has exactly what fits, and is stopped once."""
    queue = connection.queue("q", max_length=100, resume_at=80)
    with actors(broker.name, 8) as producers:
        for producer in producers:
            producer.begin("put_until_full", queue="q")
        put = [producer.result() for producer in producers]
    assert (sum(put), len(queue)) == (100, 100)
    assert_counts(queue, stops=1)
    take(queue, 19)
    assert refuses(queue)
    take(queue, 1)
    assert not refuses(queue)
    assert_balanced(queue)


def test_q68_the_killed_do_no_harm(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A producer and a consumer are killed while the queue is stopped: another producer continues at the share."""
    queue = connection.queue("q", max_length=10, resume_at=80)
    put_each(queue, numbered(10))
    with Actor(broker.name) as producer, Actor(broker.name) as victim, Actor(broker.name) as consumer:
        victim.begin("put", queue="q", bodies=["never"])
        becomes(lambda: waiting(queue), 1)
        producer.begin("put", queue="q", bodies=["late"])
        becomes(lambda: waiting(queue), 2)
        assert consumer.do("get", queue="q")[0]["body"] == "m00000"
        victim.kill()
        consumer.kill()
        becomes(lambda: (len(queue), waiting(queue)), (10, 1))  # what it held came back, and the dead producer is gone
        take(queue, 2)
        producer.result()
    assert listing(queue)[-1] == "late"
    assert len(queue) == 9
    assert_balanced(queue)


def test_q69_one_consume_does_not_resume(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Bytes for three and a half messages, resume at one: the fourth blocks; one get does not resume it, two do."""
    queue = connection.queue("q", max_bytes=35, resume_at=30)
    put_each(queue, ["a" * 10, "b" * 10, "c" * 10], timeout=0)
    with Actor(broker.name) as producer:
        producer.begin("put", queue="q", bodies=["d" * 10])
        becomes(lambda: waiting(queue), 1)
        take(queue, 1)
        assert refuses(queue)
        take(queue, 1)
        producer.result()
    assert [body[0] for body in listing(queue)] == ["c", "d"]


def test_q69_an_equal_share_resumes_after_one(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Resume at the limit itself: one get lets a blocked producer continue, and the queue never is stopped."""
    queue = connection.queue("q", max_length=3, resume_at=100)
    put_each(queue, "abc", timeout=0)
    with Actor(broker.name) as producer:
        producer.begin("put", queue="q", bodies=["d"])
        becomes(lambda: waiting(queue), 1)
        take(queue, 1)
        producer.result()
    assert listing(queue) == ["b", "c", "d"]
    assert_counts(queue, stops=0)


@pytest.mark.parametrize("change", [{"max_length": 20}, {"resume_at": 100}, {"max_length": -1}])
def test_q69_a_change_resumes(
    broker: shmbroker.Broker, connection: shmbroker.Connection, change: Mapping[str, int]
) -> None:
    """A stopped queue of nine: a higher limit, or a higher share, lets a blocked producer continue."""
    queue = connection.queue("q", max_length=10, resume_at=50)
    put_each(queue, numbered(10))
    with Actor(broker.name) as producer:
        producer.begin("put", queue="q", bodies=["late"])
        becomes(lambda: waiting(queue), 1)
        take(queue, 1)
        assert refuses(queue)
        queue.configure(**change)
        producer.result()
    assert len(queue) == 10


def test_q69_a_batch_resumes_later_too(connection: shmbroker.Connection) -> None:
    """A put of many, and a commit, are stopped like a put; what was put before stays."""
    queue = connection.queue("q", max_length=4, resume_at=50)
    assert queue.put_many([b"1", b"2", b"3", b"4", b"5"], timeout=0) == 4
    take(queue, 1)
    with pytest.raises(standard_queue.Full):
        queue.put_many([b"5"], timeout=0)
    take(queue, 1)
    assert queue.put_many([b"5", b"6"], timeout=0) == 2


@pytest.mark.parametrize("value", [0, 101, -1, 1.5, "80", True])
def test_a_share_is_a_percentage(connection: shmbroker.Connection, value: object) -> None:
    """resume_at is 1 to 100; the error names it, the value and what is allowed."""
    with pytest.raises(ValueError, match=r"^resume_at=.*: an integer from 1 to 100 is allowed$"):
        connection.queue("q", resume_at=value)
