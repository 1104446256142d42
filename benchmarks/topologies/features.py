# SPDX-License-Identifier: Apache-2.0
"""Topologies of the features of queues: each beside a plain queue, or beside what users of Redis and RabbitMQ write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.compare import rabbitmq_features, redis_features
from benchmarks.compare.feature_work import FeatureWork
from benchmarks.compare.rabbitmq_features import RabbitMQ
from benchmarks.compare.redis_features import Redis
from benchmarks.shm import features
from benchmarks.shm.contenders import Steps
from benchmarks.targets import AtLeast, Flat, Limit
from benchmarks.topologies.topology import STREAM_MEMORY, Topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.arenas import Arena
    from benchmarks.compare.feature_work import FeaturePeer, Work
    from benchmarks.harness import Contender, Settings
    from benchmarks.targets import Target

MESSAGES, QUICK_MESSAGES = 100_000, 5_000
KEYS, QUICK_KEYS = 1_000_000, 5_000
RING = 1000
GROUPS, QUICK_GROUPS = 10_000, 500
LEVELS = 10
PEER_MESSAGES, QUICK_PEER_MESSAGES = 5_000, 250  # a peer takes up to 0.3 ms for each
STREAMS = "Redis streams"
_PEERS = AtLeast(10, than=("Redis", STREAMS, "RabbitMQ"), called="the best of Redis and RabbitMQ")


def _messages(settings: Settings) -> int:
    return QUICK_MESSAGES if settings.quick else MESSAGES


def _steps(name: str, function: Callable[..., Any], *arguments: object) -> Callable[[Arena, Settings], list[Contender]]:
    """Return what makes the contender; an argument that is a function is called with the settings."""

    def make(_: Arena, settings: Settings) -> list[Contender]:
        given = [one(settings) if callable(one) else one for one in arguments]
        return [Steps(name, function, *given, timeout=settings.timeout, memory=STREAM_MEMORY)]

    return make


def _peer(peer: FeaturePeer, work: Work) -> Callable[[Arena, Settings], list[Contender]]:
    def make(_: Arena, settings: Settings) -> list[Contender]:
        count = QUICK_PEER_MESSAGES if settings.quick else PEER_MESSAGES
        return [FeatureWork(peer, work, count)] if settings.peers else []

    return make


def _keys(settings: Settings) -> int:
    return QUICK_KEYS if settings.quick else KEYS


def _groups(settings: Settings) -> int:
    return QUICK_GROUPS if settings.quick else GROUPS


def _topology(
    name: str,
    arena: str,
    description: str,
    make: Callable[[Arena, Settings], list[Contender]],
    *targets: Target,
) -> Topology:
    return Topology(name, description, "time of the calls / messages, in one process", {arena: targets}, make)


TOPOLOGIES: tuple[Topology, ...] = (
    _topology(
        "feature-plain-put",
        "feature-put",
        "Queue.put of 64 B with a header",
        _steps("plain", features.puts, {}, 1000, _messages),
    ),
    _topology(
        "feature-ring",
        "feature-put",
        "the same into a full ring of 1,000",
        _steps("ring", features.puts, {"ring_size": RING}, RING, _messages),
        Flat(1.15),
    ),
    _topology(
        "feature-last-value",
        "feature-put",
        "the same into a queue with the last values of 1,000,000 keys: each put replaces one",
        _steps("last value", features.puts, {"last_value_key": features.HEADER}, _keys, _messages),
        Flat(1.5),
    ),
    _topology(
        "feature-plain-get",
        "feature-priority",
        "put and get, auto-acknowledged, in turn beside 1,000 messages",
        _steps("plain", features.ranked, 0, _messages),
    ),
    _topology(
        "feature-priority",
        "feature-priority",
        "the same with ten levels of priority",
        _steps("priorities", features.ranked, LEVELS, _messages),
        Flat(1.5),
        _PEERS,
    ),
    _topology(
        "feature-priority-redis",
        "feature-priority",
        "the same in a sorted set of Redis: ZADD and ZPOPMIN",
        _peer(Redis(), redis_features.ranked),
    ),
    _topology(
        "feature-priority-rabbitmq",
        "feature-priority",
        "the same in a queue of RabbitMQ with x-max-priority",
        _peer(RabbitMQ(), rabbitmq_features.ranked),
    ),
    _topology(
        "feature-plain-groups",
        "feature-groups",
        "get and acknowledge messages of 10,000 groups from a queue without groups",
        _steps("plain", features.grouped, {}, _groups, _messages),
    ),
    _topology(
        "feature-groups-sticky",
        "feature-groups",
        "the same with sticky groups",
        _steps("sticky", features.grouped, {"message_groups": "sticky"}, _groups, _messages),
        Flat(1.5),
    ),
    _topology(
        "feature-groups-shared",
        "feature-groups",
        "the same with shared groups",
        _steps("shared", features.grouped, {"message_groups": "shared"}, _groups, _messages),
        Flat(1.5),
    ),
    _topology(
        "feature-dead-letter",
        "feature-dead-letter",
        "messages are got and rejected, until all lie in the dead-letter queue",
        _steps("dead letters", features.dead, _messages),
        Limit(2000, "ns"),
        _PEERS,
    ),
    _topology(
        "feature-dead-letter-redis",
        "feature-dead-letter",
        "messages are moved between lists of Redis: LMOVE",
        _peer(Redis(), redis_features.dead),
    ),
    _topology(
        "feature-dead-letter-streams",
        "feature-dead-letter",
        "messages are moved between streams of Redis: XREADGROUP, XADD and XACK",
        _peer(Redis(STREAMS), redis_features.dead_in_streams),
    ),
    _topology(
        "feature-dead-letter-rabbitmq",
        "feature-dead-letter",
        "the same in RabbitMQ: basic_get and basic_reject",
        _peer(RabbitMQ(), rabbitmq_features.dead),
    ),
    _topology(
        "feature-delay",
        "feature-delay",
        "100,000 messages are put with a delay, until all are ready: what that takes beyond plain puts and the delay",
        _steps("delays", features.delayed, _messages),
        Limit(1000, "ns"),
    ),
    _topology(
        "feature-delayed",
        "feature-delayed",
        "messages are put with a delay, until all are ready: what that takes beyond the delay",
        _steps("delayed", features.delayed_whole, _messages),
        _PEERS,
    ),
    _topology(
        "feature-delayed-redis",
        "feature-delayed",
        "messages wait in a sorted set of Redis: ZADD, ZRANGEBYSCORE, ZREM and RPUSH",
        _peer(Redis(), redis_features.delayed),
    ),
    _topology(
        "feature-delayed-rabbitmq",
        "feature-delayed",
        "messages expire from a queue of RabbitMQ into another one",
        _peer(RabbitMQ(), rabbitmq_features.delayed),
    ),
)
"""Topologies of the features of queues, in the order of printing."""
