# SPDX-License-Identifier: Apache-2.0
"""Redis: what its users write for priorities, delays and dead letters. One command for each step of a message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.compare.protocol import module
from benchmarks.compare.redis_list import RedisLink, RedisList
from benchmarks.harness import Contender, Kind
from benchmarks.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Work = Callable[[Any, int], float]

BODY = b"x" * 64
DEPTH = 1000
LEVELS = 10


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


class RedisWork(Contender):
    """Commands to a server of our own, over a unix socket."""

    def __init__(self, name: str, work: Work, count: int) -> None:
        """Choose the work.

        Args:
            name: Shown in tables.
            work: Does it to a number of messages, and returns its nanoseconds.
            count: Messages of a run.
        """
        super().__init__(name, Kind.PEER)
        self._work = work
        self._count = count
        self._link: RedisLink | None = None
        self.accountable = False

    def available(self) -> str | None:
        """Return why it cannot run here."""
        return RedisList().available()

    def version(self) -> str:
        """Return the version of the client."""
        return RedisList().version()

    def prepare(self) -> None:
        """Start the server."""
        self._link = RedisLink()

    def run(self) -> Sample:
        """Do the work once, in an empty database."""
        if self._link is None:
            message = "prepare was not called"
            raise RuntimeError(message)
        client = module("redis").Redis(unix_socket_path=self._link.socket)
        try:
            client.flushall()
            value = self._work(client, self._count) / self._count
        finally:
            client.close()
        return Sample(value, self._count, self._count, verified=True)

    def close(self) -> None:
        """End the server."""
        if self._link is not None:
            self._link.close()
