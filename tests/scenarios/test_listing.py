# SPDX-License-Identifier: Apache-2.0
"""The list of a queue's messages while messages in it are removed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import (
    STRUCTURE_BYTES,
    assert_balanced,
    assert_counts,
    listing,
    nothing_to_get,
    numbered,
    put_each,
    take,
    text,
    texts,
)
from scenario_support.processes import actors
from scenario_support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable

    import shmbroker

PAGES_OF_MESSAGES = 200
"""More than fits one page of the queue's tree (64)."""

BODY_BYTES = 64 * 1024


def remove(queue: shmbroker.Queue, victims: Iterable[str]) -> None:
    """Remove messages from wherever in the queue, and leave the rest untouched."""
    doomed = set(victims)
    held = list(queue.get_many(len(queue)))
    for message in held:
        if text(message) in doomed:
            message.ack()
        else:
            message.nack()


def test_q10_a_removed_message_is_in_no_listing_and_not_purged(
    queue: shmbroker.Queue,
) -> None:
    """A removed one is not listed, not consumed, not counted by purge."""
    put_each(queue, "ABCD")
    remove(queue, "B")
    assert listing(queue) == list("ACD")
    assert len(queue) == 3
    with queue.consume(prefetch=1) as consumer:
        assert text(consumer.get(timeout=60)) == "A"
    assert listing(queue) == list("ACD")
    assert queue.purge() == 3
    assert listing(queue) == []
    assert_counts(queue, message_count=0, ready=0, acked=1, killed=3)
    assert nothing_to_get(queue)
    assert_balanced(queue)


def test_q10_purge_leaves_what_is_delivered(queue: shmbroker.Queue) -> None:
    """Purge takes the ready messages; a delivered one stays with its holder."""
    put_each(queue, "ABC")
    held = queue.get()
    assert queue.purge() == 2
    assert_counts(queue, message_count=1, delivering=1, ready=0, killed=2)
    held.nack()
    assert take(queue, 1) == ["A"]
    assert queue.purge() == 0
    assert_balanced(queue)


def test_q11_after_the_first_was_removed_the_second_is_next(
    queue: shmbroker.Queue,
) -> None:
    """The second is next from the start, and from the place of the removed first."""
    put_each(queue, "ABC")
    reader = queue.browse()
    assert text(next(reader)) == "A"
    queue.get().ack()
    assert text(next(reader)) == "B"
    assert listing(queue) == ["B", "C"]
    assert take(queue, 2) == ["B", "C"]


def test_q12_after_the_last_was_removed_the_list_ends_and_can_grow(
    queue: shmbroker.Queue,
) -> None:
    """The list ends after the one before; what is appended later is reached."""
    put_each(queue, "AB")
    remove(queue, "B")
    reader = queue.browse()
    assert text(next(reader)) == "A"
    assert next(reader, None) is None
    with queue.consume() as consumer:
        first = consumer.get(timeout=60)
        queue.put(b"C")
        second = consumer.get(timeout=60)
        assert texts([first, second]) == ["A", "C"]
        first.nack()
        second.nack()
    assert listing(queue) == ["A", "C"]
    assert take(queue, 2) == ["A", "C"]


@pytest.mark.parametrize("steps", [9, 10, 100])
def test_q13_survivors_keep_order_and_count_after_scattered_removals(queue: shmbroker.Queue, steps: int) -> None:
    """Messages removed here and there, one by one: the others stay as they were."""
    alive = numbered(PAGES_OF_MESSAGES)
    put_each(queue, alive)
    victims = [alive[(number * 77 + 3) % PAGES_OF_MESSAGES] for number in range(steps)]
    held = {text(message): message for message in queue.get_many(len(queue))}
    for number, victim in enumerate(victims, start=1):
        held.pop(victim).ack()
        alive.remove(victim)
        assert_counts(queue, message_count=len(alive), acked=number)
    for message in reversed(list(held.values())):
        message.nack()
    assert_counts(queue, ready=len(alive), delivering=0)
    assert listing(queue) == alive
    assert take(queue, len(alive)) == alive
    assert nothing_to_get(queue)
    assert_balanced(queue)


def test_q13_an_old_message_pins_only_its_own_place(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """While one old message stays unacked, the memory of the removed ones is reused."""
    queue.put(b"old")
    old = queue.get()
    rounds = 20
    baseline = 0
    for number in range(rounds):
        put_each(queue, numbered(PAGES_OF_MESSAGES))
        queue.get_many(PAGES_OF_MESSAGES).ack()
        if number == 1:
            baseline = broker.statistics().memory_used
    eventually(
        lambda: broker.statistics().memory_used <= baseline + STRUCTURE_BYTES,
        f"no more than {baseline} bytes and a few pages",
    )
    old.nack()
    assert take(queue, 1) == ["old"]
    assert_balanced(queue)


def churn(queue: shmbroker.Queue, rounds: int) -> None:
    """Put and remove large bodies, each filled with one letter."""
    for number in range(rounds):
        queue.put(bytes([97 + number % 26]) * BODY_BYTES)
        queue.get().ack()


def test_q21_readers_of_a_dying_message_never_see_its_memory_reused(
    broker: shmbroker.Broker, queue: shmbroker.Queue
) -> None:
    """Threads that read while messages die get a whole body or none; nothing leaks."""
    backlog = 3
    for _ in range(backlog):
        queue.put(b"." * BODY_BYTES)
    churn(queue, 2)
    baseline = broker.statistics().memory_used
    done = threading.Event()
    faults: list[str] = []
    reads = [0, 0, 0]

    def read(index: int) -> None:
        try:
            with broker.connect() as connection:
                watched = connection.queue("q", passive=True)
                while not done.is_set():
                    for message in watched.browse():
                        body = bytes(message)
                        if body.count(body[:1]) != BODY_BYTES:
                            faults.append(f"torn body of {len(body)} bytes")
                        reads[index] += 1
        except Exception as error:  # noqa: BLE001 (whatever it is, the test fails)
            faults.append(repr(error))

    threads = [threading.Thread(target=read, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    rounds = 2
    try:
        while (rounds < 500 or min(reads) == 0) and not faults:
            churn(queue, 1)
            rounds += 1
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert faults == []
    queue.get_many(backlog).ack()
    assert_counts(queue, message_count=0, acked=rounds + backlog)
    eventually(
        lambda: broker.statistics().memory_used <= baseline + STRUCTURE_BYTES,
        f"back to {baseline} bytes",
    )
    assert_balanced(queue)


def test_q21_processes_that_read_and_ack_free_each_message_once(
    broker: shmbroker.Broker, queue: shmbroker.Queue
) -> None:
    """The same with processes: takers, browsers, and one that dies while browsing."""
    churn(queue, 2)
    baseline = broker.statistics().memory_used
    rounds = 400
    with actors(broker.name, 3) as (receiver, reader, victim):
        total = 2 + rounds
        reader.begin("browse_until", queue="q", until=total, size=BODY_BYTES)
        victim.begin("browse_until", queue="q", until=total, size=BODY_BYTES)
        receiver.do("consume", queue="q", prefetch=4)
        for number in range(rounds):
            queue.put(bytes([97 + number % 26]) * BODY_BYTES)
            if number == rounds // 4:
                receiver.begin("receive_all", until=total, queue="q")
            if number == rounds // 2:
                victim.kill()
        received = receiver.result()
        reader.result()
        letters = [m["body"][0] for m in received]
        assert letters == [chr(97 + number % 26) for number in range(rounds)]
        receiver.do("close_consumer")
    assert_counts(queue, message_count=0, acked=total)
    eventually(
        lambda: broker.statistics().memory_used <= baseline + STRUCTURE_BYTES,
        f"back to {baseline} bytes",
    )
    assert_balanced(queue)


def test_t64_messages_are_counted_by_filter_and_by_property(queue: shmbroker.Queue) -> None:
    """A count covers every ready message, on however many pages, where a listing is limited."""
    regions = ("eu", "us", "ap")
    for number in range(PAGES_OF_MESSAGES):
        queue.put(str(number).encode(), headers={"region": regions[number % 3], "number": number})
    held = queue.get_many(2)
    ready = PAGES_OF_MESSAGES - 2
    assert queue.count() == ready
    assert queue.count(selector="number >= 150") == PAGES_OF_MESSAGES - 150
    assert queue.count(selector="region = 'eu' AND number < 90") == 29
    assert queue.count(group_by="region") == {"ap": 66, "eu": 66, "us": 66}
    assert queue.count(selector="number < 3", group_by="region") == {"ap": 1}
    for selector in None, "number >= 150":
        assert len(list(queue.browse(selector, limit=10))) == 10
    held.ack()
    assert_balanced(queue)
