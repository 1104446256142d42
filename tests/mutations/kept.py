# SPDX-License-Identifier: Apache-2.0
"""What is known of faults, as a text beside the runner: a new checkout goes on where an earlier one was.

The text has a block for each outcome. Its first line is the outcome, and for "killed" the evidence; below, indented,
stand the keys of the faults. "passed" names evidence alone: each of the survivors that it reaches passes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from pathlib import Path

    from tests.mutations.point import Point
    from tests.mutations.report import Known
    from tests.mutations.results import Results

HEADING = (
    "# Written by the runner of this folder (--page), read when it starts. The keys of faults, by what became of them."
)
INDENT = "  "
KEYS = 5  # on a line


def write(path: Path, points: Sequence[Point], known: Known, passed: Iterable[str] = ()) -> None:
    """Writes what is known of these faults.

    Args:
        path: The file.
        points: All faults of the source as it is, in its order.
        known: What is known.
        passed: Evidence that each of the survivors passes which it reaches.
    """
    blocks: dict[str, list[str]] = {}
    for point in points:
        outcome = known.outcome(point)
        if outcome == "killed":
            blocks.setdefault(f"killed {known.killed[point.key]}", []).append(point.key)
        elif outcome in {"survived", "unreached"}:
            blocks.setdefault(outcome, []).append(point.key)
    blocks |= {f"passed {name}": [] for name in passed}
    lines = [HEADING]
    for title, keys in sorted(blocks.items()):
        lines.append(title)
        lines += [INDENT + " ".join(keys[i : i + KEYS]) for i in range(0, len(keys), KEYS)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path: Path, results: Results, evidence: Container[str] | None = None) -> None:
    """Adds what the file says to the results, once for each text of it. Keys of faults that are no more do no harm.

    Args:
        path: The file; without it nothing happens.
        results: What is known here.
        evidence: What there is today: what other evidence found is open again. None: all that the file names.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if not text or not results.is_new(text):
        return
    blocks = dict(_blocks(text))
    survivors = blocks.pop("survived", [])
    for title, keys in blocks.items():
        outcome, _, name = title.partition(" ")
        if evidence is not None and name and name not in evidence:
            continue
        if outcome == "unreached":
            for key in keys:
                results.add_unreached(key)
        else:
            found = outcome == "killed"
            results.add_all(((key, name) for key in (keys if found else survivors)), found=found)


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    title, keys = "", []
    for line in text.splitlines()[1:]:
        if line.startswith(INDENT):
            keys += line.split()
            continue
        if title:
            yield title, keys
        title, keys = line, []
    if title:
        yield title, keys
