# SPDX-License-Identifier: Apache-2.0
"""Mutant schemata: one copy of the core that holds all its faults, each behind a number that is chosen at run time.

A fault in a condition counts as reached only where it gives another value than the condition as it is: evidence that
comes to its place and never sees a difference cannot find it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.mutations.core.points import SHIFTED

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


def _inner(place: _Place, source: bytes, start: int | None = None, end: int | None = None) -> str:
    """The text of a place, or of a part of it, with what is inside guarded."""
    at, stop, parts = place.start if start is None else start, place.end if end is None else end, []
    for child in place.inside:
        if at <= child.start and child.end <= stop:
            parts.append(source[at : child.start].decode())
            parts.append(_guarded(child, source))
            at = child.end
    parts.append(source[at:stop].decode())
    return "".join(parts)


def _guarded(place: _Place, source: bytes) -> str:
    number, first = place.numbered[0]
    if first.kind == "delete":
        original, jumps = _inner(place, source), first.before.startswith("break")
        return f"if (!sb_mutant({number})) {original}" if jumps else f"{{ if (!sb_mutant({number})) {{ {original} }} }}"
    mark = "!!" if any(point.truth for _, point in place.numbered) else ""
    watched = {point.kind: number for number, point in place.numbered if _is_watched(point)}
    chosen = "".join(
        f"{'sb_chosen' if _is_watched(point) else 'sb_mutant'}({number}) ? {mark}({point.after}) : "
        for number, point in place.numbered
    )
    value = _watching(place, source, watched) if watched else f"{mark}({_inner(place, source)})"
    return f"({chosen}{value})"


# ---- faults that count as reached when they would give another value ----


def _is_watched(point: Point) -> bool:
    constant = point.kind == "success" and not point.after.startswith("((void)")
    return point.kind in {"true", "false", "left", "right", "bound", "success"} and not constant


def _watching(place: _Place, source: bytes, watched: dict[str, int]) -> str:
    """The expression as it is; on the way it notes for each of these kinds whether the fault would differ.

    The right side of "&&" is not evaluated if the left one is false: "right" may differ then. So with "||".
    """
    name, points = place.numbered[0][0], {point.kind: point for _, point in place.numbered}
    a, b, value = f"sb_a{name}", f"sb_b{name}", f"sb_v{name}"
    differs = {"true": f"!{value}", "false": value, "success": f"{value} != SB_OK", "bound": f"{a} == {b}"}
    if "left" in watched:
        left, right = (len(points[kind].after.encode()) - 2 for kind in ("left", "right"))
        between = source[place.start + left : place.end - right].decode()
        operator = "&&" if "&&" in between else "||"
        first, second = _inner(place, source, end=place.start + left), _inner(place, source, place.end - right)
        text = f"_Bool {a} = !!({first}), {b} = 0, {value} = {a} {operator} ({b} = !!({second}));"
        differs |= {"left": f"{a} != {value}", "right": f"!{a}" if operator == "&&" else a}
    elif "bound" in watched:
        at, operator = _operator(points["bound"])
        middle = place.start + at
        first, second = _inner(place, source, end=middle), _inner(place, source, middle + len(operator))
        text = f"__auto_type {a} = ({first}); __auto_type {b} = ({second}); _Bool {value} = {a} {operator} {b};"
    else:
        kind = "__auto_type" if "success" in watched else "_Bool"
        text = f"{kind} {value} = {'' if 'success' in watched else '!!'}({_inner(place, source)});"
    notes = "".join(f" sb_differs({number}, {differs[kind]});" for kind, number in watched.items())
    return f"({{ {text}{notes} {value}; }})"


def _operator(point: Point) -> tuple[int, str]:
    """Where the operator stands that the fault replaces, in bytes from the beginning, and what it is."""
    for operator, shifted in SHIFTED.items():
        at = point.before.find(operator)
        while at >= 0:
            first, second = point.before[:at].rstrip(), point.before[at + len(operator) :].lstrip()
            if f"{first} {shifted} {second}" == point.after:
                return len(point.before[:at].encode()), operator
            at = point.before.find(operator, at + 1)
    message = f"no operator in {point.before}"
    raise ValueError(message)
