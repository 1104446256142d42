# SPDX-License-Identifier: Apache-2.0
"""What a topology is, and the sizes that several parts of the table share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings
    from benchmarks.targets import Target

    Maker = Callable[[Arena, Settings], list[Contender]]

STREAM_MEMORY = "1G"  # limit of a broker in which messages may pile up
SMALL_ROUNDS = 20
LARGE_ROUNDS = 80


@dataclass(frozen=True)
class Topology:
    """One way to use shmbroker.

    Attributes:
        name: For `--only`.
        description: What happens.
        computed: How the value comes about.
        targets: What to reach, by the name of the measurement: it takes part in
            these.
        make: Makes the contenders for a measurement.
    """

    name: str
    description: str
    computed: str
    targets: Mapping[str, tuple[Target, ...]]
    make: Maker

    def contenders(self, arena: Arena, settings: Settings) -> list[Contender]:
        """Return the contenders for a measurement that this topology takes part in.

        Args:
            arena: The measurement.
            settings: How thorough to be.
        """
        made = self.make(arena, settings)
        for contender in made:
            contender.targets = self.targets[arena.name]
        return made


def rounds(settings: Settings) -> int:
    """Return how many rounds of 256 messages one step of a standing worker has.

    Args:
        settings: How thorough to be.
    """
    return SMALL_ROUNDS if settings.quick else LARGE_ROUNDS
