# SPDX-License-Identifier: Apache-2.0
"""Bodies that find no room in one piece: they lie in parts, and every way to read them gives them whole."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from scenario_support.inside import core_of
from scenario_support.nursery import served
from scenario_support.waiting import becomes

from shmbroker import BasicProperties, body_references
from shmbroker._core.transaction import Publication, commit
from shmbroker.exceptions import OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker

SIZES = [200, 1000, 4096, 4097, 65_536, 1_000_000]
HEADERS = {"text": "x" * 700}


def content(size: int, seed: int = 1) -> bytes:
    """Bytes that differ from part to part."""
    return random.Random(seed).randbytes(size)


@pytest.fixture
def broker(broker_name: str) -> Iterator[shmbroker.Broker]:
    """A broker with little memory."""
    with served(broker_name, memory="32M") as one:
        yield one


@pytest.fixture
def connection(broker: shmbroker.Broker) -> Iterator[shmbroker.Connection]:
    """A connection to it."""
    with broker.connect() as one:
        yield one
        becomes(one.doctor, [])


@pytest.fixture
def pinned(connection: shmbroker.Connection) -> shmbroker.Queue:
    """Every other short slot is in use, so there is neither a long one nor a chunk to make some of."""
    stays, goes = connection.queue("stays"), connection.queue("goes")
    try:
        while True:
            stays.put(b"s", timeout=0)
            goes.put(b"g", timeout=0)
    except OutOfMemory:
        goes.purge()
    return stays


@pytest.fixture
def queue(connection: shmbroker.Connection, pinned: shmbroker.Queue) -> shmbroker.Queue:
    """A queue beside those."""
    assert len(pinned) > 8000
    return connection.queue("q")


@pytest.mark.parametrize("size", SIZES)
def test_a_body_is_whole_again(broker: shmbroker.Broker, queue: shmbroker.Queue, size: int) -> None:
    """One that was put in parts is got as it was, with its key and its headers, and leaves nothing."""
    queue.put(b"the queue has its pages from now on")
    queue.get(auto_ack=True)
    broker.stop()  # the housekeeper would open the queue when it comes to it, which takes memory
    before = broker.statistics().memory_used
    queue.put(content(size), key="key", headers=HEADERS, timeout=0)
    message = queue.get(timeout=0)
    assert (bytes(message.body), message.key, message.headers) == (content(size), "key", HEADERS)
    assert len(message) == size
    message.ack()
    assert broker.statistics().memory_used <= before


@pytest.mark.parametrize("size", SIZES)
def test_each_way_of_getting(queue: shmbroker.Queue, size: int) -> None:
    """Acknowledged on the way, in batches, by consumers, by browsing: the body is whole."""
    for seed in range(4):
        queue.put(content(size, seed), timeout=0)
    assert [bytes(one.body) for one in queue.browse()] == [content(size, seed) for seed in range(4)]
    kept = queue.get(auto_ack=True, timeout=0).body
    batch = queue.get_many(1, timeout=0)
    assert batch.bodies() == [content(size, 1)]
    batch.ack()
    assert [bytes(one.body) for one in queue.get_many(1, timeout=0, auto_ack=True)] == [content(size, 2)]
    with queue.consume() as consumer:
        message = next(consumer)
        assert bytes(message.body) == content(size, 3)
        message.ack()
    assert bytes(kept) == content(size, 0)


@pytest.mark.parametrize("size", SIZES)
def test_channels(connection: shmbroker.Connection, queue: shmbroker.Queue, size: int) -> None:
    """A channel publishes it and gets it, acknowledged on the way or not."""
    channel = connection.channel()
    properties = BasicProperties(headers=HEADERS)
    for seed in range(2):
        channel.basic_publish("", queue.name, content(size, seed), properties)
    message = channel.basic_get(queue.name)
    assert message is not None
    assert (bytes(message.body), message.headers) == (content(size, 0), HEADERS)
    channel.basic_ack(message.delivery_tag)
    message = channel.basic_get(queue.name, auto_ack=True)
    assert message is not None
    assert bytes(message.body) == content(size, 1)


def test_a_view_outlives_its_message(queue: shmbroker.Queue) -> None:
    """What was looked at stays, whatever becomes of the message."""
    queue.put(content(50_000), timeout=0)
    message = queue.get(timeout=0)
    kept = message.body
    message.ack()
    assert kept == content(50_000)


def test_returned_and_moved(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """It comes back, goes to another queue, and is the same."""
    queue.put(content(50_000), timeout=0)
    queue.get(timeout=0).nack()
    target = connection.queue("target")
    assert queue.move(target) == 1
    message = target.get(timeout=0)
    assert message.body == content(50_000)
    message.ack()


@pytest.mark.usefixtures("pinned")
@pytest.mark.parametrize("targets", [2, 8])
def test_a_body_of_several_queues(connection: shmbroker.Connection, targets: int) -> None:
    """Each of them has it, stored once; it goes with the last."""
    queues = [connection.queue(f"t{number}") for number in range(targets)]
    commit(core_of(connection), [Publication(content(50_000), [core_of(one) for one in queues])])
    for one in queues:
        with one.get(timeout=0) as message:
            assert message.body == content(50_000)


@pytest.mark.usefixtures("pinned")
@pytest.mark.parametrize("targets", [2, 7, 8])
def test_a_body_of_several_queues_is_moved_on_and_back(connection: shmbroker.Connection, targets: int) -> None:
    """As a lease does it that ends: from each of the queues to another one, and back, as often as it comes to that."""
    queues, other = [connection.queue(f"t{number}") for number in range(targets)], connection.queue("other")
    commit(core_of(connection), [Publication(content(50_000), [core_of(one) for one in queues])])
    for one in queues:
        for _ in range(3):
            assert one.move(other) == 1
            assert other.move(one) == 1
        with one.get(timeout=0) as message:
            assert message.body == content(50_000)


def test_places(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Who knows where it lies is given a copy; nothing, when it is gone."""
    queue.put(content(50_000), key="key", timeout=0)
    ((message, place),) = body_references.of_queue(queue)
    assert (message.key, place.length) == ("key", 50_000)
    found = body_references.body_at(connection, place)
    assert found == content(50_000)
    queue.purge()
    assert body_references.body_at(connection, place) is None


@pytest.mark.parametrize("kept", [False, True])
def test_reserving(queue: shmbroker.Queue, kept: bool) -> None:  # noqa: FBT001 (a parameter)
    """What is reserved is one piece to write into; it is published in parts, also as a copy."""
    views = []
    with queue.reserve(50_000, key="key", headers=HEADERS, timeout=0) as view:
        view[:] = content(50_000)
        if kept:
            views.append(view[10:20])
    for one in views:
        one[:] = b"!" * 10
    message = queue.get(timeout=0)
    assert (bytes(message.body), message.key, message.headers) == (content(50_000), "key", HEADERS)
    message.ack()
    with pytest.raises(KeyError), queue.reserve(50_000, timeout=0):
        raise KeyError


def test_out_of_memory_says_what_fits(queue: shmbroker.Queue, pinned: shmbroker.Queue) -> None:
    """Too long a body is refused with the length of the longest that fits, which then does fit."""
    with pytest.raises(OutOfMemory) as full:
        queue.put(bytes(8_000_000), timeout=0)
    longest = int(str(full.value).partition("the longest body that fits now has ")[2].split()[0])
    assert 500_000 < longest < 8_000_000
    assert f"queue {pinned.name!r} holds most" in str(full.value)
    queue.put(content(longest - 1000), timeout=0)
    assert bytes(queue.get(timeout=0).body) == content(longest - 1000)
