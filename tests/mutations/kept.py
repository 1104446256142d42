# SPDX-License-Identifier: Apache-2.0
"""What is known of faults, as a text beside the runner: a new checkout goes on where an earlier one was.

The text has a block for each outcome. Its first line is the outcome, and for "killed" and "passed" the evidence; below,
indented, stand the keys of the faults. A block "passed" without keys: each of the survivors that it reaches passes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tests.mutations.point import Point
    from tests.mutations.report import Known
    from tests.mutations.results import Results

HEADING = (
    "# Written by the runner of this folder (--page), read when it starts. The keys of faults, by what became of them."
)
INDENT = "  "
KEYS = 5  # on a line


def write(
    path: Path, points: Sequence[Point], known: Known, passed: Iterable[str] = (), passed_by_some: Iterable[str] = ()
) -> None:
    """Writes what is known of these faults.

    Args:
        path: The file.
        points: All faults of the source as it is, in its order.
        known: What is known.
        passed: Evidence that each of the survivors passes which it reaches.
        passed_by_some: Evidence that some of them pass; the text names them.
    """
    blocks: dict[str, list[str]] = {}
    for point in points:
        outcome = known.outcome(point)
        if outcome == "killed":
            blocks.setdefault(f"killed {known.killed[point.key]}", []).append(point.key)
        elif outcome in {"survived", "unreached"}:
            blocks.setdefault(outcome, []).append(point.key)
    blocks |= {f"passed {name}": [] for name in passed}
    survivors = blocks.get("survived", [])
    blocks |= {f"passed {name}": [key for key in survivors if name in known.passed[key]] for name in passed_by_some}
    lines = [HEADING]
    for title, keys in sorted(blocks.items()):
        lines.append(title)
        lines += [INDENT + " ".join(keys[i : i + KEYS]) for i in range(0, len(keys), KEYS)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path: Path, results: Results, is_there: Callable[[str], bool] = bool) -> None:
    """Adds what the file says to the results, once for each text of it. Keys of faults that are no more do no harm.

    Args:
        path: The file; without it nothing happens.
        results: What is known here.
        is_there: Is that evidence there today? What other evidence found is open again.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if not text or not results.is_new(text):
        return
    blocks = dict(_blocks(text))
    survivors = blocks.pop("survived", [])
    for title, keys in blocks.items():
        outcome, _, name = title.partition(" ")
        if name and not is_there(name):
            continue
        if outcome == "unreached":
            for key in keys:
                results.add_unreached(key)
        elif keys:
            results.add_all(((key, name) for key in keys), found=outcome == "killed")
        else:
            results.add_met(name, survivors)


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
