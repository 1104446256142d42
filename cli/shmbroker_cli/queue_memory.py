# SPDX-License-Identifier: Apache-2.0
"""Where the messages of stored queues are, in words: of one queue, and of all queues of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker.exceptions import BrokerError, OutOfMemory
from shmbroker_cli.output import byte_count
from shmbroker_cli.session import connected

if TYPE_CHECKING:
    import shmbroker

SIZES = ("direct", "head", "pending", "acquired", "scheduled", "away")
"""What the memory has messages of a stored queue for; the last: they are not in it."""


def shown(memory: shmbroker.QueueMemory) -> dict[str, str | int | None]:
    """Return the facts of one queue, as people like to read them.

    Args:
        memory: The numbers of the queue.
    """
    sizes = {f"bytes {name}": byte_count(getattr(memory, name)) for name in SIZES}
    return {**sizes, "hits": memory.hits, "misses": memory.misses, "watermark": memory.watermark}


def sums(broker: str) -> dict[str, int] | None:
    """Return the sums over all stored queues of a broker; None if this process cannot connect to it.

    Args:
        broker: Its name.
    """
    try:
        with connected(broker) as connection:
            found = [one.memory for one in connection.queue_statistics(all=True) if one.memory is not None]
    except (BrokerError, OutOfMemory, OSError):  # the status tells the rest nevertheless
        return None
    return {name: sum(getattr(one, name) for one in found) for name in (*SIZES, "hits", "misses")}


def shown_sums(found: dict[str, int]) -> dict[str, str | int]:
    """Return such sums, as people like to read them.

    Args:
        found: The sums.
    """
    sizes = ", ".join(f"{name} {byte_count(found[name])}" for name in SIZES)
    return {"stored messages": sizes, "hits": found["hits"], "misses": found["misses"]}
