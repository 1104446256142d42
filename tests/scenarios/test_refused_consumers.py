# SPDX-License-Identifier: Apache-2.0
"""A consumer that is refused was none: an auto-delete queue does not end with it, and keeps its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import Inbox
from scenario_support.observing import assert_balanced, assert_counts, listing
from scenario_support.processes import Actor, actors
from scenario_support.waiting import eventually

from shmbroker.exceptions import AccessRefused, NotFound, ResourceLocked

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker


@pytest.fixture
def passing(connection: shmbroker.Connection) -> shmbroker.Queue:
    """Declare an auto-delete queue with a message, which has had no consumer."""
    queue = connection.queue("passing", auto_delete=True)
    queue.put(b"A")
    return queue


@pytest.fixture
def used(connection: shmbroker.Connection) -> Iterator[shmbroker.Queue]:
    """Declare a queue that has a consumer, and admits no other one."""
    queue = connection.queue("used", max_consumers=1)
    with queue.consume():
        yield queue


def assert_stays(queue: shmbroker.Queue) -> None:
    """The queue is there as it was."""
    assert_counts(queue, consumers=0)
    assert listing(queue) == ["A"]
    assert_balanced(queue)


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize("names", [["passing", "used"], ["used", "passing"]])
def test_a_queue_without_a_seat_refuses_for_all(
    connection: shmbroker.Connection, passing: shmbroker.Queue, names: list[str]
) -> None:
    """The error is that of the queue that refuses, whichever comes first, and the other one stays."""
    with pytest.raises(ResourceLocked, match="'used'"):
        connection.consumer(names)
    assert_stays(passing)


@pytest.mark.usefixtures("used")
def test_an_exclusive_consumer_that_finds_another_one(
    connection: shmbroker.Connection, passing: shmbroker.Queue
) -> None:
    """It is refused at the second queue, after it was admitted at the first one."""
    connection.queue("used").configure(max_consumers=-1)
    with pytest.raises(AccessRefused):
        connection.consumer(["passing", "used"], exclusive=True)
    assert_stays(passing)


@pytest.mark.parametrize("way", ["consume", "basic_consume"])
def test_a_queue_that_refuses_its_first_consumer(connection: shmbroker.Connection, way: str) -> None:
    """A single active consumer cannot be exclusive: the queue that refuses it has had no consumer."""
    queue = connection.queue("passing", auto_delete=True, single_active_consumer=True)
    queue.put(b"A")
    attach = {
        "consume": lambda: queue.consume(exclusive=True),
        "basic_consume": lambda: connection.channel().basic_consume("passing", Inbox(), exclusive=True),
    }
    with pytest.raises(AccessRefused):
        attach[way]()
    assert_stays(queue)


def test_a_consumer_that_is_admitted_everywhere_is_one(
    connection: shmbroker.Connection, passing: shmbroker.Queue
) -> None:
    """Beside a queue that needs the lock it is tried twice: it gets the message, and with it the queue ends."""
    connection.queue("seated", max_consumers=5)
    with connection.consumer(["passing", "seated"]) as consumer:
        assert bytes(consumer.get(timeout=60)) == b"A"
    eventually(lambda: "passing" not in connection.queue_names())
    with pytest.raises(NotFound):
        passing.put(b"B")


def test_a_consumer_that_was_admitted_keeps_its_queue(broker: shmbroker.Broker) -> None:
    """Processes declare, consume and leave an auto-delete queue all the time: no queue ends under its consumer."""
    with actors(broker.name, 2) as both:
        for actor in both:
            actor.begin("attach_and_leave", queue="passing", rounds=400)
        for actor in both:
            assert actor.result() == 400


def test_a_killed_consumer_was_one(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """The queue ends with the process of its last consumer."""
    connection.queue("passing", auto_delete=True)
    with Actor(broker.name) as consumer:
        consumer.do("consume", queue="passing")
        consumer.kill()
    eventually(lambda: "passing" not in connection.queue_names())
