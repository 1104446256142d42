# SPDX-License-Identifier: Apache-2.0
"""Topologies that are swept: put, get and ack while the queue, its consumers or the queues grow in number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.shm import scaling
from benchmarks.shm.contenders import Steps
from benchmarks.targets import Flat
from benchmarks.topologies.topology import STREAM_MEMORY, Topology, rounds

if TYPE_CHECKING:
    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings

DEEP_MEMORY = "8G"
BYTES_PER_DEEP_MESSAGE = 400
_CYCLE = "time of put + get + ack, one at a time, / messages, in one process"


def _depth(_: Arena, settings: Settings) -> list[Contender]:
    top = 5 if settings.quick else 7
    held = 10**4 if settings.quick else 10**6
    points = [(10**power, 0) for power in range(3, top + 1)]
    points += [(10**3, 10), (10**3, held)]
    return [
        Steps(
            f"{ready:,} ready" + (f", {unacked:,} unacked" if unacked else ""),
            scaling.depth,
            ready,
            unacked,
            rounds(settings),
            timeout=settings.timeout,
            memory=DEEP_MEMORY,
            needs_bytes=(ready + unacked) * BYTES_PER_DEEP_MESSAGE,
        )
        for ready, unacked in points
    ]


def _consumers(_: Arena, settings: Settings) -> list[Contender]:
    return [
        Steps(
            f"{number:,} in one process",
            scaling.consumers,
            number,
            rounds(settings),
            timeout=settings.timeout,
        )
        for number in (1, 10, 100, 1000)
    ]


def _queues(_: Arena, settings: Settings) -> list[Contender]:
    return [
        Steps(
            f"{number:,} in turn",
            scaling.queues,
            number,
            rounds(settings),
            timeout=settings.timeout,
            memory=STREAM_MEMORY,
        )
        for number in ((1, 10, 100, 1000) if settings.quick else (1, 100, 1000, 10_000))
    ]


TOPOLOGIES: tuple[Topology, ...] = (
    Topology(
        "depth",
        "a queue with 10^3 to 10^7 messages, and with 10 or 10^6 held unacked",
        _CYCLE,
        {"depth": (Flat(1.2),)},
        _depth,
    ),
    Topology(
        "consumers",
        "1 to 1,000 consumers of one process compete for one queue",
        "time of put, get by any consumer, ack, / messages, in one process",
        {"consumers": (Flat(1.1, last=1.3),)},
        _consumers,
    ),
    Topology(
        "queues",
        "1 to 10,000 queues of one connection used in turn",
        _CYCLE,
        {"queues": (Flat(1.2, last=1.3),)},
        _queues,
    ),
)
"""Topologies of a sweep, in the order of printing."""
