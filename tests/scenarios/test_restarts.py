# SPDX-License-Identifier: Apache-2.0
"""The loss of all processes and of the memory: a broker that is made again from its folder goes on where it was."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from queue import Empty
from typing import TYPE_CHECKING

import pytest
from scenario_support.lasting import Lasting
from scenario_support.observing import (
    assert_counts,
    await_counts,
    listing,
    nothing_to_get,
    numbered,
    put_each,
    take,
    text,
    texts,
)
from scenario_support.processes import ActorError, actors
from scenario_support.waiting import eventually

from shmbroker import BasicProperties

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scenario_support.processes import Actor

    import shmbroker


DELAY_SECONDS = 4.0
"""Long enough for a restart before a delayed message is due, on a machine that is busy with others too."""
HOUR = 3600.0


@pytest.fixture
def lasting(broker_name: str, tmp_path: Path) -> Iterator[Lasting]:
    """Begin a broker with an empty store."""
    with contextlib.closing(Lasting(broker_name, tmp_path)) as made:
        yield made


def synced(lasting: Lasting) -> None:
    """Wait until all that has changed is on the disk: a put waits for it, and for what came before."""
    lasting.connection.queue("synced", durable=True).put(b"x")


# ---- scheduled messages ----


def test_t23_a_scheduled_message_is_delivered_when_it_is_due(lasting: Lasting) -> None:
    """The broker is lost between the put and the due time: the message comes at its time, and not before."""
    queue = lasting.connection.queue("q", durable=True)
    due_at = time.time() + DELAY_SECONDS
    queue.put(b"A", delay=DELAY_SECONDS)
    queue.put(b"much later", delay=HOUR)
    lasting.restart()
    queue = lasting.queue()
    if time.time() < due_at:  # the restart was not held up
        assert_counts(queue, message_count=2, scheduled=2, ready=0)
    message = queue.get(timeout=60)
    assert time.time() >= due_at - 0.01  # it is stored in milliseconds
    assert (text(message), message.redelivered) == ("A", False)
    message.ack()
    assert_counts(queue, message_count=1, scheduled=1, delivering=0)


def test_t23_what_was_due_while_there_was_no_broker_is_ready(lasting: Lasting) -> None:
    """A message whose time came while no process and no memory was there is delivered immediately, in its place."""
    queue = lasting.connection.queue("q", durable=True)
    put_each(queue, ["A"])
    due_at = time.time() + 0.2
    queue.put(b"B", delay=0.2)
    put_each(queue, ["C"])
    lasting.lose()
    eventually(lambda: time.time() > due_at, "the due time")
    lasting.begin()
    queue = lasting.queue()
    await_counts(queue, ready=3, scheduled=0)
    assert take(queue, 3) == ["A", "B", "C"]


def test_t23_a_deleted_scheduled_message_stays_deleted(lasting: Lasting) -> None:
    """A scheduled message that a purge ended does not come back; the counts are 0 (ARTEMIS-2986, ARTEMIS-4726)."""
    queue = lasting.connection.queue("q", durable=True)
    for body in "ABC":
        queue.put(body.encode(), delay=HOUR)
    assert queue.purge(state="scheduled", selector="TRUE", limit=1) == 1
    synced(lasting)
    lasting.restart()
    queue = lasting.queue()
    assert texts(queue.browse(state="scheduled")) == ["B", "C"]
    assert queue.purge(state="scheduled") == 2
    synced(lasting)
    lasting.restart()
    queue = lasting.queue()
    assert_counts(queue, message_count=0, scheduled=0, ready=0)
    assert nothing_to_get(queue)


# ---- last values ----


def test_t39_a_value_replaces_the_one_from_before_a_restart(lasting: Lasting) -> None:
    """After a restart, the new value of a key replaces the old one: one message is left (ARTEMIS-2927)."""
    queue = lasting.connection.queue("q", durable=True, last_value_key="k")
    for body in ("K-1", "L-1", "K-2"):
        queue.put(body.encode(), headers={"k": body[0]})
    lasting.restart()
    queue = lasting.queue()
    assert listing(queue) == ["L-1", "K-2"]
    queue.put(b"K-3", headers={"k": "K"})
    assert listing(queue) == ["L-1", "K-3"]
    assert_counts(queue, message_count=2, replaced=1)
    lasting.restart()
    assert listing(lasting.queue()) == ["L-1", "K-3"]


def test_t39_after_a_purge_and_a_restart_the_same_key_is_delivered(lasting: Lasting) -> None:
    """Nothing of a value that was purged is left that would replace, or be replaced."""
    queue = lasting.connection.queue("q", durable=True, last_value_key="k")
    queue.put(b"K-1", headers={"k": "K"})
    assert queue.purge() == 1
    synced(lasting)
    lasting.restart()
    queue = lasting.queue()
    queue.put(b"K-2", headers={"k": "K"})
    assert_counts(queue, message_count=1, replaced=0)
    assert take(queue, 1) == ["K-2"]


# ---- settings ----


def test_t69_ring_filter_and_exclusive_survive(lasting: Lasting) -> None:
    """A ring is one still, a filter still filters, and one consumer at a time gets the messages.

    The filter of a queue is the selector of its binding here, and an exclusive queue of Artemis is one with a single
    active consumer.
    """
    lasting.connection.queue("q", durable=True, ring_size=3, single_active_consumer=True)
    channel = lasting.connection.channel()
    channel.queue_bind("q", "amq.fanout", arguments={"x-filter-jms-selector": "name <> 'x'"})
    synced(lasting)
    lasting.restart()
    queue = lasting.queue()
    assert (queue.settings.ring_size, queue.settings.single_active_consumer) == (3, True)
    channel = lasting.connection.channel()
    for body in "AxBCxD":
        channel.basic_publish("amq.fanout", "", body.encode(), BasicProperties(headers={"name": body}))
    assert listing(queue) == ["B", "C", "D"]
    assert_counts(queue, replaced=1, added=4)
    with queue.consume() as active, queue.consume() as waiting:
        assert [text(active.get(timeout=60)) for _ in range(3)] == ["B", "C", "D"]
        with pytest.raises(Empty):
            waiting.get(timeout=0)


def test_t69_a_partial_update_survives(lasting: Lasting) -> None:
    """Only what was changed has changed, also after a restart; an unknown setting is refused, and changes nothing."""
    queue = lasting.connection.queue("q", durable=True, max_length=100, message_ttl=HOUR, max_priority=4)
    queue.put(b"x")
    queue.configure(max_length=50)
    with pytest.raises((TypeError, ValueError), match="length_max"):
        queue.configure(length_max=1)
    before = queue.settings
    synced(lasting)
    lasting.restart()
    after = lasting.queue().settings
    assert after == before
    assert (after.max_length, after.message_ttl, after.max_priority) == (50, HOUR, 4)


def test_r12_a_restart_enforces_no_more_than_the_live_broker_did(lasting: Lasting) -> None:
    """A ring that was made smaller, and has more messages than that, has them after a restart as well."""
    queue = lasting.connection.queue("q", durable=True)
    bodies = numbered(20)
    put_each(queue, bodies)
    queue.configure(ring_size=10)
    assert_counts(queue, message_count=20, replaced=0)
    synced(lasting)
    lasting.restart()
    queue = lasting.queue()
    assert queue.settings.ring_size == 10
    assert listing(queue) == bodies
    put_each(queue, ["new"])
    assert listing(queue) == [*bodies[1:], "new"]
    assert_counts(queue, message_count=20, replaced=1)


# ---- duplicate ids ----


def knows(queue: shmbroker.Queue, one: str) -> bool:
    """Whether the queue knows an id; if not, it knows it afterwards, and has a message of that name."""
    before = queue.statistics().duplicates
    queue.put(one.encode(), duplicate_id=one)
    return queue.statistics().duplicates > before


def put_ids(queue: shmbroker.Queue, ids: str) -> None:
    """Put a message for each letter, which is its id and its body."""
    for one in ids:
        queue.put(one.encode(), duplicate_id=one)


@pytest.mark.parametrize("way", ["lost", "stopped"])
def test_t60_a_restart_remembers_ids(lasting: Lasting, way: str) -> None:
    """Those of messages that are there, and of messages that were acknowledged long ago."""
    queue = lasting.connection.queue("q", durable=True, duplicate_ids=10)
    put_ids(queue, "ab")
    assert take(queue, 1) == ["a"]
    synced(lasting)
    if way == "stopped":
        lasting.stop()
        lasting.begin()
    else:
        lasting.restart()
    queue = lasting.queue()
    assert [knows(queue, one) for one in "abc"] == [True, True, False]
    assert listing(queue) == ["b", "c"]
    lasting.restart()
    assert [knows(lasting.queue(), one) for one in "abc"] == [True, True, True]


def test_t60_the_oldest_id_is_forgotten_across_a_restart(lasting: Lasting) -> None:
    """The next id after a restart evicts the oldest one from before it, and no other."""
    queue = lasting.connection.queue("q", durable=True, duplicate_ids=3)
    put_ids(queue, "abc")
    lasting.restart()
    queue = lasting.queue()
    put_ids(queue, "d")
    assert [knows(queue, one) for one in "bcda"] == [True, True, True, False]


def test_t60_fewer_ids_keep_the_newest_across_a_restart(lasting: Lasting) -> None:
    """150 ids become 100: the newest stay, also after a restart, and with a larger number again; 0 forgets all."""
    queue = lasting.connection.queue("q", durable=True, duplicate_ids=150)
    for number in range(150):
        queue.put(b"x", duplicate_id=str(number), timeout=0)
    synced(lasting)
    queue.configure(duplicate_ids=100)
    synced(lasting)
    lasting.restart()
    queue = lasting.queue()
    queue.configure(duplicate_ids=150)
    assert all(knows(queue, str(number)) for number in range(50, 150))
    assert not knows(queue, "49")
    queue.configure(duplicate_ids=0)
    queue.configure(duplicate_ids=150)
    synced(lasting)
    lasting.restart()
    assert not knows(lasting.queue(), "149")


def test_t60_an_id_that_was_not_confirmed_is_free(lasting: Lasting) -> None:
    """The storekeeper is stopped, and everything is killed: neither message nor id is there, so the next put counts."""
    queue = lasting.connection.queue("q", durable=True, duplicate_ids=10)
    put_ids(queue, "a")
    with lasting.keeper_stopped():
        queue.put(b"b", duplicate_id="b", timeout=0)
        assert listing(queue) == ["a", "b"]
        lasting.restart()
    queue = lasting.queue()
    assert listing(queue) == ["a"]
    assert [knows(queue, one) for one in "ab"] == [True, False]
    assert listing(queue) == ["a", "b"]


def lost(lasting: Lasting, producers: dict[str, Actor], told: dict[str, int]) -> dict[str, int]:
    """Kill the storekeeper and all producers, and lose the memory; what each producer was told last, by name."""
    os.kill(lasting.keeper(), signal.SIGKILL)
    for producer in producers.values():
        producer.kill()
    lasting.lose()
    last = dict(told)
    for name, producer in producers.items():
        with contextlib.suppress(ActorError):  # its end
            while True:
                last[name] = producer.item()
    return last


def test_t60_each_message_is_there_once_whatever_was_killed(lasting: Lasting) -> None:
    """Producers that repeat what they were not told bring no message twice, and lose none.

    All processes are killed while three producers put, and a consumer acknowledges. Then each put is repeated. Messages
    that were acknowledged may be there, if the disk does not have the acknowledgement.
    """
    queue = lasting.connection.queue("q", durable=True, duplicate_ids=100_000)
    names = ["a", "b", "c"]
    taken: set[str] = set()
    told = dict.fromkeys(names, 0)
    with actors(lasting.name, len(names)) as producers:
        for producer, name in zip(producers, names, strict=True):
            producer.begin("put_told", queue="q", count=100_000, producer=name)
        while min(told.values()) < 100:
            for producer, name in zip(producers, names, strict=True):
                told[name] = producer.item()
            for message in queue.get_many(3, timeout=0.001):
                taken.add(text(message))
                message.ack()
        told = lost(lasting, dict(zip(names, producers, strict=True)), told)
    lasting.begin()
    queue = lasting.queue()
    for name in names:
        assert all(knows(queue, f"{name}{number}") for number in range(told[name]))
        knows(queue, f"{name}{told[name]}")  # the put that was under way
    found = listing(queue)
    assert len(set(found)) == len(found)
    assert {f"{name}{number}" for name in names for number in range(told[name] + 1)} <= taken | set(found)


# ---- pauses ----


def test_t67_a_pause_outlives_the_memory_only_if_it_is_to_persist(lasting: Lasting) -> None:
    """A paused queue accepts messages. After a restart, only the pause with `persist` is there; a resume ends it."""
    names = ("lasting", "passing")
    for name in names:
        lasting.connection.queue(name, durable=True).put(b"A")
    lasting.queue("lasting").pause(persist=True)
    lasting.queue("passing").pause()
    for name in names:
        queue = lasting.queue(name)
        queue.put(b"B")
        assert queue.paused
        assert nothing_to_get(queue)
    lasting.restart()
    assert [lasting.queue(name).paused for name in names] == [True, False]
    assert take(lasting.queue("passing"), 2) == ["A", "B"]
    queue = lasting.queue("lasting")
    queue.put(b"C")
    assert nothing_to_get(queue)
    assert_counts(queue, ready=3)
    queue.pause()  # does not make the pause one that passes
    queue.put(b"D")
    lasting.restart()
    queue = lasting.queue("lasting")
    assert nothing_to_get(queue)
    queue.resume()
    assert take(queue, 4) == list("ABCD")
    queue.pause()
    queue.put(b"E")
    lasting.restart()
    assert not lasting.queue("lasting").paused
    assert take(lasting.queue("lasting"), 1) == ["E"]


# ---- a crash during an append ----


@pytest.mark.parametrize("torn", [False, True], ids=["killed", "torn"])
def test_t78_a_crash_during_an_append_leaves_no_hole(lasting: Lasting, *, torn: bool) -> None:
    """All processes are killed while producers append: what they were told is there, then perhaps one, without a gap.

    The next message comes right behind. With a torn write, half of a record lies behind the end of the log.
    """
    names = ["q0", "q1", "q2"]
    for name in names:
        lasting.connection.queue(name, durable=True)
    with actors(lasting.name, len(names)) as producers:
        for producer, name in zip(producers, names, strict=True):
            producer.begin("put_told", queue=name, count=100_000)
        told = {}
        while told.get(names[-1], 0) < 100:
            for producer, name in zip(producers, names, strict=True):
                told[name] = producer.item()
        told = lost(lasting, dict(zip(names, producers, strict=True)), told)
    if torn:
        log = lasting.folder / "log.sqlite-wal"
        whole = log.read_bytes()
        log.write_bytes(whole + whole[32 : 32 + 2000])
    lasting.begin()
    for name in names:
        queue = lasting.queue(name)
        found = [(int(bytes(message)), message.sequence) for message in queue.browse()]
        count, first = len(found), found[0][1]
        assert told[name] <= count <= told[name] + 1
        assert found == [(number, first + number) for number in range(count)]
        queue.put(b"%d" % count)
        *_, last = queue.browse()
        assert (int(bytes(last)), last.sequence) == (count, first + count)


def test_t78_sequence_numbers_go_on_after_all_was_taken(lasting: Lasting) -> None:
    """A queue whose messages have all ended gives no sequence number a second time after a restart."""
    queue = lasting.connection.queue("q", durable=True)
    queue.put_many([b"%d" % number for number in range(100)])
    for _ in range(100):
        last = queue.get(timeout=60)
        last.ack()
    synced(lasting)
    lasting.restart()
    queue = lasting.queue()
    assert_counts(queue, message_count=0)
    queue.put(b"next")
    assert queue.get(timeout=60).sequence == last.sequence + 1
