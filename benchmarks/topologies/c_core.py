# SPDX-License-Identifier: Apache-2.0
"""The topology without Python: the C core alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.shm.core import CPrograms
from benchmarks.targets import Limit
from benchmarks.topologies.topology import Topology

if TYPE_CHECKING:
    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings


def _c_core(arena: Arena, settings: Settings) -> list[Contender]:
    count = 10**6 if settings.quick else 5 * 10**6
    return [CPrograms(arena.stream.size, count, settings.timeout)]


TOPOLOGIES: tuple[Topology, ...] = (
    Topology(
        "c-core",
        "the two C programs, one message at a time",
        "messages / seconds, as the consumer reports them",
        {"c-core": (Limit(12e6, "messages/s", at_least=True),)},
        _c_core,
    ),
)
"""The topology of the C core."""
