# SPDX-License-Identifier: Apache-2.0
"""The measurements: what is sent, and what is measured on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.payload import total, touch
from benchmarks.routing import KINDS
from benchmarks.samples import BYTES, CALLS, COST, LATENCY, MILLISECONDS, PERCENT, RATE
from benchmarks.streams import Stream

if TYPE_CHECKING:
    from benchmarks.samples import Metric

KIB = 1 << 10
MIB = 1 << 20
ASLEEP_SECONDS = 0.002


@dataclass(frozen=True)
class Arena:
    """A measurement to be: where topologies and peers meet.

    Attributes:
        name: For `--only` and the JSON file.
        title: For people.
        metric: What is measured.
        stream: Shape of the stream, where there is one.
        pause: Seconds before each round trip, for ping-pongs.
        peers: Whether the peers take part.
        baseline: Whether ratios refer to the peers or to the first contender.
    """

    name: str
    title: str
    metric: Metric
    stream: Stream = field(default_factory=lambda: Stream(64, 0))
    pause: float = 0.0
    peers: bool = True
    baseline: str = "peers"

    @property
    def processes(self) -> int:
        """Worker processes of one run."""
        return self.stream.processes


ARENAS = (
    Arena("one-to-one-64B", "one producer, one consumer, 64 B", RATE),
    Arena("one-to-one-1KiB", "one producer, one consumer, 1 KiB", RATE, Stream(KIB, 0)),
    Arena(
        "in-place-64KiB",
        "one producer, one consumer, 64 KiB, every 4,096th byte read",
        RATE,
        Stream(64 * KIB, 0, mark=touch),
    ),
    Arena(
        "in-place-1MiB",
        "one producer, one consumer, 1 MiB, every 4,096th byte read",
        RATE,
        Stream(MIB, 0, mark=touch),
    ),
    Arena(
        "written-64KiB",
        "one producer, one consumer, 64 KiB, each byte written and read in place",
        RATE,
        Stream(64 * KIB, 0, mark=total),
        peers=False,
    ),
    Arena(
        "written-1MiB",
        "one producer, one consumer, 1 MiB, each byte written and read in place",
        RATE,
        Stream(MIB, 0, mark=total),
        peers=False,
    ),
    Arena(
        "busy-thread",
        "one producer, one consumer beside a busy Python thread, 64 B",
        RATE,
        Stream(64, 0, busy=True),
    ),
    Arena(
        "three-to-one",
        "three producers, one consumer, 64 B",
        RATE,
        Stream(64, 0, producers=3),
    ),
    Arena(
        "one-to-three",
        "one producer, three competing consumers, 64 B",
        RATE,
        Stream(64, 0, consumers=3),
    ),
    Arena(
        "three-to-three",
        "three producers, three competing consumers, 64 B",
        RATE,
        Stream(64, 0, producers=3, consumers=3),
    ),
    Arena("ping-pong", "round trips, 64 B, back to back", LATENCY),
    Arena(
        "ping-pong-asleep",
        f"round trips, 64 B, {ASLEEP_SECONDS * 1000:g} ms apart",
        LATENCY,
        pause=ASLEEP_SECONDS,
    ),
    Arena(
        "ping-pong-bulk", "round trips, 64 B, beside a bulk transfer of others", LATENCY, peers=False, baseline="first"
    ),
    Arena("depth", "put + get + ack at a depth", COST, peers=False, baseline="first"),
    Arena(
        "consumers",
        "put + get + ack with many consumers in one process",
        COST,
        peers=False,
        baseline="first",
    ),
    Arena(
        "queues",
        "put + get + ack over many queues in turn",
        COST,
        peers=False,
        baseline="first",
    ),
    Arena("publish", "publishing, 64 B, in one process", COST, peers=False, baseline="first"),
    Arena(
        "channel-consume", "one producer, one consumer that is called back, 64 B", RATE, peers=False, baseline="first"
    ),
    Arena("filled", "one consumer of a queue that was filled before, 64 B", RATE, peers=False, baseline="first"),
    Arena(
        "channel-parallel",
        "callbacks that sleep 5 ms, one at a time for each channel",
        CALLS,
        peers=False,
        baseline="first",
    ),
    Arena("open-channels", "channels opened by one connection", MILLISECONDS, peers=False, baseline="first"),
    *(
        Arena(f"routing-{kind}", f"finding one queue, {kind} exchange, no broker", COST, peers=False, baseline="first")
        for kind in KINDS
    ),
    Arena("selectors", "counting with a selector", COST, peers=False, baseline="first"),
    Arena("feature-put", "putting 64 B with a header", COST, peers=False, baseline="first"),
    Arena("feature-priority", "put and get by priority", COST, peers=False, baseline="first"),
    Arena("feature-groups", "get and ack of messages of groups", COST, peers=False, baseline="first"),
    Arena("feature-dead-letter", "a message to the dead letters", COST, peers=False, baseline="first"),
    Arena("feature-delay", "what a delay adds to a message", COST, peers=False, baseline="first"),
    Arena("feature-delayed", "a message that is delayed", COST, peers=False, baseline="first"),
    Arena("durable", "publishing 1 KiB to the disk, each before the next", COST, peers=False, baseline="first"),
    Arena("durable-bulk", "publishing 1 KiB to the disk, 1,000 at a time", COST, peers=False, baseline="first"),
    Arena("start", "the start of a program", MILLISECONDS, peers=False),
    Arena(
        "connect",
        "connect() to a running broker",
        MILLISECONDS,
        peers=False,
        baseline="first",
    ),
    Arena("memory", "empty queues", BYTES, peers=False, baseline="first"),
    Arena("idle", "consumers at rest", PERCENT, peers=False, baseline="first"),
    Arena("c-core", "the C core alone, 64 B", RATE, peers=False, baseline="first"),
)
"""All measurements, in the order of running."""
