# SPDX-License-Identifier: Apache-2.0
"""Topologies of streams between processes: the ways to put and to take, and bodies written and read in place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.mapping import BareMapping
from benchmarks.shm.contenders import QueueStream
from benchmarks.shm.link import DEPTH, FEW
from benchmarks.targets import AtLeast, Either
from benchmarks.topologies.against_peers import SHARED_MEMORY_PEERS, best, one_at_a_time
from benchmarks.topologies.topology import STREAM_MEMORY, Topology

if TYPE_CHECKING:
    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings
    from benchmarks.shm.link import Way
    from benchmarks.topologies.topology import Maker

RATE = "arrived messages / seconds from the agreed start to the last arrival"
BUSY = " beside a busy thread"
BARE = "bare mapping"
OF_BARE = AtLeast(0.9, than=(BARE,), called=f"a {BARE}")
COPIED_IN = Either(AtLeast(1.5, than=SHARED_MEMORY_PEERS, called="iceoryx2"), OF_BARE)


def stream(name: str, way: Way, *, busy: bool = False) -> Maker:
    """Return the maker of a stream through a queue.

    Args:
        name: Of the contender, shown in tables.
        way: How to put and to take.
        busy: Whether a thread of pure Python runs beside the consumer, also where the peers have none.
    """

    def make(arena: Arena, settings: Settings) -> list[Contender]:
        shape = replace(arena.stream, busy=arena.stream.busy or busy)
        return [QueueStream(name, way, shape, settings, STREAM_MEMORY)]

    return make


def _bare_mapping(arena: Arena, settings: Settings) -> list[Contender]:
    slots = DEPTH if arena.name.startswith("in-place") else FEW
    return [BareMapping(arena.stream, slots, settings)]


TOPOLOGIES: tuple[Topology, ...] = (
    Topology(
        "put-get-ack",
        "put, get, bytes, ack: one message at a time",
        RATE,
        {
            "one-to-one-64B": one_at_a_time(1.5, 1.5, worst=1.2),
            "one-to-one-1KiB": one_at_a_time(1.0, 1.5),
            "three-to-one": best(1.5),
            "one-to-three": best(1.5),
            "three-to-three": best(1.5),
        },
        lambda arena, settings: stream("put-get-ack", "share" if arena.stream.consumers > 1 else "get")(
            arena, settings
        ),
    ),
    Topology(
        "auto-ack",
        "put, get(auto_ack=True), bytes",
        RATE,
        {"one-to-one-64B": best(1.8), "one-to-one-1KiB": best(1.3)},
        stream("auto-ack", "auto-ack"),
    ),
    Topology(
        "consume",
        "put, consume(ack_batch=64), bytes, ack",
        RATE,
        {
            "one-to-one-64B": best(2.5),
            "one-to-one-1KiB": best(1.5),
            "three-to-one": best(1.5),
        },
        stream("consume", "consume"),
    ),
    Topology(
        "batch",
        "put_many(256), get_many(256), batch.bodies(), batch.ack()",
        RATE,
        {"one-to-one-64B": best(6.0), "one-to-one-1KiB": (), "three-to-one": best(1.5)},
        stream("batch", "batch"),
    ),
    Topology(
        "put-get-ack-busy",
        "put-get-ack with a busy Python thread in the consumer; the peers without",
        RATE,
        {"one-to-one-64B": one_at_a_time(0.8, 0.8), "one-to-one-1KiB": one_at_a_time(0.5, 0.75)},
        stream("put-get-ack" + BUSY, "get", busy=True),
    ),
    Topology(
        "auto-ack-busy",
        "auto-ack with a busy Python thread in the consumer; the peers without",
        RATE,
        {"one-to-one-64B": best(0.8)},
        stream("auto-ack" + BUSY, "auto-ack", busy=True),
    ),
    Topology(
        "busy-thread",
        "put-get-ack; a busy Python thread in the consumer, the peers' too",
        RATE,
        {"busy-thread": ()},
        stream("put-get-ack", "get"),
    ),
    Topology(
        "zero-copy",
        "put into a queue of at most 256; get, one byte of each page read in place, ack",
        RATE,
        {"in-place-64KiB": (COPIED_IN,), "in-place-1MiB": (COPIED_IN,)},
        stream("zero-copy", "in-place"),
    ),
    Topology(
        "written",
        "reserve, the body copied into it; get, the sum of all its 64-bit words, ack",
        RATE,
        {"written-64KiB": (OF_BARE,), "written-1MiB": (OF_BARE,)},
        stream("reserve, body", "reserve"),
    ),
    Topology(
        "bare-mapping",
        "the same with a shared mapping and a flag for each of its slots, for which each side spins",
        RATE,
        {"written-64KiB": (), "written-1MiB": (), "in-place-64KiB": (), "in-place-1MiB": ()},
        _bare_mapping,
    ),
)
"""Topologies of a stream, in the order of printing."""
