# SPDX-License-Identifier: Apache-2.0
"""Cells of a queue, and the slots of the messages they lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scenario_support.inside import core_of
from scenario_support.patient import NOBODY, OUTSIDE

if TYPE_CHECKING:
    from scenario_support.patient import Patient


def point(patient: Patient, position: int, slot: int, ref: int = 0) -> None:
    """Let a cell of `jobs` refer to a slot."""
    memory, lib = patient.memory, patient.lib
    gen = memory.leaf_gen(memory.queue("jobs").root, position)
    memory.cell("jobs", position).word = lib.sb_cell_open(lib.SB_CELL_AVAILABLE, slot, ref, gen)


def test_a_slot_outside_the_memory(patient: Patient) -> None:
    """A cell refers to a slot that cannot be."""
    point(patient, 7, OUTSIDE)
    patient.says("queue 'jobs', position 7", f"slot {OUTSIDE}", "outside the memory")


def test_the_slot_that_means_none(patient: Patient) -> None:
    """A cell refers to slot 0."""
    point(patient, 7, 0)
    patient.says("queue 'jobs', position 7", "slot 0,", "outside the memory")


def test_a_slot_of_another_kind(patient: Patient) -> None:
    """A cell refers to a queue."""
    slot = patient.memory.queue_slot("ring")
    point(patient, 70, slot)
    patient.says("queue 'jobs', position 70", f"slot {slot}", "a queue, not a message")


def test_a_place_where_no_slot_begins(patient: Patient) -> None:
    """A cell refers into the middle of a slot."""
    slot = patient.memory.body_slot("large", 0) + 1
    point(patient, 7, slot)
    patient.says("queue 'jobs', position 7", f"slot {slot}", "no slot begins")


def test_a_free_slot(patient: Patient) -> None:
    """The slot of a message was freed behind its back: what is used is said to be free."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("jobs", 7)
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_FREE, 0, lib.sb_slot_gen(header[0]) + 1)
    patient.says("queue 'jobs', position 7", f"slot {slot}", "is free")


def test_a_slot_that_is_not_published(patient: Patient) -> None:
    """The slot of a message is somebody's who is about to write it."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("jobs", 7)
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_ALLOC, patient.client, lib.sb_slot_gen(header[0]))
    patient.says("queue 'jobs', position 7", f"slot {slot}", "not published")
    patient.says(f"slot {slot} (a message)", f"connection {patient.client} owns it", "do not name it")


def test_two_cells_with_one_slot(patient: Patient) -> None:
    """Two cells refer to a message by one reference, and nobody to the other message."""
    shared, lost = patient.memory.body_slot("jobs", 7), patient.memory.body_slot("jobs", 8)
    point(patient, 8, shared)
    patient.says("queue 'jobs', position 8", f"slot {shared}", "as another position does")
    patient.says(f"slot {lost} (a message)", "nothing refers to it")


def test_a_reference_the_slot_does_not_have(patient: Patient) -> None:
    """A cell refers to a slot by a reference that was never given."""
    slot = patient.memory.body_slot("jobs", 7)
    point(patient, 7, slot, 3)
    patient.says("queue 'jobs', position 7", f"slot {slot} by reference 3", "does not have")


def test_a_reference_without_a_holder(patient: Patient) -> None:
    """A slot has one reference more than there are cells: it would never be freed."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("jobs", 7)
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_PUBLISHED, 0b101, lib.sb_slot_gen(header[0]))
    patient.says(f"slot {slot} (a message)", "nothing refers to it", "references 0x5, seen 0x1")


def test_a_leaked_slot(patient: Patient) -> None:
    """A free slot is said to be used: nobody would ever free it."""
    memory, lib = patient.memory, patient.lib
    slot = memory.a_free_slot(memory.body_slot("jobs", 7))
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_PUBLISHED, 1, lib.sb_slot_gen(header[0]))
    patient.says(f"slot {slot} (a message)", "nothing refers to it")


def test_a_published_slot_without_references(patient: Patient) -> None:
    """A slot that lost its last reference without being freed is leaked as well."""
    memory, lib = patient.memory, patient.lib
    slot = memory.a_free_slot(memory.body_slot("jobs", 7))
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_PUBLISHED, 0, lib.sb_slot_gen(header[0]))
    patient.says(f"slot {slot} (a message)", "nothing refers to it", "references 0x0")


def test_a_slot_header_that_cannot_be(patient: Patient) -> None:
    """A state that the slot of a structure is never in: only bodies are read in place."""
    memory, lib = patient.memory, patient.lib
    slot = memory.queue_slot("jobs")
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_READ, 1, lib.sb_slot_gen(header[0]))
    patient.says(f"slot {slot} (a queue)", "impossible state")


def test_a_body_that_nobody_reads(patient: Patient) -> None:
    """It is said to be read in place, by a connection that does not exist."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("jobs", 7)
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_READ, 1 | 4000 << 12, lib.sb_slot_gen(header[0]))
    patient.says(f"slot {slot} (a message)", "owned by connection 4000, which does not exist")


def test_a_reader_without_a_holding(patient: Patient) -> None:
    """A body is said to be read in place by a connection that does not know it: nobody would end that."""
    memory, lib = patient.memory, patient.lib
    slot, reader = memory.body_slot("jobs", 7), core_of(patient.connection).id
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_READ, 1 | reader << 12, lib.sb_slot_gen(header[0]))
    patient.says(f"slot {slot} (a message)", f"connection {reader} owns it, whose holdings do not name it")


def test_a_message_longer_than_its_slot(patient: Patient) -> None:
    """A body whose length would lead beyond its slot."""
    slot = patient.memory.body_slot("jobs", 7)
    patient.memory.slot("message", slot).body_length = 1_000_000
    patient.says("queue 'jobs', position 7", f"slot {slot} says 1000000 bytes", "there is room for")


def test_a_message_that_begins_elsewhere(patient: Patient) -> None:
    """A body that begins within the message's own header."""
    slot = patient.memory.body_slot("jobs", 7)
    patient.memory.slot("message", slot).body_offset = 8
    patient.says("queue 'jobs', position 7", f"slot {slot} says its body begins at 8")


def test_an_impossible_cell(patient: Patient) -> None:
    """A cell in a state that there is not."""
    patient.memory.cell("jobs", 7).word = 0xF
    patient.says("messages of queue 'jobs', position 7: impossible cell 0xf")


def test_a_cell_of_an_earlier_page(patient: Patient) -> None:
    """A cell that carries the generation of a page that was freed long ago."""
    memory, lib = patient.memory, patient.lib
    gen = memory.leaf_gen(memory.queue("jobs").root, 7)
    slot = memory.body_slot("jobs", 7)
    memory.cell("jobs", 7).word = lib.sb_cell_open(lib.SB_CELL_AVAILABLE, slot, 0, gen + 1)
    patient.says("messages of queue 'jobs', position 7: impossible cell", f"generation {gen:#x}")


def test_a_free_cell_between_filled_ones(patient: Patient) -> None:
    """A consumer would stop at it for ever."""
    memory, lib = patient.memory, patient.lib
    gen = memory.leaf_gen(memory.queue("jobs").root, 7)
    memory.cell("jobs", 7).word = lib.sb_cell_bare(lib.SB_CELL_FREE, gen)
    patient.says("messages of queue 'jobs': position 7 is free, although position 8 is filled")


def test_a_message_held_by_nobody(patient: Patient) -> None:
    """A message is held by a connection that there is not: it would never come back."""
    memory, lib = patient.memory, patient.lib
    cell, gen = memory.cell("jobs", 0), memory.leaf_gen(memory.queue("jobs").root, 0)
    cell.word = lib.sb_cell_owned(lib.SB_CELL_ACQUIRED, lib.sb_cell_slot(cell.word), 0, NOBODY, gen)
    patient.says("queue 'jobs', position 0", f"connection {NOBODY}, which does not exist")


def test_a_message_held_in_another_life_of_its_slot(patient: Patient) -> None:
    """The holder's record is of another generation than the slot: an ack would not free it."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("jobs", 0)
    gen = lib.sb_slot_gen(memory.headers(slot)[0])
    memory.cell("jobs", 0).side += 5
    patient.says("queue 'jobs', position 0", f"generation {gen + 5} of slot {slot}, which is at {gen}")
