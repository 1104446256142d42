# SPDX-License-Identifier: Apache-2.0
"""A mutation point: a place of the source where one small fault can stand, and the fault."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Point:
    """One fault: the text from `start` to `end` is replaced by `after`.

    Args:
        file: Name of the source file.
        function: The function that the fault is in.
        line: Number of the line, from 1.
        start: Where the replaced text begins, in bytes.
        end: Where it ends.
        kind: What is done to it, in a word.
        before: The replaced text.
        after: What stands there instead; nothing, if a statement is left out.
        truth: Whether only the truth of the replaced expression counts.
        place: The line of the statement that it is part of, where a survey goes by statements.
        key: The same as long as the function's code and the fault are the same.
        nth: Tells apart faults of a function that read the same, from 1.
    """

    file: str
    function: str
    line: int
    start: int
    end: int
    kind: str
    before: str
    after: str
    truth: bool = False
    place: int = 0
    key: str = ""
    nth: int = 1

    def __str__(self) -> str:
        before = " ".join(self.before.split())
        leaves_out = self.kind in {"delete", "case", "argument"}
        text = f"{self.kind} {before}" if leaves_out else f"{self.kind} {before} => {self.shown()}"
        return text if self.nth == 1 else f"{text} #{self.nth}"

    def shown(self) -> str:
        """What stands there instead, on one line and without the text it repeats."""
        before, after = " ".join(self.before.split()), " ".join(self.after.split())
        for repeated, short in (
            (f"((void)({before}), ", "("),
            (f"({before}) or True", "True"),
            (f"({before}) and False", "False"),
        ):
            after = after.replace(repeated, short)
        return after


def identified(found: Iterable[Point], code: str) -> list[Point]:
    """The same faults of one function in the order of its text, each once, with keys and numbers.

    Args:
        found: The faults.
        code: The function without its comments: another comment leaves the keys as they are.
    """
    seen: dict[str, int] = {}
    unique = {(p.start, p.end, p.after): p for p in found}
    result = []
    for point in sorted(unique.values(), key=lambda p: (p.start, -p.end)):
        nth = seen[str(point)] = seen.get(str(point), 0) + 1
        numbered = replace(point, nth=nth)
        digest = sha256(f"{code}\0{numbered.file}\0{numbered.function}\0{numbered}".encode()).hexdigest()
        result.append(replace(numbered, key=digest[:20]))
    return result


def of_one_each(points: Sequence[Point], most: int) -> tuple[list[Point], list[Point]]:
    """A group of so many faults at most, none of them in the same function as another, and those that are left.

    Faults of one function hide each other too often: a condition that always holds hides all that stands in it.
    """
    group: dict[tuple[str, str], Point] = {}
    left = []
    for point in points:
        place = (point.file, point.function)
        if len(group) < most and place not in group:
            group[place] = point
        else:
            left.append(point)
    return list(group.values()), left
