# SPDX-License-Identifier: Apache-2.0
"""How much a lease may have where memory is scarce: what comes out of it has to find room as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import shmbroker

BYTES_A_MESSAGE = 256  # at least: the shortest slot of one
_LEAST, _PART_OF_MEMORY = 1 << 20, 128  # so much of a full broker's reserve
_PART_OF_ROOM = 3


def scarce_bytes(connection: shmbroker.Connection) -> int | None:
    """Return how many bytes a lease may have in a broker that does not grow any more.

    Args:
        connection: To the broker.

    Returns:
        A third of what is free, and always what the reserve has for it; ``None`` as long as the broker grows.
    """
    attachment = connection.core.attachment
    facts = attachment.facts()
    if facts.segments < facts.segments_limit:
        return None
    facts = attachment.facts(in_full=True)
    used = min(facts.memory_bodies, facts.memory_used)
    room = max(0, int(facts.memory_limit - facts.memory_structures - used))
    return max(min(_LEAST, int(facts.memory_limit) // _PART_OF_MEMORY), room // _PART_OF_ROOM)
