# SPDX-License-Identifier: Apache-2.0
"""What has become of each fault, and the score of each file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.mutations.point import Point

OUTCOMES = ("killed", "survived", "unreached", "equivalent", "untried")
SCORE = Path(__file__).parents[2] / "docs" / "explanation" / "mutation-score.md"


@dataclass(frozen=True)
class Known:
    """What is known of faults, by key.

    Args:
        killed: The evidence that found each.
        passed: The evidence that passes in spite of each.
        equivalent: The reason for each.
        unreached: Keys of those that no evidence reached when they were tried.
    """

    killed: Mapping[str, str]
    passed: Mapping[str, set[str]]
    equivalent: Mapping[str, str]
    unreached: set[str]

    def outcome(self, point: Point) -> str:
        """One of OUTCOMES."""
        if point.key in self.killed:
            return "killed"
        if point.key in self.equivalent:
            return "equivalent"
        if point.key in self.passed:
            return "survived"
        return "unreached" if point.key in self.unreached else "untried"


def table(points: Iterable[Point], known: Known, *, all_files: bool) -> list[str]:
    """A line for each file, and the sum: Markdown."""
    counts: dict[str, Counter[str]] = {}
    for point in points:
        counts.setdefault(point.file, Counter())[known.outcome(point)] += 1
    if not all_files:  # a file whose evidence was never run says nothing
        counts = {name: count for name, count in counts.items() if count["killed"] or count["survived"]}
    total: Counter[str] = sum(counts.values(), Counter())
    lines = ["| file | score | " + " | ".join(OUTCOMES) + " |", "|---|---:" + "|---:" * len(OUTCOMES) + "|"]
    for name, count in [*sorted(counts.items()), ("all of these", total)]:
        lines.append(f"| {name} | {score(count)} | " + " | ".join(str(count[o]) for o in OUTCOMES) + " |")
    return lines


def score(count: Counter[str]) -> str:
    """The part that was killed, in per cent."""
    judged = count["killed"] + count["survived"] + count["unreached"]
    return f"{100 * count['killed'] / judged:.1f} %" if judged else "-"


def survivors(points: Iterable[Point], known: Known) -> list[str]:
    """Each fault that was not found, as an entry of the table of equivalents, without a reason."""
    lines = []
    for point in points:
        outcome = known.outcome(point)
        if outcome in {"survived", "unreached"}:
            tried = len(known.passed.get(point.key, ()))
            lines += [f"# line {point.line}: {outcome}, {tried} tried", "[[equivalent]]", f'file = "{point.file}"']
            lines += [f'function = "{point.function}"', f"fault = {_literal(str(point))}", 'because = ""', ""]
    return lines


def _literal(text: str) -> str:
    return f"'{text}'" if "'" not in text else f"'''{text}'''"


def write_section(page: Path, heading: str, text: str) -> None:
    """Writes the part of a page below a heading of the second level; other parts stay.

    Args:
        page: The page.
        heading: The heading; it is added at the end if it is not there.
        text: What stands below it.
    """
    parts = page.read_text(encoding="utf-8").split("\n## ")
    fresh = f"{heading}\n\n{text.strip()}\n"
    kept = [fresh if part.startswith(f"{heading}\n") else part for part in parts[1:]]
    if fresh not in kept:
        kept.append(fresh)
    page.write_text(
        "\n## ".join([parts[0].rstrip("\n") + "\n", *(part.rstrip("\n") + "\n" for part in kept)]), encoding="utf-8"
    )


def account(points: Sequence[Point], known: Known) -> list[str]:
    """What a run ends with: the survivors, the table, and what is called equivalent although something finds it."""
    wrong = [
        f"{point.file} {point.function}: {point} is no equivalent: {known.killed[point.key]} finds it"
        for point in _refuted(points, known)
    ]
    return [*survivors(points, known), *table(points, known, all_files=True), *wrong]


def all_found(points: Sequence[Point], known: Known) -> bool:
    """Whether no fault that was tried survived, and no equivalent one was found."""
    open_ = any(known.outcome(point) in {"survived", "unreached"} for point in points)
    return not open_ and not _refuted(points, known)


def _refuted(points: Sequence[Point], known: Known) -> list[Point]:
    return [point for point in points if point.key in known.equivalent and point.key in known.killed]
