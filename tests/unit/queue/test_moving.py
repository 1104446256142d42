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
from shmbroker.exceptions import NotAllowed, NotFound


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


@pytest.mark.parametrize("count", [1, 200])
def test_move_between_queues_of_which_one_was_deleted(
    connection: shmbroker.Connection, other: shmbroker.Connection, count: int
) -> None:
    """NotFound names the queue that is gone, and nothing is moved."""
    here, gone = connection.queue("here"), connection.queue("gone")
    here.put_many([b"A"] * count)
    other.queue("gone").delete()
    with pytest.raises(NotFound, match="'gone'"):
        here.move(gone)
    assert len(here) == count
    with pytest.raises(NotFound, match="'gone'"):
        gone.move(here)


@pytest.mark.parametrize(("count", "moves"), [(8, 100), (9, 23)])
def test_a_message_of_many_queues_is_moved_a_number_of_times(
    connection: shmbroker.Connection, count: int, moves: int
) -> None:
    """If it was published to more than eight queues, 23 times in all of them; it then stays where it is."""
    channel = connection.channel()
    channel.exchange_declare("many", "fanout")
    queues = [connection.queue(f"q{number}") for number in range(count)]
    for queue in queues:
        channel.queue_bind(queue.name, "many")
    channel.basic_publish("many", "", b"A")
    here, there = queues[0], connection.queue("other")
    for _ in range(moves):
        assert here.move(there) == 1
        here, there = there, here
    if count > 8:
        for queue in (here, queues[1]):
            with pytest.raises(NotAllowed):
                queue.move(there)
            assert listing(queue) == ["A"]


@pytest.mark.parametrize("count", [1, 64])
def test_a_message_that_is_moved_keeps_the_time_at_which_it_expires(
    connection: shmbroker.Connection, count: int
) -> None:
    """Whatever the other queue's message_ttl, which counts from a put."""
    here, there = connection.queue("here"), connection.queue("there", message_ttl=0.001)
    here.put_many([b"A"] * count)
    there.put_many([b"B"] * 64)
    assert here.move(there) == count
    assert {message.expires_at for message in there.browse() if bytes(message) == b"A"} == {None}


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
