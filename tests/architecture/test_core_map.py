# SPDX-License-Identifier: Apache-2.0
"""The map of the C core (`cffi_src/README.md`) agrees with the headers."""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ROOT / "cffi_src"
HEADERS = sorted((CORE / "src").glob("*/*.h"))
MODULES = {path.stem for path in (CORE / "src").glob("*/*.[ch]")}
MAP = (CORE / "README.md").read_text(encoding="utf-8")
MODEL = (ROOT / "docs/explanation/memory-model.md").read_text(encoding="utf-8")

TOP_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
SECTION = r"^ \* *{}:?(.*?)(?=^ \* *[A-Z][a-z]+(?: [a-z]+)?(?: \([^)\n]*\))?:|\*/)"
# "I4 positions of ..." at the beginning of a line declares I4; "I4 of sb_layout.h", "I4, I5 ..." refer to it.
DECLARED = r"^(?: \*)? +{}(\d+) (?!and\b|of sb_|hold\b|\()"
ROW_OF_READING = re.compile(r"^\| *\d+ \| ([^|]*) \|", re.MULTILINE)
ROW_OF_INVARIANTS = re.compile(r"^\| I(\d+) \| `(\w+\.h)` \|", re.MULTILINE)
WORD = re.compile(r"`(\w+)`")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
ENDS_OF_PAIR = re.compile(r"^\| P\d+ \|[^|]*\|([^|]*)\|([^|]*)\|", re.MULTILINE)
ROW_OF_PAIRS = re.compile(r"^\| P(\d+) \| `(\w+\.h)` \|", re.MULTILINE)


def declared(section: str, letter: str) -> list[tuple[int, str]]:
    """Return the declarations in a section of the headers' top comments: the number, and the header."""
    found = []
    for path in HEADERS:
        top = TOP_COMMENT.search(path.read_text(encoding="utf-8"))
        for text in re.findall(SECTION.format(section), top[0], re.DOTALL | re.MULTILINE) if top else ():
            found += [(int(n), path.name) for n in re.findall(DECLARED.format(letter), text, re.MULTILINE)]
    return sorted(found)


def rows(pattern: re.Pattern[str], page: str) -> list[tuple[int, str]]:
    """Return the rows of a table: the number, and the header that it names."""
    return [(int(number), header) for number, header in pattern.findall(page)]


def test_an_invariant_is_declared_once() -> None:
    """A number means one invariant."""
    times = Counter(number for number, _ in declared("Invariants", "I"))
    assert [number for number, count in times.items() if count > 1] == []


def test_the_map_has_every_invariant() -> None:
    """The table has each invariant that a header declares, names that header, and is in order."""
    assert rows(ROW_OF_INVARIANTS, MAP) == declared("Invariants", "I")


def test_the_memory_model_has_every_ordering_pair() -> None:
    """Its table has each pair that a header declares, names that header, and is in order."""
    assert rows(ROW_OF_PAIRS, MODEL) == declared("Ordering pairs", "P")


def test_the_memory_model_names_what_there_is() -> None:
    """The ends of a pair name functions that the sources define, and words that the headers declare."""
    code = {path: COMMENT.sub("", path.read_text(encoding="utf-8")) for path in (CORE / "src").glob("*/*.[ch]")}
    declared_words = set(re.findall(r"\w+", " ".join(text for path, text in code.items() if path.suffix == ".h")))
    definition = re.compile(r"^[A-Za-z_][\w *]*\b(\w+)\([^;]*?\)\s*\{", re.MULTILINE)
    functions = {name for text in code.values() for name in definition.findall(text)}
    named = {word for ends in ENDS_OF_PAIR.findall(MODEL) for word in WORD.findall(" ".join(ends))}
    assert len(named & functions) > 20
    assert named - functions - declared_words == set()


def test_the_map_leads_to_every_file() -> None:
    """The reading order names each module, and names no module that does not exist."""
    named = [word.removesuffix(".h") for row in ROW_OF_READING.findall(MAP) for word in re.findall(r"`([^`]+)`", row)]
    reached = {module for module in MODULES for pattern in named if fnmatchcase(module, pattern)}
    assert MODULES - reached == set()
    assert [pattern for pattern in named if not any(fnmatchcase(module, pattern) for module in MODULES)] == []
