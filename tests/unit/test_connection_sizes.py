# SPDX-License-Identifier: Apache-2.0
"""How much of a broker connections, channels, consumers and queues take while nothing happens (see sizing.md)."""

from __future__ import annotations

import queue as standard_queue
from typing import TYPE_CHECKING

import pytest
from scenario_support.inside import core_of
from scenario_support.waiting import becomes, eventually

from shmbroker._core.native import OK, ffi, slow

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

MANY = 200
KIB = 1024
CHUNKS = 4 * 2048 * KIB
"""Some kinds of structures open their first chunk."""


def kept_for_structures(connection: shmbroker.Connection) -> int:
    """The bytes of chunks that are the structures' own, used or not."""
    return int(core_of(connection).attachment.facts(in_full=True).memory_structures)


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


NODE = 4
"""The kind of what consumers, and calls that wait, have in a queue."""


def chunks_of(connection: shmbroker.Connection, kind: int) -> int:
    """How many chunks have slots for that kind of structure."""
    facts = ffi.new("sb_chunk_facts[]", slow.SB_CHUNK_FACTS)
    assert slow.sb_broker_describe_chunks(core_of(connection).handle, 0, facts) == OK
    return sum(fact.chunks for fact in facts if fact.kind == kind)


def consumes(connection: shmbroker.Connection) -> None:
    """A consumer of a channel."""
    connection.channel().basic_consume("q", lambda *_: None)


def waits_for_a_message(connection: shmbroker.Connection) -> None:
    """A call that waits."""
    with pytest.raises(standard_queue.Empty):
        connection.queue("q").get(timeout=0.001)


def waits_for_room(connection: shmbroker.Connection) -> None:
    """The same of a producer."""
    with pytest.raises(standard_queue.Full):
        connection.queue("full").put(b"x", timeout=0.001)


@pytest.mark.parametrize("use", [consumes, waits_for_a_message, waits_for_room])
def test_who_has_a_node_leaves_its_neighbours_to_others(
    broker: shmbroker.Broker, connection: shmbroker.Connection, use: Callable[[shmbroker.Connection], None]
) -> None:
    """Nodes of many connections share a chunk: none keeps the other slots of a word, 16 KiB, for itself."""
    connection.queue("q")
    connection.queue("full", max_length=1).put(b"x")
    connections = [broker.connect() for _ in range(MANY)]
    for one in connections:
        use(one)
    assert chunks_of(connection, NODE) == 1
    for one in connections:
        one.close()
