# SPDX-License-Identifier: Apache-2.0
"""The director of the chaos among all features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.dead_letters.director import DeadLetterDirector
from tests.chaos.features import plan

if TYPE_CHECKING:
    import shmbroker


class FeatureDirector(DeadLetterDirector):
    """Runs the chaos among all features of one broker. What is left in the end is taken and waited for as there."""

    roles = plan.CAST
    queues = plan.QUEUES

    def _declare(self, connection: shmbroker.Connection) -> list[shmbroker.Queue]:
        # A queue with groups may have to wait for a process that is stopped: all that is ready is of its groups.
        return [plan.declare(connection)[plan.RANKED]]
