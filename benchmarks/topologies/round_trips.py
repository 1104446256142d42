# SPDX-License-Identifier: Apache-2.0
"""Topologies of round trips: alone, and beside a bulk transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.shm.bulk import TAIL, PingPongBesideBulk
from benchmarks.shm.contenders import QueuePingPong
from benchmarks.targets import AtLeast, Detail
from benchmarks.topologies.against_peers import SHARED_MEMORY_PEERS, best
from benchmarks.topologies.topology import Topology

if TYPE_CHECKING:
    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings
    from benchmarks.shm.link import Way
    from benchmarks.topologies.topology import Maker

_TRIP = "p50 of the nanoseconds from put to answer in hand; median of all runs"


def _ping_pong(name: str, way: Way) -> Maker:
    def make(arena: Arena, settings: Settings) -> list[Contender]:
        size = arena.stream.size
        return [QueuePingPong(name, way, size, arena.pause, settings)]

    return make


def _beside_bulk(bytes_per_second: float) -> Maker:
    return lambda arena, settings: [PingPongBesideBulk(arena.stream.size, bytes_per_second, settings)]


TOPOLOGIES: tuple[Topology, ...] = (
    Topology(
        "ping-pong",
        "put there, get, ack, put back, get, ack; spins a little, then sleeps",
        _TRIP,
        {"ping-pong": best(3.0, SHARED_MEMORY_PEERS), "ping-pong-asleep": (AtLeast(1.0),)},
        _ping_pong("waiting", "get"),
    ),
    Topology(
        "ping-pong-spinning",
        "the same with get_nowait in a loop: never sleeps",
        _TRIP,
        {"ping-pong": best(3.0, SHARED_MEMORY_PEERS), "ping-pong-asleep": ()},
        _ping_pong("spinning", "spin"),
    ),
    *(
        Topology(
            f"ping-pong-bulk-{rate:g}",
            f"as ping-pong; two other processes send bodies of 1 MiB through the same broker, {rate:g} GB/s",
            _TRIP,
            {"ping-pong-bulk": (Detail(TAIL, 10.0 if rate else None, "x the median at the 99.9th percentile"),)},
            _beside_bulk(rate * 1e9),
        )
        for rate in (0, 1)
    ),
)
"""Topologies of a ping-pong, in the order of printing."""
