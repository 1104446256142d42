# SPDX-License-Identifier: Apache-2.0
"""The findings of a check, in words."""

from __future__ import annotations

_COUNTS = {0: "ready", 1: "delivering", 2: "scheduled"}
_HINTS = {0: "taken", 1: "admitted"}
_LISTS = {0: "interested", 1: "notified", 9: "levels", 10: "ledgers"}
_SENTENCES = {
    1: "header: magic {found:#x} instead of {expected:#x}, or impossible limits",
    2: "chunk {slot}: impossible word {found:#x}",
    3: "slot {slot}: impossible header {found:#x}",
    4: "{queue}, at {where}: owned by connection {found}, which does not exist",
    5: ("slot {slot}: published, but no cell or object refers to it (references {found:#x}, seen {expected:#x})"),
    6: "{queue}, position {where}: impossible cell {found:#x}",
    7: ("{queue}, position {where}: refers to slot {found}, which does not hold its message (header {expected:#x})"),
    8: "{queue}, position {where}: slot {found} is referred to twice (reference {expected})",
    9: "{queue}, position {where}: page does not fit its place (found {found:#x}, expected {expected:#x})",
    10: "{queue}: counters say {found} {counter} messages, the cells {expected}",
    11: "{queue}: hint {hint} is {signed_found}, should be {signed_expected}",
    12: "{queue}: {listed} count is {signed_found}, the list holds {expected}",
    13: "directory entry {where}: leads to slot {slot}, which is not an open queue",
    14: "{queue}, position {where}: message says {found} bytes in a slot of {expected}",
    15: "connection {slot}: impossible record {found:#x}",
    16: "{queue}, position {where}: free cell before the tail {found}",
    17: "{queue}, position {where}: ready message that no hint leads to",
}
_OTHER = "finding {code} at {slot}/{where}: {found:#x}, expected {expected:#x}"


def of(code: int, slot: int, where: int, found: int, expected: int, *, names: dict[int, str]) -> str:
    """One finding as a sentence."""
    return _SENTENCES.get(code, _OTHER).format(
        code=code,
        slot=slot,
        where=where,
        found=found,
        expected=expected,
        signed_found=_signed(found),
        signed_expected=_signed(expected),
        queue=f"queue {names[slot]!r}" if slot in names else f"object {slot}",
        counter=_COUNTS.get(where, ""),
        hint=_HINTS.get(where, ""),
        listed=_LISTS.get(where, "list"),
    )


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
