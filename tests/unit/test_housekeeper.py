# SPDX-License-Identifier: Apache-2.0
"""Housekeepers: what one of them knew, the next one finds again."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

from scenario_support.memory import Memory
from scenario_support.observing import take
from scenario_support.waiting import eventually

from shmbroker import housekeeper

if TYPE_CHECKING:
    import pytest

    import shmbroker


def test_a_timer_without_an_entry_outlives_the_housekeeper_that_found_it(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A message whose producer died before it entered the schedule is due in time, even if a housekeeper dies too.

    The first housekeeper finds it by looking at all cells; so must the next one.
    """
    queue = connection.queue("q")
    queue.put(b"A", delay=3)
    broker.stop()
    memory = Memory(broker.name)
    shared, lib = memory.queue("q"), memory.lib
    schedule = shared.schedule.root
    memory.leaf(schedule).cells[0].word = lib.sb_cell_bare(lib.SB_CELL_TOMBSTONE, memory.leaf_gen(schedule))
    shared.timers_lost += 1  # as whoever clears up after the producer does
    broker.start()
    ticks = memory.header.housekeeper_ticks
    eventually(lambda: memory.header.housekeeper_ticks > ticks + 2, "the first one to have looked")
    broker.stop()
    broker.start()
    assert take(queue, 1, timeout=30) == ["A"]


class Recorded:
    """The calls of the core, with a note of when the housekeeper ticks and when it wakes up."""

    def __init__(self, calls: Any) -> None:  # noqa: ANN401
        self._calls = calls
        self.ticks: list[float] = []
        self.wakes = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._calls, name)

    def sb_housekeeper_ticks(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Looks at the queues."""
        self.ticks.append(time.monotonic())
        return self._calls.sb_housekeeper_ticks(*arguments)

    def sb_housekeeper_wait(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Sleeps."""
        self.wakes += 1
        return self._calls.sb_housekeeper_wait(*arguments)


def test_however_often_timers_wake_it_a_tick_takes_its_time(
    broker: shmbroker.Broker, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That nothing was taken since the last tick says something only if that is a while ago."""
    queue = connection.queue("q")
    broker.stop()
    calls = Recorded(housekeeper.slow)
    monkeypatch.setattr(housekeeper, "slow", calls)

    def put_then_stop() -> None:
        try:
            for milliseconds in range(5, 1000, 5):
                queue.put(b"A", ttl=milliseconds / 1000)
            eventually(lambda: len(queue) == 0 and len(calls.ticks) > 4, "all to expire")
        finally:
            broker.stop()

    client = threading.Thread(target=put_then_stop)
    broker.serve_forever(on_ready=client.start)
    client.join()
    assert calls.wakes > 4 * len(calls.ticks)
    assert all(after - before >= housekeeper.TICK_SECONDS for before, after in itertools.pairwise(calls.ticks))


class AlwaysMoreTimers(Recorded):
    """The same; a producer gives a timer whenever the housekeeper looks."""

    def sb_housekeeper_new_timers(self, *arguments: Any) -> int:  # noqa: ANN401
        """There are some."""
        self._calls.sb_housekeeper_new_timers(*arguments)
        return 1


def test_timers_without_a_pause_do_not_keep_it_from_its_end(
    broker: shmbroker.Broker, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends when the broker is stopped, also while it never comes to sleep."""
    connection.queue("q")
    broker.stop()
    monkeypatch.setattr(housekeeper, "slow", AlwaysMoreTimers(housekeeper.slow))
    client = threading.Thread(target=broker.stop)
    broker.serve_forever(on_ready=client.start)
    client.join()
