# SPDX-License-Identifier: Apache-2.0
"""Connections, and what their holdings say they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scenario_support.patient import Patient


def test_a_holding_nobody_knows(patient: Patient) -> None:
    """The holdings of a connection name a slot that it does not own."""
    memory, lib = patient.memory, patient.lib
    slot = memory.a_free_slot(memory.body_slot("jobs", 7))
    entry = memory.holdings(patient.client, lib.SB_HOLD_SLOT)[0]
    entry.what = lib.sb_holding_what(lib.SB_HOLD_SLOT, slot, 1)
    patient.says(f"connection {patient.client}", f"holdings name slot {slot} (a message), which it does not own")


def test_a_holding_of_a_message_that_is_not_held(patient: Patient) -> None:
    """The holdings of a connection name a position that it does not hold."""
    memory, lib = patient.memory, patient.lib
    memory.holdings(patient.client, lib.SB_HOLD_CELL)[0].where = 9
    patient.says(f"connection {patient.client}", "position 9 of queue 'jobs', which it does not hold")


def test_a_message_the_holdings_do_not_name(patient: Patient) -> None:
    """A message that its holder does not know of would stay held when the holder dies."""
    memory, lib = patient.memory, patient.lib
    memory.holdings(patient.client, lib.SB_HOLD_CELL)[0].what = lib.SB_HOLD_NONE
    patient.says(f"connection {patient.client}", "holdings name 1 of the 2 messages it holds")


def test_a_consumer_the_holdings_do_not_name(patient: Patient) -> None:
    """A slot that its owner does not know of would be lost with its owner."""
    memory, lib = patient.memory, patient.lib
    _, slot = patient.idle_entry()
    entries = memory.holdings(patient.client, lib.SB_HOLD_SLOT)
    next(entry for entry in entries if lib.sb_holding_slot(entry.what) == slot).what = lib.SB_HOLD_NONE
    patient.says(f"slot {slot} (a consumer node): connection {patient.client} owns it", "do not name it")


def test_a_ledger_the_holdings_do_not_name(patient: Patient) -> None:
    """The same for a ledger: the queue could never be freed after its owner's death."""
    memory, lib = patient.memory, patient.lib
    entry = memory.holdings(patient.client, lib.SB_HOLD_LEDGER)[0]
    slot = entry.where
    entry.what = lib.SB_HOLD_NONE
    patient.says(f"the ledger in slot {slot} belongs to connection {patient.client}", "do not name it")


def test_a_view_that_is_none(patient: Patient) -> None:
    """The holdings of a connection say it reads a body that it has no reference to."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("large", 0)
    gen = lib.sb_slot_gen(memory.headers(slot)[0])
    entry = memory.holdings(patient.client, lib.SB_HOLD_CELL)[0]
    entry.what, entry.where = lib.sb_holding_what(lib.SB_HOLD_VIEW, slot, gen), 5 | gen << 8
    patient.says(f"connection {patient.client}", f"reads the body in slot {slot} by reference 5")


def test_an_impossible_holding(patient: Patient) -> None:
    """A kind of holding that there is not."""
    memory, lib = patient.memory, patient.lib
    memory.holdings(patient.client, lib.SB_HOLD_CELL)[0].what = 0xE
    patient.says(f"connection {patient.client}: impossible entry 0xe in its holdings")


def test_holdings_that_bite_their_tail(patient: Patient) -> None:
    """Whoever follows the chain must not follow it for ever."""
    record = patient.memory.record(patient.client)
    patient.memory.slot("holdings", record.holdings).next = record.holdings
    patient.says(f"connection {patient.client}", f"holdings go on in slot {record.holdings}")


def test_a_connection_of_no_process(patient: Patient) -> None:
    """A connection belongs to a process slot that nobody has."""
    memory, lib = patient.memory, patient.lib
    word = memory.connections[patient.client]
    memory.connections[patient.client] = lib.sb_conn_word(
        lib.SB_CONN_LIVE, 3999, lib.sb_conn_slot(word), lib.sb_conn_epoch(word)
    )
    patient.says(f"connection {patient.client}", "process slot 3999, which nobody has")


def test_a_connection_with_the_record_of_another(patient: Patient) -> None:
    """Two connections share a record."""
    memory, lib = patient.memory, patient.lib
    own = next(
        number
        for number in range(1, lib.SB_MAX_CONNECTIONS)
        if number != patient.client and lib.sb_conn_state(memory.connections[number]) == lib.SB_CONN_LIVE
    )
    mine, word = lib.sb_conn_slot(memory.connections[own]), memory.connections[patient.client]
    memory.connections[patient.client] = lib.sb_conn_word(
        lib.SB_CONN_LIVE, lib.sb_conn_process(word), mine, lib.sb_conn_epoch(word)
    )
    patient.says(f"connection {patient.client}", f"slot {mine}, which is not its own")
