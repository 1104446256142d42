# SPDX-License-Identifier: Apache-2.0
"""The high watermark of a broker's memory: publishers wait, all others go on."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.brokers import running
from scenario_support.waiting import becomes

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Iterator

MEBIBYTE = 1 << 20
BODY = bytes(100_000)


def fill(queue: shmbroker.Queue) -> int:
    """Put bodies until the memory has no room for one; return how many were put."""
    count = 0
    with contextlib.suppress(shmbroker.OutOfMemory):
        while True:
            queue.put(BODY, timeout=0)
            count += 1
    return count


@pytest.fixture
def half(broker_name: str) -> Iterator[shmbroker.Broker]:
    """Run a broker of 128 MiB whose publishers may use half of them."""
    with running(broker_name, "128M") as broker:
        broker.configure(memory_high_watermark=0.5, memory_warning=0.25)
        yield broker


def test_publishers_stay_below_the_high_watermark(half: shmbroker.Broker) -> None:
    """Puts get no more than half of the memory, and no segment beyond that is added; the state says so."""
    with half.connect() as connection:
        queue = connection.queue("q")
        assert half.statistics().memory_state == "normal"
        count = fill(queue)
        found = half.statistics()
        assert found.memory_state == "blocked"
        with pytest.raises(shmbroker.OutOfMemory, match=r"a share of 0.5 \(memory_high_watermark\)"):
            queue.put(BODY, timeout=0)
        assert (found.memory_high_watermark, found.memory_warning) == (0.5, 0.25)
        assert 40 * MEBIBYTE < count * len(BODY) <= found.memory_used <= 64 * MEBIBYTE
        assert connection.doctor() == []


def test_the_warning_comes_first(half: shmbroker.Broker) -> None:
    """From a quarter of the memory on the state is a warning; it ends when the messages go."""
    with half.connect() as connection:
        queue = connection.queue("q")
        states = []
        for _ in range(300):
            queue.put(BODY, timeout=0)
            states.append(half.statistics().memory_state)
        assert set(states) == {"normal", "warning"}
        assert states == sorted(states)
        assert 10 * MEBIBYTE < states.index("warning") * len(BODY) < 32 * MEBIBYTE


def test_consumers_go_on_and_make_room(half: shmbroker.Broker) -> None:
    """While publishers are blocked, consumers take and acknowledge, queues are made, and the room is used again."""
    with half.connect() as connection:
        queue = connection.queue("q")
        count = fill(queue)
        other = connection.queue("other")
        assert queue.move(other, limit=1) == 1
        with queue.consume(prefetch=10) as consumer:
            for _ in range(10):
                consumer.get(timeout=60).ack()
        for _ in range(10):
            queue.put(BODY, timeout=60)
        assert len(queue) == count - 1


def test_a_publisher_waits_until_the_mark_is_raised(half: shmbroker.Broker) -> None:
    """A publisher that waits for memory goes on when the mark is raised, without any message taken."""
    with half.connect() as connection:
        count = fill(connection.queue("q"))
        with half.connect() as second:
            late = second.queue("q")
            thread = threading.Thread(target=lambda: late.put(BODY))
            thread.start()
            half.configure(memory_high_watermark=None)
            thread.join()
        becomes(lambda: len(connection.queue("q")), count + 1)
        assert half.statistics().memory_high_watermark is None


def test_connection_blocked(half: shmbroker.Broker) -> None:
    """A publisher that begins to wait tells its connection, and again when it goes on; consumers' ones are not told."""
    told: list[object] = []
    with half.connect() as connection, half.connect() as second:
        queue = connection.queue("q")
        connection.add_on_connection_blocked_callback(lambda *_: told.append("the consumer's"))
        count = fill(queue)  # calls that do not wait are not blocked
        second.add_on_connection_blocked_callback(lambda who, reason: told.append((who is second, reason)))
        second.add_on_connection_unblocked_callback(lambda who: told.append(who is second))
        channel = second.channel()
        thread = threading.Thread(target=lambda: channel.basic_publish("", "q", BODY))
        thread.start()
        becomes(lambda: second.is_blocked, expected=True)
        assert told == [(True, "low on memory")]
        assert not connection.is_blocked
        with queue.consume(prefetch=30) as consumer:
            for _ in range(20):
                consumer.get(timeout=60).ack()
        thread.join()
        assert told == [(True, "low on memory"), True]
        assert not second.is_blocked
        assert len(queue) == count - 19


@pytest.mark.parametrize("way", ["put", "put_many", "reserve", "transaction"])
def test_each_way_to_publish_blocks_once(half: shmbroker.Broker, way: str) -> None:
    """A call that waits until its time is up is blocked once, and is not blocked afterwards."""
    told: list[bool] = []
    with half.connect() as connection:
        queue = connection.queue("q")
        fill(queue)
        connection.add_on_connection_blocked_callback(lambda *_: told.append(True))
        connection.add_on_connection_unblocked_callback(lambda _: told.append(False))
        channel = connection.channel()
        channel.tx_select()
        channel.basic_publish("", "q", BODY)
        ways = {
            "put": lambda: queue.put(BODY, timeout=0.5),
            "put_many": lambda: queue.put_many([BODY, BODY], timeout=0.5),
            "reserve": lambda: queue.reserve(len(BODY), timeout=0.5).__enter__(),
            "transaction": lambda: channel.tx_commit(timeout=0.5),
        }
        with pytest.raises(shmbroker.OutOfMemory):
            ways[way]()
        assert told == [True, False]


def test_a_lowered_mark_blocks(half: shmbroker.Broker) -> None:
    """A mark below what is in use blocks at once, and keeps what is there."""
    with half.connect() as connection:
        queue = connection.queue("q")
        for _ in range(200):
            queue.put(BODY, timeout=0)
        half.configure(memory_high_watermark=0.1, memory_warning=None)
        assert half.statistics().memory_state == "blocked"
        assert fill(queue) < 30  # what fits into the chunks that are in use
        assert len(queue.get_nowait(auto_ack=True)) == len(BODY)


def test_a_mark_that_is_not_given_stays(half: shmbroker.Broker) -> None:
    """Each mark is changed, or removed with None, by itself; the warning must not come to lie above the other."""
    half.configure(memory_high_watermark=0.9)
    half.configure()
    assert (half.statistics().memory_high_watermark, half.statistics().memory_warning) == (0.9, 0.25)
    half.configure(memory_warning=0.5)
    with pytest.raises(ValueError, match=r"memory_warning=0\.5: at most memory_high_watermark=0.4 is allowed"):
        half.configure(memory_high_watermark=0.4)
    half.configure(memory_warning=None)
    assert (half.statistics().memory_high_watermark, half.statistics().memory_warning) == (0.9, None)


def test_marks_of_a_new_broker(broker_name: str) -> None:
    """Marks given to a new broker are its marks; other ones for a broker that exists are refused with 406."""
    broker = shmbroker.Broker(broker_name, memory="64M", memory_high_watermark=0.8, memory_warning=0.6)
    with broker:
        found = broker.statistics()
        assert (found.memory_high_watermark, found.memory_warning) == (0.8, 0.6)
        shmbroker.Broker(broker_name, memory_high_watermark=0.8, memory_warning=0.6).start()
        with pytest.raises(shmbroker.PreconditionFailed, match=r"exists with memory_high_watermark=0.8"):
            shmbroker.Broker(broker_name, memory_high_watermark=0.9).start()
    broker.stop(purge=True)


@pytest.mark.parametrize("mark", [0, -0.1, 1.1, "1", True, float("nan")])
def test_bad_marks(broker_name: str, mark: object) -> None:
    """A mark that is no share is refused, and so is a warning above the high watermark."""
    for name in ("memory_high_watermark", "memory_warning"):
        with pytest.raises(ValueError, match=f"^{name}={mark!r}: a share from 0.001 to 1, or None, is allowed"):
            shmbroker.Broker(broker_name, **{name: mark})
    with pytest.raises(ValueError, match=r"memory_warning=0.9: at most memory_high_watermark=0.8 is allowed"):
        shmbroker.Broker(broker_name, memory_high_watermark=0.8, memory_warning=0.9)
