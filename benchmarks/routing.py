# SPDX-License-Identifier: Apache-2.0
"""What it costs to find the queues of a message, by type of exchange and number of bindings.

Routing alone: no broker, no message, and none of the routes that a channel keeps. The bindings stand in a process of
their own, which is measured in every run. Each binding is one queue's; all but those of a fanout exchange have a key,
a pattern or a table of arguments of their own, and one of them matches.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Contender
from benchmarks.processes import Standing
from benchmarks.samples import Sample
from benchmarks.shm import broker as brokers

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from benchmarks.harness import Settings
    from shmbroker._topology.binding import Binding
    from shmbroker._topology.routing import Router

SIZES = (10, 1000, 100_000)
KINDS = ("default", "direct", "fanout", "topic", "headers")
DISTINCT = 256
QUEUES_PER_RUN = 40_000
QUICK_QUEUES_PER_RUN = 4000
MASK = (1 << 64) - 1

Message = tuple[str, dict[str, Any]]


class Routes(Contender):
    """Routing through one exchange that has so many bindings."""

    def __init__(self, kind: str, bindings: int, settings: Settings) -> None:
        """Choose the exchange.

        Args:
            kind: Its type, or `"default"`.
            bindings: How many it has.
            settings: How long a run should take.
        """
        super().__init__(f"{bindings:,} bindings" if kind != "default" else "needs no bindings")
        self._arguments = (kind, bindings, QUICK_QUEUES_PER_RUN if settings.quick else QUEUES_PER_RUN)
        self._timeout = settings.timeout
        self._worker: Standing | None = None
        self.accountable = False

    def available(self) -> str | None:
        """Return why shmbroker cannot run here."""
        return brokers.unavailable()

    def prepare(self) -> None:
        """Have the bindings made."""
        self._worker = Standing(self.name, routes, *self._arguments, timeout=self._timeout)

    def run(self) -> Sample:
        """Route."""
        assert self._worker is not None  # noqa: S101 (the harness prepares first)
        sample: Sample = self._worker.step()
        return sample

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.close()


def routes(kind: str, bindings: int, queues: int) -> Generator[Sample | None, None, None]:
    """Route messages that each match the binding of one queue (fanout: of all), in a fixed random-looking order.

    Args:
        kind: Type of the exchange, or `"default"`.
        bindings: How many it has.
        queues: How many queues to find in each step.
    """
    router = _router(kind, bindings)
    exchange = "" if kind == "default" else f"amq.{kind}"
    messages = [_message(number) for number in _numbers(bindings)]
    count = max(1, queues // (bindings if kind == "fanout" else 1))
    chosen = list(itertools.islice(itertools.cycle(messages), count))
    expected = _expected(kind, bindings, count)
    _route(router, exchange, messages)
    yield None
    while True:
        start_ns = time.perf_counter_ns()
        found = _route(router, exchange, chosen)
        elapsed_ns = time.perf_counter_ns() - start_ns
        yield Sample(
            value=elapsed_ns / max(1, found[0]),
            count=found[0],
            checksum=found[1],
            verified=found == expected,
            fault="" if found == expected else f"{found} instead of {expected}",
        )


def _router(kind: str, bindings: int) -> Router:
    from shmbroker._topology import records  # noqa: PLC0415 (imported late, like all of the package)
    from shmbroker._topology.routing import Router  # noqa: PLC0415
    from shmbroker._topology.state import Topology  # noqa: PLC0415

    topology = Topology()
    router = Router(topology)
    if kind != "default":
        topology.replay(b"".join(records.encode(records.Bound(_binding(kind, number))) for number in range(bindings)))
    return router


def _binding(kind: str, number: int) -> Binding:
    """Return the binding of one queue: a topic's has a `*` or a `#`, a headers exchange's wants two headers."""
    from shmbroker._amqp import field_tables  # noqa: PLC0415
    from shmbroker._topology.binding import Binding, ToQueue  # noqa: PLC0415

    queue = ToQueue(f"queue-{number}", number + 1)
    key = f"*.{number}.created" if number % 2 else f"orders.{number}.#"
    arguments = {"x-match": "all", "number": number, "shard": number % 16}
    return Binding(
        f"amq.{kind}",
        queue,
        {"direct": f"orders.{number}.created", "topic": key}.get(kind, ""),
        field_tables.encode(arguments) if kind == "headers" else b"",
    )


def _numbers(bindings: int) -> list[int]:
    """Return which of the bindings are to match: of many, some from everywhere."""
    count = min(bindings, DISTINCT)
    return [index * 7919 * bindings // count % bindings for index in range(count)]


def _message(number: int) -> Message:
    """Return routing key and headers that match one binding."""
    return f"orders.{number}.created", {"number": number, "shard": number % 16, "content": "order"}


def _route(router: Router, exchange: str, messages: Sequence[Message]) -> tuple[int, int]:
    """Route messages; return how many queues were found, and the sum of their incarnations."""
    route = router.route
    found = total = 0
    for key, headers in messages:
        queues = route(exchange, key, headers)
        found += len(queues)
        total += sum(queue.incarnation for queue in queues)
    return found, total & MASK


def _expected(kind: str, bindings: int, messages: int) -> tuple[int, int]:
    """Return what `_route` must find."""
    if kind == "default":
        return messages, 0
    if kind == "fanout":
        return messages * bindings, messages * bindings * (bindings + 1) // 2 & MASK
    turn = _numbers(bindings)
    return messages, sum(number + 1 for number in itertools.islice(itertools.cycle(turn), messages)) & MASK
