# SPDX-License-Identifier: Apache-2.0
"""The findings of a check, in words."""

from __future__ import annotations

_COUNTS = {0: "ready", 1: "delivering", 2: "scheduled"}
_HINTS = {0: "taken", 1: "admitted"}
_LISTS = {0: "interested", 1: "notified", 9: "levels", 10: "ledgers"}


def of(code: int, slot: int, where: int, found: int, expected: int, names: dict[int, str]) -> str:
    """One finding as a sentence."""
    queue = f"queue {names[slot]!r}" if slot in names else f"object {slot}"
    match code:
        case 1:
            return f"header: magic {found:#x} instead of {expected:#x}, or impossible limits"
        case 2:
            return f"chunk {slot}: impossible word {found:#x}"
        case 3:
            return f"slot {slot}: impossible header {found:#x}"
        case 4:
            return f"{queue}, at {where}: owned by connection {found}, which does not exist"
        case 5:
            return f"slot {slot}: published, but no cell or object refers to it (references {found:#x}, seen {expected:#x})"
        case 6:
            return f"{queue}, position {where}: impossible cell {found:#x}"
        case 7:
            return f"{queue}, position {where}: refers to slot {found}, which does not hold its message (header {expected:#x})"
        case 8:
            return f"{queue}, position {where}: slot {found} is referred to twice (reference {expected})"
        case 9:
            return f"{queue}, position {where}: page does not fit its place (found {found:#x}, expected {expected:#x})"
        case 10:
            return f"{queue}: counters say {found} {_COUNTS.get(where, '')} messages, the cells {expected}"
        case 11:
            return f"{queue}: hint {_HINTS.get(where, '')} is {_signed(found)}, should be {_signed(expected)}"
        case 12:
            return f"{queue}: {_LISTS.get(where, 'list')} count is {_signed(found)}, the list holds {expected}"
        case 13:
            return f"directory entry {where}: leads to slot {slot}, which is not an open queue"
        case 14:
            return f"{queue}, position {where}: message says {found} bytes in a slot of {expected}"
        case 15:
            return f"connection {slot}: impossible record {found:#x}"
        case 16:
            return f"{queue}, position {where}: free cell before the tail {found}"
        case 17:
            return f"{queue}, position {where}: ready message that no hint leads to"
        case _:
            return f"finding {code} at {slot}/{where}: {found:#x}, expected {expected:#x}"


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
