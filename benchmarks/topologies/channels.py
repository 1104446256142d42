# SPDX-License-Identifier: Apache-2.0
"""Topologies of channels: consumers that are called back, callbacks in parallel, and many open channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.shm import channels
from benchmarks.shm.channels import OF_GET, RSS_MB
from benchmarks.shm.contenders import Steps
from benchmarks.targets import AtLeast, Detail, Limit
from benchmarks.topologies.streams import RATE, stream
from benchmarks.topologies.topology import STREAM_MEMORY, Topology, rounds

if TYPE_CHECKING:
    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings
    from benchmarks.shm.link import Way
    from benchmarks.topologies.topology import Maker

CHANNELS = 10_000
FILLED = {
    "get": "Queue.get, ack",
    "channel": "basic_consume, basic_ack",
    "channel-auto-ack": "basic_consume(auto_ack=True)",
    "asyncio": "async for, ack",
}
_CALLS = "callbacks / seconds from the start of the consumers to the end of the last callback"
_OPENING = "time of the calls; every tenth part of the channels must then carry a message"


def _filled(way: Way) -> Maker:
    def make(_: Arena, settings: Settings) -> list[Contender]:
        repeats = 4 * rounds(settings)
        return [Steps(FILLED[way], channels.filled, way, repeats, timeout=settings.timeout, memory=STREAM_MEMORY)]

    return make


def _called_back(way: Way) -> Maker:
    return lambda arena, settings: (_filled(way) if arena.name == "filled" else stream(FILLED[way], way))(
        arena, settings
    )


def _parallel(number: int) -> Maker:
    def make(_: Arena, settings: Settings) -> list[Contender]:
        name = f"{number} channel{'s' if number > 1 else ''}, {number} thread{'s' if number > 1 else ''}"
        return [Steps(name, channels.parallel, number, 20 if settings.quick else 100, timeout=settings.timeout)]

    return make


def _open_channels(used: bool) -> Maker:  # noqa: FBT001 (one of two)
    def make(_: Arena, settings: Settings) -> list[Contender]:
        name = f"{CHANNELS:,} channels{', each asked for a message' if used else ''}"
        timeout = settings.timeout
        return [Steps(name, channels.open_channels, CHANNELS, used, timeout=timeout, fresh="process")]

    return make


TOPOLOGIES: tuple[Topology, ...] = (
    Topology(
        "callback-get",
        "put, get, bytes, ack: for comparison",
        RATE,
        {"channel-consume": (), "filled": ()},
        _called_back("get"),
    ),
    Topology(
        "callback-channel",
        "basic_publish; an executor of one thread, a callback that calls basic_ack",
        RATE,
        {
            "channel-consume": (AtLeast(0.3, than=(FILLED["get"],), called="Queue.get"),),
            "filled": (Detail(OF_GET, 0.3, "of Queue.get in the same process", at_least=True),),
        },
        _called_back("channel"),
    ),
    Topology(
        "callback-auto-ack",
        "basic_publish; an executor of one thread, auto_ack",
        RATE,
        {"channel-consume": (), "filled": (Detail(OF_GET, None, "of Queue.get in the same process"),)},
        _called_back("channel-auto-ack"),
    ),
    Topology(
        "callback-asyncio",
        "put; async for message in queue.consume(prefetch=64), bytes, ack",
        RATE,
        {
            "channel-consume": (Limit(200e3, "messages/s", at_least=True),),
            "filled": (
                Limit(200e3, "messages/s", at_least=True),
                Detail(OF_GET, None, "of Queue.get in the same process"),
            ),
        },
        _called_back("asyncio"),
    ),
    Topology(
        "parallel-1",
        "one channel: one callback at a time",
        _CALLS,
        {"channel-parallel": ()},
        _parallel(1),
    ),
    Topology(
        "parallel-8",
        "8 channels, each with a queue, and a pool of 8: a counter must have seen 8 callbacks at once",
        _CALLS,
        {"channel-parallel": (AtLeast(7.0, than=("1 channel, 1 thread",), called="one channel"),)},
        _parallel(8),
    ),
    Topology(
        "open-channels",
        "10,000 channels opened in a new process",
        _OPENING,
        {"open-channels": (Limit(1000.0, "ms"), Detail(RSS_MB, 20.0, "MB of memory"))},
        _open_channels(used=False),
    ),
    Topology(
        "open-channels-used",
        "the same, and each has something in the core: it asked for a message",
        _OPENING,
        {"open-channels": (Detail(RSS_MB, None, "MB of memory"),)},
        _open_channels(used=True),
    ),
)
"""Topologies of channels, and of what they are compared with, in the order of printing."""
