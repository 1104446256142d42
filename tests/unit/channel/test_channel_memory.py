# SPDX-License-Identifier: Apache-2.0
"""A channel whose broker has no memory left for what it should note of its deliveries."""

from __future__ import annotations

import contextlib
import itertools
import time

import pytest
from scenario_support.waiting import eventually

import shmbroker
import shmbroker.testing

MESSAGES = 160_000
"""More than one piece of memory has notes for."""


def declare_without_end(connection: shmbroker.Connection) -> None:
    """Declares queues until there is no piece of memory left for anything.

    A single OutOfMemory does not say that: the core looks only from time to time for memory that came free.
    """
    numbers = itertools.count()
    last = time.monotonic()

    def is_full() -> bool:
        nonlocal last
        with contextlib.suppress(shmbroker.OutOfMemory):
            for n in numbers:
                connection.queue(f"another {n}").close()
                last = time.monotonic()
        return time.monotonic() - last > 1

    eventually(is_full, "no memory for a whole second")


@pytest.mark.repairs  # the consumer sleeps while messages are ready, which is what the housekeeper's check looks for
def test_deliveries_go_on_when_there_is_memory_again(broker_name: str) -> None:
    """The hook for errors is told once that there is none; when something was acknowledged, the others come."""
    errors: list[BaseException] = []
    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1

    with (
        shmbroker.testing.broker(broker_name, memory="96M") as broker,
        broker.connect(on_callback_error=errors.append) as connection,
    ):
        channel = connection.channel()
        channel.basic_qos(prefetch_count=0)
        channel.queue_declare("first")
        channel.basic_consume("first", count)
        jobs = connection.queue("jobs")
        jobs.put_many([b""] * MESSAGES)
        declare_without_end(connection)
        channel.basic_consume("jobs", count)
        eventually(lambda: errors or seen == MESSAGES, "memory to be missed")
        assert errors, f"there was memory for {seen} deliveries: {broker.statistics()}"
        before = seen
        assert before < MESSAGES
        channel.basic_ack(0, multiple=True)
        eventually(lambda: seen == MESSAGES, "all to come")
        assert [type(error) for error in errors] == [shmbroker.OutOfMemory]
        channel.basic_ack(0, multiple=True)
        assert jobs.statistics().acked == MESSAGES
