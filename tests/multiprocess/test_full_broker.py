# SPDX-License-Identifier: Apache-2.0
"""A broker that plain producers have filled: everything that makes room goes on, in this process and in others."""

from __future__ import annotations

import contextlib
import itertools
import queue as standard_queue
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import shmbroker
import shmbroker.testing
from shmbroker.staging import Stage
from shmbroker.workers import _Options, _set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker import Broker, Connection, Queue

MEMORY = "32M"
SIZES = (10, 4_000, 1 << 20)
FANNED_OUT = 0  # tiny messages in many queues: pages take the memory, and not bodies
QUEUES = 50
AT_ONCE = 256
PATIENCE = 240.0  # not a maximum time of the product: only a guard
EDGE = 61  # of the 64 cells of a page
LEASES = 2_000  # more than there is memory for their queues
HOLDER = """
import sys, shmbroker
connection = shmbroker.connect(sys.argv[1])
held = connection.queue(sys.argv[2], passive=True).get_many(100, timeout=0)
print(len(held), flush=True)
sys.stdin.read()
"""


class Full:
    """A full broker, with a queue that has a part of it."""

    def __init__(self, broker: Broker, connection: Connection, size: int) -> None:
        self.broker, self.connection, self.size = broker, connection, size
        self.queue = connection.queue("full")
        self.body = bytes(size or 10)
        if size == FANNED_OUT:
            self._fan_out()
        else:
            fill(self.queue, self.body)
        self.count = len(self.queue)

    def _fan_out(self) -> None:
        channel = self.connection.channel()
        channel.exchange_declare("fan", "fanout")
        for queue in [self.queue, *(self.connection.queue(f"other-{number}") for number in range(QUEUES))]:
            channel.queue_bind(queue.name, "fan", "")
        with contextlib.suppress(shmbroker.OutOfMemory):
            while True:
                channel.basic_publish("fan", "", self.body, timeout=0)


def fill(queue: Queue, body: bytes) -> None:
    """Until a plain put finds no memory."""
    for count in (AT_ONCE if len(body) < 1 << 16 else 1, 1):
        with contextlib.suppress(shmbroker.OutOfMemory):
            while True:
                queue.put_many([body] * count, timeout=0)
        with contextlib.suppress(shmbroker.OutOfMemory):
            while True:
                queue.put(body, timeout=0)


@pytest.fixture(params=(*SIZES, FANNED_OUT), ids=lambda size: f"{size} B" if size else "fanned out")
def full(request: pytest.FixtureRequest, broker_name: str) -> Iterator[Full]:
    """A broker without memory for another message."""
    with shmbroker.testing.broker(broker_name, memory=MEMORY) as broker, broker.connect() as connection:
        yield Full(broker, connection, request.param)


def drain(full: Full, name: str = "full", most: int = 0) -> int:
    """A new connection consumes what is there, or comes back; returns how much."""
    with full.broker.connect() as connection:
        queue = connection.queue(name, passive=True)
        taken, most = 0, most or len(queue)
        for message in queue.consume(prefetch=50, timeout=PATIENCE):
            message.ack()
            taken += 1
            if taken == most:
                break
        return taken


def test_taking_all_before_acknowledging_any(full: Full) -> None:
    """What is held needs memory of its own; it is given back with the messages. A queue to move to is made."""
    taken: list[shmbroker.MessageBatch] = []
    with contextlib.suppress(standard_queue.Empty):
        while True:
            taken.append(full.queue.get_many(1000, timeout=0))
    assert sum(map(len, taken)) == full.count
    for batch in taken:
        batch.ack()
    if full.size != FANNED_OUT:
        full.queue.put(full.body, timeout=PATIENCE)
        assert full.queue.move(full.connection.queue("target")) == 1


def test_moving(full: Full) -> None:
    """Messages are moved to another queue, in two steps, while nothing is free; then they are consumed there."""
    target = full.connection.queue("target")
    moved = full.queue.move(target, limit=max(1, full.count // 3))
    moved += full.queue.move(target)
    assert (moved, len(full.queue)) == (full.count, 0)
    assert drain(full, "target") == full.count


def test_what_the_dead_held_is_consumed(full: Full) -> None:
    """A reaper and a consumer need memory each; then there is room for a plain put."""
    command = [sys.executable, "-c", HOLDER, full.broker.name, "full"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert int(holder.stdout.readline()) == min(100, full.count)
        holder.kill()
    assert drain(full, most=full.count) == full.count
    if full.size != FANNED_OUT:
        full.queue.put(full.body, timeout=PATIENCE)


def test_leasing(full: Full) -> None:
    """A group is attached, leases all messages in turn, and acknowledges them."""
    with full.broker.connect() as connection:
        group = shmbroker.Group(connection, "full", "readers")
        group.attach()
        leased = number = 0
        while (found := group.lease(number, max_messages=max(1, full.count // 5))) != number:
            leased, number = leased + group.size(found), found
            group.ack(number)
        assert leased == full.count


def test_publishing_what_was_staged(full: Full) -> None:
    """A message is taken, staged for another queue and published there, as a query does it; then it is acknowledged."""
    full.connection.queue("target")
    message = full.queue.get(timeout=0)
    stage = Stage(full.connection, "query")
    with stage.attempt(1, 0, 0) as writer:
        writer.put(bytes(message.body), timeout=PATIENCE)
    assert stage.publish(1, [writer.receipt], "target", timeout=PATIENCE) == 1
    message.ack()
    assert drain(full, "target") == 1


def test_what_kills_its_workers_is_set_aside(full: Full) -> None:
    """Each such message goes into the queue beside its own, however many there are, with what it has; others follow."""
    options = _Options("full", full.broker.name, prefetch=1, attempts=1, set_aside="full.set-aside")
    for _ in range(min(100, full.count)):
        message = full.queue.get(timeout=0)
        _set_aside(full.queue, message, options)
        assert message.settled
    aside = full.connection.queue("full.set-aside", passive=True)
    found = [(bytes(one), one.headers["x-shmbroker-queue"]) for one in aside.browse()]
    assert found == [(full.body, "full")] * min(100, full.count)
    assert full.queue.statistics().acked == len(found)
    left = full.count - len(found)
    assert left == 0 or drain(full, most=left) == left


def test_a_stage_that_is_too_large_says_so(full: Full) -> None:
    """The reserve has an end: an error in the time that was given, and consuming goes on. Plain puts do not take it."""
    for number, size in enumerate((1, 300, 5_000, 70_000, 600_000)):
        with contextlib.suppress(shmbroker.OutOfMemory):
            full.connection.queue(f"more-{number}").put(bytes(size), timeout=0)
    stage = Stage(full.connection, "query")
    with pytest.raises(shmbroker.OutOfMemory, match="has no room"), stage.attempt(1, 0, 0) as writer:
        writer.put_many([bytes(300_000)] * 64, timeout=0)
    assert drain(full) == full.count


def test_plain_puts_take_nothing_of_what_staging_opened(full: Full) -> None:
    """Beside a staged body there are free slots of its length in the reserve: they are not for producers."""
    more, body = full.connection.queue("more"), bytes(300_000)
    fill(more, body)
    with Stage(full.connection, "query").attempt(1, 0, 0) as writer:
        writer.put(body, timeout=0)
    with pytest.raises(shmbroker.OutOfMemory):
        more.put(body, timeout=0)


def stage_all(full: Full) -> None:
    """Attempts of all sizes, complete and not published, have all memory that staging may have."""
    stage, batch = Stage(full.connection, "query"), itertools.count()
    for size in (600_000, 70_000, 5_000, 300, 1):
        with contextlib.suppress(shmbroker.OutOfMemory):
            while True:
                with stage.attempt(next(batch), 0, 0) as writer:
                    writer.put_many([bytes(size)] * min(100, (1 << 20) // size), timeout=0)


def test_what_stays_staged_leaves_memory_to_a_consumer(full: Full) -> None:
    """All memory that staging may have is used: consuming goes on."""
    stage_all(full)
    assert drain(full) == full.count


def take_by_a_consumer(full: Full) -> int:
    """Consumes all; a connection's first consumer needs a structure that the broker had not yet."""
    return drain(full)


def take_by_a_channel(full: Full) -> int:
    """The same by a consumer of a channel."""
    channel, taken, there = full.connection.channel(), 0, len(full.queue)
    for method, _properties, _body in channel.consume("full", inactivity_timeout=PATIENCE):
        assert method is not None
        channel.basic_ack(method.delivery_tag)
        taken += 1
        if taken == there:
            break
    return taken


def come_to_an_edge(connection: Connection) -> Queue:
    """An empty queue that has used nearly all cells of its first page; the next one needs a page above both."""
    queue = connection.queue("edge")
    for _ in range(EDGE):
        queue.put(b"")
        queue.get(timeout=0).ack()
    return queue


@pytest.mark.parametrize("take", [take_by_a_consumer, take_by_a_channel])
def test_pages_leave_memory_to_the_first_consumer(broker_name: str, take: Callable[[Full], int]) -> None:
    """Moving needs a page of a new kind, and there is memory for one kind only: that is for who consumes."""
    with shmbroker.testing.broker(broker_name, memory=MEMORY) as broker, broker.connect() as connection:
        edge = come_to_an_edge(connection)
        full = Full(broker, connection, 1 << 20)
        broker.stop()
        stage_all(full)
        with pytest.raises(shmbroker.OutOfMemory):
            full.queue.move(edge)
        left = len(full.queue)
        assert 0 < left < full.count
        assert take(full) == left
        assert edge.move(full.queue) == full.count - left
        edge.delete()


@pytest.mark.parametrize("way", ["purge", "delete"])
def test_emptying_by_a_person(full: Full, way: str) -> None:
    """What is removed by the command line makes room for as many messages again, with no housekeeper there."""
    full.broker.stop()
    command = [sys.executable, "-m", "shmbroker_cli", "queue", way, "full", "--broker", full.broker.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    again = full.connection.queue("again" if way == "delete" else "full")
    if full.size != FANNED_OUT:
        fill(again, full.body)
        assert len(again) > full.count * 0.9
    full.broker.start()
    assert full.broker.statistics().housekeeper_pid != 0


@pytest.fixture
def fanned_out(broker_name: str) -> Iterator[Full]:
    """A broker whose pages are used up."""
    with shmbroker.testing.broker(broker_name, memory=MEMORY) as broker, broker.connect() as connection:
        yield Full(broker, connection, FANNED_OUT)


def test_leases_go_on_without_a_housekeeper(fanned_out: Full) -> None:
    """Each one is a queue that is deleted; who makes the next one lets go of what these had."""
    fanned_out.broker.stop()
    group = shmbroker.Group(fanned_out.connection, "full", "readers")
    group.attach()
    for number in range(LEASES):
        assert group.lease(number, max_messages=1) == number + 1
        group.ack(number + 1)


def test_producers_wait_and_go_on(broker_name: str) -> None:
    """Producers that wait for memory go on when a consumer makes room."""
    with shmbroker.testing.broker(broker_name, memory=MEMORY) as broker, broker.connect() as connection:
        full = Full(broker, connection, 4_000)
        with contextlib.ExitStack() as stack:
            others = [stack.enter_context(broker.connect()).queue("full", passive=True) for _ in range(3)]
            producers = [threading.Thread(target=one.put, args=(full.body,)) for one in others]
            for producer in producers:
                producer.start()
            for _ in producers:
                full.queue.get(timeout=PATIENCE).ack()
            for producer in producers:
                producer.join()
        assert len(full.queue) == full.count


@pytest.mark.parametrize("size", SIZES)
def test_a_transaction_that_adds_no_more_than_it_ends(broker_name: str, size: int) -> None:
    """It has memory of the reserve; one that adds more messages than it ends, or longer bodies, has none."""
    with shmbroker.testing.broker(broker_name, memory=MEMORY) as broker, broker.connect() as connection:
        full, channel = Full(broker, connection, size), connection.channel()
        channel.tx_select()

        def commit(*bodies: bytes) -> None:
            got = channel.basic_get("full")
            assert got is not None
            for body in bodies:
                channel.basic_publish("", "full", body)
            channel.basic_ack(got.delivery_tag)
            try:
                channel.tx_commit(timeout=0)
            except shmbroker.OutOfMemory:
                channel.tx_rollback()
                channel.basic_nack(got.delivery_tag)
                channel.tx_commit(timeout=0)
                raise

        for bodies in ([full.body] * 2, [full.body + b"x"]):
            with pytest.raises(shmbroker.OutOfMemory):
                commit(*bodies)
        for _ in range(3):
            commit(full.body)
        assert len(full.queue) == full.count
