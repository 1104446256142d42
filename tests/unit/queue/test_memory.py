# SPDX-License-Identifier: Apache-2.0
"""Memory that is full: who is told what, and who goes on."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.brokers import running
from scenario_support.observing import assert_counts, take

from shmbroker.exceptions import OutOfMemory

if TYPE_CHECKING:
    import shmbroker


def test_a_body_that_can_never_fit_is_refused_at_once(broker_name: str) -> None:
    """A body larger than the broker's memory is OutOfMemory, though put may wait."""
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        queue = connection.queue("q")
        with pytest.raises(OutOfMemory):
            queue.put(bytes(33 * 2**20), timeout=None)
        queue.put(b"A")
        assert take(queue, 1) == ["A"]
        assert connection.doctor() == []


def filled(queue: shmbroker.Queue, size: int) -> tuple[str, int]:
    """Put bodies until memory is full; return what the error said, and how many."""
    for count in range(1000):
        try:
            queue.put(bytes(size), timeout=0)
        except OutOfMemory as full:
            return str(full), count
    message = "memory never got full"
    raise AssertionError(message)


def test_out_of_memory_says_who_has_it(broker_name: str) -> None:
    """When memory is full the error names what is used, the limit, the largest queue.

    And the memory is usable again as soon as messages go.
    """
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        small, hoard = connection.queue("small"), connection.queue("hoarder")
        small.put(bytes(100_000))
        said, _ = filled(hoard, 100_000)
        assert "hoarder" in said
        assert "small" not in said
        assert f"of {32 << 20} bytes are used" in said
        kept = re.search(r"(\d+) are kept for structures, (\d+) for bodies, (\d+) are free", said)
        assert kept is not None
        assert sum(map(int, kept.groups())) == 32 << 20
        assert int(kept[2]) >= hoard.statistics().bytes >= 8 << 20
        assert int(kept[3]) == 0
        with pytest.raises(OutOfMemory):
            small.put(bytes(100_000), timeout=0.02)
        kept = hoard.statistics().message_count
        assert kept * 100_000 >= 8 * 2**20
        hoard.get().ack()
        small.put(bytes(100_000), timeout=10)
        hoard.purge()
        for _ in range(kept - 1):
            hoard.put(bytes(100_000), timeout=10)
        assert connection.doctor() == []


def test_a_put_that_waits_for_memory_goes_on(broker_name: str) -> None:
    """overflow="block" waits for memory too: it goes on when messages are acked."""
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        queue = connection.queue("q")
        _, put = filled(queue, 500_000)
        with broker.connect() as second:
            producer = second.queue("q")
            thread = threading.Thread(target=lambda: producer.put(b"z" * 500_000))
            thread.start()
            queue.get().ack()
            thread.join()
        assert_counts(queue, added=put + 1, message_count=put)
