# SPDX-License-Identifier: Apache-2.0
"""Chunks of memory, and what the header says of the memory as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from scenario_support.patient import Patient


def test_a_chunk_of_a_class_that_is_none(patient: Patient) -> None:
    """A chunk is cut into slots of a class that there is not."""
    memory, lib = patient.memory, patient.lib
    chunk = memory.chunk_of(memory.body_slot("large", 0))
    memory.chunks[chunk] = lib.sb_chunk_word(lib.SB_CHUNK_CLASS, 0, 60, 0)
    patient.says(f"chunk {chunk}: class 60, which does not exist")


def test_a_chunk_in_a_state_that_cannot_be(patient: Patient) -> None:
    """A state of a chunk that there is not."""
    chunk = patient.memory.chunk_of(patient.memory.body_slot("large", 0))
    patient.memory.chunks[chunk] = 7
    patient.says(f"chunk {chunk}: impossible state")


def test_a_chunk_beyond_the_memory(patient: Patient) -> None:
    """A chunk is in use that no segment has."""
    memory, lib = patient.memory, patient.lib
    chunk = memory.header.chunk_limit + 5
    memory.chunks[chunk] = lib.sb_chunk_word(lib.SB_CHUNK_CLASS, 0, 3, 0)
    patient.says(f"chunk {chunk}: in use, but there are only")


def test_a_run_that_is_broken(patient: Patient) -> None:
    """The second chunk of a long body is said to be free: somebody else would write there."""
    memory, lib = patient.memory, patient.lib
    chunk = memory.chunk_of(memory.body_slot("large", 1))
    assert lib.sb_chunk_run(memory.chunks[chunk]) == 3
    memory.chunks[chunk + 1] = lib.SB_CHUNK_FREE
    patient.says(f"chunk {chunk + 1}: does not fit the run it belongs to")


def test_a_run_that_goes_on_for_ever(patient: Patient) -> None:
    """A run that is longer than the memory."""
    memory, lib = patient.memory, patient.lib
    chunk = memory.chunk_of(memory.body_slot("large", 1))
    memory.chunks[chunk] = lib.sb_chunk_word(lib.SB_CHUNK_RUN, 0, 0, 9999)
    patient.says(f"chunk {chunk}: first of an impossible run of 9999 chunks")


def test_the_rest_of_a_run_without_its_beginning(patient: Patient) -> None:
    """The first chunk of a long body is said to be free."""
    memory, lib = patient.memory, patient.lib
    chunk = memory.chunk_of(memory.body_slot("large", 1))
    memory.chunks[chunk] = lib.SB_CHUNK_FREE
    patient.says(f"chunk {chunk + 1}: does not fit the run it belongs to")


def test_a_class_of_another_size(patient: Patient) -> None:
    """The table of classes says other sizes than the core knows."""
    patient.memory.classes[7].units = 100
    patient.says("class 7: slots of 100 units, not 7")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("magic", "header: magic is 0x5, not 0x"),
        ("layout_hash", "header: layout is 0x5, not 0x"),
        ("layout_major", "header: layout is 0x5, not 0x1"),
        ("memory_limit", f"header: limits say 5, not {64 << 20}"),
        ("chunks_per_segment", "header: limits say 5, not"),
    ],
)
def test_a_header_that_changed_under_its_users(patient: Patient, field: str, words: str) -> None:
    """Who is attached already is told; a new one is refused, see test_segments.py."""
    setattr(patient.memory.header, field, 5)
    patient.says(words)


def test_more_segments_than_there_can_be(patient: Patient) -> None:
    """The header says there are segments beyond the limit."""
    patient.memory.header.segments = 200
    patient.says("header: 200 segments, of at most")


def test_a_housekeeper_that_waits_nowhere(patient: Patient) -> None:
    """The header names a message as the place where the housekeeper waits."""
    slot = patient.memory.body_slot("jobs", 7)
    patient.memory.header.housekeeper_waiter = slot
    patient.says(f"header: the housekeeper waits at slot {slot}")
