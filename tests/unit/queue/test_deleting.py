# SPDX-License-Identifier: Apache-2.0
"""Queues that are deleted: conditions, who waits there, what is held, and memory."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.brokers import running
from scenario_support.observing import await_counts, listing, put_each, take, text
from scenario_support.waiting import becomes, eventually, until_clock

from shmbroker.exceptions import NotFound, OutOfMemory, PreconditionFailed

if TYPE_CHECKING:
    import shmbroker


def test_delete_says_how_many_went(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """delete() returns the number of messages that went; the queue is no more."""
    queue = connection.queue("q")
    put_each(queue, "ABC")
    assert queue.delete() == 3
    assert broker.statistics().queue_count == 0
    with pytest.raises(NotFound):
        connection.queue("q", passive=True)
    for use in (
        lambda: queue.put(b"D"),
        lambda: queue.put_many([b"D"]),
        lambda: queue.get(timeout=0),
        queue.consume,
    ):
        with pytest.raises(NotFound):
            use()
    again = connection.queue("q")
    assert len(again) == 0
    put_each(again, "E")
    assert take(again, 1) == ["E"]


def test_delete_with_conditions(connection: shmbroker.Connection) -> None:
    """if_empty and if_unused refuse with 406, and the queue is as it was."""
    queue = connection.queue("q")
    put_each(queue, "A")
    with pytest.raises(PreconditionFailed) as refusal:
        queue.delete(if_empty=True)
    assert refusal.value.code == 406
    with queue.consume(prefetch=1) as consumer:
        assert text(consumer.get(timeout=60)) == "A"
        with pytest.raises(PreconditionFailed):
            queue.delete(if_unused=True)
        put_each(queue, "B")  # what is delivered does not count
        with pytest.raises(PreconditionFailed):
            queue.delete(if_empty=True)
    await_counts(queue, consumers=0)
    assert listing(queue) == ["A", "B"]
    queue.purge()
    assert queue.delete(if_empty=True, if_unused=True) == 0


def test_delete_ends_the_waiting(connection: shmbroker.Connection) -> None:
    """Who waits in get at a queue that is deleted gets NotFound."""
    queue = connection.queue("q")
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            queue.get()
        except BaseException as error:  # noqa: BLE001 (it is what we look at)
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    await_counts(queue, interested=1)
    connection.queue("q").delete()
    thread.join()
    assert [type(error) for error in errors] == [NotFound]


def test_queues_that_come_and_go_leave_no_memory(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Queues declared and deleted by the hundred, with messages, take nothing."""

    def come_and_go(times: int) -> None:
        for number in range(times):
            queue = connection.queue(f"q{number}", ring_size=5)
            put_each(queue, "ABCDEFGH")
            queue.get().ack()
            queue.delete()

    come_and_go(100)
    before = broker.statistics().memory_used
    for _ in range(5):
        come_and_go(100)
    eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)
    assert broker.statistics().queue_count == 0


def test_delete_while_a_message_is_held(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A held message of a deleted queue stays readable, and is settled without effect.

    Meanwhile nothing is wrong; afterwards nothing is left of it.
    """
    before = broker.statistics().memory_used
    queue = connection.queue("q")
    queue.put(b"x" * 2**20)
    held = queue.get()
    queue.delete()
    becomes(lambda: broker.statistics().queue_count, 0)
    assert bytes(held) == b"x" * 2**20
    with broker.connect() as observer:
        until_clock(time.monotonic() + 1.0)
        assert observer.doctor() == []
        held.ack()
        eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)
        assert observer.doctor() == []


def test_any_number_of_queues_can_be_deleted_in_a_full_broker(
    broker_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion may need memory: it has that of those that were deleted before, also where no housekeeper runs.

    It has it at once, though other calls look for it a few times a second only.
    """
    monkeypatch.setattr("shmbroker._core.growing._LET_GO_SECONDS", 1e9)
    with running(broker_name, "64M") as broker, broker.connect() as connection:
        queues = [connection.queue(f"q{number}") for number in range(20_000)]
        hoard = connection.queue("hoard")
        for size in (900_000, 100_000, 4000, 100, 0):
            with contextlib.suppress(OutOfMemory):
                while True:
                    hoard.put(bytes(size), timeout=0)
        broker.stop()
        for queue in queues:
            queue.delete()
        assert broker.statistics().queue_count == 1
