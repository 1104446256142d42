# SPDX-License-Identifier: Apache-2.0
"""Queues with all of their settings, driven through several real processes, do what the reference says."""

from __future__ import annotations

import os
import sys

import pytest

from tests.queue_machine.reference import NO_LIMIT, Message, Queue, Settings
from tests.queue_machine.running import run

STEPS = int(os.environ.get("SHMBROKER_MACHINE_STEPS", "5000"))
SEED = int(os.environ.get("SHMBROKER_MACHINE_SEED", "17"))


@pytest.mark.timeout(1800)
def test_queues_of_several_processes_are_what_the_reference_says(broker_name: str) -> None:
    """Whatever the processes do to queues of whatever settings, and whenever they are killed, all agree."""
    sys.stdout.write(f"SHMBROKER_MACHINE_SEED={SEED} SHMBROKER_MACHINE_STEPS={STEPS}\n")
    assert run(broker_name, STEPS, SEED) >= STEPS


def test_the_reference_of_a_ring_keeps_the_newest_of_the_highest_priority() -> None:
    """The victim is the oldest message of the lowest priority that is there."""
    ring = Queue("q", Settings(ring_size=2, max_priority=9))
    for body, priority in (("a", 1), ("b", 9), ("c", 1), ("d", 0)):
        ring.put(Message(body, priority=priority))
    assert [message.body for message in ring.ready] == ["b", "c"]
    assert ring.counters["replaced"] == 2


def test_the_reference_returns_a_message_to_its_place_until_its_last_attempt() -> None:
    """A message that comes back is the first again; after its last attempt it is dead."""
    dead = Queue("dead", Settings())
    queue = Queue("q", Settings(max_delivery_attempts=2), [dead])
    for body in "ab":
        queue.put(Message(body))
    holder = object()
    queue.nack(queue.deliver(queue.ready[0], holder))  # type: ignore[arg-type]
    assert [message.body for message in queue.ready] == ["a", "b"]
    queue.nack(queue.deliver(queue.ready[0], holder))  # type: ignore[arg-type]
    queue.carry_out()
    assert [message.body for message in queue.ready] == ["b"]
    assert [(message.body, message.deaths) for message in dead.ready] == [("a", (("q", "delivery_limit", 1),))]


def test_the_reference_refuses_what_has_no_room() -> None:
    """A full queue blocks, drops or rejects, as its overflow says."""
    for overflow, said in (("block", "full"), ("drop", "put"), ("reject-publish", "rejected")):
        queue = Queue("q", Settings(max_length=1, max_bytes=NO_LIMIT, overflow=overflow))
        assert [queue.put(Message("a")), queue.put(Message("b"))] == ["put", said]
        assert [message.body for message in queue.ready] == ["a"]
