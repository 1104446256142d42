# SPDX-License-Identifier: Apache-2.0
"""Consumers that hold so many bytes at most: what does not fit waits, goes elsewhere, and makes nobody spin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import wakes_of
from scenario_support.observing import assert_balanced, await_counts
from scenario_support.processes import actors

if TYPE_CHECKING:
    import shmbroker

WINDOW = 1000
LOOKS = 1000
EACH_KIND: tuple[dict[str, Any], ...] = (
    {}, {"max_priority": 5}, {"sort_key": "number"}, {"message_groups": "shared"}, {"message_groups": "sticky"},
    {"last_value_key": "number"}, {"ring_size": 100},
)  # fmt: skip


def put_lengths(queue: shmbroker.Queue, *lengths: int) -> None:
    """Put messages of these lengths."""
    for number, length in enumerate(lengths):
        queue.put(b"x" * length, headers={"number": number})


def taken(consumer: shmbroker.Consumer, count: int) -> list[shmbroker.Message]:
    """Return the next messages of a consumer."""
    return [consumer.get(timeout=60) for _ in range(count)]


def lengths_of(messages: list[shmbroker.Message]) -> list[int]:
    """Return the lengths of their bodies."""
    return [len(bytes(message)) for message in messages]


@pytest.mark.parametrize("settings", EACH_KIND, ids=lambda one: next(iter(one.items()), ("plain",)))
def test_q84_a_message_that_does_not_fit_waits_for_room(
    connection: shmbroker.Connection, settings: dict[str, Any]
) -> None:
    """Two of 300 bytes leave 400 of 1,000: one of 500 waits until one is settled, and nothing overtakes it."""
    queue = connection.queue("window", **settings)
    put_lengths(queue, 300, 300, 500, 100)
    with queue.consume(prefetch_bytes=WINDOW) as consumer:
        first, second = taken(consumer, 2)
        await_counts(queue, ready=2, delivering=2, not_interested=1)
        assert consumer.statistics().waiting == 0
        before = wakes_of(connection)
        assert all(queue.statistics().not_interested == 1 for _ in range(LOOKS))
        assert wakes_of(connection) == before
        first.ack()
        third, fourth = taken(consumer, 2)
        assert lengths_of([second, third, fourth]) == [300, 500, 100]
        for message in (second, third, fourth):
            message.ack()
        await_counts(queue, message_count=0, acked=4)
    assert_balanced(queue)


def test_q84_a_follower_reads_no_more_than_its_window(connection: shmbroker.Connection) -> None:
    """In a non-destructive queue each consumer has its own window, and the messages stay."""
    queue = connection.queue("window", non_destructive=True)
    put_lengths(queue, 600, 600)
    with queue.consume(prefetch_bytes=WINDOW) as one, queue.consume(prefetch_bytes=2 * WINDOW) as other:
        (first,) = taken(one, 1)
        assert lengths_of(taken(other, 2)) == [600, 600]
        assert one.statistics().unacked == 1
        first.ack()
        assert lengths_of(taken(one, 1)) == [600]
        assert queue.statistics().ready == 2


def test_q84_one_that_is_longer_than_the_window_comes_alone(connection: shmbroker.Connection) -> None:
    """It comes when nothing else is unacked, and nothing comes beside it, but for an empty one."""
    queue = connection.queue("window")
    put_lengths(queue, 10, 5 * WINDOW, 0, 10)
    with queue.consume(prefetch_bytes=WINDOW) as consumer:
        (short,) = taken(consumer, 1)
        await_counts(queue, ready=3, not_interested=1)
        short.ack()
        long, empty = taken(consumer, 2)
        assert lengths_of([long, empty]) == [5 * WINDOW, 0]
        await_counts(queue, ready=1, not_interested=1)
        long.ack()
        assert lengths_of(taken(consumer, 1)) == [10]


def test_q84_a_selector_passes_what_it_does_not_want_however_long(connection: shmbroker.Connection) -> None:
    """A long message that the selector leaves out holds nobody back; one that it selects does."""
    queue = connection.queue("window")
    put_lengths(queue, 600, 3 * WINDOW, 300, 600, 1)
    with queue.consume(prefetch_bytes=WINDOW, selector="number <> 1") as consumer:
        first, second = taken(consumer, 2)
        assert lengths_of([first, second]) == [600, 300]
        await_counts(queue, ready=3, not_interested=1)
        second.ack()
        await_counts(queue, ready=3, acked=1)
        first.ack()
        assert lengths_of(taken(consumer, 2)) == [600, 1]
        assert queue.statistics().ready == 1


@pytest.mark.parametrize("how", ["get", "purge", "expire", "move", "consumer"])
def test_q84_it_resumes_when_the_next_message_is_removed(
    broker: shmbroker.Broker, connection: shmbroker.Connection, how: str
) -> None:
    """Another process removes the message that does not fit: the next one comes, though nothing was settled."""
    queue, other = connection.queue("window"), connection.queue("other")
    with actors(broker.name, 1) as (held,):
        held.do("consume", queue="window", prefetch_bytes=WINDOW)
        put_lengths(queue, 600, 500, 300)
        held.do("receive", timeout=60)
        await_counts(queue, ready=2, not_interested=1)
        if how == "get":
            queue.get(timeout=60).ack()
        elif how == "purge":
            queue.purge(limit=1)
        elif how == "expire":
            queue.expire(limit=1)
        elif how == "move":
            queue.move(other, limit=1)
        else:
            with queue.consume(prefetch=1) as consumer:
                consumer.get(timeout=60).ack()
                await_counts(queue, ready=0)
        (message,) = held.do("receive", timeout=60)
        assert len(message["body"]) == 64  # the first bytes of 300
        await_counts(queue, ready=0, delivering=2)


@pytest.mark.parametrize("settings", [{}, {"max_priority": 5}, {"sort_key": "number"}])
def test_q84_it_resumes_when_another_message_comes_first(
    broker: shmbroker.Broker, connection: shmbroker.Connection, settings: dict[str, Any]
) -> None:
    """A short message returns before the one that does not fit, or is put with a higher priority, or a lower key."""
    queue = connection.queue("window", **settings)
    queue.put(b"x" * 100, headers={"number": 1})
    early = queue.get(timeout=60)
    with actors(broker.name, 1) as (held,):
        held.do("consume", queue="window", prefetch_bytes=WINDOW)
        queue.put(b"x" * 600, headers={"number": 2})
        held.do("receive", timeout=60)
        queue.put(b"x" * 500, headers={"number": 3})
        await_counts(queue, ready=1, not_interested=1)
        if "max_priority" in settings:
            queue.put(b"urgent", priority=5)
        elif "sort_key" in settings:
            queue.put(b"first", headers={"number": 0})
        else:
            early.give_back()
        held.do("receive", timeout=60)
        await_counts(queue, ready=1, not_interested=1)


def test_q84_two_of_them_do_not_wake_each_other(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """The next message fits neither of two consumers: neither looks again until it is gone, whatever is put behind."""
    queue = connection.queue("window")
    with actors(broker.name, 2) as held:
        for who in held:
            who.do("consume", queue="window", prefetch_bytes=WINDOW)
        put_lengths(queue, 600, 600)
        for who in held:
            who.do("receive", timeout=60)
        put_lengths(queue, 700)
        await_counts(queue, ready=1, not_interested=2)
        before = wakes_of(connection)
        put_lengths(queue, *[1] * 50)
        assert queue.statistics().ready == 51
        assert wakes_of(connection) == before
        queue.get(timeout=60).ack()
        await_counts(queue, ready=0)  # the short ones fit
        assert wakes_of(connection) > before
    assert_balanced(queue)


def test_q84_what_does_not_fit_goes_to_a_consumer_that_has_room(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """The one with the window has the higher priority, and is first; the other one gets what does not fit."""
    queue = connection.queue("window")
    with actors(broker.name, 2) as (narrow, wide):
        narrow.do("consume", queue="window", priority=5, prefetch_bytes=WINDOW)
        wide.do("consume", queue="window")
        put_lengths(queue, 600)
        narrow.do("receive", timeout=60)
        put_lengths(queue, 700)
        assert len(wide.do("receive", timeout=60)[0]["body"]) == 64
        await_counts(queue, interested=2)  # the one with the window waits again
        put_lengths(queue, 300)
        narrow.do("receive", timeout=60)
        await_counts(queue, ready=0, delivering=3)


@pytest.mark.parametrize("who", ["of the window", "who removes"])
def test_q84_nobody_waits_when_a_process_is_killed(
    broker: shmbroker.Broker, connection: shmbroker.Connection, who: str
) -> None:
    """Of three processes one is killed: that which is held back, or one that had the message; all messages come."""
    queue = connection.queue("window")
    with actors(broker.name, 2) as (held, other):
        put_lengths(queue, 600, 500, 300)
        held.do("consume", queue="window", prefetch_bytes=WINDOW)
        held.do("receive", timeout=60)
        await_counts(queue, ready=2, not_interested=1)
        if who == "of the window":
            held.kill()
            assert sorted(lengths_of([queue.get(timeout=60) for _ in range(3)])) == [300, 500, 600]
        else:
            other.do("get", queue="window")
            held.do("receive", timeout=60)
            other.kill()
            await_counts(queue, ready=1, delivering=2)
            held.do("settle", how="ack")
            held.do("receive", timeout=60)
            await_counts(queue, ready=0, delivering=1)


def test_q84_acknowledgements_that_wait_are_sent_when_it_is_held_back(connection: shmbroker.Connection) -> None:
    """A batch of acknowledgements is not full, and what it would free is needed: the next get sends it."""
    queue = connection.queue("window")
    put_lengths(queue, 600, 600)
    with queue.consume(prefetch_bytes=WINDOW, ack_batch=10, ack_interval=3600) as consumer:
        consumer.get(timeout=60).ack()
        assert lengths_of(taken(consumer, 1)) == [600]


def test_q84_one_window_for_all_queues_of_a_consumer(connection: shmbroker.Connection) -> None:
    """What one queue holds back does not hold back another, whose next message fits."""
    first, second = connection.queue("first"), connection.queue("second")
    put_lengths(first, 600, 500)
    with connection.consumer([first, second], prefetch_bytes=WINDOW) as consumer:
        (one,) = taken(consumer, 1)
        await_counts(first, ready=1, not_interested=1)
        put_lengths(second, 300)
        assert lengths_of(taken(consumer, 1)) == [300]
        one.ack()
        assert lengths_of(taken(consumer, 1)) == [500]


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1000", 2**63])
def test_q84_a_window_is_a_number_of_bytes(queue: shmbroker.Queue, value: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """Anything else is refused by name; no consumer is there."""
    with pytest.raises(ValueError, match=rf"prefetch_bytes={value!r}: an integer from 1 to 9223372036854775807"):
        queue.consume(prefetch_bytes=value)
    assert queue.statistics().consumers == 0
