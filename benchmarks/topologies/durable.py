# SPDX-License-Identifier: Apache-2.0
"""Topologies of durable publishing: each message on the disk before the next one, and batches of a thousand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.compare import durable as others
from benchmarks.durable import BATCH, Publishing, Work
from benchmarks.shm import durable as ours
from benchmarks.targets import AtLeast, Flat
from benchmarks.topologies.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.arenas import Arena
    from benchmarks.durable import Publish, System
    from benchmarks.harness import Contender, Settings
    from benchmarks.targets import Target

ALONE, QUICK_ALONE = 1500, 100  # messages of each producer in a run
BATCHES, QUICK_BATCHES = 20, 2
PRODUCERS = 8
SLOW_SHARE = 10  # of the messages: for a peer that is slow
ONE, EIGHT = "one producer", "eight producers"
REDIS_ONE, REDIS_EIGHT = "Redis, one", "Redis, eight"
RABBIT_ONE, RABBIT_EIGHT = "RabbitMQ, one", "RabbitMQ, eight"


def _count(settings: Settings) -> int:
    return QUICK_ALONE if settings.quick else ALONE


def _batches(settings: Settings) -> int:
    return BATCH * (QUICK_BATCHES if settings.quick else BATCHES)


def _slow(settings: Settings) -> int:
    return max(1, _count(settings) // SLOW_SHARE)


def _topology(  # noqa: PLR0917 - the columns of a table
    name: str,
    arena: str,
    shown: str,
    description: str,
    system: Callable[[], System],
    publish: Publish,
    producers: int,
    count: Callable[[Settings], int],
    *targets: Target,
    peer: bool = False,
) -> Topology:
    def make(_: Arena, settings: Settings) -> list[Contender]:
        if peer and not settings.peers:
            return []
        return [Publishing(shown, system(), Work(publish, producers, count(settings)), settings.timeout)]

    return Topology(name, description, "time of all producers / messages", {arena: targets}, make)


TOPOLOGIES: tuple[Topology, ...] = (
    _topology(
        "durable-disk", "durable", "the disk", "appending 1 KiB to a file, and syncing it",
        others.Folder, others.synced, 1, _count,
    ),
    _topology(
        "durable-put", "durable", ONE, "Queue.put of 1 KiB into a durable queue, by one process",
        ours.Broker, ours.one_by_one, 1, _count,
        AtLeast(1, than=(REDIS_ONE,), called=REDIS_ONE), AtLeast(5, than=(RABBIT_ONE,), called=RABBIT_ONE),
    ),
    _topology(
        "durable-put-8", "durable", EIGHT, "the same, by eight processes at a time",
        ours.Broker, ours.one_by_one, PRODUCERS, _count,
        AtLeast(4, than=(ONE,), called=ONE), AtLeast(1, than=(REDIS_EIGHT,), called=REDIS_EIGHT),
        AtLeast(5, than=(RABBIT_EIGHT,), called=RABBIT_EIGHT),
    ),
    _topology(
        "durable-redis", "durable", REDIS_ONE, "XADD to a stream of Redis with appendfsync always",
        others.Redis, others.xadd, 1, _count, peer=True,
    ),
    _topology(
        "durable-redis-8", "durable", REDIS_EIGHT, "the same, by eight processes at a time",
        others.Redis, others.xadd, PRODUCERS, _count, peer=True,
    ),
    _topology(
        "durable-rabbitmq", "durable", RABBIT_ONE, "a persistent message to a durable queue of RabbitMQ, with confirm",
        others.Rabbit, others.confirmed, 1, _slow, peer=True,
    ),
    _topology(
        "durable-rabbitmq-8", "durable", RABBIT_EIGHT, "the same, by eight processes at a time",
        others.Rabbit, others.confirmed, PRODUCERS, _slow, peer=True,
    ),
    _topology(
        "durable-lmdb", "durable-bulk", "LMDB", "1,000 keys with 1 KiB in one transaction of LMDB",
        others.Lmdb, others.bulk, 1, _batches,
    ),
    _topology(
        "durable-put-many", "durable-bulk", "put_many", "Queue.put_many of 1,000 bodies of 1 KiB",
        ours.Broker, ours.batches, 1, _batches, Flat(1.5),
    ),
    _topology(
        "durable-confirms", "durable-bulk", "confirms", "1,000 messages through a channel, then their confirms",
        ours.Broker, ours.confirms, 1, _batches, Flat(1.5),
    ),
    _topology(
        "durable-redis-pipeline", "durable-bulk", "Redis", "1,000 XADD in one pipeline, with appendfsync always",
        others.Redis, others.pipelined, 1, _batches, peer=True,
    ),
)  # fmt: skip
