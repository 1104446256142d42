# SPDX-License-Identifier: Apache-2.0
"""Queues with `overflow="page"`: not durable, and larger than the memory."""

from __future__ import annotations

import contextlib
import queue as standard_queue
from typing import TYPE_CHECKING

import pytest

import shmbroker
from shmbroker import exceptions
from shmbroker._core import paging
from shmbroker.storage import rows
from tests.unit.storage.conftest import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEAF = rows.LEAF
BODY = bytes(2000)
WATCHDOG = 60


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Stored]:
    """A broker whose memory has room for about 12 MB of messages."""
    with contextlib.closing(Stored(tmp_path, "32M")) as made:
        yield made


def stored_rows(stored: Stored) -> int:
    """How many rows the store has."""
    stored.keeper.settle()
    with stored.database.read() as transaction:
        return int(transaction.stat(stored.database.names[b"heads"])["entries"])


def fill(stored: Stored, queue: shmbroker.Queue, leaves: int) -> None:
    """Put so many leaves, with a turn after each."""
    for leaf in range(leaves):
        bodies = [b"%08d" % number + BODY for number in range(leaf * LEAF, (leaf + 1) * LEAF)]
        while bodies:
            with contextlib.suppress(standard_queue.Full):  # the storekeeper has to make room, in this thread
                bodies = bodies[queue.put_many(bodies, timeout=0) :]
            stored.keeper.turn()
            stored.keeper.make_room()


def test_nothing_is_written_while_the_memory_suffices(small: Stored) -> None:
    """The disk has no work."""
    queue = small.connection.queue("q", overflow="page")
    fill(small, queue, 10)
    assert stored_rows(small) == 0
    assert small.keeper._room.suffices()  # noqa: SLF001


@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
def test_a_queue_is_larger_than_the_memory(small: Stored, exclusive: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The messages come in their order, each once; also when another storekeeper follows meanwhile."""
    queue = small.connection.queue("q", overflow="page", exclusive=exclusive)
    fill(small, queue, 150)
    assert paging.absent(queue._core, 0, 150 * LEAF) is not None  # noqa: SLF001
    small.take_over()
    for number in range(150 * LEAF):
        message = queue.get(timeout=WATCHDOG)
        assert int(bytes(message)[:8]) == number
        message.ack()
        if number % LEAF == 0:
            small.keeper.turn()
            small.keeper.make_room()
    small.keeper.turn()
    assert stored_rows(small) == 0


def test_it_ends_with_the_memory(small: Stored) -> None:
    """After a restart there is no such queue, and the store has nothing of it; a durable one is as it was."""
    durable = small.connection.queue("durable", durable=True)
    durable.put(b"1", timeout=0)
    queue = small.connection.queue("q", overflow="page")
    with small.connection.channel() as channel:
        channel.queue_bind("q", "amq.direct", "key")
    fill(small, queue, 100)
    assert stored_rows(small) > 1
    small.restart()
    with pytest.raises(exceptions.NotFound):
        small.connection.queue("q", passive=True)
    assert stored_rows(small) == 1
    assert len(small.connection.queue("durable", passive=True)) == 1


def test_a_put_waits_for_no_disk(small: Stored) -> None:
    """No storekeeper takes a turn here, and `put` returns."""
    queue = small.connection.queue("q", overflow="page")
    queue.put(b"1")
    queue.put_many([b"2", b"3"])
    assert len(queue) == 3


def test_a_deleted_queue_leaves_nothing(small: Stored) -> None:
    """Its messages are on the disk, and in the memory."""
    queue = small.connection.queue("q", overflow="page")
    fill(small, queue, 100)
    assert stored_rows(small) > 0
    queue.delete()
    small.keeper.turn()
    assert stored_rows(small) == 0


def test_a_broker_without_a_store_refuses(broker_name: str) -> None:
    """There is no place where messages could go."""
    with shmbroker.Broker(broker_name, memory="32M") as broker, broker.connect() as connection:
        with pytest.raises(exceptions.PreconditionFailed, match=r"overflow='page' of queue 'q': .* has no store"):
            connection.queue("q", overflow="page")
        broker.stop(purge=True)


@pytest.mark.parametrize(
    "other",
    [{"max_length": 5}, {"max_bytes": 10}, {"ring_size": 3}, {"message_groups": "sticky"}, {"last_value_key": "k"},
     {"sort_key": "k"}, {"non_destructive": True}],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_what_stays_in_the_memory_is_refused(small: Stored, other: dict[str, object]) -> None:
    """Messages of such queues do not leave."""
    with pytest.raises(ValueError, match="messages of such a queue stay in the memory"):
        small.connection.queue("q", overflow="page", **other)


def test_it_is_chosen_once(small: Stored) -> None:
    """A queue that exists cannot begin to page, nor end it."""
    paged, plain = small.connection.queue("q", overflow="page"), small.connection.queue("r")
    with pytest.raises(ValueError, match="overflow='drop': overflow='page' of queue 'q' cannot be set or unset"):
        paged.configure(overflow="drop")
    with pytest.raises(ValueError, match="overflow='page' of queue 'r' cannot be set or unset"):
        plain.configure(overflow="page")
    paged.configure(overflow="page", message_ttl=5)
    plain.configure(overflow="drop")
    assert (paged.settings.overflow, paged.settings.message_ttl) == ("page", 5)
