# SPDX-License-Identifier: Apache-2.0
"""Messages whose record cannot be believed: the call that takes one says so, and it is gone, counted as dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.memory import Memory
from scenario_support.waiting import becomes

from shmbroker.exceptions import CorruptSegment

if TYPE_CHECKING:
    import shmbroker

Take = Callable[["shmbroker.Connection", "shmbroker.Queue", bool], Any]
LONG = 5000


def damage_names(message: Any) -> None:  # noqa: ANN401 (a pointer of cffi)
    """The key is longer than its slot."""
    message.key_length = 60_000


def damage_offset(message: Any) -> None:  # noqa: ANN401
    """The body begins where none does, so that nobody can read it in place."""
    message.body_offset += 1


def get(_: shmbroker.Connection, queue: shmbroker.Queue, auto_ack: bool) -> Any:  # noqa: ANN401, FBT001
    """The next message."""
    return queue.get(timeout=0, auto_ack=auto_ack)


def get_waiting(_: shmbroker.Connection, queue: shmbroker.Queue, auto_ack: bool) -> Any:  # noqa: ANN401, FBT001
    """The next message, by the call of those who wait."""
    got = queue._taker.wait(queue, auto_ack, 2**63)  # noqa: SLF001
    if isinstance(got, int):
        queue._core.get_failed(got)  # noqa: SLF001 (as `get` does it)
    return got


def get_many(_: shmbroker.Connection, queue: shmbroker.Queue, auto_ack: bool) -> Any:  # noqa: ANN401, FBT001
    """The first of some messages."""
    return queue.get_many(1, timeout=0, auto_ack=auto_ack)[0]


def basic_get(connection: shmbroker.Connection, queue: shmbroker.Queue, auto_ack: bool) -> Any:  # noqa: ANN401, FBT001
    """The next message, by a channel."""
    return connection.channel().basic_get(queue.name, auto_ack=auto_ack)


TAKES = [get, get_waiting, get_many, basic_get]
DAMAGES = [(damage_names, False), (damage_names, True), (damage_offset, True)]


@pytest.fixture
def unreadable(
    request: pytest.FixtureRequest, broker: shmbroker.Broker, queue: shmbroker.Queue
) -> tuple[shmbroker.Queue, bool]:
    """A queue whose second message was damaged, and whether the test acknowledges on the way."""
    damage, auto_ack = request.param
    for first in (b"1", b"2", b"3"):
        queue.put(first * LONG)
    memory = Memory(broker.name)
    damage(memory.slot("message", memory.body_slot(queue.name, 1)))
    return queue, auto_ack


def assert_dropped(queue: shmbroker.Queue, ready: int) -> None:
    """The damaged message is counted, and nobody holds anything."""
    counts = queue.statistics()
    assert (counts.ready, counts.delivering, counts.dropped) == (ready, 0, 1)


@pytest.mark.parametrize("unreadable", DAMAGES, indirect=True)
@pytest.mark.parametrize("take", TAKES)
def test_it_is_said_once(
    connection: shmbroker.Connection, unreadable: tuple[shmbroker.Queue, bool], take: Take
) -> None:
    """The call that takes it raises, holds nothing, and the next one gives the next message."""
    queue, auto_ack = unreadable
    queue.get().ack()
    with pytest.raises(CorruptSegment):
        take(connection, queue, auto_ack)
    assert_dropped(queue, ready=1)
    assert bytes(take(connection, queue, auto_ack).body) == b"3" * LONG


@pytest.mark.parametrize("unreadable", DAMAGES, indirect=True)
def test_among_several(unreadable: tuple[shmbroker.Queue, bool]) -> None:
    """A batch ends before it; the next call says so, and the one after that goes on."""
    queue, auto_ack = unreadable
    batch = queue.get_many(3, timeout=0, auto_ack=auto_ack)
    assert batch.bodies() == [b"1" * LONG]
    if not auto_ack:
        batch.ack()
    with pytest.raises(CorruptSegment):
        queue.get_many(3, timeout=0, auto_ack=auto_ack)
    assert_dropped(queue, ready=1)
    assert queue.get_many(3, timeout=0, auto_ack=auto_ack).bodies() == [b"3" * LONG]


@pytest.mark.parametrize("unreadable", DAMAGES, indirect=True)
def test_a_consumer(unreadable: tuple[shmbroker.Queue, bool]) -> None:
    """It raises for that one, has its credit back, and goes on."""
    queue, auto_ack = unreadable
    with queue.consume(prefetch=1, auto_ack=auto_ack) as consumer:
        first = next(consumer)
        assert bytes(first.body) == b"1" * LONG
        if not auto_ack:
            first.ack()
        with pytest.raises(CorruptSegment):
            next(consumer)
        third = next(consumer)
        assert bytes(third.body) == b"3" * LONG
        if not auto_ack:
            third.ack()
    assert_dropped(queue, ready=0)


@pytest.mark.parametrize("unreadable", DAMAGES, indirect=True)
def test_a_channel_that_consumes(connection: shmbroker.Connection, unreadable: tuple[shmbroker.Queue, bool]) -> None:
    """Its callback gets the others, also with a prefetch of one."""
    queue, auto_ack = unreadable
    channel, bodies = connection.channel(), list[bytes]()

    def callback(_: Any, method: Any, __: Any, body: Any) -> None:  # noqa: ANN401
        bodies.append(bytes(body))
        if not auto_ack:
            channel.basic_ack(method.delivery_tag)

    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(queue.name, callback, auto_ack=auto_ack)
    becomes(lambda: bodies, [b"1" * LONG, b"3" * LONG])
    becomes(lambda: queue.statistics().delivering, 0)
    channel.close()
    assert_dropped(queue, ready=0)
