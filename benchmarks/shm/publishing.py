# SPDX-License-Identifier: Apache-2.0
"""What it costs to publish through a channel, beside `Queue.put`.

The generator of a standing worker. Each step publishes bursts in two ways in turn: the one that is measured, and
`Queue.put` to the first of the same queues; so the ratio is that of one process in one moment. The queues are emptied
after each burst, outside of the measured time, and what was in them is the proof.
"""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.payload import OrderedTally, Pool, Receipt
from benchmarks.samples import Sample
from benchmarks.shm.broker import connected, package

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import shmbroker
    from shmbroker.channel import Channel

    Burst = Callable[[Sequence[bytes]], object]

SIZE = 64
BURST = 1000
BATCH = 256
WARM_UP_BURSTS = 2
TIMES_PUT = "times_put"


@dataclass(frozen=True)
class Route:
    """How messages are published.

    Attributes:
        exchange_type: Of the exchange; empty: the default one; `"put"`: by `Queue.put`.
        queues: How many get each message.
        confirms: Whether all of a burst are waited for.
        properties: Whether they have any.
    """

    exchange_type: str = ""
    queues: int = 1
    confirms: bool = False
    properties: bool = False


def publish(broker: str, route: Route, bursts: int) -> Generator[Sample | None, None, None]:
    """Cost of a message in a queue: time of the median burst / messages of it that arrived in queues.

    Args:
        broker: Name of the running broker.
        route: How to publish.
        bursts: Of 1,000 messages, in each step.
    """
    pool = Pool(SIZE)
    with connected(broker) as connection, connection.channel() as channel:
        exchange, names = _declare(channel, route)
        queues = [connection.queue(name, passive=True) for name in names]
        put = _putting(queues[0])
        send = put if route.exchange_type == "put" else _publishing(channel, route, exchange, names[0])
        _step(pool, put, send, queues, WARM_UP_BURSTS)
        yield None
        while True:
            yield _step(pool, put, send, queues, bursts)


def _declare(channel: Channel, route: Route) -> tuple[str, list[str]]:
    """Make the exchange and its queues; return their names."""
    exchange = "" if route.exchange_type in {"", "put"} else f"publish-{route.exchange_type}-{route.queues}"
    names = [f"publish-{route}-{number}" for number in range(route.queues)]
    if exchange:
        channel.exchange_declare(exchange, route.exchange_type)
    for name in names:
        channel.queue_declare(name)
        if exchange:
            channel.queue_bind(name, exchange, names[0])
    return exchange, names


def _putting(queue: shmbroker.Queue) -> Burst:
    put = queue.put

    def burst(bodies: Sequence[bytes]) -> None:
        for body in bodies:
            put(body)

    return burst


def _publishing(channel: Channel, route: Route, exchange: str, key: str) -> Burst:
    basic_publish = channel.basic_publish

    def plain(bodies: Sequence[bytes]) -> None:
        for body in bodies:
            basic_publish(exchange, key, body)

    def confirmed(bodies: Sequence[bytes]) -> None:
        for body in bodies:
            basic_publish(exchange, key, body)
        if not channel.wait_for_confirms():
            message = "a publish was refused"
            raise RuntimeError(message)

    if route.confirms:
        channel.confirm_delivery()
        return confirmed
    return _describing(channel, exchange, key) if route.properties else plain


def _describing(channel: Channel, exchange: str, key: str) -> Burst:
    """Publish with properties, one object for each message; they must arrive."""
    make = package().BasicProperties
    basic_publish = channel.basic_publish

    def described(bodies: Sequence[bytes]) -> None:
        for body in bodies:
            basic_publish(exchange, key, body, make(content_type="application/json", message_id="benchmark"))

    described([b"properties"])
    got = channel.basic_get(key, auto_ack=True)
    if got is None or got.properties != make(content_type="application/json", message_id="benchmark"):
        message = f"{got} does not have the properties that it was given"
        raise RuntimeError(message)
    return described


def _step(pool: Pool, put: Burst, send: Burst, queues: Sequence[shmbroker.Queue], bursts: int) -> Sample:
    """Publish in both ways, one burst of each in turn."""
    reference = OrderedTally(pool)
    tallies = [OrderedTally(pool) for _ in queues]
    endless = itertools.cycle(pool.bodies)
    put_ns: list[int] = []
    sent_ns: list[int] = []
    for _ in range(bursts):
        bodies = list(itertools.islice(endless, BURST))
        put_ns.append(_timed(put, bodies))
        _empty(queues[0], reference)
        sent_ns.append(_timed(send, bodies))
        for queue, tally in zip(queues, tallies, strict=True):
            _empty(queue, tally)
    expected = pool.receipt(bursts * BURST)
    receipts = [tally.receipt() for tally in tallies]
    verified = all(receipt == expected for receipt in [reference.receipt(), *receipts])
    total = sum(receipts[1:], receipts[0])
    cost = statistics.median(sent_ns) / BURST / len(queues)
    return Sample(
        value=cost,
        count=total.count,
        checksum=total.checksum,
        verified=verified,
        fault="" if verified else f"{reference.receipt()}, {_worst(receipts, expected)} instead of {expected}",
        details={TIMES_PUT: cost / (statistics.median(put_ns) / BURST)},
    )


def _timed(burst: Burst, bodies: Sequence[bytes]) -> int:
    start_ns = time.perf_counter_ns()
    burst(bodies)
    return time.perf_counter_ns() - start_ns


def _empty(queue: shmbroker.Queue, tally: OrderedTally) -> None:
    for _ in range(0, len(queue), BATCH):
        batch = queue.get_many(BATCH, timeout=0)
        tally.add(batch.bodies())
        batch.ack()


def _worst(receipts: Sequence[Receipt], expected: Receipt) -> Receipt:
    return next((one for one in receipts if one != expected), expected)
