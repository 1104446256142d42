# SPDX-License-Identifier: Apache-2.0
"""The table of everything that is measured: which way to use shmbroker, in which measurements, with which targets.

A topology is one way to use shmbroker. It takes part in one or more measurements,
where it is run and compared with the peers or, for what has no peer, with the
first point of its own sweep. Each module holds the topologies of one subject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.topologies import (
    c_core,
    channels,
    durable,
    features,
    footprint,
    publishing,
    round_trips,
    routing,
    selectors,
    start,
    streams,
    sweeps,
)

if TYPE_CHECKING:
    from benchmarks.topologies.topology import Topology

_SUBJECTS = (
    *(streams, round_trips, sweeps, publishing, channels, routing, selectors, features, durable, start, footprint),
    c_core,
)

TOPOLOGIES: dict[str, Topology] = {one.name: one for subject in _SUBJECTS for one in subject.TOPOLOGIES}
"""All topologies by name, in the order of printing."""

__all__ = ["TOPOLOGIES"]
