# SPDX-License-Identifier: Apache-2.0
"""Features of queues that meet in one queue: last values, duplicate ids, limits, dead letters, management."""

from __future__ import annotations

from queue import Full
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import assert_balanced, assert_counts, await_counts, listing, take

if TYPE_CHECKING:
    import shmbroker


def put_value(queue: shmbroker.Queue, body: str, **options: object) -> None:
    """Put a body; what lies before its hyphen is its key."""
    queue.put(body.encode(), headers={"k": body.partition("-")[0]}, timeout=0, **options)


def test_last_values_with_duplicate_ids_in_a_full_queue(connection: shmbroker.Connection) -> None:
    """A known id is not stored, a new value takes the room of the old one, an id that found no room is not known."""
    queue = connection.queue("q", last_value_key="k", duplicate_ids=100, max_length=2)
    for number, body in enumerate(["a-1", "b-1", "a-2", "b-2"]):
        for _ in range(2):
            put_value(queue, body, duplicate_id=f"id {number}")
    assert listing(queue) == ["a-2", "b-2"]
    assert_counts(queue, added=4, replaced=2, duplicates=4)
    with pytest.raises(Full):
        put_value(queue, "c-1", duplicate_id="late")
    assert take(queue, 1) == ["a-2"]
    put_value(queue, "c-1", duplicate_id="late")
    assert listing(queue) == ["b-2", "c-1"]
    assert_balanced(queue)
    assert connection.doctor() == []


def test_dead_letters_that_return_are_new_values(connection: shmbroker.Connection) -> None:
    """A rejected value goes to the dead letters; `retry` brings it back as the newest one, although its id is known."""
    dead = connection.queue("dead")
    queue = connection.queue(
        "q", last_value_key="k", duplicate_ids=100, dead_letter_exchange="", dead_letter_routing_key="dead"
    )
    put_value(queue, "a-1", duplicate_id="1")
    queue.get(timeout=60).reject()
    await_counts(dead, ready=1)
    put_value(queue, "a-2", duplicate_id="2")
    put_value(queue, "b-1", duplicate_id="3")
    assert dead.retry().retried == 1
    assert listing(queue) == ["b-1", "a-1"]
    assert_counts(queue, replaced=1, dead_lettered=1, duplicates=0)
    assert connection.doctor() == []


def test_managed_messages_are_settled_values(connection: shmbroker.Connection) -> None:
    """Delayed values that are delivered early, copies and moved ones replace the older values of their keys."""
    queue = connection.queue("q", last_value_key="k")
    put_value(queue, "a-1")
    for body in ("a-2", "a-3", "b-1"):
        put_value(queue, body, delay=3600)
    assert queue.deliver_scheduled() == 3
    assert listing(queue) == ["a-3", "b-1"]
    other = connection.queue("other", last_value_key="k")
    put_value(other, "a-0")
    assert queue.copy(other) == 2
    assert listing(other) == ["a-3", "b-1"]
    assert queue.expire(limit=1) == 1
    assert queue.move(other) == 1
    assert listing(other) == ["a-3", "b-1"]
    assert_counts(other, added=4, replaced=2)
    assert connection.doctor() == []
