# SPDX-License-Identifier: Apache-2.0
"""The table of everything that is measured: who sends what to whom, and the target.

A topology is one way to use shmbroker. It takes part in one or more measurements,
where it is run and compared with the peers or, for what has no peer, with the
first point of its own sweep.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.mapping import BareMapping
from benchmarks.routing import KINDS, SIZES, Routes
from benchmarks.shm import channels, footprint, scaling
from benchmarks.shm.bulk import TAIL, PingPongBesideBulk
from benchmarks.shm.channels import OF_GET, RSS_MB
from benchmarks.shm.contenders import QueuePingPong, QueueStream, Steps
from benchmarks.shm.core import CPrograms
from benchmarks.shm.idle import IdleConsumers
from benchmarks.shm.link import DEPTH
from benchmarks.shm.publishing import TIMES_PUT, Route, publish
from benchmarks.shm.start import CONNECT, IMPORT, Start
from benchmarks.targets import AtLeast, Detail, Either, Flat, Limit, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings
    from benchmarks.shm.link import Way

    Maker = Callable[[Arena, Settings], list[Contender]]

STREAM_MEMORY = "1G"
DEEP_MEMORY = "8G"
BYTES_PER_DEEP_MESSAGE = 400
SMALL_ROUNDS = 20
LARGE_ROUNDS = 80
QUICK_BURSTS = 10
BURSTS = 50
CHANNELS = 10_000
BUSY = " beside a busy thread"
SHARED_MEMORY_PEERS = ("iceoryx2",)
FEW_SLOTS = 4  # of a bare mapping whose bodies stay in the cache
BARE = "bare mapping"
OF_BARE = AtLeast(0.9, than=(BARE,), called=f"a {BARE}")
COPIED_IN = Either(AtLeast(1.5, than=SHARED_MEMORY_PEERS, called="iceoryx2"), OF_BARE)


@dataclass(frozen=True)
class Topology:
    """One way to use shmbroker.

    Attributes:
        name: For `--only`.
        description: What happens.
        computed: How the value comes about.
        targets: What to reach, by the name of the measurement: it takes part in
            these.
        make: Makes the contenders for a measurement.
    """

    name: str
    description: str
    computed: str
    targets: Mapping[str, tuple[Target, ...]]
    make: Maker

    def contenders(self, arena: Arena, settings: Settings) -> list[Contender]:
        """Return the contenders for a measurement that this topology takes part in.

        Args:
            arena: The measurement.
            settings: How thorough to be.
        """
        made = self.make(arena, settings)
        for contender in made:
            contender.targets = self.targets[arena.name]
        return made


def _peers(pyzmq: float, others: float, worst: float | None = None) -> tuple[Target, ...]:
    """Return the target of messages sent one at a time."""
    return (
        AtLeast(pyzmq, than=("pyzmq",), called="pyzmq", worst=worst),
        AtLeast(others, without=("pyzmq",), called="the best other"),
    )


def _best(ratio: float, without: tuple[str, ...] = ()) -> tuple[Target, ...]:
    """Return a target against the best peer, and against the best of most."""
    targets = [AtLeast(ratio)]
    if without:
        called = f"the best without {', '.join(without)}"
        targets.append(AtLeast(ratio, without=without, called=called))
    return tuple(targets)


def _stream(name: str, way: Way, *, busy: bool = False) -> Maker:
    def make(arena: Arena, settings: Settings) -> list[Contender]:
        stream = replace(arena.stream, busy=arena.stream.busy or busy)
        return [QueueStream(name, way, stream, settings, STREAM_MEMORY)]

    return make


def _bare_mapping(arena: Arena, settings: Settings) -> list[Contender]:
    slots = DEPTH if arena.name.startswith("in-place") else FEW_SLOTS
    return [BareMapping(arena.stream, slots, settings)]


def _ping_pong(name: str, way: Way) -> Maker:
    def make(arena: Arena, settings: Settings) -> list[Contender]:
        size = arena.stream.size
        return [QueuePingPong(name, way, size, arena.pause, settings)]

    return make


def _beside_bulk(bytes_per_second: float) -> Maker:
    return lambda arena, settings: [PingPongBesideBulk(arena.stream.size, bytes_per_second, settings)]


def _rounds(settings: Settings) -> int:
    return SMALL_ROUNDS if settings.quick else LARGE_ROUNDS


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
            _rounds(settings),
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
            _rounds(settings),
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
            _rounds(settings),
            timeout=settings.timeout,
            memory=STREAM_MEMORY,
        )
        for number in ((1, 10, 100, 1000) if settings.quick else (1, 100, 1000, 10_000))
    ]


def _routing(kind: str) -> Maker:
    def make(_: Arena, settings: Settings) -> list[Contender]:
        sizes = SIZES[:1] if kind == "default" else SIZES
        return [Routes(kind, bindings, settings) for bindings in sizes]

    return make


PUBLISHING = {
    "put": Route("put"),
    "default": Route(),
    "direct": Route("direct"),
    "fanout-3": Route("fanout", 3),
    "fanout-100": Route("fanout", 100),
    "confirms": Route(confirms=True),
    "properties": Route(properties=True),
}
PUBLISHING_NAMES = {
    "put": "Queue.put",
    "default": "basic_publish, default exchange",
    "direct": "direct exchange, one queue",
    "fanout-3": "fanout exchange, 3 queues, each",
    "fanout-100": "fanout exchange, 100 queues, each",
    "confirms": "default exchange, confirms waited for every 1,000",
    "properties": "default exchange, with properties",
}


def _publish(kind: str) -> Maker:
    def make(_: Arena, settings: Settings) -> list[Contender]:
        route = PUBLISHING[kind]
        bursts = max(1, (QUICK_BURSTS if settings.quick else BURSTS) // route.queues)
        name, timeout = PUBLISHING_NAMES[kind], settings.timeout
        return [Steps(name, publish, route, bursts, timeout=timeout, memory=STREAM_MEMORY)]

    return make


MOST_TIMES_PUT = {"default": 1.5, "direct": 1.5, "properties": 3.0}

FILLED = {
    "get": "Queue.get, ack",
    "channel": "basic_consume, basic_ack",
    "channel-auto-ack": "basic_consume(auto_ack=True)",
    "asyncio": "async for, ack",
}


def _filled(way: Way) -> Maker:
    def make(_: Arena, settings: Settings) -> list[Contender]:
        rounds = 4 * _rounds(settings)
        return [Steps(FILLED[way], channels.filled, way, rounds, timeout=settings.timeout, memory=STREAM_MEMORY)]

    return make


def _called_back(way: Way) -> Maker:
    return lambda arena, settings: (_filled(way) if arena.name == "filled" else _stream(FILLED[way], way))(
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


def _connect(_: Arena, settings: Settings) -> list[Contender]:
    timeout = settings.timeout
    return [
        Steps("first of a process", footprint.connects, 1, timeout=timeout, fresh="process"),
        Steps("later ones", footprint.connects, 20, timeout=timeout),
    ]


def _start(name: str, program: str) -> Maker:
    return lambda _, settings: [Start(name, program, settings.timeout)]


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


def _c_core(arena: Arena, settings: Settings) -> list[Contender]:
    count = 10**6 if settings.quick else 5 * 10**6
    return [CPrograms(arena.stream.size, count, settings.timeout)]


_RATE = "arrived messages / seconds from the agreed start to the last arrival"
_TRIP = "p50 of the nanoseconds from put to answer in hand; median of all runs"
_CALLS = "callbacks / seconds from the start of the consumers to the end of the last callback"
_OPENING = "time of the calls; every tenth part of the channels must then carry a message"
_CYCLE = "time of put + get + ack, one at a time, / messages, in one process"

_TABLE = (
    Topology(
        "put-get-ack",
        "put, get, bytes, ack: one message at a time",
        _RATE,
        {
            "one-to-one-64B": _peers(1.5, 1.5, worst=1.2),
            "one-to-one-1KiB": _peers(1.0, 1.5),
            "three-to-one": _best(1.5),
            "one-to-three": _best(1.5),
            "three-to-three": _best(1.5),
        },
        lambda arena, settings: _stream("put-get-ack", "share" if arena.stream.consumers > 1 else "get")(
            arena, settings
        ),
    ),
    Topology(
        "auto-ack",
        "put, get(auto_ack=True), bytes",
        _RATE,
        {"one-to-one-64B": _best(1.8), "one-to-one-1KiB": _best(1.3)},
        _stream("auto-ack", "auto-ack"),
    ),
    Topology(
        "consume",
        "put, consume(ack_batch=64), bytes, ack",
        _RATE,
        {
            "one-to-one-64B": _best(2.5),
            "one-to-one-1KiB": _best(1.5),
            "three-to-one": _best(1.5),
        },
        _stream("consume", "consume"),
    ),
    Topology(
        "batch",
        "put_many(256), get_many(256), batch.bodies(), batch.ack()",
        _RATE,
        {"one-to-one-64B": _best(6.0), "one-to-one-1KiB": (), "three-to-one": _best(1.5)},
        _stream("batch", "batch"),
    ),
    Topology(
        "put-get-ack-busy",
        "put-get-ack with a busy Python thread in the consumer; the peers without",
        _RATE,
        {"one-to-one-64B": _peers(0.8, 0.8), "one-to-one-1KiB": _peers(0.5, 0.75)},
        _stream("put-get-ack" + BUSY, "get", busy=True),
    ),
    Topology(
        "auto-ack-busy",
        "auto-ack with a busy Python thread in the consumer; the peers without",
        _RATE,
        {"one-to-one-64B": _best(0.8)},
        _stream("auto-ack" + BUSY, "auto-ack", busy=True),
    ),
    Topology(
        "busy-thread",
        "put-get-ack; a busy Python thread in the consumer, the peers' too",
        _RATE,
        {"busy-thread": ()},
        _stream("put-get-ack", "get"),
    ),
    Topology(
        "zero-copy",
        "put into a queue of at most 256; get, one byte of each page read in place, ack",
        _RATE,
        {"in-place-64KiB": (COPIED_IN,), "in-place-1MiB": (COPIED_IN,)},
        _stream("zero-copy", "in-place"),
    ),
    Topology(
        "written",
        "reserve, the body copied into it; get, the sum of all its 64-bit words, ack",
        _RATE,
        {"written-64KiB": (OF_BARE,), "written-1MiB": (OF_BARE,)},
        _stream("reserve, body", "reserve"),
    ),
    Topology(
        "bare-mapping",
        "the same with a shared mapping and a flag for each of its slots, for which each side spins",
        _RATE,
        {"written-64KiB": (), "written-1MiB": (), "in-place-64KiB": (), "in-place-1MiB": ()},
        _bare_mapping,
    ),
    Topology(
        "ping-pong",
        "put there, get, ack, put back, get, ack; spins a little, then sleeps",
        _TRIP,
        {"ping-pong": _best(3.0, SHARED_MEMORY_PEERS), "ping-pong-asleep": (AtLeast(1.0),)},
        _ping_pong("waiting", "get"),
    ),
    Topology(
        "ping-pong-spinning",
        "the same with get_nowait in a loop: never sleeps",
        _TRIP,
        {"ping-pong": _best(3.0, SHARED_MEMORY_PEERS), "ping-pong-asleep": ()},
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
    *(
        Topology(
            f"publish-{kind}",
            f"{PUBLISHING_NAMES[kind]}; a burst of 1,000, and one of Queue.put, in turn",
            "time of the median burst / messages of it that arrived in queues, in one process",
            {"publish": (Detail(TIMES_PUT, MOST_TIMES_PUT.get(kind), "x Queue.put in the same process"),)},
            _publish(kind),
        )
        for kind in PUBLISHING
    ),
    Topology(
        "callback-get",
        "put, get, bytes, ack: for comparison",
        _RATE,
        {"channel-consume": (), "filled": ()},
        _called_back("get"),
    ),
    Topology(
        "callback-channel",
        "basic_publish; an executor of one thread, a callback that calls basic_ack",
        _RATE,
        {
            "channel-consume": (AtLeast(0.3, than=(FILLED["get"],), called="Queue.get"),),
            "filled": (Detail(OF_GET, 0.3, "of Queue.get in the same process", at_least=True),),
        },
        _called_back("channel"),
    ),
    Topology(
        "callback-auto-ack",
        "basic_publish; an executor of one thread, auto_ack",
        _RATE,
        {"channel-consume": (), "filled": (Detail(OF_GET, None, "of Queue.get in the same process"),)},
        _called_back("channel-auto-ack"),
    ),
    Topology(
        "callback-asyncio",
        "put; async for message in queue.consume(prefetch=64), bytes, ack",
        _RATE,
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
    *(
        Topology(
            f"routing-{kind}",
            f"a {kind} exchange with 10 to 100,000 bindings of queues; routes are not kept",
            "time of Router.route() / queues that were found, in one process",
            {f"routing-{kind}": ()},
            _routing(kind),
        )
        for kind in KINDS
    ),
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
    Topology(
        "c-core",
        "the two C programs, one message at a time",
        "messages / seconds, as the consumer reports them",
        {"c-core": (Limit(12e6, "messages/s", at_least=True),)},
        _c_core,
    ),
)

TOPOLOGIES: dict[str, Topology] = {one.name: one for one in _TABLE}
"""All topologies by name, in the order of printing."""
