# SPDX-License-Identifier: Apache-2.0
"""Browsing: reading without acquiring leaves no trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import (
    assert_balanced,
    assert_counts,
    listing,
    numbered,
    put_each,
    take,
    text,
    texts,
)
from scenario_support.processes import actors

if TYPE_CHECKING:
    import shmbroker


def test_q43_what_was_browsed_is_still_received(queue: shmbroker.Queue) -> None:
    """A browser sees all; a consumer then receives every message."""
    put_each(queue, "ABCDE")
    assert listing(queue) == list("ABCDE")
    with queue.consume() as consumer:
        for expected in "ABCDE":
            message = consumer.get(timeout=60)
            assert text(message) == expected
            message.ack()
    assert_counts(queue, message_count=0, acked=5)


def test_q43_a_browser_with_a_selector_sees_its_subset(queue: shmbroker.Queue) -> None:
    """It sees what its selector selects; a consumer then receives every message."""
    for number, body in enumerate("ABCDE"):
        queue.put(body.encode(), headers={"odd": number % 2 == 1})
    assert texts(queue.browse("odd")) == list("BD")
    assert texts(queue.browse("NOT odd")) == list("ACE")
    with queue.consume() as consumer:
        for expected in "ABCDE":
            message = consumer.get(timeout=60)
            assert text(message) == expected
            message.ack()
    assert_counts(queue, message_count=0, acked=5)


def test_q44_browsing_counts_as_no_delivery(queue: shmbroker.Queue) -> None:
    """A browsed message shows no delivery, and its first delivery is its first."""
    queue.put(b"A")
    for _ in range(3):
        shown = next(queue.browse())
        assert shown.delivery_count == 0
        assert not shown.redelivered
    assert_counts(queue, ready=1, delivering=0, redelivered=0)
    message = queue.get()
    assert message.delivery_count == 1
    assert not message.redelivered
    message.ack()


def test_q45_every_browser_sees_everything(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """One browser, later another: both see all five, then each new one; none goes."""
    put_each(queue, "ABCDE")
    with broker.connect() as other:
        browsed = other.queue("q", passive=True)
        assert listing(queue) == list("ABCDE")
        assert listing(browsed) == list("ABCDE")
        for number, body in enumerate("FGH", start=6):
            queue.put(body.encode())
            assert listing(queue) == list("ABCDEFGH"[:number])
            assert listing(browsed) == list("ABCDEFGH"[:number])
            assert_counts(queue, message_count=number, ready=number)


def test_q46_a_returned_message_is_not_shown_again(queue: shmbroker.Queue) -> None:
    """What was delivered and returned behind a browser's place does not come again."""
    put_each(queue, "ABCD")
    reader = queue.browse()
    assert [text(next(reader)) for _ in range(2)] == ["A", "B"]
    held = [queue.get(), queue.get()]
    for message in held:
        message.nack()
    assert texts(reader) == ["C", "D"]
    assert take(queue, 4) == list("ABCD")


def test_q47_a_browsed_message_stays_readable(queue: shmbroker.Queue) -> None:
    """What a browser has pulled can be read although it was removed since."""
    sizes = [10, 4096, 64 * 1024, 1024 * 1024]
    bodies = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    queue.put_many(bodies)
    shown = list(queue.browse())
    queue.get_many(len(bodies)).ack()
    assert_counts(queue, message_count=0)
    for _ in range(8):
        queue.put_many([b"x" * size for size in sizes])
        queue.purge()
    assert [bytes(message) for message in shown] == bodies


def test_q48_a_browser_goes_on_while_messages_remain(queue: shmbroker.Queue) -> None:
    """A browser does not end at a gap: not at removed ones, nor at held ones."""
    bodies = numbered(300)
    put_each(queue, bodies)
    reader = queue.browse()
    assert text(next(reader)) == bodies[0]
    held = list(queue.get_many(250))
    for message in held[:200]:
        message.ack()
    shown = texts(reader)
    assert shown[-50:] == bodies[250:]
    assert shown == sorted(set(shown))
    for message in held[200:]:
        message.nack()
    assert listing(queue) == bodies[200:]


def test_q48_a_browser_with_a_selector_passes_what_does_not_match(queue: shmbroker.Queue) -> None:
    """It does not end at thousands of messages that do not match, nor at removed or held ones among them."""
    for number in range(3000):
        queue.put(str(number).encode(), headers={"wanted": number % 1000 == 999})
    held = list(queue.get_many(500))
    for message in held[:250]:
        message.ack()
    assert texts(queue.browse("wanted")) == ["999", "1999", "2999"]
    for message in held[250:]:
        message.nack()


def test_q48_a_browser_sees_all_that_stays_under_traffic(
    broker: shmbroker.Broker, connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """While another process takes and returns, what is there all along is seen once."""
    watched = connection.queue("watched")
    moving, staying = numbered(2000), numbered(300, first=90000)
    put_each(queue, moving + staying)
    with actors(broker.name, 1) as (worker,):
        worker.begin("come_and_go", queue="q", until=1000, seed=48, watched="watched")
        while queue.statistics().acked < 1000 or not watched.statistics().message_count:
            shown = listing(queue)
            assert shown[-300:] == staying
            assert shown == sorted(set(shown))
            watched.put(b"looked")
        worker.result()
    assert_balanced(queue)


@pytest.mark.parametrize("settings", [{}, {"max_priority": 3}, {"single_active_consumer": True}], ids=str)
def test_t80_browsing_while_consumers_work_shows_nothing_twice(
    broker: shmbroker.Broker, connection: shmbroker.Connection, settings: dict[str, int]
) -> None:
    """While processes take, return and put, each look shows no message twice, and once each that is there throughout.

    Those that stay lie behind the ones that move; in a queue with priorities, in each of them.
    """
    queue = connection.queue("q", **settings)
    watched = connection.queue("watched")
    highest = settings.get("max_priority", 0)
    put_each(queue, numbered(1000), priority=highest)
    staying: list[str] = []
    for level in range(highest, -1, -1):
        bodies = numbered(100, first=10_000 * (10 - level))
        put_each(queue, bodies, priority=level)
        staying += bodies
    remain = frozenset(staying)
    with actors(broker.name, 3) as (first, second, producer):
        for seed, worker in enumerate((first, second)):
            worker.begin("come_and_go", queue="q", until=600, seed=seed, watched="watched")
        producer.begin("put_storm", queue="q", bodies=numbered(2000, first=50_000))
        while queue.statistics().acked < 600 or not watched.statistics().message_count:
            shown = listing(queue)
            assert len(shown) == len(set(shown))
            assert [body for body in shown if body in remain] == staying
            watched.put(b"looked")
        for actor in (first, second, producer):
            actor.result()
    assert_balanced(queue)
