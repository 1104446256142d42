# SPDX-License-Identifier: Apache-2.0
"""Redis: what its users write for priorities, delays and dead letters. One command for each step of a message."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from benchmarks.compare.feature_work import BODY, DEPTH, LEVELS
from benchmarks.compare.redis_list import RedisLink, RedisList

if TYPE_CHECKING:
    from collections.abc import Iterator


def ranked(client: Any, count: int) -> float:  # noqa: ANN401 (the client has no types)
    """Add to a sorted set by priority, and pop the first, in turn; return the nanoseconds."""
    members = [b"%d-%s" % (number, BODY) for number in range(DEPTH + count)]
    for number, member in enumerate(members[:DEPTH]):
        client.zadd("ranked", {member: number * 7 % LEVELS})
    start_ns = time.perf_counter_ns()
    for number, member in enumerate(members[DEPTH:]):
        client.zadd("ranked", {member: number * 7 % LEVELS})
        client.zpopmin("ranked")
    return time.perf_counter_ns() - start_ns


def delayed(client: Any, count: int) -> float:  # noqa: ANN401
    """Add to a sorted set by time, and move what is due to a list, one by one; return the nanoseconds."""
    start_ns = time.perf_counter_ns()
    for number in range(count):
        client.zadd("delayed", {b"%d-%s" % (number, BODY): number})
    for number in range(count):
        (member,) = client.zrangebyscore("delayed", 0, number, start=0, num=1)
        client.zrem("delayed", member)
        client.rpush("ready", member)
    return time.perf_counter_ns() - start_ns


def dead(client: Any, count: int) -> float:  # noqa: ANN401
    """Move from a list to another one, one by one; return the nanoseconds."""
    for _ in range(count):
        client.rpush("q", BODY)
    start_ns = time.perf_counter_ns()
    for _ in range(count):
        client.lmove("q", "dead", "LEFT", "RIGHT")
    return time.perf_counter_ns() - start_ns


def dead_in_streams(client: Any, count: int) -> float:  # noqa: ANN401
    """Read from a stream as a consumer of a group, add to another stream and acknowledge; return the nanoseconds."""
    for _ in range(count):
        client.xadd("q", {"body": BODY})
    client.xgroup_create("q", "group", id="0")
    start_ns = time.perf_counter_ns()
    for _ in range(count):
        ((_, ((entry, fields),)),) = client.xreadgroup("group", "consumer", {"q": ">"}, count=1)
        client.xadd("dead", fields)
        client.xack("q", "group", entry)
    return time.perf_counter_ns() - start_ns


class RedisServer(RedisLink):
    """A server of our own, over a unix socket."""

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """Connect, to an empty database."""
        with super().client() as client:
            client.flushall()
            yield client


class Redis:
    """A server of Redis."""

    def __init__(self, name: str = "Redis") -> None:
        """Name it."""
        self.name = name

    available = RedisList().available
    version = RedisList().version
    start = staticmethod(RedisServer)
