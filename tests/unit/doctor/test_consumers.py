# SPDX-License-Identifier: Apache-2.0
"""Lists of consumers, and of others who wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.patient import NOBODY

if TYPE_CHECKING:
    from scenario_support.patient import Patient


def test_a_list_entry_of_an_earlier_epoch(patient: Patient) -> None:
    """The entry of an interested consumer is dead: nobody would ever tell the consumer of a message."""
    cell, node = patient.idle_entry()
    cell.word -= 1 << 32
    patient.says(f"queue 'idle', slot {node}", f"connection {patient.client} is interested", "nobody would tell it")


def test_a_list_entry_of_a_later_epoch(patient: Patient) -> None:
    """An entry is ahead of its consumer by more than a move can be."""
    cell, node = patient.idle_entry()
    cell.word += 9 << 32
    patient.says("list of interested consumers of queue 'idle'", f"slot {node} in epoch")


def test_a_list_entry_that_names_no_consumer(patient: Patient) -> None:
    """An entry names a queue."""
    cell, _ = patient.idle_entry()
    slot = patient.memory.queue_slot("idle")
    cell.word = patient.lib.sb_entry_word(slot, 7)
    patient.says("list of interested consumers of queue 'idle'", f"slot {slot}", "no consumer node (a queue)")


def test_a_consumer_in_the_list_of_another_queue(patient: Patient) -> None:
    """A consumer stands in the lists of one queue and says it belongs to another."""
    _, node = patient.idle_entry()
    slot = patient.memory.queue_slot("jobs")
    patient.memory.slot("node", node).queue = slot
    patient.says("list of interested consumers of queue 'idle'", f"slot {node}", f"of slot {slot}")


def test_a_consumer_with_a_word_that_cannot_be(patient: Patient) -> None:
    """A consumer says it belongs to another connection than its slot does."""
    memory, lib = patient.memory, patient.lib
    _, slot = patient.idle_entry()
    node = memory.slot("node", slot)
    node.word = lib.sb_node_word(lib.SB_NODE_INTERESTED, NOBODY, lib.sb_node_epoch(node.word))
    patient.says("queue 'idle'", f"slot {slot}", f"connection {NOBODY}", f"owner {patient.client}")


@pytest.mark.parametrize(
    ("count", "words"),
    [
        ("interested", "counts 2 interested consumers, the lists hold 1"),
        ("notified", "counts 1 notified consumers, the lists hold 0"),
        ("not_interested", "counts 1 idle consumers, the list holds 0"),
        ("non_acquiring", "counts 1 no_local consumers, the list holds 0"),
        ("consumers", "counts 2 consumers, the list holds 1"),
        ("room_waiting", "counts 1 waiting producers, the list holds 0"),
    ],
)
def test_a_count_of_consumers_that_is_off(patient: Patient, count: str, words: str) -> None:
    """A count that is too low lets a consumer sleep, one that is too high wakes in vain."""
    queue = patient.memory.queue("idle")
    setattr(queue, count, getattr(queue, count) + 1)
    patient.says("queue 'idle'", words)


def test_a_count_of_a_priority_that_is_off(patient: Patient) -> None:
    """A priority that seems to have interested consumers holds all lower ones off."""
    patient.idle_level().interested_count += 1
    patient.says("queue 'idle'", "the priority in slot", "counts 2 interested consumers, its list holds 1")


def test_a_count_of_those_who_wait_for_memory(patient: Patient) -> None:
    """The list of those who wait for memory is the broker's own."""
    patient.memory.header.memory_waiting += 3
    patient.says("header: counts 3 who wait for memory, the list holds 0")


def test_a_chain_of_priorities_that_bites_its_tail(patient: Patient) -> None:
    """Whoever follows it must not follow it for ever."""
    slot = patient.memory.queue("idle").consumer_levels
    patient.idle_level().next = slot
    patient.says("queue 'idle'", "chain of its priorities", f"slot {slot}")
