# SPDX-License-Identifier: Apache-2.0
"""Housekeepers: what one of them knew, the next one finds again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scenario_support.memory import Memory
from scenario_support.observing import take
from scenario_support.waiting import eventually

if TYPE_CHECKING:
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
