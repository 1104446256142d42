# SPDX-License-Identifier: Apache-2.0
"""A housekeeper that works in the machine's process, only when it is told to.

So the dead are carried out, and messages become due, at the end of a step, and at no other time.
"""

from __future__ import annotations

import time

from shmbroker._housekeeper.dead_letters import DeadLetters
from shmbroker._housekeeper.housekeeper import Housekeeper


class EagerDeadLetters(DeadLetters):
    """Dead letters that do not wait before another attempt."""

    def run_now(self) -> bool:
        """Carry out what can be; return whether there was anything to try."""
        for waiting in self._waiting.values():
            waiting.due = 0
        tries = bool(self._waiting)
        while any(waiting.due == 0 for waiting in self._waiting.values()):  # a turn ends after a time
            self.run(time.monotonic_ns())
        return tries


class SteppedHousekeeper(Housekeeper):
    """The housekeeper of a broker that has no other."""

    def __init__(self, broker: str) -> None:
        super().__init__(broker)
        self._eager = self._dead_letters = EagerDeadLetters(
            self._connection, self._queue_in, self._queue_of, self._timers.add
        )
        self._frozen = 0
        if not self.begin():
            text = "the broker has another housekeeper"
            raise RuntimeError(text)

    def step(self) -> None:
        """Expire messages and carry the dead out; messages that are delayed stay so."""
        self._watch()
        again = self._new_timers()
        self._timers.run(self._frozen)
        self._eager.run_now()
        while again or self._new_timers():
            self._timers.run(self._frozen)
            again = self._eager.run_now() and self._new_timers()
        self._turns += 1

    def let_become_due(self) -> None:
        """What is due by the clock becomes ready."""
        self._new_timers()
        self._timers.run(time.monotonic_ns())

    def tick(self) -> None:
        """Do what the housekeeper does from time to time."""
        self._core.tick()
        self._core.reclaim()
        self._core.trim()

    def reap(self) -> None:
        """Clear up after the dead."""
        self._core.reap()
