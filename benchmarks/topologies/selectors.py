# SPDX-License-Identifier: Apache-2.0
"""Topologies of selectors: counting the messages that a condition selects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.shm import selecting
from benchmarks.shm.contenders import Steps
from benchmarks.topologies.topology import STREAM_MEMORY, Topology

if TYPE_CHECKING:
    from benchmarks.arenas import Arena
    from benchmarks.harness import Contender, Settings

# The name of the row, the condition, and the part of the messages that it selects. The first row has no selector: what
# the others take beyond it is the cost of the selector.
_ROWS: tuple[tuple[str, str | None, float], ...] = (
    ("no selector", None, 1),
    ("a property", "JMSType = 'none'", 0),
    ("a header", "region = 'eu'", 0.25),
    ("two headers", "region = 'eu' AND number < 500", 0.125),
    ("a list and a pattern", "region IN ('af', 'eu') OR region LIKE 'u%'", 0.75),
)
MESSAGES, QUICK_MESSAGES = 200_000, 20_000


def _selecting(_: Arena, settings: Settings) -> list[Contender]:
    messages = QUICK_MESSAGES if settings.quick else MESSAGES
    return [
        Steps(name, selecting.counted, messages, selector, share, timeout=settings.timeout, memory=STREAM_MEMORY)
        for name, selector, share in _ROWS
    ]


TOPOLOGIES: tuple[Topology, ...] = (
    Topology(
        "selectors",
        "200,000 messages with 8 headers; those that a selector selects are counted",
        "time of count(selector=...) / messages in the queue, in one process",
        {"selectors": ()},
        _selecting,
    ),
)
"""Topologies of selectors, in the order of printing."""
