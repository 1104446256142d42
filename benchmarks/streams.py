# SPDX-License-Identifier: Apache-2.0
"""The two experiments that peers and shmbroker share: a stream and a ping-pong.

Both run in spawned processes over a `Link`. The clock of a stream starts at an
instant agreed between all workers, when everything is open, and stops when the
consumer holds the last message; so nobody gains by sending ahead.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from benchmarks.payload import (
    CountedTally,
    MarkedTally,
    OrderedTally,
    Pool,
    Receipt,
    Tally,
)
from benchmarks.processes import Control, Job, run_together
from benchmarks.samples import Sample, percentiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.links import Link
    from benchmarks.payload import Mark

WARM_UP_TRIPS = 100
SPAWN_SECONDS = 30.0


@dataclass(frozen=True)
class Stream:
    """The shape of a stream.

    Attributes:
        size: Length of each body in bytes.
        count: Messages of each producer.
        producers: Number of producer processes.
        consumers: Number of consumer processes, which compete for the messages.
        mark: What the consumer computes of each body where it lies, and sends on; None: it takes the bodies as `bytes`.
        busy: Whether a thread of pure Python runs beside the consumer.
        timeout: Seconds after which a run is given up.
    """

    size: int
    count: int
    producers: int = 1
    consumers: int = 1
    mark: Mark | None = None
    busy: bool = False
    timeout: float = 60.0

    @property
    def processes(self) -> int:
        """Number of worker processes."""
        return self.producers + self.consumers

    def tally(self) -> Tally:
        """Return an empty tally of the kind that this stream allows."""
        if self.producers > 1 or self.consumers > 1:
            return CountedTally()
        pool = Pool(self.size)
        return MarkedTally(pool, self.mark) if self.mark else OrderedTally(pool)

    def expected(self) -> Receipt:
        """Return what must arrive, at all consumers together."""
        total = Receipt(0, 0)
        marks = (self.mark,) if self.mark else ()
        for number in range(self.producers):
            total += Pool(self.size, number).receipt(self.count, *marks)
        return total


@dataclass(frozen=True)
class Arrival:
    """What one consumer reports: its receipt and three instants (ns)."""

    receipt: Receipt
    start_ns: int
    first_ns: int
    last_ns: int


@contextlib.contextmanager
def busy_thread(*, busy: bool) -> Iterator[None]:
    """Keep a thread of pure Python running meanwhile, if asked to.

    Args:
        busy: Whether to run it at all.
    """
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            for _ in range(1000):
                pass

    thread = threading.Thread(target=spin, name="busy", daemon=True)
    if busy:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if busy:
            thread.join()


def produce(control: Control, link: Link, pool: Pool, count: int) -> None:
    """Worker: send `count` messages, then wait until they have all arrived."""
    rounds, rest = divmod(count, pool.period)
    bodies = pool.bodies
    with link.sending() as outlet:
        send_many = outlet.send_many
        control.ready()
        for _ in range(rounds):
            send_many(bodies)
        send_many(bodies[:rest])
        control.finish()


def consume(control: Control, link: Link, stream: Stream) -> None:
    """Worker: receive all messages of a stream, or a share until it dries up."""
    now = time.perf_counter_ns
    alone = stream.consumers == 1
    remaining = stream.count * stream.producers
    period = Pool(stream.size).period
    tally = stream.tally()
    add = tally.add
    with link.receiving() as inlet, busy_thread(busy=stream.busy):
        take = inlet.mark_many if stream.mark else inlet.receive_many
        start_ns = control.ready()
        first_ns = last_ns = 0
        while remaining:
            window = take(min(remaining, period))
            if not window and not alone:
                break
            first_ns = first_ns or now()
            add(window)
            remaining -= len(window)
            if not alone:
                last_ns = now()
        last_ns = now() if alone else last_ns
        control.finish(Arrival(tally.receipt(), start_ns, first_ns, last_ns))


def run_stream(link: Link, stream: Stream) -> Sample:
    """Run a stream once.

    Args:
        link: Made for bodies of this size; stays open.
        stream: What to send through it.

    Returns:
        The messages per second, from the agreed start to the last arrival.

    Raises:
        WorkerError: If a worker failed or the stream took too long.
    """
    jobs = [Job(f"consumer {number}", consume, (link, stream)) for number in range(stream.consumers)]
    jobs += [
        Job(
            f"producer {number}",
            produce,
            (link, Pool(stream.size, number), stream.count),
        )
        for number in range(stream.producers)
    ]
    results = run_together(jobs, timeout=stream.timeout + SPAWN_SECONDS)
    arrivals: list[Arrival] = results[: stream.consumers]
    start_ns = arrivals[0].start_ns
    seconds = (max(one.last_ns for one in arrivals) - start_ns) / 1e9
    receipt = Receipt(0, 0)
    for arrival in arrivals:
        receipt += arrival.receipt
    expected = stream.expected()
    firsts = [one.first_ns - start_ns for one in arrivals if one.first_ns]
    return Sample(
        value=receipt.count / seconds if seconds > 0 else 0.0,
        count=receipt.count,
        checksum=receipt.checksum,
        verified=receipt == expected,
        fault="" if receipt == expected else f"{receipt} instead of {expected}",
        details={"seconds": seconds, "first_window_ns": min(firsts, default=0)},
    )


def pong(control: Control, there: Link, back: Link, trips: int) -> None:
    """Worker: send back whatever comes."""
    with there.receiving() as inlet, back.sending() as outlet:
        send, receive = outlet.send, inlet.receive
        control.ready()
        for _ in range(trips):
            send(bytes(receive()))
        control.finish()


class Line(Protocol):
    """The part of a worker's control that `ping` needs."""

    def ready(self) -> int:
        """Wait for the agreed start."""

    def finish(self, result: object = None) -> None:
        """Hand in the result."""


def ping(  # noqa: PLR0917 (a worker's arguments)
    control: Line, there: Link, back: Link, size: int, trips: int, pause: float
) -> None:
    """Worker: send, wait for the answer, and report each round trip in ns."""
    now, sleep = time.perf_counter_ns, time.sleep
    bodies = Pool(size).bodies
    trip_ns: list[int] = []
    wrong = 0
    with back.receiving() as inlet, there.sending() as outlet:
        send, receive = outlet.send, inlet.receive
        control.ready()
        for number in range(trips):
            body = bodies[number % len(bodies)]
            if pause:
                sleep(pause)
            sent_ns = now()
            send(body)
            answer = receive()
            trip_ns.append(now() - sent_ns)
            wrong += answer != body
        control.finish((trip_ns, wrong))


def ping_pong(
    there: Link,
    back: Link,
    *,
    size: int,
    count: int,
    pause: float = 0.0,
    timeout: float = 60.0,
) -> tuple[list[int], int]:
    """Send messages there and back, one at a time.

    Args:
        there: Link for the questions.
        back: Link for the answers.
        size: Length of each body in bytes.
        count: Round trips to measure, after a warm-up.
        pause: Seconds to wait before each trip, so that the other side sleeps.
        timeout: Seconds after which it is given up.

    Returns:
        The nanoseconds of each trip, and how many answers were wrong.

    Raises:
        WorkerError: If a worker failed or it took too long.
    """
    trips = count + WARM_UP_TRIPS
    jobs = [
        Job("pong", pong, (there, back, trips)),
        Job("ping", ping, (there, back, size, trips, pause)),
    ]
    results = run_together(jobs, timeout=timeout + SPAWN_SECONDS)
    trip_ns, wrong = results[1]
    return trip_ns[WARM_UP_TRIPS:], wrong


def ping_pong_sample(trip_ns: list[int], wrong: int, count: int) -> Sample:
    """Return the sample of a ping-pong.

    Args:
        trip_ns: Nanoseconds of each round trip.
        wrong: Answers that differed from their question.
        count: Round trips that were asked for.
    """
    shape = percentiles(trip_ns)
    verified = wrong == 0 and len(trip_ns) == count
    fault = "" if verified else f"{wrong} wrong answers, {len(trip_ns)} of {count} trips"
    return Sample(shape.p50, len(trip_ns), wrong, verified, fault, shape)
