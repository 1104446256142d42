# SPDX-License-Identifier: Apache-2.0
"""Topologies of routing alone: finding the queues of a message, by type of exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.routing import KINDS, SIZES, Routes
from benchmarks.topologies.topology import Topology

if TYPE_CHECKING:
    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings
    from benchmarks.topologies.topology import Maker


def _routing(kind: str) -> Maker:
    def make(_: Arena, settings: Settings) -> list[Contender]:
        sizes = SIZES[:1] if kind == "default" else SIZES
        return [Routes(kind, bindings, settings) for bindings in sizes]

    return make


TOPOLOGIES: tuple[Topology, ...] = tuple(
    Topology(
        f"routing-{kind}",
        f"a {kind} exchange with 10 to 100,000 bindings of queues; routes are not kept",
        "time of Router.route() / queues that were found, in one process",
        {f"routing-{kind}": ()},
        _routing(kind),
    )
    for kind in KINDS
)
"""Topologies of routing, one for each type of exchange, in the order of printing."""
