# SPDX-License-Identifier: Apache-2.0
"""Topologies of a broker at rest: memory of empty queues, processor time of idle consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.shm import footprint
from benchmarks.shm.contenders import Steps
from benchmarks.shm.idle import IdleConsumers
from benchmarks.targets import Limit
from benchmarks.topologies.topology import Topology

if TYPE_CHECKING:
    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings


def _memory(_: Arena, settings: Settings) -> list[Contender]:
    number = 1000 if settings.quick else 10_000
    return [
        Steps(
            f"{number:,} queues",
            footprint.empty_queues,
            number,
            timeout=settings.timeout,
            fresh="broker",
        )
    ]


def _idle(_: Arena, settings: Settings) -> list[Contender]:
    return [IdleConsumers(10, 10, settings)]


TOPOLOGIES: tuple[Topology, ...] = (
    Topology(
        "memory",
        "a new broker with 10,000 queues that never held a message",
        "growth of the blocks behind the broker's shared memory / queues",
        {"memory": ()},
        _memory,
    ),
    Topology(
        "idle",
        "100 consumers in 10 processes that get nothing",
        "processor time of these and of the broker's processes / elapsed time",
        {"idle": (Limit(0.1, "% of a core"),)},
        _idle,
    ),
)
"""Topologies of a broker at rest, in the order of printing."""
