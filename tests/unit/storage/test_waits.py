# SPDX-License-Identifier: Apache-2.0
"""What each consumer of a stored queue waits for, how far it has come, and the warning of one without progress.

The consumers have no IO thread: each does what the test lets it do.
"""

from __future__ import annotations

import logging
import threading
import time
import types
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of
from scenario_support.waiting import eventually

from shmbroker._core import native, paging
from shmbroker._core.consumer import CoreConsumer
from shmbroker._housekeeper import stalled
from shmbroker._housekeeper.housekeeper import Housekeeper
from shmbroker._selectors.compiler import compile_selector
from tests.unit.storage.test_paging import LEAF, leave

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker
    from tests.unit.storage.conftest import Stored

A = {"headers": {"a": 1}}
WANTS_A = "a = 1"


class Slow:
    """A consumer of a queue that does nothing by itself.

    Args:
        queue: the queue.
        selector: what it wants.
        prefetch: its credit.
    """

    def __init__(self, queue: shmbroker.Queue, selector: str = "", *, prefetch: int = 4, priority: int = 0) -> None:
        self._queue = queue
        core = core_of(queue)
        program = compile_selector(selector) if selector else b""
        given: dict[str, Any] = {"ack_batch": 1, "ack_interval": 0.0, "selector": program}
        before = [*self._listed()]
        self._core = CoreConsumer(core.connection, [core], prefetch, priority, **given)
        self._at = len(before)
        self._buffer = native.ffi.new("char[]", 1 << 16)

    def _listed(self) -> list[shmbroker.ConsumerInfo]:
        core = core_of(self._queue)
        return list(core.connection.consumers(core.slot, self._queue.name))

    def take(self) -> int:
        """Lets it take what it can, and gives one message to its application; returns a status."""
        return -min(0, int(native.slow.sb_consumer_next(self._core.handle, self._buffer, False)))  # noqa: FBT003

    @property
    def info(self) -> shmbroker.ConsumerInfo:
        """What the listing says of it."""
        return self._listed()[self._at]

    @property
    def waits_for(self) -> str:
        """What it waits for."""
        return self.info.waits_for


@pytest.fixture
def queue(stored: Stored) -> shmbroker.Queue:
    """A stored queue."""
    return stored.connection.queue("q", durable=True)


def put(queue: shmbroker.Queue, count: int, **options: Any) -> None:  # noqa: ANN401
    """Puts so many messages."""
    queue.put_many([b"x"] * count, timeout=0, **options)


def loaded(queue: shmbroker.Queue) -> None:
    """Does what the process of a consumer does that needs a leaf."""
    core_of(queue).connection.attachment.grow()


# ---- what it waits for ----


@pytest.mark.parametrize("selector", ["", WANTS_A])
def test_an_empty_queue_waits_for_a_producer(queue: shmbroker.Queue, selector: str) -> None:
    """Whatever a consumer wants: before its first look and after it."""
    consumer = Slow(queue, selector)
    assert consumer.waits_for == "producer"
    assert consumer.take() == native.EMPTY
    assert consumer.waits_for == "producer"


@pytest.mark.parametrize("selector", ["", WANTS_A])
def test_a_message_in_the_memory_waits_for_its_consumer(queue: shmbroker.Queue, selector: str) -> None:
    """Until it has taken the message; then it waits for a producer again."""
    consumer = Slow(queue, selector)
    assert consumer.take() == native.EMPTY
    put(queue, 1, **A)
    assert consumer.waits_for == "dispatch"
    assert consumer.take() == native.OK
    assert (consumer.waits_for, consumer.info.unacked) == ("producer", 1)


def test_a_message_that_it_does_not_want(queue: shmbroker.Queue) -> None:
    """Nobody knows before it has looked; then it waits for a producer, although messages are ready."""
    consumer = Slow(queue, WANTS_A)
    put(queue, 3)
    assert consumer.waits_for == "dispatch"
    assert consumer.take() == native.EMPTY
    assert consumer.waits_for == "producer"
    assert len(queue) == 3


@pytest.mark.parametrize("selector", ["", WANTS_A])
def test_without_credit_it_waits_for_its_application(queue: shmbroker.Queue, selector: str) -> None:
    """Whether or not there are more messages."""
    put(queue, 5, **A)
    consumer = Slow(queue, selector, prefetch=2)
    assert consumer.take() == native.OK
    assert (consumer.waits_for, consumer.info.unacked) == ("consumer", 2)
    assert queue.purge() == 3
    assert consumer.waits_for == "consumer"


@pytest.mark.parametrize("selector", ["", WANTS_A])
def test_a_message_in_the_store_is_to_be_loaded(stored: Stored, queue: shmbroker.Queue, selector: str) -> None:
    """When it has been loaded, the consumer is to take it."""
    put(queue, 20 * LEAF, **A)
    assert leave(stored, queue) == 20
    consumer = Slow(queue, selector, prefetch=100)
    assert consumer.waits_for == "load"
    assert consumer.take() == native.GROW
    assert consumer.waits_for == "load"
    loaded(queue)
    assert consumer.waits_for == "dispatch"
    assert consumer.take() == native.OK


def test_a_search_waits_for_what_lies_behind_messages_that_it_has_passed(
    stored: Stored, queue: shmbroker.Queue
) -> None:
    """Others wait for their own next messages."""
    put(queue, 12 * LEAF)
    assert leave(stored, queue, ahead=2 * LEAF) == 10
    plain, chooses = Slow(queue), Slow(queue, WANTS_A)
    assert chooses.take() == native.GROW
    assert (plain.waits_for, chooses.waits_for) == ("dispatch", "load")
    loaded(queue)
    assert chooses.waits_for == "dispatch"


@pytest.mark.parametrize("selector", ["", WANTS_A])
def test_a_message_that_returned(stored: Stored, queue: shmbroker.Queue, selector: str) -> None:
    """It lies before the head, and comes first, also if it is one of those that have left."""
    put(queue, 3 * LEAF, **A)
    held = [queue.get_nowait() for _ in range(3 * LEAF)]
    consumer = Slow(queue, selector)
    assert consumer.take() == native.EMPTY
    assert consumer.waits_for == "producer"
    held[5].nack(requeue=True)
    assert consumer.waits_for == "dispatch"
    assert consumer.take() == native.OK
    assert consumer.waits_for == "producer"
    assert stored.connection.doctor() == []


def test_a_message_that_returned_and_has_left(queue: shmbroker.Queue, stored: Stored) -> None:
    """A mark of the link leads to it: the consumer waits for the load."""
    put(queue, 2 * LEAF)
    held = [queue.get_nowait() for _ in range(LEAF)]
    consumer = Slow(queue)
    held[0].nack(requeue=True)
    for message in held[1:]:
        message.ack()
    assert leave(stored, queue) == 1
    assert consumer.waits_for == "dispatch"
    again = queue.get_nowait()
    assert consumer.waits_for == "load"
    again.ack()


def test_a_queue_with_priorities(stored: Stored) -> None:
    """The first message in the order of delivery decides."""
    queue = stored.connection.queue("q", durable=True, max_priority=1)
    plain, chooses = Slow(queue), Slow(queue, WANTS_A)
    assert chooses.take() == native.EMPTY
    assert (plain.waits_for, chooses.waits_for) == ("producer", "producer")
    put(queue, LEAF + 1, priority=0, **A)
    assert leave(stored, queue, lane=1 << 52) == 1
    assert chooses.take() == native.GROW
    assert (plain.waits_for, chooses.waits_for) == ("load", "load")
    assert plain.info.reached is None
    assert (chooses.info.reached, chooses.info.watermark, chooses.info.scan_lag) == (1 << 52, 1 << 52, LEAF + 1)
    put(queue, 1, priority=1)
    assert plain.waits_for == "dispatch"


def test_a_queue_that_gives_every_message_to_all(stored: Stored) -> None:
    """A consumer that has read all waits for a producer, although all messages are still there."""
    queue = stored.connection.queue("q", non_destructive=True)
    put(queue, 2)
    consumer = Slow(queue)
    assert consumer.waits_for == "dispatch"
    assert [consumer.take() for _ in range(3)] == [native.OK, native.OK, native.EMPTY]
    assert (consumer.waits_for, consumer.info.reached) == ("producer", 2)
    put(queue, 1)
    assert consumer.waits_for == "dispatch"


def test_one_that_stands_by(stored: Stored) -> None:
    """It has credit, and is not the active one: it waits for its turn while messages are there."""
    queue = stored.connection.queue("q", single_active_consumer=True)
    active, standby = Slow(queue, prefetch=1), Slow(queue)
    assert (active.waits_for, standby.waits_for) == ("producer", "producer")
    put(queue, 2)
    assert active.take() == native.OK
    assert (active.waits_for, standby.waits_for) == ("consumer", "dispatch")


def test_one_of_a_lower_priority_leaves_messages_to_others(queue: shmbroker.Queue) -> None:
    """What a consumer of a higher priority wants is not for it: it waits for a producer."""
    high, low = Slow(queue, WANTS_A, priority=1), Slow(queue)
    assert high.take() == native.EMPTY
    put(queue, 1, **A)
    assert low.take() == native.EMPTY
    assert (high.waits_for, low.waits_for) == ("dispatch", "producer")
    assert high.take() == native.OK
    put(queue, 1)
    assert high.take() == native.EMPTY
    assert (high.waits_for, low.waits_for) == ("producer", "dispatch")


def test_a_call_of_get_waits_as_well(queue: shmbroker.Queue, stored: Stored) -> None:
    """It is listed with what it waits for."""
    thread = threading.Thread(target=lambda: queue.get().ack())
    thread.start()
    listed = eventually(lambda: stored.connection.consumers("q"), "the call to wait")
    assert [(one.waiting, one.waits_for, one.scan_lag) for one in listed] == [(True, "producer", 0)]
    put(queue, 1)
    thread.join()


# ---- how far it has come ----


def test_a_search_tells_how_far_it_came(stored: Stored, queue: shmbroker.Queue) -> None:
    """Where it looks next, how many it has not looked at, and the first of them that is in the store only."""
    put(queue, 12 * LEAF + 5)
    assert leave(stored, queue, ahead=2 * LEAF) == 10
    plain, chooses = Slow(queue), Slow(queue, WANTS_A)
    unseen = chooses.info
    assert (unseen.reached, unseen.watermark, unseen.scan_lag) == (0, 2 * LEAF, 12 * LEAF + 5)
    assert chooses.take() == native.GROW
    loaded(queue)
    assert chooses.take() == native.GROW
    found = chooses.info
    assert (found.reached, found.watermark, found.scan_lag) == (10 * LEAF, 10 * LEAF, 2 * LEAF + 5)
    loaded(queue)
    assert chooses.take() == native.EMPTY
    found = chooses.info
    assert (found.reached, found.watermark, found.scan_lag) == (12 * LEAF + 5, None, 0)
    put(queue, 7)
    assert chooses.info.scan_lag == 7
    found = plain.info
    assert (found.reached, found.watermark, found.scan_lag) == (0, None, 12 * LEAF + 12)
    for _ in range(LEAF):
        queue.get_nowait().ack()
    found = plain.info
    assert found.reached is not None
    assert LEAF - 8 <= found.reached <= LEAF  # the head may lag
    assert paging.absent(core_of(queue), 0, 1 << 52) is None


# ---- no progress ----


@pytest.fixture
def housekeeper(stored: Stored) -> Iterator[Housekeeper]:
    """The housekeeper, whose ticks the test makes."""
    with closing(Housekeeper(stored.name)) as one:
        assert one.begin()
        yield one


class Ticks:
    """Ticks of a housekeeper, and what it warned of.

    Args:
        keeper: the housekeeper.
        patch: replaces the clock of the warning.
        log: what was logged.
    """

    def __init__(self, keeper: Any, patch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture) -> None:  # noqa: ANN401
        self._keeper, self._log, self._until = keeper, log, 0
        patch.setattr(stalled, "time", types.SimpleNamespace(monotonic_ns=self._clock))
        log.set_level(logging.WARNING, "shmbroker")

    def _clock(self) -> int:
        return self._until + int(stalled.SECONDS * native.NANOSECONDS)

    def tick(self, *, until: int = 0) -> list[str]:
        """Ticks; it is as if ten seconds had gone by since a time, of the monotonic clock. Returns what was logged."""
        self._until = until
        self._log.clear()
        self._keeper._watch()  # noqa: SLF001
        self._keeper._tick_due = 0  # noqa: SLF001
        self._keeper._tick()  # noqa: SLF001
        return [record.getMessage() for record in self._log.records]

    def much_later(self) -> list[str]:
        """Ticks, then lets ten seconds go by, then ticks again; returns what was logged at the second one."""
        assert self.tick() == []
        return self.tick(until=time.monotonic_ns())


@pytest.fixture
def ticks(housekeeper: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Ticks:  # noqa: ANN401
    """The ticks of the housekeeper."""
    return Ticks(housekeeper, monkeypatch, caplog)


def test_a_consumer_without_progress_is_told_of_once(stored: Stored, queue: shmbroker.Queue, ticks: Ticks) -> None:
    """After ten seconds in which it did nothing; never again, until it has done something and stands still again."""
    consumer = Slow(queue, prefetch=10)
    put(queue, 3)
    before = time.monotonic_ns()
    assert ticks.tick() == []
    assert ticks.tick(until=before) == []
    assert not consumer.info.stalled
    (text,) = ticks.tick(until=time.monotonic_ns())
    place = f"the consumer of connection {consumer.info.connection} in process {consumer.info.pid}"
    assert text.startswith(f"broker '{stored.name}', queue 'q': {place} has credit, and has made no progress for ")
    assert text.endswith(": a message for it may be in the memory, and it has not taken it")
    assert consumer.info.stalled
    assert consumer.info.stalled_seconds > 0
    assert stored.broker.statistics().stalled == 1
    assert ticks.much_later() == []
    assert stored.broker.statistics().stalled == 1
    assert consumer.take() == native.OK  # takes all three
    assert (consumer.info.stalled, consumer.info.stalled_seconds) == (False, 0.0)
    assert ticks.much_later() == []
    assert stored.broker.statistics().stalled == 0
    put(queue, 1)
    assert len(ticks.much_later()) == 1


def test_one_that_waits_for_a_load_is_told_of(stored: Stored, queue: shmbroker.Queue, ticks: Ticks) -> None:
    """The text says what it waits for; a search that goes on makes progress, though it takes nothing."""
    put(queue, 30 * LEAF)
    assert leave(stored, queue) == 30
    consumer = Slow(queue, WANTS_A)
    assert consumer.take() == native.GROW
    assert ticks.tick() == []
    before = time.monotonic_ns()
    loaded(queue)
    assert consumer.take() == native.GROW
    assert ticks.tick(until=before) == []  # it has come further
    (text,) = ticks.tick(until=time.monotonic_ns())
    assert text.endswith("its next message is in the store only, and has not been loaded")


def test_those_that_wait_for_others_are_not_told_of(stored: Stored, queue: shmbroker.Queue, ticks: Ticks) -> None:
    """For a producer, for their application, for the end of a pause, or for their turn behind an active consumer."""
    idle, full = Slow(queue, WANTS_A), Slow(queue, prefetch=1)
    put(queue, 3)
    assert full.take() == native.OK
    paused = stored.connection.queue("paused", durable=True)
    waiting = Slow(paused)
    put(paused, 1)
    paused.pause()
    single = stored.connection.queue("single", single_active_consumer=True)
    active, standby = Slow(single, prefetch=1), Slow(single)
    put(single, 2)
    assert active.take() == native.OK
    for _ in range(3):
        assert idle.take() == native.EMPTY  # as its IO thread does when it is notified
        assert ticks.tick(until=time.monotonic_ns()) == []
    assert (waiting.waits_for, standby.waits_for) == ("dispatch", "dispatch")
    assert {one.stalled for one in stored.connection.consumers()} == {False}


def test_others_that_take_from_the_head_make_progress_for_all(queue: shmbroker.Queue, ticks: Ticks) -> None:
    """A consumer of any message that gets none, since others are faster, is no reason for a warning."""
    slow = Slow(queue)
    put(queue, 50)
    queue.get_nowait().ack()
    for _ in range(3):
        assert ticks.tick() == []
        before = time.monotonic_ns()
        queue.get_nowait().ack()
        assert ticks.tick(until=before) == []
    assert slow.waits_for == "dispatch"


def test_the_next_housekeeper_does_not_repeat_it(
    stored: Stored,
    queue: shmbroker.Queue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It counts from its own first look, and knows that the consumer was told of."""
    told, late = Slow(queue), Slow(stored.connection.queue("other", durable=True))
    put(queue, 1)
    with closing(Housekeeper(stored.name)) as first:
        assert first.begin()
        ticks = Ticks(first, monkeypatch, caplog)
        assert len(ticks.much_later()) == 1
        put(stored.connection.queue("other"), 1)
        assert ticks.tick() == []
    before = time.monotonic_ns()
    with closing(Housekeeper(stored.name)) as second:
        assert second.begin()
        ticks = Ticks(second, monkeypatch, caplog)
        assert ticks.tick(until=before) == []
        (text,) = ticks.much_later()
        assert "queue 'other'" in text
        assert ticks.much_later() == []
    assert (told.info.stalled, late.info.stalled) == (True, True)


def test_several_at_one_queue_are_told_of_each(queue: shmbroker.Queue, ticks: Ticks) -> None:
    """One line for each."""
    consumers = [Slow(queue), Slow(queue, WANTS_A), Slow(queue)]
    put(queue, 1, **A)
    assert len(ticks.much_later()) == 3
    assert [one.info.stalled for one in consumers] == [True] * 3


def test_an_empty_queue_forgets_since_when(queue: shmbroker.Queue, ticks: Ticks) -> None:
    """What came later has not waited so long."""
    consumer = Slow(queue, WANTS_A)
    put(queue, 1, **A)
    assert ticks.tick() == []
    before = time.monotonic_ns()
    assert consumer.info.stalled_seconds > 0
    assert queue.purge() == 1
    assert ticks.tick() == []
    put(queue, 1, **A)
    assert ticks.tick(until=before) == []
    assert len(ticks.tick(until=time.monotonic_ns())) == 1
