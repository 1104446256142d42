# SPDX-License-Identifier: Apache-2.0
"""Messages of stored queues that leave the memory, and come back when they are needed."""

from __future__ import annotations

import os
import queue as standard_queue
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
from shmbroker import exceptions
from shmbroker._core import native, paging
from shmbroker._storekeeper import loading
from shmbroker.storage import rows
from shmbroker.storage.reading import Reader

if TYPE_CHECKING:
    from tests.unit.storage.conftest import Stored

LEAF = 64
EVERYTHING = 1 << 52
LANE_END = 1 << 51
"""A sequence number behind all messages of a lane."""


def put_numbers(queue: shmbroker.Queue, count: int, first: int = 0) -> None:
    """Puts so many bodies, which are numbers."""
    queue.put_many([b"%d" % number for number in range(first, first + count)], timeout=0)


def numbers_of(queue: shmbroker.Queue) -> list[int]:
    """The bodies that are ready, as numbers."""
    return [int(bytes(message)) for message in queue.browse()]


def drained(queue: shmbroker.Queue) -> list[int]:
    """Gets and acknowledges all messages; their numbers."""
    found = []
    while True:
        try:
            message = queue.get_nowait()
        except standard_queue.Empty:
            return found
        found.append(int(bytes(message)))
        message.ack()


def leave(stored: Stored, queue: shmbroker.Queue, lane: int = 0, ahead: int = 0, most: int = 1000) -> int:
    """Brings everything into the store, then lets leaves leave; returns how many did."""
    stored.keeper.turn()
    stored.keeper.settle()
    return paging.leave(queue._core, lane + LANE_END, ahead, most).leaves  # noqa: SLF001


def absent(queue: shmbroker.Queue) -> list[int]:
    """The first sequence numbers of the leaves that are not in the memory."""
    found, at = [], 0
    while (one := paging.absent(queue._core, at, EVERYTHING)) is not None:  # noqa: SLF001
        found.append(one.sequence)
        at = rows.leaf_of(one.sequence) + LEAF
    return found


def used(queue: shmbroker.Queue) -> int:
    """The bytes of memory that the broker uses."""
    return queue._core.connection.attachment.facts(in_full=True).memory_used  # noqa: SLF001


def made_absent(stored: Stored, count: int = 3 * LEAF + 5, **settings: Any) -> shmbroker.Queue:  # noqa: ANN401
    """A queue with so many messages, of which all whole leaves have left."""
    queue = stored.connection.queue("q", durable=True, **settings)
    put_numbers(queue, count)
    assert leave(stored, queue) == count // LEAF
    return queue


# ---- leaving and coming back ----


def test_messages_leave_and_come_back_in_their_order(stored: Stored) -> None:
    """Their memory is free meanwhile. The last leaf stays: the next message is appended there."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 20 * LEAF + 5)
    before = used(queue)
    assert leave(stored, queue) == 20
    assert absent(queue) == [n * LEAF for n in range(20)]
    assert used(queue) <= before - 20 * LEAF * 256
    assert queue.statistics().ready == 20 * LEAF + 5
    assert drained(queue) == [*range(20 * LEAF + 5)]
    assert queue.statistics().message_count == 0
    assert stored.connection.doctor() == []


def test_a_message_comes_back_as_it_was(stored: Stored) -> None:
    """With its properties, its headers, and its key."""
    queue = stored.connection.queue("q", durable=True)
    properties = shmbroker.BasicProperties(content_type="text/plain", message_id="a", headers={"n": 1, "s": "x"})
    queue.put(b"zero", properties=properties, key="k", timeout=0)
    put_numbers(queue, LEAF, first=1)
    before = next(iter(queue.browse()))
    assert leave(stored, queue) == 1
    message = queue.get_nowait()
    for one in (before, message):
        assert bytes(one) == b"zero"
        assert one.headers == {"n": 1, "s": "x"}
        assert (one.properties.content_type, one.properties.message_id, one.key) == ("text/plain", "a", "k")
    assert (message.delivery_count, message.redelivered, message.timestamp) == (1, False, before.timestamp)


def test_a_leaf_with_a_message_that_returned_stays(stored: Stored) -> None:
    """A bit leads to the message, which comes before those that follow. The leaf leaves when the message was taken."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, LEAF + 1)
    queue.get_nowait().nack(requeue=True)
    assert leave(stored, queue) == 0
    message = queue.get_nowait()
    assert (int(bytes(message)), message.delivery_count, message.redelivered) == (0, 2, True)
    message.ack()
    assert leave(stored, queue) == 1
    assert drained(queue) == [*range(1, LEAF + 1)]


def test_what_was_returned_is_marked_after_a_start(stored: Stored) -> None:
    """The store has the delivery count of a message that returned after its row was written."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 2 * LEAF)
    stored.keeper.turn()
    for _ in range(2):
        queue.get_nowait().nack(requeue=True)
    stored.keeper.turn()
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    assert absent(queue) == [0, LEAF]
    first, second = queue.get_nowait(), queue.get_nowait()
    assert [(int(bytes(one)), one.delivery_count, one.redelivered) for one in (first, second)] == [
        (0, 3, True),
        (1, 1, False),
    ]


def test_ends_are_noted_beside_leaves_that_left(stored: Stored) -> None:
    """A leaf leaves again with what is left of it, and a restart has that."""
    queue = made_absent(stored)
    for number in range(10):
        message = queue.get_nowait()
        assert int(bytes(message)) == number
        message.ack()
    assert leave(stored, queue) == 2  # the first one has the head of the queue
    assert drained(queue) == [*range(10, 3 * LEAF + 5)]
    stored.keeper.turn()
    stored.restart()
    assert drained(stored.connection.queue("q", passive=True)) == []


def test_only_the_newest_leave_and_the_first_ones_stay(stored: Stored) -> None:
    """What lies right behind the head stays, and the newest leaf leaves first."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 6 * LEAF)
    assert leave(stored, queue, most=2) == 2
    assert absent(queue) == [4 * LEAF, 5 * LEAF] or absent(queue) == [3 * LEAF, 4 * LEAF]
    assert leave(stored, queue, ahead=2 * LEAF) == 6 - 2 - 2
    assert absent(queue)[0] == 2 * LEAF
    assert drained(queue) == [*range(6 * LEAF)]


def test_nothing_leaves_that_the_store_does_not_have(stored: Stored) -> None:
    """Messages that no turn has seen stay."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 4 * LEAF)
    assert paging.leave(queue._core, LANE_END, 0, 1000).leaves == 0  # noqa: SLF001
    assert leave(stored, queue) == 4


def test_a_leaf_with_a_message_that_somebody_holds_stays(stored: Stored) -> None:
    """It leaves when the message is acknowledged, and the store knows that."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 2 * LEAF)
    message = queue.get_nowait()
    assert leave(stored, queue) == 1
    message.ack()
    assert leave(stored, queue) == 1
    assert drained(queue) == [*range(1, 2 * LEAF)]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_length": 1000},
        {"ring_size": 1000},
        {"max_bytes": 1_000_000},
        {"last_value_key": "k"},
        {"message_groups": "sticky"},
        {"sort_key": "k"},
        {"non_destructive": True},
        {"message_ttl": 0.9},
        {"durable": False},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_stays_in_the_memory(stored: Stored, settings: dict[str, Any]) -> None:
    """Queues whose messages are found otherwise than one after the other, or expire soon, keep them."""
    queue = stored.connection.queue("q", **{"durable": True, **settings})
    put_numbers(queue, 3 * LEAF)
    assert leave(stored, queue) == 0


def test_each_priority_leaves_by_itself(stored: Stored) -> None:
    """The lanes of a queue are rings of their own."""
    queue = stored.connection.queue("q", durable=True, max_priority=1)
    for number in range(4 * LEAF):
        queue.put(b"%d" % number, priority=number % 2, timeout=0)
    assert leave(stored, queue) == 2
    assert leave(stored, queue, lane=1 << rows.LANE_SHIFT) == 2
    assert drained(queue) == [*range(1, 4 * LEAF, 2), *range(0, 4 * LEAF, 2)]


def test_a_message_of_a_commit_that_is_not_carried_out_keeps_nothing_from_the_store(stored: Stored) -> None:
    """Messages of transactions leave as well, once the store has them."""
    stored.connection.queue("q", durable=True)
    channel = stored.connection.channel()
    channel.tx_select()
    for number in range(2 * LEAF):
        channel.basic_publish("", "q", b"%d" % number)
    channel.tx_commit(timeout=0)
    queue = stored.connection.queue("q", passive=True)
    assert leave(stored, queue) == 2
    assert drained(queue) == [*range(2 * LEAF)]


# ---- who needs them ----


def test_a_browser_sees_them(stored: Stored) -> None:
    """So does a count, with and without a selector."""
    queue = made_absent(stored)
    assert numbers_of(queue) == [*range(3 * LEAF + 5)]
    leave(stored, queue)
    assert queue.count() == 3 * LEAF + 5
    leave(stored, queue)
    assert queue.count(selector="JMSPriority >= 0") == 3 * LEAF + 5


def test_a_consumer_gets_them(stored: Stored) -> None:
    """Its IO thread lets them come back."""
    queue = made_absent(stored)
    with queue.consume(prefetch=10) as consumer:
        for number in range(3 * LEAF + 5):
            message = consumer.get(timeout=30)
            assert int(bytes(message)) == number
            message.ack()


def test_a_consumer_with_a_selector_finds_the_one_it_wants(stored: Stored) -> None:
    """However many messages before it nobody wants."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 30 * LEAF)
    queue.put(b"wanted", headers={"color": "red"}, timeout=0)
    put_numbers(queue, LEAF)
    leave(stored, queue)
    with queue.consume(selector="color = 'red'") as consumer:
        message = consumer.get(timeout=30)
        assert bytes(message) == b"wanted"
        message.ack()
    assert queue.statistics().ready == 31 * LEAF


def test_a_channel_gets_them(stored: Stored) -> None:
    """By basic_get, and as deliveries."""
    made_absent(stored)
    channel = stored.connection.channel()
    first = channel.basic_get("q", auto_ack=True)
    assert first is not None
    assert bytes(first.body) == b"0"
    arrived: standard_queue.Queue[int] = standard_queue.Queue()
    channel.basic_consume("q", lambda *given: arrived.put(int(bytes(given[3]))), auto_ack=True)
    assert [arrived.get(timeout=30) for _ in range(3 * LEAF + 4)] == [*range(1, 3 * LEAF + 5)]


def test_a_waiting_get_gets_what_is_put_behind_them(stored: Stored) -> None:
    """The order is that of the puts, whatever is in the memory."""
    queue = made_absent(stored, count=2 * LEAF)
    put_numbers(queue, 3, first=2 * LEAF)
    assert drained(queue) == [*range(2 * LEAF + 3)]


def test_they_move_to_another_queue(stored: Stored) -> None:
    """All of them, or those that a selector selects."""
    queue = made_absent(stored)
    target = stored.connection.queue("target", durable=True)
    assert queue.move(target) == 3 * LEAF + 5
    assert drained(target) == [*range(3 * LEAF + 5)]


def test_a_purge_removes_them(stored: Stored) -> None:
    """It counts them, and the store loses them."""
    queue = made_absent(stored)
    assert queue.purge() == 3 * LEAF + 5
    assert queue.statistics().message_count == 0
    stored.keeper.turn()
    stored.restart()
    assert drained(stored.connection.queue("q", passive=True)) == []


def test_a_deletion_ends_them(stored: Stored) -> None:
    """It counts them. A deletion of an empty queue is refused while there are some."""
    queue = made_absent(stored)
    with pytest.raises(exceptions.PreconditionFailed, match="not empty"):
        queue.delete(if_empty=True)
    assert queue.delete() == 3 * LEAF + 5
    assert stored.connection.doctor() == []
    stored.keeper.turn()
    stored.restart()
    with pytest.raises(exceptions.NotFound):
        stored.connection.queue("q", passive=True)


# ---- a start ----


def test_a_start_makes_links(stored: Stored) -> None:
    """Whole leaves stay in the store until they are needed; what is delayed does not."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, LEAF)
    queue.put(b"64", ttl=1000.0, timeout=0)
    put_numbers(queue, LEAF - 1, first=LEAF + 1)
    queue.put(b"later", delay=1000.0, timeout=0)
    put_numbers(queue, 2 * LEAF + 1, first=2 * LEAF)
    for _ in range(3):
        queue.get_nowait().ack()
    stored.keeper.turn()
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    assert absent(queue) == [0, LEAF, 3 * LEAF]
    facts = queue.statistics()
    size = sum(len(b"%d" % number) for number in range(3, 4 * LEAF + 1)) + len(b"later")
    assert (facts.ready, facts.scheduled, facts.bytes) == (4 * LEAF - 2, 1, size)
    assert stored.connection.doctor() == []
    assert drained(queue) == [*range(3, 4 * LEAF + 1)]
    assert stored.connection.doctor() == []


def test_a_store_may_be_larger_than_the_memory(stored: Stored) -> None:
    """A start needs memory for links only."""
    stored._memory = "32M"  # noqa: SLF001
    queue = stored.connection.queue("q", durable=True)
    body = bytes(20_000)
    for number in range(20):
        queue.put_many([b"%06d" % (number * LEAF + at) + body for at in range(LEAF)], timeout=0)
        leave(stored, queue)
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    for number in range(20 * LEAF):
        message = queue.get_nowait()
        assert int(bytes(message)[:6]) == number
        message.ack()
        if number % LEAF == 0:
            stored.keeper.turn()
            stored.keeper.make_room()


# ---- what people see ----


def test_the_statistics_of_a_broker_tell_of_its_store(stored: Stored) -> None:
    """The folder, the storekeeper, its turns, and what has left the memory and come back."""
    queue = made_absent(stored, count=4 * LEAF)
    before = stored.broker.statistics().store
    assert before is not None
    assert (before.data_dir, before.sync, before.storekeeper_pid) == (str(stored.folder), "always", os.getpid())
    assert (before.left, before.came_back) == (4, 0)
    assert before.sync_seconds > 0
    assert before.messages_per_turn == 4 * LEAF
    queue.get_nowait().ack()
    stored.keeper.turn()
    now = stored.broker.statistics().store
    assert now is not None
    assert (now.left, now.came_back, now.turns) == (4, 4, before.turns + 1)


# ---- errors ----


def test_a_damaged_row_is_an_error_of_the_get(stored: Stored) -> None:
    """It says what is damaged. The messages behind it are there."""
    queue = made_absent(stored)
    with stored.database.environment.begin(write=True) as transaction:
        heads = stored.database.names[b"heads"]
        key = next(iter(transaction.cursor(db=heads)))[0]
        transaction.put(key, b"x" * 200, db=heads)
    with pytest.raises(exceptions.StoreError, match="damaged: the heads of queue"):
        queue.get_nowait()
    assert queue.statistics().ready == 3 * LEAF + 5


def test_a_row_that_is_missing_is_an_error(stored: Stored) -> None:
    """A leaf without a row does not come back as an empty one."""
    queue = made_absent(stored)
    with stored.database.environment.begin(write=True) as transaction:
        heads = stored.database.names[b"heads"]
        transaction.delete(next(iter(transaction.cursor(db=heads)))[0], db=heads)
    with pytest.raises(exceptions.CorruptSegment):
        queue.get_nowait()


def test_a_leaf_that_came_back_meanwhile_does_not_come_twice(stored: Stored) -> None:
    """What was read for it before is dropped."""
    queue = made_absent(stored)
    core = queue._core  # noqa: SLF001
    leaf = paging.absent(core, 0, EVERYTHING)
    assert leaf is not None
    with stored.database.read() as transaction:
        numbers = [number for number in Reader(stored.database, transaction).queues() if number]
        found = [paging.Stored(*row) for row in Reader(stored.database, transaction).leaf(numbers[0], 0)]
        assert paging.come_back(core, leaf, found) == native.OK
        before = used(queue)
        assert paging.come_back(core, leaf, found) == native.DONE
        assert used(queue) == before
    assert drained(queue) == [*range(3 * LEAF + 5)]


def test_a_leaf_that_left_again_is_not_made_from_what_was_read_before(stored: Stored) -> None:
    """Messages that ended meanwhile do not come back (I129)."""
    queue = made_absent(stored)
    core = queue._core  # noqa: SLF001
    leaf = paging.absent(core, 0, EVERYTHING)
    assert leaf is not None
    with stored.database.read() as transaction:
        found = [
            paging.Stored(bytes(heads), memoryview(bytes(bodies)), ended)
            for heads, bodies, ended in Reader(stored.database, transaction).leaf(1, 0)
        ]
    queue.get_nowait().ack()
    assert leave(stored, queue) >= 1
    assert paging.come_back(core, leaf, found) == native.DONE
    assert drained(queue) == [*range(1, 3 * LEAF + 5)]


def test_a_queue_that_the_store_does_not_have_is_named(stored: Stored) -> None:
    """A loader says which messages it misses."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 2 * LEAF)
    assert leave(stored, queue) == 2
    with stored.database.environment.begin(write=True) as transaction:
        queues = stored.database.names[b"queues"]
        transaction.delete(next(iter(transaction.cursor(db=queues)))[0], db=queues)
    loader = loading.Loader(lambda: stored.database)
    with pytest.raises(exceptions.StoreError, match="has no queue 'q', whose messages are not in the memory"):
        loader.come_back(queue._core, 0, 1, 1)  # noqa: SLF001
