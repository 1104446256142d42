# SPDX-License-Identifier: Apache-2.0
"""Durable queues that are larger than the memory of their broker.

The scenarios speak of a design with lists for each target, caches by name, and a loader. What they are about is the
same here: `docs/explanation/durable-memory.md` says which part of this broker has which task.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.lasting import LEAF, Lasting, absent
from scenario_support.observing import STRUCTURE_BYTES, assert_balanced, assert_counts
from scenario_support.processes import Actor, actors
from scenario_support.waiting import eventually

from shmbroker._storekeeper import room
from shmbroker._storekeeper.loading import Loader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import shmbroker

MEBIBYTE = 1 << 20
MEMORY = "32M"
"""About 12 MB of it are for messages."""
BATCH = 500
AHEAD = 32 * LEAF
"""How many messages behind the head the storekeeper keeps in the memory, or loads."""
FEW = 8 * LEAF
"""The same, while the use of the memory is between the two marks."""


@pytest.fixture
def lasting(broker_name: str, tmp_path: Path) -> Iterator[Lasting]:
    """Begin a broker of little memory with an empty store; what its publishers put is stored soon after."""
    with contextlib.closing(Lasting(broker_name, tmp_path, MEMORY, sync="interval")) as made:
        yield made


def body(number: int, size: int) -> bytes:
    """A body of a size that begins with a number."""
    return b"%08d" % number + bytes(size - 8)


def number_of(message: shmbroker.Message) -> int:
    """The number that the body begins with."""
    return int(bytes(message)[:8])


def fill(queue: shmbroker.Queue, count: int, size: int) -> None:
    """Put the numbers from 0 on, more than the memory has room for; each batch of 64 has a color."""
    for first in range(0, count, LEAF):
        color = ("red", "green", "blue")[first // LEAF % 3]
        queue.put_many(
            [body(number, size) for number in range(first, min(count, first + LEAF))],
            headers={"color": color},
            timeout=120,
        )


def filled(lasting: Lasting, count: int, size: int) -> shmbroker.Queue:
    """A durable queue with so many messages, most of which have left the memory."""
    queue = lasting.connection.queue("q", durable=True)
    fill(queue, count, size)
    eventually(lambda: absent(queue) > count // LEAF // 4, "messages that leave the memory")
    assert_counts(queue, message_count=count, ready=count)
    return queue


def drained(queue: shmbroker.Queue) -> list[int]:
    """Get and ack all there is; the numbers."""
    found = []
    while len(queue):
        message = queue.get(timeout=60)
        found.append(number_of(message))
        message.ack()
    return found


def used(lasting: Lasting) -> int:
    """The bytes that messages take."""
    return lasting.broker.statistics().memory_used


# ---- the budget ----


def test_t71_the_memory_never_exceeds_its_limit(lasting: Lasting) -> None:
    """Consumers come and go, with and without selectors, and return messages, in a queue of twice the memory.

    At each moment, what the broker's structures and messages take is within the limit, and so are its files, which have
    a head and tables beside what the limit is for. Each message is acknowledged once.
    """
    selectors = [None, "color = 'red'", "color <> 'red'", "color = 'white'"]
    count, size, until = 40_000, 1_500, 8_000
    queue = lasting.connection.queue("q", durable=True)
    acked: list[int] = []
    with actors(lasting.name, 3) as workers:
        for seed, worker in enumerate(workers):
            worker.begin("drift", queue="q", until=until, seed=seed, selectors=selectors)
        filling = threading.Thread(target=fill, args=(queue, count, size))
        filling.start()
        looks = 0
        while filling.is_alive() or queue.statistics().acked < until:
            found = lasting.broker.statistics()
            assert found.memory_bodies + found.memory_structures <= found.memory_limit == 32 * MEBIBYTE
            assert found.memory_used < found.memory_limit
            assert lasting.blocks() <= 35 * MEBIBYTE
            looks += 1
        filling.join()
        for worker in workers:
            acked += worker.result()
        rest = workers[0].do("drift", queue="q", until=count, seed=7, selectors=[None])
    assert looks > 0
    assert sorted(acked + rest) == [*range(count)]
    assert_counts(queue, message_count=0, acked=count)
    assert_balanced(queue)


def test_t73_what_a_consumer_holds_does_not_stop_another_one(lasting: Lasting) -> None:
    """A consumer has 10,000 unacknowledged; another one gets what follows, also from the store.

    What is acknowledged gives its memory back, and what its consumer leaves returns to its place.
    """
    held, count, size = 10_000, 60_000, 500
    queue = filled(lasting, count, size)
    with queue.consume(prefetch=held) as first, queue.consume(prefetch=10) as second:
        having = [first.get(timeout=60) for _ in range(held)]
        taken = []
        while len(taken) < 2 * AHEAD:
            message = second.get(timeout=60)
            taken.append(number_of(message))
            message.ack()
        numbers = [number_of(message) for message in having]
        assert taken == sorted(taken)
        assert sorted(numbers + taken)[:held] == [*range(held)]
        assert set(numbers).isdisjoint(taken)
        before = used(lasting)
        for message in having[:-LEAF]:
            message.ack()
        eventually(lambda: used(lasting) < before - held * size // 2, "the memory of what was held")
    assert drained(queue) == sorted({*range(count)} - {*numbers[:-LEAF], *taken})


# ---- no server in the data path ----


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_t74_consumption_goes_on_without_a_storekeeper(lasting: Lasting, how: str) -> None:
    """The process that loads ahead is stopped or killed: consumers load by themselves what they need.

    Another storekeeper replaces the one that was killed, and loads ahead again.
    """
    count = 15_000
    queue = filled(lasting, count, 2_000)
    with Actor(lasting.name) as consumer:
        if how == "stopped":
            with lasting.keeper_stopped():
                found = consumer.do("take_numbers", queue="q", count=count // 2)
        else:
            before = lasting.kill_keeper()
            found = consumer.do("take_numbers", queue="q", count=count // 2)
            assert lasting.keeper() != before
        assert found == [*range(count // 2)]
        eventually(lambda: absent(queue, count // 2 + FEW) == 0, "what comes next, loaded ahead")
        assert consumer.do("take_numbers", queue="q", count=count - count // 2) == [*range(count // 2, count)]
    assert_counts(queue, message_count=0, acked=count)


# ---- the first messages ----


def test_t76_a_new_consumer_begins_without_a_look_into_the_store(
    lasting: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart, the storekeeper loads what a consumer will get first: the consumer reads nothing then.

    With steady traffic nothing stays behind: the memory of what is consumed is free.
    """
    count, size = 12_000, 1_000
    empty = used(lasting)
    filled(lasting, count, size)
    lasting.stop()
    lasting.begin()
    queue = lasting.queue()
    eventually(lambda: absent(queue, AHEAD) == 0, "what comes first, loaded ahead")
    assert absent(queue) > 0
    loads: list[int] = []
    load = Loader.load
    monkeypatch.setattr(
        Loader, "load", lambda loader, attached, slot, at: (loads.append(at), load(loader, attached, slot, at))
    )
    with lasting.keeper_stopped():
        with queue.consume(prefetch=1) as consumer:
            for number in range(AHEAD):
                assert loads == []
                message = consumer.get(timeout=60)
                assert number_of(message) == number
                message.ack()
        assert drained(queue) == [*range(AHEAD, count)]
    assert loads != []  # the rest was not in the memory
    for number in range(1000):
        queue.put(body(number, size))
        queue.get(timeout=60).ack()
    eventually(lambda: used(lasting) <= empty + STRUCTURE_BYTES, "free memory")


def test_t77_memory_and_start_do_not_grow_with_the_depth(broker_name: str, tmp_path: Path) -> None:
    """Ten times the messages: less than a byte for each in the memory after a start, and no ten times the time.

    A start walks the pages of the database, too, which are few here. The memory is looked at when the storekeeper has
    loaded what comes first, which is as much for both.
    """
    memory, seconds = {}, {}
    for depth in (20_000, 200_000):
        folder = tmp_path / str(depth)
        folder.mkdir()
        with contextlib.closing(Lasting(broker_name, folder, MEMORY, sync="interval")) as lasting:
            queue = lasting.connection.queue("q", durable=True)
            for first in range(0, depth, BATCH):
                queue.put_many([body(number, 100) for number in range(first, first + BATCH)], timeout=120)
            times = []
            for _ in range(2):
                lasting.stop()
                began = time.monotonic()
                lasting.broker.create()
                times.append(time.monotonic() - began)
                lasting.begin()
                queue = lasting.queue()
                assert len(queue) == depth
                eventually(lambda: absent(queue, room.LEAVES_AHEAD * LEAF) == 0, "what comes first, loaded ahead")  # noqa: B023
                memory[depth] = used(lasting)
            seconds[depth] = min(times)
            with Actor(broker_name) as consumer:
                assert consumer.do("take_numbers", queue="q", count=1000) == [*range(1000)]
    assert memory[200_000] - memory[20_000] < 180_000 + AHEAD * 256
    assert seconds[200_000] < 4 * seconds[20_000]


# ---- looking at what is not in the memory ----


def test_t64_counts_and_listings_include_what_is_in_the_store(lasting: Lasting) -> None:
    """A count covers messages that are not in the memory, by filter and by property; a listing is limited."""
    count = 30 * 64 * 9
    queue = filled(lasting, count, 1_000)
    assert queue.count() == count
    assert queue.count(selector="color = 'red'") == count // 3
    assert absent(queue) > 0
    assert queue.count(group_by="color") == dict.fromkeys(("red", "green", "blue"), count // 3)
    assert len(list(queue.browse("color = 'blue'", limit=10))) == 10
    assert absent(queue) > 0
    assert_counts(queue, message_count=count, ready=count, delivering=0)


def test_t65_a_purge_of_what_is_in_the_store(lasting: Lasting) -> None:
    """Beside a consumer and senders it ends, returns how many it removed, and the statistics add up."""
    count = 20_000
    queue = filled(lasting, count, 1_000)
    with actors(lasting.name, 2) as (consumer, sender):
        consumer.begin("drift", queue="q", until=3_000, seed=1, selectors=[None])
        sender.begin("fill", queue="q", count=4_000, size=1_000, first=count)
        removed = queue.purge()
        sender.result()
        while queue.statistics().acked < 3_000:  # the purge may have been faster than the consumer
            fill(queue, LEAF, 100)
        consumer.result()
    assert removed > AHEAD
    assert_counts(queue, killed=removed)
    removed += queue.purge()
    assert_counts(queue, killed=removed, message_count=0)
    assert_balanced(queue)


def test_t80_a_browser_sees_what_is_in_the_store_once(lasting: Lasting) -> None:
    """Beside consumers that take, return and leave: no message twice, and each that is there throughout once.

    Messages leave the memory and come back meanwhile.
    """
    count, staying = 16_000, 12_000
    queue = filled(lasting, count, 1_500)
    with actors(lasting.name, 2) as workers:
        for seed, worker in enumerate(workers):
            worker.begin("drift", queue="q", until=count - staying - 700, seed=seed, selectors=[None])
        looks = 0
        while not looks or queue.statistics().acked < count - staying - 700:
            shown = [number_of(message) for message in queue.browse()]
            assert shown == sorted(set(shown))
            assert shown[-staying:] == [*range(count - staying, count)]
            looks += 1
        taken = [number for worker in workers for number in worker.result()]
    assert sorted(taken + drained(queue)) == [*range(count)]
