# SPDX-License-Identifier: Apache-2.0
"""Transient messages in durable queues: a broker with its processes, whose memory a test loses."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from scenario_support.lasting import LEAF, Lasting, absent
from scenario_support.observing import assert_counts, await_counts, texts

from shmbroker import BasicProperties, stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import shmbroker

WATCHDOG = 60.0
TRANSIENT, LASTING = BasicProperties(delivery_mode=1), BasicProperties(delivery_mode=2)
BODY = bytes(2000)
COUNT = 400 * LEAF
"""So many messages of that size need three times the memory."""


@pytest.fixture
def lasting(broker_name: str, tmp_path: Path) -> Iterator[Lasting]:
    """Begin a broker with an empty store."""
    with contextlib.closing(Lasting(broker_name, tmp_path, memory="32M")) as made:
        yield made


def is_lasting(number: int) -> bool:
    """Whether a message of :func:`fill` survives: some leaves have both kinds."""
    return number % 25 == 0 and number // LEAF % 2 == 0


def fill(queue: shmbroker.Queue, first: int, last: int) -> None:
    """Puts messages, and waits for room."""
    for number in range(first, last):
        queue.put(b"%08d" % number + BODY, properties=LASTING if is_lasting(number) else TRANSIENT)


def taken(queue: shmbroker.Queue, count: int) -> list[int]:
    """Gets and acknowledges so many messages; their numbers."""
    found = []
    while len(found) < count:
        batch = queue.get_many(min(LEAF, count - len(found)), timeout=WATCHDOG)
        found += [int(body[:8]) for body in batch.bodies()]
        batch.ack()
    return found


def test_nobody_waits_while_the_storekeeper_is_stopped(lasting: Lasting) -> None:
    """Neither a put, nor a confirm, nor a commit. The loss of the machine ends the messages, and no other ones."""
    queue = lasting.connection.queue("q", durable=True)
    queue.put(b"A")
    with lasting.keeper_stopped():
        queue.put(b"B", properties=TRANSIENT)
        assert queue.put_many([b"C", b"D"], properties=TRANSIENT) == 2
        with lasting.connection.channel() as channel:
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"E", TRANSIENT)
            assert channel.wait_for_confirms(WATCHDOG)
        with lasting.connection.channel() as channel:
            channel.tx_select()
            channel.basic_publish("", "q", b"F", TRANSIENT)
            channel.tx_commit(timeout=WATCHDOG)
        assert texts(queue.browse()) == ["A", "B", "C", "D", "E", "F"]
    queue.put(b"G", properties=LASTING)
    lasting.restart()
    queue = lasting.queue()
    assert texts(queue.browse()) == ["A", "G"]
    assert_counts(queue, message_count=2, ready=2, scheduled=0, delivering=0)


def test_a_dead_message_keeps_its_mode(lasting: Lasting) -> None:
    """The copies that the housekeeper makes are as transient as the messages that were rejected."""
    dead = lasting.connection.queue("dead", durable=True)
    queue = lasting.connection.queue("q", durable=True, dead_letter_exchange="", dead_letter_routing_key="dead")
    queue.put(b"A", properties=TRANSIENT)
    queue.put(b"B", properties=LASTING)
    for message in (queue.get(timeout=WATCHDOG), queue.get(timeout=WATCHDOG)):
        message.reject()
    await_counts(dead, ready=2)
    queue.put(b"C")  # and so what came before is on the disk
    lasting.restart()
    assert texts(lasting.queue("dead").browse()) == ["B"]
    assert texts(lasting.queue().browse()) == ["C"]


def test_more_than_the_memory(lasting: Lasting) -> None:
    """A producer of transient messages waits for room only until leaves have left. All come in one order with others.

    The storekeeper is killed meanwhile: the next one goes on with what it finds.
    """
    queue = lasting.connection.queue("q", durable=True)
    fill(queue, 0, COUNT // 2)
    lasting.kill_keeper()
    fill(queue, COUNT // 2, COUNT)
    assert absent(queue) > COUNT // LEAF // 2
    lasting.kill_keeper()
    assert taken(queue, COUNT) == [*range(COUNT)]
    assert len(queue) == 0


def test_a_backup_and_a_compact_store(lasting: Lasting, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both have what survives, also if the store has transient messages that have left the memory."""
    queue = lasting.connection.queue("q", durable=True)
    fill(queue, 0, COUNT)
    queue.put(b"%08d" % COUNT)
    before = [*filter(is_lasting, range(COUNT)), COUNT]
    place = tmp_path_factory.mktemp("backup") / "made"
    assert stores.backup(place, broker=lasting.name).messages == len(before)
    lasting.lose()
    stores.compact(lasting.folder)
    lasting.begin()
    assert taken(lasting.queue(), len(before)) == before
    assert len(lasting.queue()) == 0
    again = tmp_path_factory.mktemp("again")
    stores.restore(place, again)
    with contextlib.closing(Lasting(f"{lasting.name}-again", again, memory="32M")) as restored:
        assert taken(restored.queue(), len(before)) == before


def test_the_loss_of_more_than_the_memory(lasting: Lasting) -> None:
    """What survives comes back in its order, and the queue takes more than the memory again."""
    queue = lasting.connection.queue("q", durable=True)
    fill(queue, 0, COUNT)
    queue.put(b"%08d" % COUNT)
    lasting.restart()
    queue = lasting.queue()
    before = [*filter(is_lasting, range(COUNT)), COUNT]
    assert_counts(queue, message_count=len(before), ready=len(before), scheduled=0, delivering=0)
    fill(queue, COUNT + LEAF, 2 * COUNT)
    assert taken(queue, len(before)) == before
    assert taken(queue, COUNT - LEAF) == [*range(COUNT + LEAF, 2 * COUNT)]
    queue.put(b"last")  # and so the acknowledgements are on the disk
    lasting.restart()
    assert texts(lasting.queue().browse()) == ["last"]
