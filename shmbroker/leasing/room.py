# SPDX-License-Identifier: Apache-2.0
"""The size limit of a lease when memory is scarce. It leaves room for the results of processing the lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker._session.session import session_of

if TYPE_CHECKING:
    import shmbroker

BYTES_A_MESSAGE = 256  # at least: the smallest slot of a message
_LEAST, _PART_OF_MEMORY = 1 << 20, 128  # no limit is below 1 MiB, or 1/128 of memory if less
_PART_OF_ROOM = 3


def scarce_bytes(connection: shmbroker.Connection, *, stored: bool = False) -> int | None:
    """Return the most bytes that a lease may have once the memory of the broker cannot grow any more.

    Args:
        connection: The connection to the broker.
        stored: Whether messages of the queue may be in the store only. To lease them is to bring them into the memory,
            where leased messages stay: so there is always a limit.

    Returns:
        A third of the free memory, but at least 1 MiB, or 1/128 of the memory if that is less. Results of this least
        size fit the memory that plain puts leave free (sb_reserve.h). ``None``: the memory can still grow, so there is
        no limit.
    """
    attachment = session_of(connection).core.attachment
    facts = attachment.facts()
    if facts.segments < facts.segments_limit and not stored:
        return None
    facts = attachment.facts(in_full=True)
    used = min(facts.memory_bodies, facts.memory_used)
    room = max(0, facts.memory_limit - facts.memory_structures - used)
    return max(min(_LEAST, facts.memory_limit // _PART_OF_MEMORY), room // _PART_OF_ROOM)
