# SPDX-License-Identifier: Apache-2.0
"""Topologies of the start of a program: the import, and connect() with and without a running broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.shm import footprint
from benchmarks.shm.contenders import Steps
from benchmarks.shm.start import CONNECT, IMPORT, Start
from benchmarks.targets import Limit
from benchmarks.topologies.topology import Topology

if TYPE_CHECKING:
    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings
    from benchmarks.topologies.topology import Maker


def _start(name: str, program: str) -> Maker:
    return lambda _, settings: [Start(name, program, settings.timeout)]


def _connect(_: Arena, settings: Settings) -> list[Contender]:
    timeout = settings.timeout
    return [
        Steps("first of a process", footprint.connects, 1, timeout=timeout, fresh="process"),
        Steps("later ones", footprint.connects, 20, timeout=timeout),
    ]


TOPOLOGIES: tuple[Topology, ...] = (
    Topology(
        "import",
        "import shmbroker in a new interpreter",
        "time of the import",
        {"start": (Limit(60.0, "ms"),)},
        _start("import shmbroker", IMPORT),
    ),
    Topology(
        "first-connect",
        "connect() in a new interpreter, to a broker that it has to make",
        "time of the call; the connection must then carry a message",
        {"start": (Limit(10.0, "ms"),)},
        _start("connect(), which makes the broker", CONNECT),
    ),
    Topology(
        "connect",
        "connect() to a running broker, in a new process and in a warm one",
        "mean time of the calls; the connection must then carry a message",
        {"connect": (Limit(10.0, "ms"),)},
        _connect,
    ),
)
"""Topologies of the start, in the order of printing."""
