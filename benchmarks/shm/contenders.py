# SPDX-License-Identifier: Apache-2.0
"""Contenders of our own: streams, round trips, and steps of a standing worker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.contenders import StreamContender, trips
from benchmarks.harness import Contender, Kind, Settings
from benchmarks.processes import Standing
from benchmarks.shm import broker as brokers
from benchmarks.shm.footprint import SHARED_MEMORY
from benchmarks.shm.link import QueueLink, Way
from benchmarks.streams import Stream, ping_pong, ping_pong_sample, run_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import shmbroker
    from benchmarks.samples import Sample


class OnBroker:
    """The part of a contender of ours that runs a broker of its own."""

    memory = "256M"
    broker: shmbroker.Broker | None = None

    def available(self) -> str | None:
        """Return why shmbroker cannot run here."""
        return brokers.unavailable()

    def start(self) -> str:
        """Start the broker.

        Returns:
            Its name.
        """
        self.broker, name = brokers.start_broker(self.memory)
        return name

    def stop(self) -> None:
        """Purge the broker, if it runs."""
        if self.broker is not None:
            self.broker.stop(purge=True)
            self.broker = None


class QueueStream(OnBroker, StreamContender):
    """A stream through a queue."""

    def __init__(self, name: str, way: Way, stream: Stream, settings: Settings, memory: str) -> None:
        """Choose how the queue is used.

        Args:
            name: Shown in tables.
            way: How to put and take.
            stream: Its shape.
            settings: How long a run should take.
            memory: The broker's limit.
        """
        super().__init__(name, Kind.OURS, "", stream, settings)
        self._way = way
        self._link: QueueLink | None = None
        self.memory = memory

    def prepare(self) -> None:
        """Start a broker, which stays for all runs, and run the pilot."""
        self._link = QueueLink(self.start(), self._way)
        super().prepare()

    def run(self) -> Sample:
        """Run once; the queue is empty before and after."""
        if self._link is None:
            message = "run before prepare"
            raise RuntimeError(message)
        return run_stream(self._link, self.stream)

    def close(self) -> None:
        """Purge the broker."""
        self.stop()


class QueuePingPong(OnBroker, Contender):
    """Round trips through two queues."""

    def __init__(self, name: str, way: Way, size: int, pause: float, settings: Settings) -> None:
        """Choose how the queues are used.

        Args:
            name: Shown in tables.
            way: How to take.
            size: Length of each body in bytes.
            pause: Seconds to wait before each trip.
            settings: How many trips.
        """
        super().__init__(name)
        self._way = way
        self._size = size
        self._pause = pause
        self._settings = settings
        self._name = ""
        self.waiting = "spinning" if way == "spin" else "sleeping"

    def prepare(self) -> None:
        """Start a broker."""
        self._name = self.start()

    def run(self) -> Sample:
        """Run once."""
        count = trips(self._settings, self._pause)
        trip_ns, wrong = ping_pong(
            QueueLink(self._name, self._way, "there"),
            QueueLink(self._name, self._way, "back"),
            size=self._size,
            count=count,
            pause=self._pause,
            timeout=self._settings.timeout,
        )
        return ping_pong_sample(trip_ns, wrong, count)

    def close(self) -> None:
        """Purge the broker."""
        self.stop()


class Steps(OnBroker, Contender):
    """Something that a standing worker does to a broker, one step per run."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Generator[Any, None, None]],
        *arguments: object,
        timeout: float,
        memory: str = "256M",
        needs_bytes: int = 0,
        fresh: Literal["", "process", "broker"] = "",
    ) -> None:
        """Choose what to do.

        Args:
            name: Shown in tables.
            function: A generator function whose first argument is the broker's name.
            *arguments: Its other arguments.
            timeout: Seconds for the preparation, and for each step.
            memory: The broker's limit.
            needs_bytes: Shared memory that must be free.
            fresh: What every run starts anew: nothing, the worker's process, or
                that and the broker too.
        """
        super().__init__(name)
        self._function = function
        self._arguments = arguments
        self._timeout = timeout
        self._needs_bytes = needs_bytes
        self._fresh = fresh
        self._name = ""
        self._worker: Standing | None = None
        self.accountable = False
        self.memory = memory

    def available(self) -> str | None:
        """Return why it cannot run: no shmbroker, or too little shared memory."""
        space = os.statvfs(SHARED_MEMORY)
        free = space.f_bavail * space.f_frsize
        if self._needs_bytes > free:
            return f"needs {self._needs_bytes / 2**30:.1f} GiB of shared memory"
        return super().available()

    def prepare(self) -> None:
        """Start the broker and, unless each run has its own, the worker."""
        if self._fresh != "broker":
            self._name = self.start()
        if not self._fresh:
            self._worker = self._start_worker()

    def _start_worker(self) -> Standing:
        return Standing(
            self.name,
            self._function,
            self._name,
            *self._arguments,
            timeout=self._timeout,
        )

    def run(self) -> Sample:
        """Make one step."""
        if self._worker is not None:
            sample: Sample = self._worker.step()
            return sample
        if self._fresh == "broker":
            self._name = self.start()
        try:
            with self._start_worker() as worker:
                sample = worker.step()
        finally:
            if self._fresh == "broker":
                self.stop()
        return sample

    def close(self) -> None:
        """End the worker and purge the broker."""
        if self._worker is not None:
            self._worker.close()
        self.stop()
