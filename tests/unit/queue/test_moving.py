# SPDX-License-Identifier: Apache-2.0
"""Messages that are moved from one queue to another."""

from __future__ import annotations

import pytest
from scenario_support.observing import (
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    put_each,
    take,
    text,
    texts,
)

import shmbroker
from shmbroker.exceptions import NotFound


def test_move_keeps_order_and_counts(connection: shmbroker.Connection) -> None:
    """Moved messages go to the other's tail, oldest first; held ones stay."""
    queue, other = connection.queue("q"), connection.queue("other")
    put_each(other, "x")
    put_each(queue, "ABCDE")
    held = queue.get()
    assert queue.move("other", limit=2) == 2
    assert listing(other) == ["x", "B", "C"]
    assert listing(queue) == ["D", "E"]
    assert queue.move("other") == 2
    assert queue.move("other") == 0
    held.nack()
    assert listing(queue) == ["A"]
    assert_counts(queue, moved=4, message_count=1)
    assert_counts(other, added=5, message_count=5)
    assert_balanced(queue)
    assert_balanced(other)
    assert texts(other.get_many(5)) == ["x", "B", "C", "D", "E"]


@pytest.mark.parametrize("option", ["limit", "max_bytes"])
def test_a_limit_beyond_all_counts_is_none(connection: shmbroker.Connection, option: str) -> None:
    """However large an integer it is; a truth is no integer."""
    queue, other = connection.queue("q"), connection.queue("other")
    put_each(queue, "AB")
    with pytest.raises(ValueError, match=f"{option}=True"):
        queue.move(other, **{option: True})
    assert queue.move(other, **{option: 2**64}) == 2


def test_move_into_a_ring(connection: shmbroker.Connection) -> None:
    """What is moved counts for the other's limits: there the oldest goes."""
    queue, ring = connection.queue("q"), connection.queue("ring", ring_size=2)
    put_each(ring, "A")
    put_each(queue, "XYZ")
    assert queue.move("ring") == 3
    assert listing(ring) == ["Y", "Z"]
    assert_counts(ring, replaced=2, added=4)
    assert take(ring, 2) == ["Y", "Z"]


def test_move_of_a_body_that_can_never_fit(connection: shmbroker.Connection) -> None:
    """The error says so; what is older was moved, and the body stays where it is."""
    queue, other = connection.queue("q"), connection.queue("other", max_bytes=10)
    queue.put_many([b"short", b"much too long", b"later"])
    with pytest.raises(shmbroker.NeverFits, match="queue 'other': a body of queue 'q' can never fit max_bytes=10"):
        queue.move(other)
    assert listing(other) == ["short"]
    assert listing(queue) == ["much too long", "later"]


def test_move_wakes_who_waits_there(connection: shmbroker.Connection) -> None:
    """A consumer of the other queue gets what is moved to it."""
    queue, other = connection.queue("q"), connection.queue("other")
    put_each(queue, "A")
    with other.consume() as consumer:
        await_counts(other, interested=1)
        queue.move("other")
        assert text(consumer.get(timeout=60)) == "A"


def test_move_to_nowhere(queue: shmbroker.Queue) -> None:
    """A move to a queue that is not there is NotFound, and moves nothing."""
    put_each(queue, "A")
    with pytest.raises(NotFound):
        queue.move("nowhere")
    with pytest.raises(ValueError):  # noqa: PT011 (any text will do)
        queue.move("q", limit=-1)
    assert listing(queue) == ["A"]


@pytest.mark.parametrize(("most", "moved"), [(0, ""), (1, "A"), (4, "ABBB"), (5, "ABBBC"), (100, "ABBBCD")])
def test_move_stops_with_the_message_that_reaches_so_many_bytes(
    connection: shmbroker.Connection, most: int, moved: str
) -> None:
    """The limit on bytes is reached, not kept: so one message that is larger can be moved too."""
    queue, other = connection.queue("q"), connection.queue("other")
    put_each(queue, ["A", "BBB", "C", "D"])
    assert queue.move(other, max_bytes=most) == len(other)
    assert "".join(listing(other)) == moved
    assert "".join(listing(queue)) == "ABBBCD"[len(moved) :]


def test_move_with_limits_that_nothing_reaches(connection: shmbroker.Connection) -> None:
    """However large they are."""
    queue, other = connection.queue("q"), connection.queue("other")
    put_each(queue, "AB")
    assert queue.move(other, limit=1 << 64, max_bytes=1 << 70) == 2


def test_move_obeys_both_limits(connection: shmbroker.Connection) -> None:
    """The one that is reached first."""
    queue, other = connection.queue("q"), connection.queue("other")
    put_each(queue, "ABCDE")
    assert queue.move(other, limit=2, max_bytes=4) == 2
    assert queue.move(other, limit=4, max_bytes=2) == 2


@pytest.mark.parametrize("value", [-1, 1.5, "1"])
def test_a_bad_limit_on_bytes_is_refused(connection: shmbroker.Connection, value: object) -> None:
    """The text names the option and the value."""
    queue = connection.queue("q")
    with pytest.raises(ValueError, match=f"max_bytes={value!r}"):
        queue.move(connection.queue("other"), max_bytes=value)  # type: ignore[arg-type]
