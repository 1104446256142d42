# SPDX-License-Identifier: Apache-2.0
"""Topologies of publishing through a channel, each beside `Queue.put`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.shm.contenders import Steps
from benchmarks.shm.publishing import TIMES_PUT, Route, publish
from benchmarks.targets import Detail
from benchmarks.topologies.topology import STREAM_MEMORY, Topology

if TYPE_CHECKING:
    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings
    from benchmarks.topologies.topology import Maker

QUICK_BURSTS = 10
BURSTS = 50
ROUTES = {
    "put": Route("put"),
    "default": Route(),
    "direct": Route("direct"),
    "fanout-3": Route("fanout", 3),
    "fanout-100": Route("fanout", 100),
    "confirms": Route(confirms=True),
    "properties": Route(properties=True),
}
NAMES = {
    "put": "Queue.put",
    "default": "basic_publish, default exchange",
    "direct": "direct exchange, one queue",
    "fanout-3": "fanout exchange, 3 queues, each",
    "fanout-100": "fanout exchange, 100 queues, each",
    "confirms": "default exchange, confirms waited for every 1,000",
    "properties": "default exchange, with properties",
}
MOST_TIMES_PUT = {"default": 1.5, "direct": 1.5, "properties": 3.0}


def _publish(kind: str) -> Maker:
    def make(_: Arena, settings: Settings) -> list[Contender]:
        route = ROUTES[kind]
        bursts = max(1, (QUICK_BURSTS if settings.quick else BURSTS) // route.queues)
        name, timeout = NAMES[kind], settings.timeout
        return [Steps(name, publish, route, bursts, timeout=timeout, memory=STREAM_MEMORY)]

    return make


TOPOLOGIES: tuple[Topology, ...] = tuple(
    Topology(
        f"publish-{kind}",
        f"{NAMES[kind]}; a burst of 1,000, and one of Queue.put, in turn",
        "time of the median burst / messages of it that arrived in queues, in one process",
        {"publish": (Detail(TIMES_PUT, MOST_TIMES_PUT.get(kind), "x Queue.put in the same process"),)},
        _publish(kind),
    )
    for kind in ROUTES
)
"""Topologies of publishing, in the order of printing."""
