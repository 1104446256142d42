# SPDX-License-Identifier: Apache-2.0
"""Bodies that are read in place by whoever knows where they lie, though he does not hold their messages."""

from __future__ import annotations

import itertools

import pytest
from scenario_support.inside import connection_of, core_of

import shmbroker
from shmbroker import body_references
from shmbroker._core.transaction import Publication, commit
from shmbroker.body_references import Place

LONG = 20_000
FILLS = {10: 9000, LONG: 120}  # messages that fill a chunk, by length
SIZES = [0, 1, 4096, 4097, LONG, 3 << 20]


def body(number: int, size: int = LONG) -> bytes:
    """The body of that number."""
    return bytes([number % 251]) * size


def place_of(queue: shmbroker.Queue, at: int = 0) -> Place:
    """Where the message lies that is so far behind the oldest."""
    _, place = next(itertools.islice(body_references.of_queue(queue), at, None))
    return place


def is_in_place(found: memoryview | None) -> bool:
    """Is it read where it lies? A copy is cffi's."""
    return found is not None and type(found.obj).__name__ == "View"


def slots(queue: shmbroker.Queue) -> set[int]:
    """Where messages lie."""
    return {place.slot for _, place in body_references.of_queue(queue)}


@pytest.mark.parametrize("size", SIZES)
def test_a_body_is_found_where_it_lies(queue: shmbroker.Queue, size: int) -> None:
    """Browsing gives the place and everything but the body; nothing is taken; long bodies are not copied."""
    for number in range(3):
        queue.put(body(number, size), key=f"k{number}")
    found = list(body_references.of_queue(queue))
    assert [(message.sequence, message.key, place.length) for message, place in found] == [
        (0, "k0", size),
        (1, "k1", size),
        (2, "k2", size),
    ]
    for number, (_, place) in enumerate(found):
        view = body_references.body_at(connection_of(queue), place)
        assert view is not None
        assert (bytes(view), view.readonly) == (body(number, size), True)
        assert is_in_place(view) == (size > 4096)
    assert len(queue) == 3


def test_a_body_outlives_its_message(queue: shmbroker.Queue) -> None:
    """The slot is kept after the acknowledgement, and free with the last memoryview."""
    queue.put(body(1))
    place = place_of(queue)
    view = body_references.body_at(connection_of(queue), place)
    assert view is not None
    part = view[10:20]
    queue.get(timeout=0).ack()
    queue.put_many([body(2)] * FILLS[LONG])
    del view
    assert bytes(part) == body(1, 10)
    assert place.slot not in slots(queue)
    del part
    queue.put_many([body(3)] * FILLS[LONG])
    assert place.slot in slots(queue)


@pytest.mark.parametrize("size", [10, LONG])
@pytest.mark.parametrize("how", ["acknowledged", "purged", "filled anew"])
def test_a_message_that_is_gone(queue: shmbroker.Queue, size: int, how: str) -> None:
    """There is no body, whatever lies in the slot by then."""
    queue.put(body(1, size))
    place = place_of(queue)
    if how == "purged":
        queue.purge()
    else:
        queue.get(timeout=0).ack()
    if how == "filled anew":
        queue.put_many([body(2, size)] * FILLS[size])
        assert place.slot in slots(queue)
    assert body_references.body_at(connection_of(queue), place) is None


def test_one_reads_in_place_and_others_copy(queue: shmbroker.Queue, other: shmbroker.Connection) -> None:
    """A second reader, of the same connection or another one, gets the same bytes; after the first, in place again."""
    queue.put(body(1))
    place = place_of(queue)
    first = body_references.body_at(connection_of(queue), place)
    second, third = body_references.body_at(connection_of(queue), place), body_references.body_at(other, place)
    assert [is_in_place(one) for one in (first, second, third)] == [True, False, False]
    assert second is not None
    assert third is not None
    assert bytes(second) == bytes(third) == body(1)
    del first
    assert is_in_place(body_references.body_at(other, place))


@pytest.mark.parametrize(("count", "in_place"), [(4, True), (5, False), (12, False)])
def test_a_body_that_queues_share(connection: shmbroker.Connection, count: int, in_place: bool) -> None:  # noqa: FBT001
    """In up to four queues it is read in place, in more it is copied; either way it is found from each of them."""
    queues = [connection.queue(f"shared{number}") for number in range(count)]
    commit(core_of(connection), [Publication(body(1), [core_of(queue) for queue in queues])])
    for queue in queues:
        view = body_references.body_at(connection, place_of(queue))
        assert is_in_place(view) == in_place
        assert view is not None
        queue.get(timeout=0).ack()
        assert bytes(view) == body(1)
        del view


def test_messages_go_their_way_beside_a_reader(queue: shmbroker.Queue, connection: shmbroker.Connection) -> None:
    """They are taken, looked at, returned, moved and acknowledged while somebody reads them."""
    target = connection.queue("target")
    queue.put(body(1))
    place = place_of(queue)
    view = body_references.body_at(connection, place)
    message = queue.get(timeout=0)
    looked_at = message.body
    message.nack()
    assert queue.move(target) == 1
    assert bytes(looked_at) == body(1)
    assert place_of(target) == place
    target.get(timeout=0).ack()
    assert view is not None
    assert bytes(view) == body(1)
    del looked_at, message
    assert bytes(view) == body(1)
    del view
    assert body_references.body_at(connection, place) is None


def test_a_reader_leaves_room_for_eleven_views(queue: shmbroker.Queue) -> None:
    """While a body is read in place there is room for fewer views; one too many is an error, and leaves nothing."""
    queue.put(body(1))
    reader = body_references.body_at(connection_of(queue), place_of(queue))
    kept = []
    for _ in range(11):
        message = queue.get(timeout=0)
        kept.append(message.body)
        message.nack()
    message = queue.get(timeout=0)
    with pytest.raises(shmbroker.NotAllowed, match="a limit of the broker is reached"):
        message.body  # noqa: B018 - looking is what is refused
    del reader
    kept.append(message.body)
    assert {bytes(one) for one in kept} == {body(1)}


def test_readers_outlive_their_connection(queue: shmbroker.Queue, other: shmbroker.Connection) -> None:
    """A body stays after the connection is closed through which it is read."""
    queue.put(body(1))
    view = body_references.body_at(other, place_of(queue))
    other.close()
    queue.get(timeout=0).ack()
    queue.put(body(2))
    assert view is not None
    assert bytes(view) == body(1)


@pytest.mark.parametrize(
    "place",
    [
        Place(1, 0, 5000),
        Place(1 << 27, 3, 5000),
        Place((1 << 28) - 1, 3, 5000),
        Place(8192 * 5 + 3, 0, 5000),
    ],
)
def test_places_that_are_none(queue: shmbroker.Queue, place: Place) -> None:
    """Whatever is told by others: nothing is there, and nothing breaks."""
    queue.put(body(1))
    right = place_of(queue)
    assert body_references.body_at(connection_of(queue), place) is None
    assert body_references.body_at(connection_of(queue), right._replace(length=right.length + 1)) is None
    assert body_references.body_at(connection_of(queue), right._replace(length=10)) is None
    assert body_references.body_at(connection_of(queue), right._replace(generation=right.generation + 1)) is None
    assert is_in_place(body_references.body_at(connection_of(queue), right))


@pytest.mark.parametrize(
    "place", [Place(0, 0, 1), Place(1 << 28, 0, 1), Place(1, 1 << 38, 1), Place(1, 0, (1 << 30) + 1)]
)
def test_places_that_cannot_be(place: Place) -> None:
    """They are told from those that may be."""
    assert not body_references.is_possible(place)
    assert body_references.is_possible(Place(1, 0, 0))


@pytest.mark.parametrize("place", [Place((1 << 28) - 1, 0, 0), Place(1, (1 << 38) - 1, 0), Place(1, 0, 1 << 30)])
def test_the_last_places_that_may_be(place: Place) -> None:
    """The last slot, the last generation, the longest body."""
    assert body_references.is_possible(place)
    for number in range(3):
        past = [value + (at == number) for at, value in enumerate(place)]
        negative = [-1 if at == number else value for at, value in enumerate(place)]
        assert body_references.is_possible(Place(*past)) == (place[number] < 2)
        assert not body_references.is_possible(Place(*negative))
