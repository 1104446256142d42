# SPDX-License-Identifier: Apache-2.0
"""Topologies of the features of queues: each beside a plain queue, or beside what Redis' users write for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.compare import redis_features
from benchmarks.shm import features
from benchmarks.shm.contenders import Steps
from benchmarks.targets import AtLeast, Flat, Limit
from benchmarks.topologies.topology import STREAM_MEMORY, Topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings
    from benchmarks.targets import Target

MESSAGES, QUICK_MESSAGES = 100_000, 5_000
KEYS, QUICK_KEYS = 1_000_000, 5_000
RING = 1000
GROUPS, QUICK_GROUPS = 10_000, 500
LEVELS = 10
_REDIS = AtLeast(10, than=("Redis",), called="Redis")


def _messages(settings: Settings) -> int:
    return QUICK_MESSAGES if settings.quick else MESSAGES


def _steps(name: str, function: Callable[..., Any], *arguments: object) -> Callable[[Arena, Settings], list[Contender]]:
    """Return what makes the contender; an argument that is a function is called with the settings."""

    def make(_: Arena, settings: Settings) -> list[Contender]:
        given = [one(settings) if callable(one) else one for one in arguments]
        return [Steps(name, function, *given, timeout=settings.timeout, memory=STREAM_MEMORY)]

    return make


def _redis(work: redis_features.Work) -> Callable[[Arena, Settings], list[Contender]]:
    def make(_: Arena, settings: Settings) -> list[Contender]:
        return [redis_features.RedisWork("Redis", work, _messages(settings))] if settings.peers else []

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
        _REDIS,
    ),
    _topology(
        "feature-priority-redis",
        "feature-priority",
        "the same in a sorted set of Redis: ZADD and ZPOPMIN",
        _redis(redis_features.ranked),
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
        _REDIS,
    ),
    _topology(
        "feature-dead-letter-redis",
        "feature-dead-letter",
        "messages are moved between lists of Redis: LMOVE",
        _redis(redis_features.dead),
    ),
    _topology(
        "feature-delay",
        "feature-delay",
        "100,000 messages are put with a delay, until all are ready: what that takes beyond plain puts and the delay",
        _steps("delays", features.delayed, _messages),
        Limit(1000, "ns"),
        _REDIS,
    ),
    _topology(
        "feature-delay-redis",
        "feature-delay",
        "messages wait in a sorted set of Redis: ZADD, ZRANGEBYSCORE, ZREM and RPUSH",
        _redis(redis_features.delayed),
    ),
)
"""Topologies of the features of queues, in the order of printing."""
