# SPDX-License-Identifier: Apache-2.0
"""The director of the chaos among dead letters: other queues and processes, and an end that waits for what rests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos import takers
from tests.chaos.dead_letters import plan
from tests.chaos.director import Director, take_what_is_ready
from tests.chaos.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import shmbroker
    from tests.chaos.roles import Role


class DeadLetterDirector(Director):
    """Runs the chaos among dead letters of one broker."""

    roles: Sequence[Role] = plan.CAST
    queues: Sequence[str] = plan.QUEUES

    def _declare(self, connection: shmbroker.Connection) -> list[shmbroker.Queue]:
        queues = plan.declare(connection)
        return [queues[plan.JOBS], queues[plan.RANKED]]

    def _take_the_rest(self, connection: shmbroker.Connection) -> None:
        """Until nothing is left: what waits becomes ready, and what is dead arrives, when there is a housekeeper."""
        self._broker.start()
        queues = [connection.queue(name) for name in self.queues]
        with Journal(self._folder / "rest") as journal:

            def is_empty() -> bool:
                for queue in queues:
                    take_what_is_ready(takers.Actor(connection, [queue], journal, self._chance))
                return not any(queue.statistics().message_count for queue in queues)

            self.await_true(is_empty, lambda: f"the queues to be empty: {[one.statistics() for one in queues]}")
            journal.write("bye")

    def _look(self, connection: shmbroker.Connection) -> None:
        super()._look(connection)
        if not self._facts.doctor:
            with connection.channel() as channel:
                channel.exchange_delete(plan.EXCHANGE)
