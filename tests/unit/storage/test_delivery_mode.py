# SPDX-License-Identifier: Apache-2.0
"""Messages with `delivery_mode=1` in stored queues: they have their place in the order, and end with the memory."""

from __future__ import annotations

import asyncio
import contextlib
import io
import queue as standard_queue
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
from shmbroker import aio, transfer
from shmbroker._core import paging, storing
from shmbroker._storekeeper.examination import checked
from shmbroker._storekeeper.transients import Transients
from shmbroker.storage import rows
from tests.unit.storage.conftest import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shmbroker._core.queue import CoreQueue
    from shmbroker._core.storing import Gathered
    from shmbroker._storekeeper.storekeeper import Storekeeper

LEAF = rows.LEAF
BODY = bytes(2000)
TRANSIENT = shmbroker.BasicProperties(delivery_mode=1)
LASTING = shmbroker.BasicProperties(delivery_mode=2)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Stored]:
    """A broker whose memory has room for about 12 MB of messages."""
    with contextlib.closing(Stored(tmp_path, "32M")) as made:
        yield made


def rows_of(stored: Stored, names: rows.RowNames = rows.DURABLE) -> int:
    """How many rows the store has, of the messages that survive or of the others."""
    stored.keeper.settle()
    with stored.database.read() as transaction:
        return int(transaction.stat(stored.database.names[names.heads])["entries"])


def bodies(queue: shmbroker.Queue) -> list[bytes]:
    """The bodies that are ready."""
    return [bytes(message) for message in queue.browse()]


def number_of(message: shmbroker.Message) -> int:
    """The number that :func:`fill` gave a message."""
    return int(bytes(message)[:8])


def is_lasting(number: int) -> bool:
    """Whether :func:`fill` put a message that survives: some leaves have both kinds, others one of them."""
    return number // LEAF % 4 != 1 and number % 3 != 1


def try_to_put(stored: Stored, queue: shmbroker.Queue, number: int) -> None:
    """Puts a message; lets the storekeeper make room if there is none."""
    properties = LASTING if is_lasting(number) else TRANSIENT
    while True:
        try:
            queue.put(b"%08d" % number + BODY, timeout=0, properties=properties)
        except standard_queue.Full:
            stored.keeper.turn()
            stored.keeper.make_room()
        else:
            return


def fill(stored: Stored, queue: shmbroker.Queue, leaves: int, first: int = 0) -> None:
    """Puts so many leaves of messages, with a turn after each."""
    for number in range(first * LEAF, (first + leaves) * LEAF):
        try_to_put(stored, queue, number)
        if number % LEAF == LEAF - 1:
            stored.keeper.turn()
            stored.keeper.make_room()


def drained(stored: Stored, queue: shmbroker.Queue) -> list[int]:
    """Gets and acknowledges all messages, with a turn after each leaf; their numbers."""
    found = []
    while True:
        try:
            message = queue.get_nowait()
        except standard_queue.Empty:
            stored.keeper.turn()
            return found
        found.append(number_of(message))
        message.ack()
        if len(found) % LEAF == 0:
            stored.keeper.turn()
            stored.keeper.make_room()


def absent(queue: shmbroker.Queue) -> list[int]:
    """Which leaves of the queue are not in the memory, by number."""
    found, at = [], 0
    while (one := paging.absent(queue._core, at, 1 << 52)) is not None:  # noqa: SLF001
        found.append(one.sequence // LEAF)
        at = rows.leaf_of(one.sequence) + LEAF
    return found


# ---- what is lost, and what is not ----


def test_a_transient_message_ends_with_the_memory(stored: Stored) -> None:
    """One with the mode 2, and one without a mode, survives, with its sequence number."""
    queue = stored.connection.queue("q", durable=True)
    queue.put(b"1", timeout=0)
    queue.put(b"2", timeout=0, properties=TRANSIENT)
    queue.put(b"3", timeout=0, properties=LASTING)
    queue.put(b"4", timeout=0, properties=TRANSIENT)
    stored.keeper.turn()
    assert bodies(queue) == [b"1", b"2", b"3", b"4"]
    before = [message.sequence for message in queue.browse()]
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    assert [(bytes(one), one.sequence) for one in queue.browse()] == [(b"1", before[0]), (b"3", before[2])]
    assert [one.properties.delivery_mode for one in queue.browse()] == [None, 2]
    statistics = queue.statistics()
    assert (statistics.message_count, statistics.ready, statistics.bytes, statistics.added) == (2, 2, 2, 2)
    queue.put(b"5", timeout=0)
    assert [message.sequence for message in queue.browse()][-1] == before[3] + 1


PUTS: dict[str, Any] = {
    "put": lambda queue: queue.put(b"abc", properties=TRANSIENT),
    "put_nowait": lambda queue: queue.put_nowait(b"abc", properties=TRANSIENT),
    "put with other keywords": lambda queue: queue.put(b"abc", properties=TRANSIENT, priority=1, headers={"a": [1]}),
    "put with a life": lambda queue: queue.put(b"abc", properties=TRANSIENT, ttl=1000),
    "put of a bytearray": lambda queue: queue.put(bytearray(b"abc"), properties=TRANSIENT),
    "put_many": lambda queue: queue.put_many([b"abc"], properties=TRANSIENT),
    "put_many of bytearrays": lambda queue: queue.put_many([bytearray(b"abc")], properties=TRANSIENT),
}


@pytest.mark.parametrize("call", PUTS)
def test_no_put_of_a_transient_message_waits(stored: Stored, call: str) -> None:
    """No storekeeper takes a turn here, and the call returns."""
    queue = stored.connection.queue("q", durable=True)
    PUTS[call](queue)
    assert bodies(queue) == [b"abc"]
    stored.keeper.turn()
    stored.restart()
    assert len(stored.connection.queue("q", passive=True)) == 0


@pytest.mark.parametrize("options", [{}, {"headers": {"a": 1}}], ids=["compiled", "in Python"])
@pytest.mark.parametrize("kept", [False, True], ids=["alone", "a view is kept"])
def test_no_reservation_of_a_transient_message_waits(stored: Stored, options: Any, kept: bool) -> None:  # noqa: ANN401, FBT001
    """Nor one that the compiled code hands over, since a view of its memory is left."""
    queue = stored.connection.queue("q", durable=True)
    views = []
    with queue.reserve(3, properties=TRANSIENT, **options) as memory:
        memory[:] = b"abc"
        if kept:
            views.append(memory[:1])
    assert bodies(queue) == [b"abc"]


def test_a_message_that_lies_in_parts(stored: Stored) -> None:
    """The mode is found there, too."""
    queue = stored.connection.queue("q", durable=True)
    headers = {"text": "x" * 40000}
    properties = shmbroker.BasicProperties(headers=headers, delivery_mode=1, content_type="a/b", content_encoding="c")
    queue.put(bytes(5 << 20), properties=properties)
    queue.put(b"1", timeout=0)
    assert stored.keeper.turn() == 1
    stored.restart()
    assert bodies(stored.connection.queue("q", passive=True)) == [b"1"]


def test_a_message_keeps_its_mode(stored: Stored) -> None:
    """When it is moved or copied into another queue."""
    queue = stored.connection.queue("q", durable=True)
    other = stored.connection.queue("other", durable=True)
    for body in (b"move", b"copy"):
        queue.put(body, timeout=0, properties=TRANSIENT)
        queue.put(body, timeout=0, properties=LASTING)
    queue.move("other", limit=2)
    queue.copy("other")
    stored.keeper.turn()
    assert bodies(other) == [b"move", b"move", b"copy", b"copy"]
    stored.restart()
    other = stored.connection.queue("other", passive=True)
    assert bodies(other) == [b"move", b"copy"]


def test_counts_of_a_priority_queue(stored: Stored) -> None:
    """Each lane of it has both kinds."""
    queue = stored.connection.queue("q", durable=True, max_priority=3)
    for number in range(12):
        properties = shmbroker.BasicProperties(delivery_mode=1 + number % 2, priority=number % 3)
        queue.put(b"%d" % number, timeout=0, properties=properties)
    stored.keeper.turn()
    before = [body for body in bodies(queue) if int(body) % 2 == 1]
    stored.restart()
    assert bodies(stored.connection.queue("q", passive=True)) == before


# ---- channels and commits ----


def test_a_confirm_of_a_transient_message_does_not_wait(stored: Stored) -> None:
    """The confirms of messages around it come with the store; numbers are given in their order."""
    channel = stored.connection.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    assert channel.basic_publish("", "q", b"1", TRANSIENT) == 1
    assert channel.wait_for_confirms(0)
    assert channel.publish_confirmed("", "q", b"2", TRANSIENT).result(0) == 2
    lasting = channel.publish_confirmed("", "q", b"3", LASTING)
    with_header = shmbroker.BasicProperties(delivery_mode=1, headers={"a": [1]})
    assert channel.basic_publish("", "q", b"4", with_header) == 4
    assert channel.publish_confirmed("", "q", b"5", with_header).result(0) == 5
    assert not lasting.done()
    with pytest.raises(shmbroker.exceptions.Timeout, match="1 messages were not confirmed in time"):
        channel.wait_for_confirms(0.02)
    stored.keeper.turn()
    assert channel.wait_for_confirms(60)
    assert lasting.result(0) == 3


def test_a_message_for_several_queues(stored: Stored) -> None:
    """One publish to stored queues and to another one: the mode is that of the message."""
    channel = stored.connection.channel()
    for name, durable in (("a", True), ("b", True), ("c", False)):
        channel.queue_declare(name, durable=durable)
        channel.queue_bind(name, "amq.fanout")
    channel.confirm_delivery()
    channel.basic_publish("amq.fanout", "", b"1", TRANSIENT)
    assert channel.wait_for_confirms(0)
    channel.basic_publish("amq.fanout", "", b"2", LASTING)
    stored.keeper.turn()
    assert [bodies(stored.connection.queue(name, passive=True)) for name in "abc"] == [[b"1", b"2"]] * 3
    stored.restart()
    assert [bodies(stored.connection.queue(name, passive=True)) for name in "ab"] == [[b"2"]] * 2


def test_a_commit_of_transient_messages_does_not_wait(stored: Stored) -> None:
    """One that has others, too, or an acknowledgement, does."""
    channel = stored.connection.channel()
    channel.queue_declare("q", durable=True)
    channel.tx_select()
    channel.basic_publish("", "q", b"1", TRANSIENT)
    channel.basic_publish("", "q", b"2", TRANSIENT)
    channel.tx_commit()
    channel.basic_publish("", "q", b"3", TRANSIENT)
    channel.basic_publish("", "q", b"4")
    with pytest.raises(shmbroker.exceptions.Timeout, match="has not synced"):
        channel.tx_commit(timeout=0.02)
    found = channel.basic_get("q")
    assert found is not None
    channel.basic_ack(found.delivery_tag)
    channel.basic_publish("", "q", b"5", TRANSIENT)
    with pytest.raises(shmbroker.exceptions.Timeout, match="has not synced"):
        channel.tx_commit(timeout=0.02)
    stored.keeper.turn()
    assert bodies(stored.connection.queue("q", passive=True)) == [b"2", b"3", b"4", b"5"]
    stored.restart()
    assert bodies(stored.connection.queue("q", passive=True)) == [b"4"]


def test_tasks_do_not_wait(stored: Stored) -> None:
    """As calls of threads do not: a put, a batch, a confirm, a commit."""

    async def main() -> None:
        async with await aio.connect(stored.name) as connection:
            queue = await connection.queue("q", durable=True)
            await queue.put(b"1", properties=TRANSIENT)
            assert await queue.put_many([b"2", b"3"], properties=TRANSIENT) == 2
            channel = await connection.channel()
            assert await channel.publish_confirmed("", "q", b"4", TRANSIENT) == 1
            commits = await connection.channel()
            await commits.tx_select()
            await commits.basic_publish("", "q", b"5", TRANSIENT)
            await commits.tx_commit()

    asyncio.run(main())
    assert bodies(stored.connection.queue("q", passive=True)) == [b"1", b"2", b"3", b"4", b"5"]


# ---- what the storekeeper writes ----


def test_nothing_is_written_while_the_memory_suffices(small: Stored) -> None:
    """Not for a transient message, also if it returns to its place, or another storekeeper follows."""
    queue = small.connection.queue("q", durable=True)
    for number in range(5):
        queue.put(b"%d" % number, timeout=0, properties=TRANSIENT)
    assert small.keeper.turn() == 0
    assert small.keeper.passed == 5
    message = queue.get_nowait()
    message.nack()
    small.keeper.turn()
    small.take_over()
    assert small.keeper.turn() == 0
    assert (rows_of(small), rows_of(small, rows.TRANSIENT)) == (0, 0)
    assert small.keeper.turn() == 0
    assert small.keeper.passed == 0


def test_a_transient_message_is_no_end(stored: Stored) -> None:
    """A turn that left one out takes no second look, and the next turn has nothing to do."""
    queue = stored.connection.queue("q", durable=True, duplicate_ids=10)
    queue.put(b"1", timeout=0, properties=TRANSIENT, duplicate_id="a")
    stored.keeper.turn()
    followed = next(iter(stored.keeper._following.values()))  # noqa: SLF001
    assert not followed.saw_ends
    assert not followed.needs_turn
    queue.put(b"2", timeout=0, duplicate_id="a")
    assert bodies(queue) == [b"1"]


def test_they_leave_the_memory_and_come_back(small: Stored) -> None:
    """As others do, in one order with them; they leave nothing in the store when they end."""
    queue = small.connection.queue("q", durable=True)
    fill(small, queue, 150)
    assert len(absent(queue)) > 50
    assert rows_of(small, rows.TRANSIENT) > 50
    assert drained(small, queue) == [*range(150 * LEAF)]
    assert (rows_of(small), rows_of(small, rows.TRANSIENT)) == (0, 0)


def test_what_has_left_does_not_come_back_after_a_restart(small: Stored) -> None:
    """A start drops what the store has of them; what survives is in order, and may leave again with new ones."""
    queue = small.connection.queue("q", durable=True)
    fill(small, queue, 150)
    before = queue.statistics()
    small.restart()
    assert rows_of(small, rows.TRANSIENT) == 0
    queue = small.connection.queue("q", passive=True)
    lasting = [number for number in range(150 * LEAF) if is_lasting(number)]
    assert len(queue) == len(lasting)
    assert queue.statistics().bytes == len(lasting) * (len(BODY) + 8) < before.bytes
    fill(small, queue, 80, first=150)
    assert drained(small, queue) == [*lasting, *range(150 * LEAF, 230 * LEAF)]
    small.restart()
    assert len(small.connection.queue("q", passive=True)) == 0


@pytest.mark.parametrize("first", [True, False], ids=["before any was written", "after some were written"])
def test_another_storekeeper_follows(small: Stored, first: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """It does not know which of them were written: it writes those that are in the memory again, each once."""
    queue = small.connection.queue("q", durable=True)
    if first:
        fill(small, queue, 3)
    else:
        fill(small, queue, 100)
    small.take_over()
    fill(small, queue, 60, first=3 if first else 100)
    count = (63 if first else 160) * LEAF
    small.take_over()
    fill(small, queue, 40, first=count // LEAF)
    assert len(absent(queue)) > 3
    assert drained(small, queue) == [*range(count + 40 * LEAF)]
    assert (rows_of(small), rows_of(small, rows.TRANSIENT)) == (0, 0)


def test_a_turn_that_fails_loses_none(small: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one writes them."""
    queue = small.connection.queue("q", durable=True)
    fill(small, queue, 40)
    small.keeper._room._used = 0.7  # noqa: SLF001 - as after a look
    with monkeypatch.context() as patched:
        patched.setattr(small.keeper._core, "turn_end", lambda _: 1 / 0)  # noqa: SLF001
        with pytest.raises(ZeroDivisionError):
            small.keeper.turn()
    fill(small, queue, 100, first=40)
    assert drained(small, queue) == [*range(140 * LEAF)]


def test_a_state_that_changes_is_kept(small: Stored) -> None:
    """A delivery count comes back with a message that has left, whether it was written before it changed or not."""
    queue = small.connection.queue("q", durable=True)
    for number in range(2 * LEAF):
        queue.put(b"%08d" % number, timeout=0, properties=TRANSIENT)
    small.keeper.turn()

    def return_first() -> None:
        queue.get_nowait().nack()
        small.keeper.turn()

    return_first()
    small.keeper._room._used = 0.5  # noqa: SLF001 - as after a look
    small.keeper.turn()
    assert rows_of(small, rows.TRANSIENT) == 2
    return_first()
    message = queue.get_nowait()
    assert message.delivery_count == 3
    message.nack()
    small.keeper.turn()
    small.keeper.settle()
    with small.database.read() as transaction:
        assert transaction.stat(small.database.names[rows.TRANSIENT.returned])["entries"] == 1


def test_a_queue_that_keeps_its_messages_writes_none(small: Stored) -> None:
    """Its leaves do not leave the memory, so the disk has no work."""
    queue = small.connection.queue("q", durable=True, max_length=10000, overflow="drop-head")
    other = small.connection.queue("other")
    queue.put(b"1", timeout=0, properties=TRANSIENT)
    other.put_many([BODY] * 4500)
    for _ in range(3):
        small.keeper.turn()
        assert not small.keeper.make_room()
    assert not small.keeper._room.is_ample  # noqa: SLF001
    assert rows_of(small, rows.TRANSIENT) == 0


def test_another_storekeeper_lets_none_leave_that_it_has_not_written(small: Stored) -> None:
    """It does not know what the one before has left out."""
    queue = small.connection.queue("q", durable=True)
    for number in range(4 * LEAF):
        queue.put(b"%08d" % number, timeout=0, properties=TRANSIENT if number % 2 else LASTING)
    small.keeper.turn()
    small.take_over()
    small.keeper.turn()
    small.keeper.settle()
    followed = next(iter(small.keeper._following.values()))  # noqa: SLF001
    (lane,) = small.keeper._core.lanes(queue._core)  # noqa: SLF001
    assert followed.transients.behind(lane) == 0
    small.keeper._room._used = 0.5  # noqa: SLF001 - as after a look
    small.keeper.turn()
    small.keeper.settle()
    assert followed.transients.behind(lane) == 4 * LEAF
    assert paging.leave(queue._core, followed.transients.behind(lane), 0, 9).leaves == 4  # noqa: SLF001
    assert [number_of(message) for message in queue.browse()] == [*range(4 * LEAF)]


class Staging:
    """Lets a storekeeper see one message as one of a commit that is not carried out, as long as it is `staged`."""

    def __init__(self, keeper: Storekeeper, sequence: int) -> None:
        self._gather = keeper._core.gather  # noqa: SLF001
        self.staged, self._sequence = True, sequence
        keeper._core.gather = self  # type: ignore[assignment]  # noqa: SLF001

    def __call__(self, queue: CoreQueue, sequence: int, end: int, which: int = storing.DURABLE) -> Gathered:
        """As the core's storekeeper does."""
        if not self.staged or not sequence <= self._sequence < end:
            return self._gather(queue, sequence, end, which)
        if sequence < self._sequence:
            return self._gather(queue, sequence, self._sequence, which)
        row = self._gather(queue, sequence, sequence, which)
        return row._replace(staged=(sequence,), behind=sequence + 1)


@pytest.mark.parametrize("taken_over", [False, True], ids=["the same storekeeper", "another one"])
def test_one_of_a_commit_is_written_when_it_is_there(small: Stored, taken_over: bool) -> None:  # noqa: FBT001
    """Its neighbours were written before: the leaf is written anew, each of its messages once."""
    queue = small.connection.queue("q", durable=True)
    if taken_over:
        small.take_over()
    small.keeper.turn()
    small.keeper._room._used = 0.5  # noqa: SLF001 - as after a look
    staging = Staging(small.keeper, 5)
    for number in range(LEAF + 1):
        queue.put(b"%08d" % number, timeout=0, properties=TRANSIENT)
    small.keeper.turn()
    if taken_over:  # one that begins does not know of the commit, until the end of that leads to the message
        next(iter(small.keeper._following.values()))._staged.clear()  # noqa: SLF001
    assert rows_of(small, rows.TRANSIENT) == 3
    staging.staged = False
    if taken_over:
        held = [queue.get_nowait() for _ in range(6)]
        held[5].nack()
        for message in held[:5]:
            message.nack()
    small.keeper.turn()
    assert rows_of(small, rows.TRANSIENT) == 2
    if not taken_over:
        assert paging.leave(queue._core, LEAF, 0, 9).leaves == 1  # noqa: SLF001
    assert [number_of(message) for message in queue.browse()] == [*range(LEAF + 1)]


def test_a_turn_writes_some_of_them(small: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next turns write the others: durable messages wait for no turn of half the memory."""
    monkeypatch.setattr(Transients.write, "__defaults__", (2 * LEAF * len(BODY),))
    queue = small.connection.queue("q", durable=True)
    for _ in range(7):
        queue.put_many([BODY] * LEAF, properties=TRANSIENT)
    small.keeper.turn()
    small.keeper._room._used = 0.5  # noqa: SLF001 - as after a look
    for written in (2, 4, 6, 7, 7):
        small.keeper.turn()
        assert rows_of(small, rows.TRANSIENT) == written
        assert small.keeper.passed == (2 * LEAF if written < 7 else small.keeper.passed)
    assert small.keeper.passed == 0


def test_a_full_disk_gets_none(small: Stored) -> None:
    """The room that is left is for removals."""
    queue = small.connection.queue("q", durable=True)
    queue.put(b"1", properties=TRANSIENT)
    small.keeper._disk.is_full = True  # noqa: SLF001
    for used, written in ((0.8, 0), (0.8, 1)):
        small.keeper._room._used = used  # noqa: SLF001 - as after a look
        small.keeper.turn()  # at whose end it looks at the disk, which has room
        assert rows_of(small, rows.TRANSIENT) == written


def test_a_leaf_with_one_that_was_not_written_stays(small: Stored) -> None:
    """Also if the memory is short: the next turn writes it, and then the leaf leaves."""
    queue = small.connection.queue("q", durable=True)
    small.keeper._room._used = 0.5  # noqa: SLF001 - as after a look
    small.keeper.turn()
    small.keeper._room._used = 0.0  # noqa: SLF001
    for number in range(4 * LEAF):
        queue.put(b"%08d" % number, timeout=0, properties=TRANSIENT if number == LEAF + 3 else LASTING)
    small.keeper.turn()
    small.keeper.settle()
    followed = next(iter(small.keeper._following.values()))  # noqa: SLF001
    (lane,) = small.keeper._core.lanes(queue._core)  # noqa: SLF001
    assert followed.transients.behind(lane) == LEAF + 3
    assert paging.leave(queue._core, followed.transients.behind(lane), 0, 9).leaves == 1  # noqa: SLF001
    small.keeper._room._used = 0.8  # noqa: SLF001 - as after a look
    assert small.keeper._room.awaits_transients([followed])  # noqa: SLF001
    small.keeper.turn()
    small.keeper.settle()
    assert not small.keeper._room.awaits_transients([followed])  # noqa: SLF001
    assert followed.transients.behind(lane) == 4 * LEAF
    assert paging.leave(queue._core, followed.transients.behind(lane), 0, 9).leaves == 3  # noqa: SLF001
    assert [number_of(message) for message in queue.browse()] == [*range(4 * LEAF)]


def test_a_deleted_queue_leaves_nothing(small: Stored) -> None:
    """Its transient messages are on the disk, and in the memory."""
    queue = small.connection.queue("q", durable=True)
    fill(small, queue, 100)
    queue.delete()
    small.keeper.turn()
    assert (rows_of(small), rows_of(small, rows.TRANSIENT)) == (0, 0)


def test_a_purge_ends_them(small: Stored) -> None:
    """Also those that have left."""
    queue = small.connection.queue("q", durable=True)
    fill(small, queue, 100)
    assert queue.purge() == 100 * LEAF
    small.keeper.turn()
    assert (rows_of(small), rows_of(small, rows.TRANSIENT)) == (0, 0)


def test_an_examination_reads_them(small: Stored, tmp_path: Path) -> None:
    """It finds nothing wrong, and counts those that survive; a value that was changed is found."""
    queue = small.connection.queue("q", durable=True)
    fill(small, queue, 100)
    small.keeper.settle()
    assert checked(tmp_path)[1] == sum(map(is_lasting, range(100 * LEAF)))
    table = small.database.names[rows.TRANSIENT.heads]
    with small.database.environment.begin(write=True) as transaction, transaction.cursor(db=table) as cursor:
        assert cursor.first()
        cursor.put(cursor.key(), cursor.value()[:-1] + b"\0")
    with pytest.raises(shmbroker.exceptions.StoreError, match="damaged: the heads of queue 1 at "):
        checked(tmp_path)


def test_a_stored_queue_with_pages_of_its_own_tells_no_modes_apart(small: Stored) -> None:
    """A queue with `overflow="page"` ends with the memory as a whole: the mode of a message makes no difference."""
    queue = small.connection.queue("q", overflow="page")
    fill(small, queue, 150)
    assert rows_of(small, rows.TRANSIENT) == 0
    assert drained(small, queue) == [*range(150 * LEAF)]
    small.keeper.turn()
    assert rows_of(small) == 0


def test_exported_messages_keep_their_mode(stored: Stored) -> None:
    """And an import waits for none that is transient."""
    queue, other = (stored.connection.queue(name, durable=True) for name in ("q", "other"))
    queue.put(b"1", properties=TRANSIENT)
    file = io.BytesIO()
    transfer.write(file, transfer.messages_of(queue), "jsonl")
    file.seek(0)
    assert transfer.put(other, transfer.read(file, "jsonl")) == transfer.Imported(put=1, expired=0)
    queue.put(b"2", timeout=0, properties=LASTING)
    file = io.BytesIO()
    transfer.write(file, transfer.messages_of(queue), "jsonl")
    file.seek(0)
    with pytest.raises(shmbroker.exceptions.Timeout, match="has not synced"):
        transfer.put(other, transfer.read(file, "jsonl"), timeout=0.02)
    assert [one.properties.delivery_mode for one in other.browse()] == [1, 1, 2]
