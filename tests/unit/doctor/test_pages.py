# SPDX-License-Identifier: Apache-2.0
"""The pages a queue's positions lie in: its head and tail, and links between pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scenario_support.patient import MESSAGES

if TYPE_CHECKING:
    from scenario_support.patient import Patient


def test_a_head_beyond_a_ready_message(patient: Patient) -> None:
    """Nobody looks before the head, unless a bit says so: the message is hidden."""
    slot = patient.memory.body_slot("jobs", 7)
    patient.memory.queue("jobs").head = 8
    patient.says("queue 'jobs', position 7", f"slot {slot}", "before the head 8", "no hint leads to it")


def test_a_tail_beyond_the_end(patient: Patient) -> None:
    """What is put behind a free place is never found."""
    patient.memory.queue("jobs").tail = MESSAGES + 5
    patient.says(f"messages of queue 'jobs': the hint of the tail is {MESSAGES + 5}, position {MESSAGES} is free")


def test_a_link_to_a_page_of_another_height(patient: Patient) -> None:
    """The root link says another height than the page has."""
    memory, lib = patient.memory, patient.lib
    queue = memory.queue("jobs")
    slot = lib.sb_link_slot(queue.root)
    queue.root = lib.sb_link_word(2, slot, lib.sb_link_gen(queue.root))
    patient.says("messages of queue 'jobs', from position 0", f"slot {slot}")


def test_a_link_to_a_page_that_is_none(patient: Patient) -> None:
    """A page links a message as its child."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("jobs", 0)
    gen = lib.sb_slot_gen(memory.headers(slot)[0])
    memory.page(memory.queue("jobs").root).children[1] = lib.sb_link_word(0, slot, gen)
    patient.says("messages of queue 'jobs', from position 64", f"slot {slot}", "a message, not a leaf page")


def test_a_page_that_is_linked_twice(patient: Patient) -> None:
    """A page is its parent's first child and its second: it cannot begin at both positions."""
    memory, lib = patient.memory, patient.lib
    parent = memory.page(memory.queue("jobs").root)
    parent.children[1] = parent.children[0]
    slot = lib.sb_link_slot(parent.children[0])
    patient.says("messages of queue 'jobs', from position 64", f"slot {slot} says it begins at 0")


def test_a_page_of_another_queue(patient: Patient) -> None:
    """A page says that it belongs to another queue."""
    memory = patient.memory
    memory.leaf(memory.queue("jobs").root).page.object = memory.queue_slot("idle")
    patient.says("messages of queue 'jobs', from position 0", "another's")


def test_a_link_to_an_earlier_life_of_a_page(patient: Patient) -> None:
    """A link carries a generation that its page has no longer."""
    memory, lib = patient.memory, patient.lib
    queue = memory.queue("ring")
    slot, gen = lib.sb_link_slot(queue.root), lib.sb_link_gen(queue.root)
    queue.root = lib.sb_link_word(lib.sb_link_height(queue.root), slot, gen + 1)
    patient.says("messages of queue 'ring', from position 0", f"slot {slot}", f"link {gen + 1:#x}, page {gen:#x}")


def test_a_page_nobody_links(patient: Patient) -> None:
    """A child is gone from its parent: the page is leaked, and its messages with it."""
    memory, lib = patient.memory, patient.lib
    parent = memory.page(memory.queue("jobs").root)
    slot = lib.sb_link_slot(parent.children[1])
    parent.children[1] = lib.SB_LINK_DONE
    patient.says(f"slot {slot} (a leaf page)", "nothing refers to it")
