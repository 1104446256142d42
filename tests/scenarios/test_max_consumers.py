# SPDX-License-Identifier: Apache-2.0
"""max_consumers: how many consumers a queue admits (T57)."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import Inbox, assert_closed, refused
from scenario_support.observing import assert_counts, await_counts, put_each, text
from scenario_support.processes import Actor, actors
from scenario_support.waiting import becomes

from shmbroker.exceptions import AccessRefused, PreconditionFailed, ResourceLocked

if TYPE_CHECKING:
    import shmbroker

NO_SEAT = "RESOURCE_LOCKED - queue 'q' in vhost '/' admits no further consumer: max_consumers=1"
ROUNDS = 25


def test_t57_the_second_consumer_is_refused(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """With max_consumers=1 a second attach raises, in each way to consume; after the first has left it does not."""
    queue = connection.queue("q", max_consumers=1)
    put_each(queue, "AB")
    with queue.consume() as consumer:
        with refused(ResourceLocked, NO_SEAT):
            queue.consume()
        with refused(ResourceLocked, NO_SEAT):
            other.consumer([other.queue("q")])
        channel = other.channel()
        with refused(ResourceLocked, NO_SEAT):
            channel.basic_consume("q", Inbox())
        assert_closed(channel, because="max_consumers")
        assert_counts(queue, consumers=1)
        assert text(consumer.get(timeout=60)) == "A"
    with other.queue("q").consume() as consumer:
        assert text(consumer.get(timeout=60)) == "A"
    with other.channel() as channel:
        inbox = Inbox()
        channel.basic_consume("q", inbox)
        assert [one.text for one in inbox.wait(2)] == ["A", "B"]


def test_t57_lowering_it_below_the_number_of_consumers_raises(connection: shmbroker.Connection) -> None:
    """The error says how many there are, and what is allowed; settings and consumers stay as they are."""
    queue = connection.queue("q", max_consumers=3, max_length=7)
    put_each(queue, "A")
    first, second = queue.consume(), queue.consume()
    text_of = (
        "PRECONDITION_FAILED - max_consumers=1: queue 'q' in vhost '/' has 2 consumers; "
        "-1 (no limit) or at least 2 is allowed"
    )
    with pytest.raises(PreconditionFailed, match=re.escape(text_of)):
        queue.configure(max_consumers=1, max_length=9)
    assert (queue.settings.max_consumers, queue.settings.max_length) == (3, 7)
    with queue.consume():  # there is a third seat still
        assert_counts(queue, consumers=3)
    queue.configure(max_consumers=2)
    second.close()
    queue.configure(max_consumers=1)
    assert queue.settings.max_consumers == 1
    assert text(first.get(timeout=60)) == "A"


def test_t57_a_limit_for_a_queue_that_had_none(connection: shmbroker.Connection) -> None:
    """A limit below the number of consumers is refused, and the queue has none then; another one holds."""
    queue = connection.queue("q")
    consumers = [queue.consume() for _ in range(3)]
    with pytest.raises(PreconditionFailed, match=r"max_consumers=0: .* at least 3 is allowed"):
        queue.configure(max_consumers=0)
    assert queue.settings.max_consumers == -1
    consumers.append(queue.consume())
    queue.configure(max_consumers=4)
    with pytest.raises(ResourceLocked):
        queue.consume()
    queue.configure(max_consumers=-1)
    consumers.append(queue.consume())
    assert_counts(queue, consumers=5)


def test_t57_none_at_all(connection: shmbroker.Connection) -> None:
    """A queue with max_consumers=0 admits no consumer. Gets and browsers are none, and an auto-delete queue stays."""
    queue = connection.queue("q", max_consumers=0, auto_delete=True)
    put_each(queue, "AB")
    with pytest.raises(ResourceLocked, match="max_consumers=0"):
        queue.consume()
    assert [text(message) for message in queue.browse()] == ["A", "B"]
    assert text(queue.get(timeout=60)) == "A"
    queue.configure(max_consumers=1)
    with queue.consume() as consumer:
        assert text(consumer.get(timeout=60)) == "B"


def test_t57_a_consumer_of_two_queues_has_both_or_none(connection: shmbroker.Connection) -> None:
    """If one of its queues refuses it, the other one has no consumer of it."""
    free, full = connection.queue("free", max_consumers=1), connection.queue("full", max_consumers=1)
    with full.consume(), pytest.raises(ResourceLocked, match=r"- queue 'full' in vhost '/' admits no further"):
        connection.consumer([free, full])
    assert_counts(free, consumers=0)
    with connection.consumer([free, full]):
        assert_counts(full, consumers=1)


@pytest.mark.parametrize("reaped", [True, False])
def test_t57_a_killed_consumer_frees_its_place(
    broker: shmbroker.Broker, connection: shmbroker.Connection, *, reaped: bool
) -> None:
    """When it was reaped another one is admitted; the new one reaps it if no process did."""
    queue = connection.queue("q", max_consumers=1)
    put_each(queue, "A")
    with Actor(broker.name) as actor:
        actor.do("consume", queue="q")
        actor.do("receive")
        with pytest.raises(ResourceLocked):
            queue.consume()
        actor.kill()
    if reaped:
        await_counts(queue, consumers=0)
    with queue.consume() as consumer:
        assert text(consumer.get(timeout=60)) == "A"
        assert_counts(queue, consumers=1)


def test_t57_processes_that_attach_at_the_same_time(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Of five processes that attach at the same time exactly as many are admitted as there are seats."""
    queue = connection.queue("q", max_consumers=2)
    with actors(broker.name, 5) as processes:
        for _ in range(ROUNDS):
            for process in processes:
                process.begin("try_to_consume", queue="q")
            admitted = [process for process in processes if process.result()]
            assert len(admitted) == 2
            assert_counts(queue, consumers=2)
            for process in admitted:
                process.do("close_consumer")
        assert_counts(queue, consumers=0)


def test_t57_a_limit_that_comes_while_processes_attach(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """The limit is refused if too many were faster; else no more than it allows are attached."""
    queue = connection.queue("q")
    with actors(broker.name, 3) as processes:
        for _ in range(ROUNDS):
            for process in processes:
                process.begin("try_to_consume", queue="q")
            limited = True
            try:
                queue.configure(max_consumers=1)
            except PreconditionFailed:
                limited = False
            admitted = [process for process in processes if process.result()]
            assert queue.settings.max_consumers == (1 if limited else -1)
            assert len(admitted) == (1 if limited else 3)
            assert_counts(queue, consumers=len(admitted))
            for process in admitted:
                process.do("close_consumer")
            queue.configure(max_consumers=-1)


def test_t57_with_an_exclusive_and_a_single_active_consumer(connection: shmbroker.Connection) -> None:
    """An exclusive consumer needs a seat, too; the consumers that stand by have one each."""
    queue = connection.queue("q", max_consumers=2)
    with ExitStack() as stack:
        owner = stack.enter_context(connection.channel())
        owner.basic_consume("q", Inbox(), exclusive=True)
        with refused(AccessRefused):
            stack.enter_context(connection.channel()).basic_consume("q", Inbox())
        assert_counts(queue, consumers=1)
    becomes(lambda: queue.statistics().consumers, 0)
    single = connection.queue("single", max_consumers=2, single_active_consumer=True)
    with single.consume() as active, single.consume():
        with pytest.raises(ResourceLocked):
            single.consume()
        put_each(single, "A")
        assert text(active.get(timeout=60)) == "A"


def test_t57_as_an_argument_and_by_address_settings(connection: shmbroker.Connection) -> None:
    """Channels give it as x-max-consumers; address settings give it to queues that are made later."""
    with connection.channel() as channel:
        channel.queue_declare("declared", arguments={"x-max-consumers": 0})
    assert connection.queue("declared", passive=True).settings.max_consumers == 0
    before = connection.queue("jobs.before")
    connection.settings.set("jobs.#", default_max_consumers=1)
    after = connection.queue("jobs.after")
    assert (before.settings.max_consumers, after.settings.max_consumers) == (-1, 1)
    with after.consume(), pytest.raises(ResourceLocked):
        after.consume()
    for value in -2, "x", 1.5, 1 << 56:
        with refused(PreconditionFailed):
            connection.channel().queue_declare("bad", arguments={"x-max-consumers": value})
        with pytest.raises(ValueError, match=re.escape(f"max_consumers={value!r}: -1 (no limit) or an integer from 0")):
            connection.queue("bad", max_consumers=value)
