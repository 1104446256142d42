# SPDX-License-Identifier: Apache-2.0
"""Names of queues: the directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.patient import OUTSIDE

if TYPE_CHECKING:
    from scenario_support.patient import Patient


def test_a_name_that_changed(patient: Patient) -> None:
    """The name of a queue is no longer the one it was filed under."""
    patient.memory.queue("jobs").name[0] = b"J"
    entry = patient.memory.entry("Jobs")
    patient.says(f"directory entry {entry}: queue 'Jobs'", "not found by its name")


def test_a_hash_that_changed(patient: Patient) -> None:
    """The entry of a queue carries another hash: nobody finds the queue any more."""
    entry = patient.memory.entry("jobs")
    patient.memory.directory[entry] ^= 1 << 40
    patient.says(f"directory entry {entry}: queue 'jobs'", "not found by its name")


@pytest.mark.parametrize("length", [0, 2, 300])
def test_a_name_of_another_length(patient: Patient, length: int) -> None:
    """A name has 1 to 255 bytes, and as many as it says."""
    slot, entry = patient.memory.queue_slot("jobs"), patient.memory.entry("jobs")
    patient.memory.queue("jobs").name_length = length
    patient.says(f"directory entry {entry}", f"slot {slot}", f"name of {length} bytes has 4")


def test_an_entry_that_leads_nowhere(patient: Patient) -> None:
    """The entry of a queue leads to a message."""
    memory = patient.memory
    entry, slot = memory.entry("jobs"), memory.body_slot("jobs", 7)
    memory.directory[entry] = memory.directory[entry] & ~(OUTSIDE << 2) | slot << 2
    patient.says(f"directory entry {entry}", f"slot {slot}", "no queue (a message)")


def test_two_entries_for_one_queue(patient: Patient) -> None:
    """A queue has one name."""
    memory = patient.memory
    jobs, large = memory.entry("jobs"), memory.entry("large")
    memory.directory[large] = memory.directory[jobs]
    patient.says(f"directory entry {max(jobs, large)}: leads to queue 'jobs'", "as another entry does")
    patient.says("(a queue)", "nothing refers to it")


def test_a_queue_count_that_is_off(patient: Patient) -> None:
    """The header counts the queues."""
    patient.memory.header.queue_count += 1
    patient.says("header: counts 5 queues, the directory has 4")
