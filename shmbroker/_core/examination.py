# SPDX-License-Identifier: Apache-2.0
"""The doctor's examination: the faults of the broker's memory, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._core import findings, native, segments

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.attachment import Attachment

ffi, slow = native.ffi, native.slow
_FINDINGS = 1000


def of(attachment: Attachment, handle: Any, name_of: Callable[[int], str | None]) -> list[str]:  # noqa: ANN401
    """Examines the memory of a broker; the caller must be counted as a call in flight.

    Args:
        attachment: the mapping of the broker.
        handle: a connection to it.
        name_of: gives the name of the queue in a slot, if it can be read.

    Raises:
        BrokerError: the memory could not be examined.
    """
    facts = attachment.facts()
    count = facts.segments if facts.segments <= facts.segments_limit else 0  # `_check` reports a count above the limit
    damaged = segments.damaged(attachment.path, count, facts.chunks_per_segment)
    if damaged:  # touching memory that is no longer there would end this process
        return damaged
    count, found = _check(handle, attachment.name)
    if found:  # a second check drops findings that were only changes in progress
        second, again = _check(handle, attachment.name)
        confirmed = set(again)
        found = [finding for finding in found if finding in confirmed]
        count = min(count, second)
    words = [finding.message(name_of(finding.queue)) for finding in found]
    return words + ([f"... and {count - _FINDINGS} more"] if count > _FINDINGS else [])


def _check(handle: Any, broker: str) -> tuple[int, list[findings.Finding]]:  # noqa: ANN401
    """Returns the number of findings of the core, and a list of the first ones, at most ``_FINDINGS``."""
    memory = ffi.new("sb_finding[]", _FINDINGS)
    count = int(slow.sb_broker_check(handle, memory, _FINDINGS))
    found = [findings.Finding.copied(item) for item in memory[0 : min(count, _FINDINGS)]]
    if count and found[0].code == slow.SB_NOT_CHECKED:
        if found[0].found == slow.SB_SYSTEM:
            text = f"broker {broker!r} was not examined: this process has no memory for that"
            raise exceptions.BrokerError(541, text)
        native.raise_for(found[0].found, "the connection")
    return count, found
