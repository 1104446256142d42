# SPDX-License-Identifier: Apache-2.0
"""Counters, ledgers, hints and settings of a queue, and what it has scheduled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.patient import LARGE, MESSAGES, NOBODY

if TYPE_CHECKING:
    from scenario_support.patient import Patient


def test_a_counter_that_is_off_by_one(patient: Patient) -> None:
    """A message was counted that never came."""
    ready = MESSAGES - 3
    patient.memory.ledger("jobs").counters[patient.lib.SB_COUNT_ADDED] += 1
    patient.says("queue 'jobs'", f"counters say {ready + 1} messages are ready, its cells {ready}")


def test_a_counter_below_nothing(patient: Patient) -> None:
    """More messages went than came: what nobody can see in the statistics, which do not go below zero."""
    patient.memory.ledger("idle").counters[patient.lib.SB_COUNT_ACKED] += 1
    patient.says("queue 'idle'", "counters say -1 messages are ready, its cells 0")


def test_a_counter_of_bytes(patient: Patient) -> None:
    """The bytes of a queue are those of its messages."""
    patient.memory.ledger("large").counters[patient.lib.SB_COUNT_ADDED_BYTES] += 1
    held = 10_000 + LARGE + 100
    patient.says("queue 'large'", f"counters say it holds {held + 1} bytes, its messages {held}")


def test_a_ledger_of_somebody_who_is_not_there(patient: Patient) -> None:
    """A ledger belongs to a connection that does not exist: it would never be used again."""
    patient.memory.ledger("large").owner = NOBODY
    patient.says("queue 'large'", "ledger", f"connection {NOBODY}, which does not exist")


def test_a_chain_of_ledgers_that_bites_its_tail(patient: Patient) -> None:
    """Whoever follows it must not follow it for ever."""
    memory = patient.memory
    memory.ledger("large").next = memory.queue("large").ledgers
    patient.says("queue 'large'", "chain of its ledgers", f"slot {memory.queue('large').ledgers}")


def test_a_chain_of_ledgers_that_leads_elsewhere(patient: Patient) -> None:
    """It ends in a queue."""
    memory = patient.memory
    slot = memory.queue_slot("large")
    memory.ledger("large").next = slot
    patient.says("queue 'large'", "chain of its ledgers", f"slot {slot}", "a queue")


@pytest.mark.parametrize("hint", ["taken", "admitted", "bytes_in"])
def test_a_hint_that_is_off(patient: Patient, hint: str) -> None:
    """Limits believe the hints."""
    queue = patient.memory.queue("ring")
    setattr(queue, hint, getattr(queue, hint) + 2)
    patient.says("queue 'ring': the hint of", "should be")


def test_limits_without_hints(patient: Patient) -> None:
    """A queue that has limits keeps hints."""
    patient.memory.queue("ring").tracking = 0
    patient.says("queue 'ring': has limits, but does not keep the hints")


@pytest.mark.parametrize("setting", ["ring_size", "max_length", "max_bytes"])
def test_a_setting_that_cannot_be(patient: Patient, setting: str) -> None:
    """A limit below nothing."""
    which = getattr(patient.lib, f"SB_SETTING_{setting.upper()}")
    patient.memory.queue("jobs").settings[which] = -7
    patient.says("queue 'jobs'", f"{setting} is -7")


def test_an_overflow_that_is_none(patient: Patient) -> None:
    """A number behind which there is no way to overflow."""
    patient.memory.queue("jobs").settings[patient.lib.SB_SETTING_OVERFLOW] = 99
    patient.says("queue 'jobs'", "overflow is number 99")


def test_a_timer_of_a_message_that_never_was(patient: Patient) -> None:
    """The schedule names a position beyond the end of its queue."""
    memory, lib = patient.memory, patient.lib
    cell = memory.leaf(memory.queue("jobs").schedule.root).cells[0]
    assert cell.word == lib.SB_CELL_ENTRY | (MESSAGES - 1) << 4
    cell.word = lib.SB_CELL_ENTRY | 5_000_000 << 4
    patient.says("queue 'jobs'", "schedule names position 5000000", f"ends at {MESSAGES}")
