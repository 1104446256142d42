# SPDX-License-Identifier: Apache-2.0
"""What a selector costs: counting the messages of a queue that a condition selects."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.samples import Sample
from benchmarks.shm.broker import opened

if TYPE_CHECKING:
    from collections.abc import Generator

REGIONS = ("eu", "us", "ap", "af")
HEADERS = 8  # of each message; the ones that are compared come last
WARM_UP = 2


def counted(broker: str, messages: int, selector: str | None, share: float) -> Generator[Sample | None, None, None]:
    """Count the selected messages; all lie in the queue during all steps.

    Args:
        broker: Name of the running broker.
        messages: How many there are, a multiple of 1,000.
        selector: The condition; None: without one.
        share: The part of the messages that it selects.
    """
    with opened(broker, f"selected-{messages}") as (_, queue):
        if not len(queue):
            for number in range(messages):
                others = {f"header-{at}": "value" for at in range(HEADERS - 2)}
                headers = {**others, "region": REGIONS[number % 4], "number": number % 1000}
                queue.put(b"x" * 64, headers=headers)
        for _ in range(WARM_UP):
            queue.count(selector=selector)
        yield None
        expected = round(messages * share)
        while True:
            start_ns = time.perf_counter_ns()
            found = queue.count(selector=selector)
            elapsed_ns = time.perf_counter_ns() - start_ns
            yield Sample(
                value=elapsed_ns / messages,
                count=messages,
                checksum=found,
                verified=found == expected,
                fault="" if found == expected else f"{found} instead of {expected}",
            )
