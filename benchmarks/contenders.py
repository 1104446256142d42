# SPDX-License-Identifier: Apache-2.0
"""Contenders that run a stream or a ping-pong, and those of the peers.

A stream's length is found by a pilot run, so that each run takes about the same
time for the fastest and for the slowest; the pilot also warms up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.harness import Contender, Kind, Settings
from benchmarks.processes import WorkerError
from benchmarks.streams import Stream, ping_pong_sample

if TYPE_CHECKING:
    from benchmarks.compare.protocol import Peer
    from benchmarks.samples import Sample

SMALLEST_COUNT = 64
LARGEST_COUNT = 1_000_000
PILOTS = ((1 << 14, 2048), (1 << 17, 256), (1 << 62, 64))
PAUSED_SHARE = 6


def pilot_count(size: int) -> int:
    """Return how many messages of a size a pilot run sends.

    Args:
        size: In bytes.
    """
    return next(count for limit, count in PILOTS if size <= limit)


class StreamContender(Contender):
    """Anything that runs a stream."""

    def __init__(self, name: str, kind: Kind, short: str, stream: Stream, settings: Settings) -> None:
        """Take the stream's shape; its count is found by the pilot.

        Args:
            name: Shown in tables.
            kind: Whose it is.
            short: Heads a narrow column.
            stream: Its count is ignored.
            settings: How long a run should take.
        """
        super().__init__(name, kind, short)
        self.stream = replace(stream, timeout=settings.timeout)
        self._seconds = settings.seconds

    def prepare(self) -> None:
        """Run the pilot twice (cold, then warm) and choose the count."""
        count = pilot_count(self.stream.size)
        for _ in range(2):
            self.stream = replace(self.stream, count=count)
            pilot = self.run()
            if not pilot.verified:
                raise WorkerError(pilot.fault)
            wanted = int(pilot.value * self._seconds / self.stream.producers)
            count = max(SMALLEST_COUNT, min(LARGEST_COUNT, wanted))
        self.stream = replace(self.stream, count=count)


class PeerStream(StreamContender):
    """A peer's stream, from one process to another."""

    def __init__(self, peer: Peer, stream: Stream, settings: Settings) -> None:
        """Take a peer.

        Args:
            peer: Whose stream it is.
            stream: Its shape.
            settings: How long a run should take.
        """
        super().__init__(peer.name, Kind.PEER, peer.short, stream, settings)
        self._peer = peer
        self.waiting = peer.waiting

    def version(self) -> str:
        """Return the peer's version."""
        return self._peer.version()

    def available(self) -> str | None:
        """Return why the peer cannot run, or cannot carry bodies of this size."""
        largest = self._peer.largest
        if largest is not None and self.stream.size > largest:
            return f"carries at most {largest:,} bytes"
        return self._peer.available()

    def run(self) -> Sample:
        """Run once, over a new link."""
        return self._peer.stream(self.stream)


class PeerPingPong(Contender):
    """A peer's round trips."""

    def __init__(self, peer: Peer, size: int, pause: float, settings: Settings) -> None:
        """Take a peer.

        Args:
            peer: Whose round trips.
            size: Length of each body in bytes.
            pause: Seconds to wait before each trip.
            settings: How many trips.
        """
        super().__init__(peer.name, Kind.PEER, peer.short)
        self._peer = peer
        self._size = size
        self._pause = pause
        self._settings = settings
        self.waiting = peer.waiting

    def version(self) -> str:
        """Return the peer's version."""
        return self._peer.version()

    def available(self) -> str | None:
        """Return why the peer cannot run."""
        return self._peer.available()

    def run(self) -> Sample:
        """Run once, over two new links."""
        count = trips(self._settings, self._pause)
        trip_ns, wrong = self._peer.ping_pong(count, size=self._size, pause=self._pause, timeout=self._settings.timeout)
        return ping_pong_sample(trip_ns, wrong, count)


def trips(settings: Settings, pause: float) -> int:
    """Return the round trips of one run: fewer where each is preceded by a pause.

    Args:
        settings: How thorough to be.
        pause: Seconds before each trip.
    """
    return settings.trips // PAUSED_SHARE if pause else settings.trips
