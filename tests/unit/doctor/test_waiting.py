# SPDX-License-Identifier: Apache-2.0
"""Messages that wait at their positions: dead ones, returned ones, and the settings that they obey (ADR 0033)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.patient import MESSAGES, NOBODY, MortalPatient, admitted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scenario_support.patient import Patient

DEAD, RETURNED, READY = range(3)
"""Positions of `mortal`."""


@pytest.fixture(scope="module")
def healthy() -> Iterator[Patient]:
    """Run a broker with messages that wait."""
    with admitted(MortalPatient) as patient:
        yield patient


def test_what_waits_is_as_it_should_be(patient: Patient) -> None:
    """The messages that the tests below damage: one is dead as rejected, one has a delay; both are scheduled."""
    memory, lib = patient.memory, patient.lib
    cells = [memory.cell("mortal", position) for position in (DEAD, RETURNED)]
    assert [lib.sb_cell_state(cell.word) for cell in cells] == [lib.SB_CELL_SCHEDULED] * 2
    assert lib.sb_side_why_of(cells[DEAD].side) == lib.SB_WHY_REJECTED
    assert cells[RETURNED].side & (lib.SB_SIDE_DELAYED | lib.SB_SIDE_WHY) == lib.SB_SIDE_DELAYED


def test_a_death_for_no_reason(patient: Patient) -> None:
    """The housekeeper could not say in the headers why the message died."""
    most = patient.lib.SB_WHY_DELIVERY_LIMIT
    patient.memory.cell("mortal", DEAD).side |= patient.lib.SB_SIDE_WHY
    patient.says("queue 'mortal', position 0", f"waits as dead for reason 15, of at most {most}")


@pytest.mark.parametrize("position", [DEAD, RETURNED])
def test_a_message_that_waits_for_nothing(patient: Patient, position: int) -> None:
    """Its side record lost why it waits: nothing would make it ready, or carry it out."""
    patient.memory.cell("mortal", position).side = 0
    patient.says(f"queue 'mortal', position {position}", "waits, and nothing says until when")


def test_a_delayed_message_that_lost_its_time(patient: Patient) -> None:
    """A message that was put with a delay says no time of its own, nor does its side record."""
    memory, lib = patient.memory, patient.lib
    last = memory.queue("jobs").base + MESSAGES - 1
    assert lib.sb_cell_state(memory.cell("jobs", last).word) == lib.SB_CELL_SCHEDULED
    memory.slot("message", memory.body_slot("jobs", last)).due_ns = 0
    patient.says(f"queue 'jobs', position {last}", "waits, and nothing says until when")


def test_a_dead_message_that_became_ready(patient: Patient) -> None:
    """A consumer would get it again: the counters know that it waits."""
    memory, lib = patient.memory, patient.lib
    cell, gen = memory.cell("mortal", DEAD), memory.leaf_gen(memory.queue("mortal").root)
    cell.word = lib.sb_cell_open(lib.SB_CELL_AVAILABLE, lib.sb_cell_slot(cell.word), 0, gen)
    patient.says("queue 'mortal'", "counters say 1 messages are ready, its cells 2")
    patient.says("queue 'mortal'", "counters say 2 messages are scheduled, its cells 1")


def test_a_dead_message_that_nobody_carries_out(patient: Patient) -> None:
    """It is in the hands of a connection that there is not, as if a housekeeper had taken it."""
    memory, lib = patient.memory, patient.lib
    cell, gen = memory.cell("mortal", DEAD), memory.leaf_gen(memory.queue("mortal").root)
    cell.word = lib.sb_cell_owned(lib.SB_CELL_ACQUIRED, lib.sb_cell_slot(cell.word), 0, NOBODY, gen)
    patient.says("queue 'mortal', position 0", f"connection {NOBODY}, which does not exist")


def test_a_dead_message_without_its_body(patient: Patient) -> None:
    """There is nothing that could be carried out."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("mortal", DEAD)
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_FREE, 0, lib.sb_slot_gen(header[0]) + 1)
    patient.says("queue 'mortal', position 0", f"slot {slot}", "is free")


@pytest.mark.parametrize("counter", ["SB_COUNT_DEAD_LETTERED", "SB_COUNT_SCHEDULED"])
def test_a_counter_of_what_dies(patient: Patient, counter: str) -> None:
    """A message that was never carried out is counted as dead-lettered, or one that does not wait as scheduled."""
    patient.memory.ledger("mortal").counters[getattr(patient.lib, counter)] += 1
    patient.says("queue 'mortal': its counters say 0 messages are ready, its cells 1")


def test_a_timer_of_a_lane_that_there_is_not(patient: Patient) -> None:
    """An entry of the schedule names a position in a lane of a queue that has no priorities."""
    memory, lib = patient.memory, patient.lib
    schedule = memory.queue("mortal").schedule
    leaf = memory.leaf(schedule.root, schedule.base)
    position = lib.sb_position_in(2, 0)
    leaf.cells[0].word = lib.SB_CELL_ENTRY | position << 4
    patient.says("queue 'mortal': entry", f"of its schedule names position {position}, the queue ends at 0")


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("MAX_DELIVERY_ATTEMPTS", -7, "max_delivery_attempts is -7"),
        ("REDELIVERY_DELAY_MS", -2, "redelivery_delay is -2 ms"),
        ("REDELIVERY_MULTIPLIER", 1_000_001, "redelivery_multiplier is 1000001 thousandths"),
        ("MAX_REDELIVERY_DELAY_MS", -(1 << 60), f"max_redelivery_delay is {-(1 << 60)} ms"),
    ],
)
def test_settings_that_cannot_be(patient: Patient, setting: str, value: int, words: str) -> None:
    """They are beyond what any declaration accepts."""
    patient.memory.queue("mortal").settings[getattr(patient.lib, f"SB_SETTING_{setting}")] = value
    patient.says(f"queue 'mortal': {words}")


def test_the_name_of_the_exchange_that_was_lost(patient: Patient) -> None:
    """The queue has room for texts, and none is there: its dead letters would go nowhere."""
    memory = patient.memory
    memory.slot("long_queue", memory.queue_slot("mortal")).texts_length = 0
    patient.says("queue 'mortal': its texts have 0 bytes")


def test_the_name_of_the_exchange_that_cannot_be_read(patient: Patient) -> None:
    """The texts are cut short, or have another name for it."""
    memory = patient.memory
    queue = memory.slot("long_queue", memory.queue_slot("mortal"))
    queue.texts_length -= 1
    patient.says("queue 'mortal': the texts of a queue's settings are damaged")
    queue.texts_length += 1
    texts = memory.ffi.buffer(queue.texts, queue.texts_length)
    texts[:] = texts[:].replace(b"dead_letter_exchange", b"dead_letter_exchangf")
    patient.says("queue 'mortal': lacks an exchange for dead letters, and has their flag")


def test_the_flag_of_dead_letters_that_was_lost(patient: Patient) -> None:
    """What is rejected would be dropped, although the queue names an exchange."""
    patient.memory.queue("mortal").flags &= ~patient.lib.SB_QUEUE_DEAD_LETTERS
    patient.says("queue 'mortal': lacks the flag of dead letters, and has an exchange for them")
