# SPDX-License-Identifier: Apache-2.0
"""Channels: consuming what lies there, callbacks at once, and many open channels.

The functions are generators of standing workers, like those of `scaling`.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from benchmarks.payload import OrderedTally, Pool
from benchmarks.samples import Sample
from benchmarks.shm.broker import connected, opened
from benchmarks.shm.footprint import BODY, resident_bytes
from benchmarks.shm.link import QueueLink, Way
from benchmarks.shm.scaling import BATCH, SIZE, fill

if TYPE_CHECKING:
    from collections.abc import Generator

    import shmbroker
    from shmbroker.channel import Channel

OF_GET = "of_get"
RSS_MB = "rss_mb"
SLEEP_SECONDS = 0.005


# ---- consuming what lies there ----


def filled(broker: str, way: Way, rounds: int) -> Generator[Sample | None, None, None]:
    """Messages per second out of a queue that was filled before, from the start of the consumer to the last ack.

    Each step takes as many by `get` and `ack` first, for the ratio.

    Args:
        broker: Name of the running broker.
        way: How to take them.
        rounds: Pools of 256 messages in each step.
    """
    pool = Pool(SIZE)
    name = f"filled-{way}"
    with opened(broker, name) as (_, queue):
        _rate(broker, queue, way, pool, 1)
        yield None
        while True:
            reference = _rate(broker, queue, "get", pool, rounds)
            sample = _rate(broker, queue, way, pool, rounds)
            verified = reference.verified and sample.verified
            yield Sample(
                sample.value, sample.count, sample.checksum, verified, sample.fault or reference.fault,
                details={OF_GET: sample.value / reference.value},
            )  # fmt: skip


def _rate(broker: str, queue: shmbroker.Queue, way: Way, pool: Pool, rounds: int) -> Sample:
    tally = OrderedTally(pool)
    fill(queue, pool, rounds)
    with QueueLink(broker, way, queue.name).receiving() as inlet:
        start_ns = time.perf_counter_ns()
        for _ in range(rounds):
            tally.add(inlet.receive_many(BATCH))
        elapsed_ns = time.perf_counter_ns() - start_ns
    facts, receipt, expected = queue.statistics(), tally.receipt(), pool.receipt(rounds * BATCH)
    verified = receipt == expected and (facts.ready, facts.delivering) == (0, 0)
    fault = "" if verified else f"{receipt} instead of {expected}, {facts}"
    return Sample(receipt.count * 1e9 / elapsed_ns, receipt.count, receipt.checksum, verified, fault)


# ---- callbacks at once ----


class Crowd:
    """Callbacks that sleep, and how many of them did so at once."""

    def __init__(self, number: int) -> None:
        """Expect so many calls."""
        self.most = self.calls = self._now = 0
        self.done = threading.Event()
        self._number = number
        self._lock = threading.Lock()

    def callback(self, channel: Channel, method: shmbroker.Message, _: object, __: bytes) -> None:
        """Sleep like work that waits for something."""
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(SLEEP_SECONDS)
        with self._lock:
            self._now -= 1
        channel.basic_ack(method.delivery_tag)
        with self._lock:
            self.calls += 1
            if self.calls == self._number:
                self.done.set()


def parallel(broker: str, number: int, messages: int) -> Generator[Sample | None, None, None]:
    """Callbacks per second of some channels of one connection, with a pool of as many threads as channels.

    Args:
        broker: Name of the running broker.
        number: Of channels, each with a consumer of a queue of its own.
        messages: For each of them, in each step.
    """
    with ThreadPoolExecutor(number) as executor, connected(broker, executor=executor) as connection:
        channels = [connection.channel() for _ in range(number)]
        queues = [connection.queue(f"parallel-{number}-{index}") for index in range(number)]
        yield None
        while True:
            crowd = Crowd(number * messages)
            for queue in queues:
                queue.put_many([BODY] * messages)
            start_ns = time.perf_counter_ns()
            for channel, queue in zip(channels, queues, strict=True):
                channel.basic_consume(queue.name, crowd.callback)
            crowd.done.wait()
            elapsed_ns = time.perf_counter_ns() - start_ns
            for channel in channels:
                channel.stop_consuming()
            verified = crowd.most == number and not any(map(len, queues))
            fault = "" if verified else f"{crowd.most} at once, not {number}; {crowd.calls} calls"
            yield Sample(crowd.calls * 1e9 / elapsed_ns, crowd.calls, crowd.most, verified, fault)


# ---- many open channels ----


def open_channels(broker: str, number: int, used: bool) -> Generator[Sample | None, None, None]:  # noqa: FBT001 (a worker's argument)
    """Milliseconds in which channels are opened, and what they take of the process's memory; a single step.

    Args:
        broker: Name of the running broker.
        number: Of channels, all of one connection and open at once.
        used: Whether each of them asks for a message too: most that only publish have nothing in the core.
    """
    with opened(broker, f"channels-{used}") as (connection, queue), connection.channel() as first:
        first.basic_get(queue.name)
        yield None
        before = resident_bytes()
        start_ns = time.perf_counter_ns()
        channels = [connection.channel() for _ in range(number)]
        if used:
            for channel in channels:
                channel.basic_get(queue.name)
        elapsed_ns = time.perf_counter_ns() - start_ns
        grown = resident_bytes() - before
        works = len(connection.channels()) == number + 1 and all(map(_carries, channels[:: number // 10]))
        yield Sample(
            elapsed_ns / 1e6, number, 0, works, "" if works else "a channel is missing, or does not work",
            details={RSS_MB: grown / 1e6},
        )  # fmt: skip


def _carries(channel: Channel) -> bool:
    name = channel.queue_declare(exclusive=True).queue
    channel.basic_publish("", name, BODY)
    got = channel.basic_get(name, auto_ack=True)
    return got is not None and bytes(got) == BODY
