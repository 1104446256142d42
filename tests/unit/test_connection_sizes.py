# SPDX-License-Identifier: Apache-2.0
"""How much of a broker connections, channels, consumers and queues take while nothing happens (see sizing.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scenario_support.waiting import becomes, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

MANY = 200
KIB = 1024
CHUNKS = 4 * 2048 * KIB
"""Some kinds of structures open their first chunk."""


def kept_for_structures(connection: shmbroker.Connection) -> int:
    """The bytes of chunks that are the structures' own, used or not."""
    return int(connection.core.attachment.facts(with_memory=True).memory_structures)


def test_what_each_takes(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """An idle connection takes 6 KiB, a queue 2 KiB, a handle or a consumer half a KiB; none keeps slots for itself.

    The housekeeper, which opens each queue when it comes to it, is away meanwhile.
    """
    broker.stop()
    kept = kept_for_structures(connection)
    connections: list[shmbroker.Connection] = []

    def measured(what: str, make: Callable[[int], object], most: int) -> None:
        before = broker.statistics().memory_used
        made = [make(number) for number in range(MANY)]
        each = (broker.statistics().memory_used - before) / len(made)
        print(f"{what}: {each:.0f} bytes")  # noqa: T201 (what it measures goes into sizing.md)
        assert each <= most

    measured("a queue", lambda number: connection.queue(f"q{number}"), 2 * KIB)
    measured("a connection", lambda _: connections.append(broker.connect()), 6 * KIB)
    measured("a handle", lambda number: connections[number].queue("q0"), KIB // 2)
    measured("a consumer", lambda number: connections[number].queue("q0").consume(prefetch=10), KIB // 2)
    measured("a channel", lambda number: connections[number].channel(), 0)
    assert kept_for_structures(connection) - kept <= CHUNKS
    used = broker.statistics().memory_used
    for one in connections:
        one.close()
    broker.start()
    eventually(lambda: broker.statistics().memory_used <= used - MANY * 5 * KIB, "the memory of the connections")
    becomes(lambda: broker.statistics().connection_count, 2)
