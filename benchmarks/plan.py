# SPDX-License-Identifier: Apache-2.0
"""Which contenders meet in which measurement, for what was asked for."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from benchmarks.arenas import ARENAS
from benchmarks.compare import PEERS
from benchmarks.contenders import PeerPingPong, PeerStream
from benchmarks.harness import Measurement
from benchmarks.topologies import TOPOLOGIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.arenas import Arena
    from benchmarks.compare.protocol import Peer
    from benchmarks.harness import Contender, Settings


ARENA_NAMES = [arena.name for arena in ARENAS]
PEER_NAMES = [peer.name for peer in PEERS]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _naming(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the patterns that match at least one of the names."""
    known = list(names)
    return [one for one in patterns if any(fnmatchcase(name, one) for name in known)]


def unknown(patterns: Sequence[str]) -> list[str]:
    """Return the patterns that match no measurement, topology or peer.

    Args:
        patterns: From the command line.
    """
    known = _naming([*ARENA_NAMES, *TOPOLOGIES, *PEER_NAMES], patterns)
    return [pattern for pattern in patterns if pattern not in known]


def _peer(peer: Peer, arena: Arena, settings: Settings) -> Contender:
    if arena.metric.latency:
        return PeerPingPong(peer, arena.stream.size, arena.pause, settings)
    return PeerStream(peer, arena.stream, settings)


def plan(settings: Settings, only: Sequence[str] = ()) -> list[Measurement]:
    """Return the measurements to run.

    Args:
        settings: How thorough to be, and whether the peers run.
        only: Names or patterns. That of a measurement chooses all of it, that of a
            topology chooses it alone wherever it takes part; that of a peer restricts
            the peers. With peers alone, only they run.

    Returns:
        Those measurements that have a contender.
    """
    of_arenas = _naming(ARENA_NAMES, only)
    of_peers = _naming(PEER_NAMES, only)
    of_topologies = [one for one in only if one not in {*of_arenas, *of_peers}]
    everything = not of_arenas and not of_topologies
    peers = [one for one in PEERS if _matches(one.name, of_peers)]
    measurements = []
    for arena in ARENAS:
        whole = everything or _matches(arena.name, of_arenas)
        ours = [
            one
            for one in TOPOLOGIES.values()
            if arena.name in one.targets and (whole or _matches(one.name, of_topologies))
        ]
        contenders: list[Contender] = []
        if arena.peers and ours:
            chosen = peers or (PEERS if settings.peers else ())
            shared = arena.processes > 2  # noqa: PLR2004 (one at each end)
            contenders += [_peer(peer, arena, settings) for peer in chosen if peer.shares or not shared]
        if not (peers and everything):
            for one in ours:
                contenders += one.contenders(arena, settings)
        if contenders:
            measurements.append(_measurement(arena, contenders))
    return measurements


def _measurement(arena: Arena, contenders: list[Contender]) -> Measurement:
    return Measurement(
        name=arena.name,
        title=arena.title,
        metric=arena.metric,
        contenders=contenders,
        baseline=arena.baseline,
        processes=arena.processes,
    )
