# SPDX-License-Identifier: Apache-2.0
"""Consumers with prefetch_bytes in a queue with message groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.inside import wakes_of
from scenario_support.observing import assert_balanced
from scenario_support.waiting import eventually

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOKS = 2_000


def states(connection: shmbroker.Connection, queue: shmbroker.Queue) -> set[str]:
    """The lists that the consumers of a queue are in."""
    return {consumer.state for consumer in connection.consumers() if consumer.queue == queue.name}


def rest(connection: shmbroker.Connection, queue: shmbroker.Queue) -> bool:
    """Whether all consumers of a queue are held back, and stay so for as long as the test looks."""
    return all(states(connection, queue) == {"not_interested"} for _ in range(LOOKS))


@pytest.mark.parametrize("kind", ["sticky", "shared"])
@pytest.mark.parametrize("priorities", [0, 3])
def test_q84_consumers_that_a_free_group_holds_back_rest(
    connection: shmbroker.Connection, broker_name: str, kind: str, priorities: int
) -> None:
    """Two consumers for which the message of a free group is too long do not wake each other, and go on later."""
    queue = connection.queue("grouped", message_groups=kind, max_priority=priorities)
    for n in range(50):
        queue.put(b"x" * 9, group=f"g{n % 5}")
    with shmbroker.connect(broker_name) as other:
        consumers: Sequence[shmbroker.Consumer] = [
            queue.consume(prefetch_bytes=10),
            other.queue("grouped").consume(prefetch_bytes=10),
        ]
        held = [consumer.get(timeout=60) for consumer in consumers]
        eventually(lambda: rest(connection, queue))
        before = wakes_of(connection)
        assert rest(connection, queue)
        assert wakes_of(connection) == before
        for message in held:
            message.ack()
        for consumer in consumers:
            consumer.get(timeout=60).ack()
        for consumer in consumers:
            consumer.close()
    while len(queue):
        queue.get(timeout=60).ack()
    assert queue.statistics().acked == 50
    assert_balanced(queue)
