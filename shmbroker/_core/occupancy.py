# SPDX-License-Identifier: Apache-2.0
"""The description, in words, of what occupies the memory of a full broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker._core import native

if TYPE_CHECKING:
    from collections.abc import Callable

ffi, slow = native.ffi, native.slow
# How many cells and parts of messages the core may read in all queues together. It reads a few of each queue even
# beyond this number.
_LOOKS = 32_768
_GROUPS = 3
_STRUCTURES: dict[int, str] = {
    slow.SB_KIND_LEAF: "pages of queues",
    slow.SB_KIND_INNER: "inner pages of queues",
    slow.SB_KIND_QUEUE: "queues",
    slow.SB_KIND_NODE: "consumers",
    slow.SB_KIND_CONSUMER_LEVEL: "priorities",
    slow.SB_KIND_LEDGER: "ledgers",
    slow.SB_KIND_CONNECTION: "connections",
    slow.SB_KIND_HOLDINGS: "tables of what connections hold",
    slow.SB_KIND_LONG_LEAF: "pages of leases",
    slow.SB_KIND_LONG_QUEUE: "queues with texts",
    slow.SB_KIND_LANE: "lanes of queues with priorities",
    slow.SB_KIND_GROUPS: "claims on message groups",
    slow.SB_KIND_VALUE_NODE: "nodes of last values",
    slow.SB_KIND_IDS: "duplicate ids",
}


def in_words(handle: Any, name_of: Callable[[int], str | None]) -> str:  # noqa: ANN401 - cffi has no types
    """Describes what occupies most chunks: of the classes with slots in use, the three that have the most chunks.

    Of each it says the number of chunks. Of slots for bodies, it says their size, how many are in use, and which queue
    has most of them. Bodies that have whole chunks to themselves count as one class, without a size. Of slots for
    structures, it says only what they hold. All slots of a chunk have one size, which can change only when none of them
    is in use.

    Args:
        handle: the handle of a connection.
        name_of: returns the name of the queue in a slot, ``None`` when the queue is gone.

    Returns:
        The end of a sentence; empty if no slot is in use, or the core cannot describe the chunks.
    """
    facts = ffi.new("sb_chunk_facts[]", slow.SB_CHUNK_FACTS)
    if slow.sb_broker_describe_chunks(handle, _LOOKS, facts) != native.OK:
        return ""
    most = sorted((fact for fact in facts if fact.used), key=lambda fact: -fact.chunks)[:_GROUPS]
    said = ", ".join(_group(fact, name_of(fact.queue) if fact.queue else None) for fact in most)
    return f"; of its chunks of 2 MiB {said}" if said else ""


def _group(fact: Any, queue: str | None) -> str:  # noqa: ANN401
    verb = "is" if fact.chunks == 1 else "are"
    if fact.kind != slow.SB_KIND_MESSAGE:
        structure = _STRUCTURES.get(fact.kind) or f"structures of kind {fact.kind}"
        return f"{fact.chunks} {verb} kept for {structure}"
    holder = ""
    if queue is not None:
        holder = f", {'' if fact.whole else 'at least '}{fact.held} of them by queue {queue!r}"
    if not fact.slot_bytes:
        return f"{fact.chunks} {verb} kept by {fact.used} bodies in chunks of their own{holder}"
    return f"{fact.chunks} {verb} kept by slots of {fact.slot_bytes} bytes ({fact.used} of {fact.slots} in use{holder})"
