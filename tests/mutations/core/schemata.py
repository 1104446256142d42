# SPDX-License-Identifier: Apache-2.0
"""Mutant schemata: one copy of the core that holds all its faults, each behind a number that is chosen at run time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutations.point import Point


@dataclass
class _Place:
    """The faults of one stretch of text, and the places inside it."""

    start: int
    end: int
    numbered: list[tuple[int, Point]] = field(default_factory=list)
    inside: list[_Place] = field(default_factory=list)


def with_faults(text: str, numbered: Sequence[tuple[int, Point]]) -> str:
    """The text of a file in which each of these points is guarded by its number; lines keep their numbers mostly.

    Args:
        text: The file as it is.
        numbered: Its points, with the number of each.
    """
    source = text.encode()
    root = _Place(0, len(source))
    for number, point in sorted(numbered, key=lambda pair: (pair[1].start, -pair[1].end)):
        _insert(root, number, point)
    return _inner(root, source)


def _insert(place: _Place, number: int, point: Point) -> None:
    for child in place.inside:
        if (child.start, child.end) == (point.start, point.end):
            child.numbered.append((number, point))
            return
        if child.start <= point.start and point.end <= child.end:
            _insert(child, number, point)
            return
    place.inside.append(_Place(point.start, point.end, [(number, point)]))


def _inner(place: _Place, source: bytes) -> str:
    parts, at = [], place.start
    for child in place.inside:
        parts.append(source[at : child.start].decode())
        parts.append(_guarded(child, source))
        at = child.end
    parts.append(source[at : place.end].decode())
    return "".join(parts)


def _guarded(place: _Place, source: bytes) -> str:
    original = _inner(place, source)
    number, first = place.numbered[0]
    if first.kind == "delete":
        jumps = first.before.startswith("break")
        return f"if (!sb_mutant({number})) {original}" if jumps else f"{{ if (!sb_mutant({number})) {{ {original} }} }}"
    truth = any(point.truth for _, point in place.numbered)
    mark = "!!" if truth else ""
    chosen = "".join(f"sb_mutant({number}) ? {mark}({point.after}) : " for number, point in place.numbered)
    return f"({chosen}{mark}({original}))"
