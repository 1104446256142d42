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
        self._waiting = dict.fromkeys(self._waiting, 0)
        tries = bool(self._waiting)
        while 0 in self._waiting.values():  # a turn ends after a time
            self.run(time.monotonic_ns())
        return tries


class SteppedHousekeeper(Housekeeper):
    """The housekeeper of a broker that has no other."""

    def __init__(self, broker: str) -> None:
        super().__init__(broker)
        self._eager = self._dead_letters = EagerDeadLetters(
            self._connection, self._core, self._queue_in, self._queue_of
        )
        self._frozen = 0
        if not self.begin():
            text = "the broker has another housekeeper"
            raise RuntimeError(text)

    def step(self) -> None:
        """Expire messages and carry the dead out; messages that are delayed stay so."""
        self._watch()
        again = True
        while again or self._core.has_timers():
            self._run_timers(self._frozen)
            again = self._eager.run_now() and self._core.has_timers()
        self._turns += 1

    def let_become_due(self) -> None:
        """What is due by the clock becomes ready."""
        self._run_timers(time.monotonic_ns())

    def tick(self) -> None:
        """Do what the housekeeper does from time to time."""
        self._core.tick()
        self._core.reclaim()
        self._core.trim()

    def reap(self) -> None:
        """Clear up after the dead."""
        self._core.reap()
