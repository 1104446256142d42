# SPDX-License-Identifier: Apache-2.0
"""Round trips beside a bulk transfer between two other processes, through one broker."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from queue import Empty
from typing import TYPE_CHECKING, Any

from benchmarks.contenders import trips
from benchmarks.harness import Contender, Settings
from benchmarks.payload import touch
from benchmarks.processes import Control, Job, run_together
from benchmarks.shm.broker import opened
from benchmarks.shm.contenders import OnBroker
from benchmarks.shm.link import QueueLink
from benchmarks.streams import SPAWN_SECONDS, WARM_UP_TRIPS, ping, ping_pong_sample, pong

if TYPE_CHECKING:
    from benchmarks.samples import Sample

BULK, STOP = "bulk", "stop"
BODY = 1 << 20
AHEAD = 16
TAIL = "p99.9 / p50"
BULK_RATE = "GB/s beside"


@dataclass
class Stopping:
    """The control of a worker that stops the bulk transfer when it has finished."""

    control: Control
    broker: str

    def ready(self) -> int:
        """Wait for the agreed start."""
        return self.control.ready()

    def finish(self, result: object = None) -> None:
        """Stop the transfer, then hand in the result."""
        with opened(self.broker, STOP) as (_, queue):
            queue.put(b"")
        self.control.finish(result)


def ping_and_stop(control: Control, broker: str, *arguments: Any) -> None:  # noqa: ANN401 (those of `ping`)
    """Worker: as `ping`, and then the transfer stops."""
    ping(Stopping(control, broker), *arguments)


def transfer(control: Control, broker: str, bytes_per_second: float) -> None:
    """Worker: send large bodies at this rate until told to stop; report the rate."""
    body = bytes(range(256)) * (BODY // 256)
    with opened(broker, BULK, max_length=AHEAD) as (connection, queue):
        stop = connection.queue(STOP)
        start_ns = control.ready()
        sent = 0
        while True:
            try:
                stop.get_nowait(auto_ack=True)
                break
            except Empty:
                queue.put(body)
            sent += 1
            due_ns = start_ns + int(sent * BODY / bytes_per_second * 1e9)
            time.sleep(max(0, due_ns - time.perf_counter_ns()) / 1e9)
        seconds = (time.perf_counter_ns() - start_ns) / 1e9
        queue.put(b"")
        control.finish(sent * BODY / seconds)


def swallow(control: Control, broker: str) -> None:
    """Worker: touch the large bodies where they lie, until an empty one comes."""
    with opened(broker, BULK, max_length=AHEAD) as (_, queue):
        control.ready()
        size = BODY
        while size:
            message = queue.get()
            size = len(message.body)
            touch(message.body)
            message.ack()
        control.finish()


class PingPongBesideBulk(OnBroker, Contender):
    """Round trips through two queues, while two other processes use a third one of the same broker."""

    def __init__(self, size: int, bytes_per_second: float, settings: Settings) -> None:
        """Choose the load.

        Args:
            size: Length of each body of a round trip in bytes.
            bytes_per_second: Of the transfer; 0: there is none.
            settings: How many trips.
        """
        super().__init__(f"beside {bytes_per_second / 1e9:g} GB/s" if bytes_per_second else "alone")
        self._size = size
        self._rate = bytes_per_second
        self._settings = settings
        self._name = ""

    def prepare(self) -> None:
        """Start a broker."""
        self._name = self.start()

    def run(self) -> Sample:
        """Run once."""
        count, broker = trips(self._settings, 0.0), self._name
        there, back = QueueLink(broker, "get", "there"), QueueLink(broker, "get", "back")
        number = count + WARM_UP_TRIPS
        jobs = [
            Job("ping", ping_and_stop, (broker, there, back, self._size, number, 0.0)),
            Job("pong", pong, (there, back, number)),
        ]
        if self._rate:
            jobs += [Job("transfer", transfer, (broker, self._rate)), Job("swallow", swallow, (broker,))]
        results = run_together(jobs, timeout=self._settings.timeout + SPAWN_SECONDS)
        if not self._rate:
            with opened(broker, STOP) as (_, queue):
                queue.purge()
        trip_ns, wrong = results[0]
        sample = ping_pong_sample(trip_ns[WARM_UP_TRIPS:], wrong, count)
        details = {BULK_RATE: results[2] / 1e9} if self._rate else {}
        if sample.shape is not None:
            details[TAIL] = sample.shape.p999 / sample.shape.p50
        return replace(sample, details=details)

    def close(self) -> None:
        """Purge the broker."""
        self.stop()
