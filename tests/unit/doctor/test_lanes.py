# SPDX-License-Identifier: Apache-2.0
"""Queues with priorities: their lanes, the bits that lead to them, and what lies in them (ADR 0032)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.patient import MortalPatient, admitted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scenario_support.patient import Patient


@pytest.fixture(scope="module")
def healthy() -> Iterator[Patient]:
    """Run a broker with messages that have priorities."""
    with admitted(MortalPatient) as patient:
        yield patient


@pytest.mark.parametrize("lane", [0, 2, 3])
def test_a_ready_bit_that_was_cleared(patient: Patient, lane: int) -> None:
    """The messages of the lane are there, and no take would search it."""
    patient.memory.queue("ranked").ready[0] &= ~(1 << lane)
    patient.says(f"queue 'ranked', lane {lane}", "has ready messages, but no bit leads to it")


def test_a_message_before_the_head_of_its_lane(patient: Patient) -> None:
    """A consumer would begin behind it."""
    lane = patient.memory.lane("ranked", 2)
    lane.head = lane.base + 1
    patient.says(f"queue 'ranked', position {lane.base}", "before the head", "no hint leads to it")


def test_a_lane_that_lies_behind_a_later_one(patient: Patient) -> None:
    """Lanes are linked by their numbers: takes and evictions would end at the wrong one."""
    memory = patient.memory
    first = memory.queue("ranked").lanes
    memory.slot("lane", first).number = 3
    patient.says("queue 'ranked': the chain of its lanes leads to slot")


def test_a_chain_of_lanes_that_goes_round(patient: Patient) -> None:
    """A walk along it would have no end."""
    memory = patient.memory
    memory.lane("ranked", 3).next = memory.queue("ranked").lanes
    patient.says("queue 'ranked': the chain of its lanes leads to slot", "a lane of messages")


def test_a_chain_of_lanes_that_leads_elsewhere(patient: Patient) -> None:
    """It leads to a queue."""
    memory = patient.memory
    memory.queue("ranked").lanes = memory.queue_slot("jobs")
    patient.says("queue 'ranked': the chain of its lanes", f"slot {memory.queue_slot('jobs')}", "(a queue)")


def test_a_chain_of_lanes_that_ends_too_early(patient: Patient) -> None:
    """Nothing leads to the lane behind, and to its messages: the counters say how many there should be."""
    memory = patient.memory
    memory.lane("ranked", 2).next = 0
    patient.says("queue 'ranked'", "counters say 9 messages are ready, its cells 6")
    patient.says("(a lane of messages)", "nothing refers to it")


def test_a_lane_of_another_queue(patient: Patient) -> None:
    """It says that it is one of `jobs`."""
    memory = patient.memory
    memory.lane("ranked", 2).queue = memory.queue_slot("jobs")
    patient.says("queue 'ranked': the chain of its lanes leads to slot")


def test_a_page_of_a_lane_that_is_another_ones(patient: Patient) -> None:
    """The link leads to the page of `jobs`."""
    memory = patient.memory
    memory.lane("ranked", 2).root = memory.queue("ring").root
    patient.says("messages of a lane of queue 'ranked'")


@pytest.mark.parametrize("priority", [0, 2, 255])
def test_a_priority_that_is_not_that_of_the_lane(patient: Patient, priority: int) -> None:
    """A message says another priority than that by which it is delivered."""
    memory = patient.memory
    cell = memory.cell_of_lane("ranked", 2, 1)
    memory.slot("message", patient.lib.sb_cell_slot(cell.word)).priority = priority
    patient.says("queue 'ranked'", f"has priority {priority}, but lies with those of 1")


def test_a_count_of_what_came(patient: Patient) -> None:
    """The hint of all lanes together is one too high: the limit would refuse a message too early."""
    queue = patient.memory.queue("ranked")
    queue.came += 1
    patient.says("queue 'ranked': the hint of the number of its places", f"is {queue.came}, should be {queue.came - 1}")


@pytest.mark.parametrize("highest", [0, -2, 256])
def test_a_highest_priority_that_cannot_be(patient: Patient, highest: int) -> None:
    """It does not agree with the flag, or is none."""
    patient.memory.queue("ranked").settings[patient.lib.SB_SETTING_MAX_PRIORITY] = highest
    patient.says(f"queue 'ranked': max_priority is {highest}", "or its flag does not agree")


def test_a_queue_that_is_being_deleted_in_no_way(patient: Patient) -> None:
    """The word that decides a deletion has a state that there is not."""
    patient.memory.queue("ranked").closing = 7
    patient.says("queue 'ranked': the word that says whether it is being deleted is 7")
