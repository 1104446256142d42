# SPDX-License-Identifier: Apache-2.0
"""The director of the chaos with a store: it disturbs the storekeeper as well, and loses everything but the disk."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from shmbroker._core import attachment, native, segments
from shmbroker_cli.demo.restart.killing import kill_all, remove_memory
from tests.chaos.director import Director
from tests.chaos.stage import STOREKEEPER
from tests.chaos.stored import plan

if TYPE_CHECKING:
    import shmbroker
    from tests.chaos.stage import Player, Stage

LONGEST_STOP = 1.0  # seconds of the storekeeper
WHILE_STOPPED = 0.05  # seconds between two disturbances while it is stopped


class StoredDirector(Director):
    """Runs the chaos of one broker with a store."""

    roles = plan.CAST
    queues = plan.QUEUES
    acts = plan.ACTS
    keepers = 2

    def _disturb(self, players: Stage) -> None:
        self._half = time.monotonic() + self._facts.seconds / 2
        super()._disturb(players)

    def _declare(self, connection: shmbroker.Connection) -> list[shmbroker.Queue]:
        queues = plan.declare(connection)
        return [queues[name] for name in plan.FLOWING]

    def _act(self, players: Stage) -> None:
        is_late = self._facts.losses == 0 and time.monotonic() > self._half
        if self._chance.randrange(plan.ACTS_TO_A_LOSS) == 0 or is_late:  # a short run has one, too
            self._lose(players)
        else:
            super()._act(players)

    def _pid_of(self, keeper: str) -> int:
        if keeper != STOREKEEPER:
            return super()._pid_of(keeper)
        with attachment.attached_to(segments.path_of(self._broker.name)) as attached:
            return int(native.slow.sb_store_keeper(attached.handle))

    def _pause(self, player: Player) -> float:
        return min(super()._pause(player), LONGEST_STOP if player.name == STOREKEEPER else math.inf)

    def _await_flow(self, players: Stage, queue: shmbroker.Queue, count: int) -> None:
        """Producers wait for a storekeeper that is stopped: then others are disturbed meanwhile."""
        if self._keeper is not None and self._keeper.name == STOREKEEPER:
            time.sleep(WHILE_STOPPED)
        else:
            super()._await_flow(players, queue, count)

    def _lose(self, players: Stage) -> None:
        """Kills every process of the broker, removes its memory, and begins again from the folder."""
        facts = self._facts
        facts.losses += 1
        facts.deepest = max(facts.deepest, sum(queue.bytes for queue in self._connection.queue_statistics()))
        self._continue_keeper(players)
        self._count_repairs()
        self._connection.close()

        def end() -> None:
            kill_all(self._broker.name)
            remove_memory(self._broker.name)

        players.lose(end)
        self._broker.stop(purge=True)  # there is no memory: it only waits for the housekeeper that it has started
        self._broker.start()
        self._connection = self._broker.connect()
        self._flowing = self._declare(self._connection)
        players.fill()
