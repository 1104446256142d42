# SPDX-License-Identifier: Apache-2.0
"""What keeps the memory of a full broker, in words."""

from __future__ import annotations

from typing import Any

import pytest
from scenario_support.core_calls import Replaced

from shmbroker._core import native, occupancy
from shmbroker._core.occupancy import in_words

NAMES = {7: "jobs", 8: "other"}
STRUCTURES = [
    "pages of queues", "inner pages of queues", "queues", "consumers", "priorities", "ledgers", "connections",
    "tables of what connections hold", "pages of leases", "queues with texts",
    "lanes of queues with priorities", "claims on message groups", "nodes of last values", "duplicate ids",
    "structures of kind 15",
]  # fmt: skip


def said(monkeypatch: pytest.MonkeyPatch, *facts: dict[str, int], status: int = native.OK) -> str:
    """What is said of these facts."""

    def sb_broker_describe_chunks(handle: object, looks: int, found: Any) -> int:  # noqa: ANN401
        assert (handle, looks, len(found)) == ("handle", 32_768, native.slow.SB_CHUNK_FACTS)
        for number, fields in enumerate(facts):
            for name, value in fields.items():
                setattr(found[number], name, value)
        return status

    monkeypatch.setattr(occupancy, "slow", Replaced(native.slow, sb_broker_describe_chunks=sb_broker_describe_chunks))
    return in_words("handle", NAMES.get)


def slots(**fields: int) -> dict[str, int]:
    """Slots of 64 bytes in one chunk, of which 5 are in use."""
    return {"slot_bytes": 64, "slots": 100, "used": 5, "chunks": 1} | fields


SLOTS = "is kept by slots of 64 bytes (5 of 100 in use"


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (slots(), f"1 {SLOTS})"),
        (slots(chunks=2), "2 are kept by slots of 64 bytes (5 of 100 in use)"),
        (slots(queue=7, held=4, whole=1), f"1 {SLOTS}, 4 of them by queue 'jobs')"),
        (slots(queue=7, held=4), f"1 {SLOTS}, at least 4 of them by queue 'jobs')"),
        (slots(queue=9, held=4), f"1 {SLOTS})"),
        (slots(slot_bytes=0), "1 is kept by 5 bodies in chunks of their own"),
        (
            slots(slot_bytes=0, chunks=3, queue=8, held=2, whole=1),
            "3 are kept by 5 bodies in chunks of their own, 2 of them by queue 'other'",
        ),
    ],
)
def test_bodies(monkeypatch: pytest.MonkeyPatch, fact: dict[str, int], words: str) -> None:
    """The size of their slots, how many are in use, and which queue has most of them, if it is there still."""
    assert said(monkeypatch, fact) == f"; of its chunks of 2 MiB {words}"


@pytest.mark.parametrize(("kind", "structure"), list(enumerate(STRUCTURES, start=1)))
def test_structures(monkeypatch: pytest.MonkeyPatch, kind: int, structure: str) -> None:
    """What they are for; no queue has them."""
    fact = slots(kind=kind, queue=7, held=4)
    assert said(monkeypatch, fact) == f"; of its chunks of 2 MiB 1 is kept for {structure}"


def test_the_three_that_keep_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most first; what is not in use keeps nothing."""
    facts = [slots(kind=kind, chunks=chunks) for kind, chunks in ((1, 2), (3, 5), (4, 1), (5, 4))]
    facts.insert(1, slots(used=0, chunks=9))
    assert said(monkeypatch, *facts) == (
        "; of its chunks of 2 MiB 5 are kept for queues, 4 are kept for priorities, 2 are kept for pages of queues"
    )


def test_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is said, nor where the core cannot tell."""
    assert said(monkeypatch) == ""
    assert said(monkeypatch, slots(used=0)) == ""
    assert said(monkeypatch, slots(), status=native.STOPPING) == ""


def test_slot_0_is_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is not asked for."""
    monkeypatch.setitem(NAMES, 0, "none")
    assert said(monkeypatch, slots(held=4)) == f"; of its chunks of 2 MiB 1 {SLOTS})"
