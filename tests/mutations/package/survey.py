# SPDX-License-Identifier: Apache-2.0
"""What each test reaches, kept in the file of results; it holds for a text of the test's file and of the module."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from tests.mutations.package.marking import Places
from tests.mutations.package.workshop import ROOT, Reach

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

STAGES = {
    "unit": ("unit", "cli", "property"),
    "scenarios": ("scenarios",),
    "multiprocess": ("multiprocess",),
    "spark": ("spark",),
}
TABLES = """
CREATE TABLE IF NOT EXISTS surveyed (file TEXT PRIMARY KEY, text TEXT, modules TEXT);
CREATE TABLE IF NOT EXISTS comes_to (file TEXT, test TEXT, seconds REAL, places BLOB, PRIMARY KEY (file, test));
"""


def files_of(stage: str, root: Path = ROOT) -> list[str]:
    """The test files of a stage."""
    paths = [path for folder in STAGES[stage] for path in sorted((root / "tests" / folder).rglob("test_*.py"))]
    return [str(path.relative_to(root)) for path in paths]


def stage_of(name: str) -> int:
    """The number of the stage that a test file is in."""
    folder = name.split("/")[1]
    return next(nth for nth, folders in enumerate(STAGES.values()) if folder in folders)


def digest(*texts: str) -> str:
    """The same as long as all these texts are."""
    return sha256("\0".join(texts).encode()).hexdigest()[:20]


def test_file(test: str) -> str:
    """The file that a test is in."""
    return test.partition("::")[0]


@dataclass(frozen=True)
class Comes:
    """What one test comes to.

    Args:
        test: Its id.
        seconds: How long it takes.
        first: Where the bytes of each module begin.
        seen: One byte for each line of the package: 1 if it is reached.
    """

    test: str
    seconds: float
    first: Mapping[str, int]
    seen: bytes

    def to(self, module: str, line: int) -> bool:
        """Whether it comes to the statement that begins there."""
        return bool(self.seen[self.first[module] + line])


class Surveys:
    """The part of the file of results that surveys fill.

    Args:
        file: The file of results.
        package: The modules of the package.
        asked: The modules whose faults are tried.
    """

    def __init__(self, file: sqlite3.Connection, package: Mapping[str, str], asked: Iterable[str]) -> None:
        self._file, self._first = file, Places.of(package).first
        self._modules = {name: digest(text) for name, text in package.items()}
        self._asked = list(asked)
        self._texts: dict[str, str] = {}
        file.executescript(TABLES)

    def text(self, name: str) -> str:
        """The same as long as this file of tests is."""
        if name not in self._texts:
            self._texts[name] = digest((ROOT / name).read_text(encoding="utf-8"))
        return self._texts[name]

    def has(self, name: str) -> bool:
        """Whether this file of tests was surveyed as it is, with the modules that are asked for as they are."""
        return self._layout(name) is not None

    def add(self, name: str, tests: Mapping[str, Reach]) -> None:
        """Keeps what the tests of a file come to; what was known before goes."""
        self._file.execute("BEGIN")
        for table in ("surveyed", "comes_to"):
            self._file.execute(f"DELETE FROM {table} WHERE file = ?", (name,))  # noqa: S608 -- a constant
        rows = [(name, test, reach.seconds, reach.places) for test, reach in tests.items()]
        self._file.executemany("INSERT INTO comes_to VALUES (?, ?, ?, ?)", rows)
        layout = {module: (self._first[module], self._modules[module]) for module in self._first}
        self._file.execute("INSERT INTO surveyed VALUES (?, ?, ?)", (name, self.text(name), json.dumps(layout)))
        self._file.execute("COMMIT")

    def reaching(self, name: str) -> Iterator[Comes]:
        """What each test of a file comes to; nothing, if the file was not surveyed."""
        first = self._layout(name)
        if first is not None:
            for test, seconds, places in self._file.execute(
                "SELECT test, seconds, places FROM comes_to WHERE file = ?", (name,)
            ):
                yield Comes(test, seconds, first, zlib.decompress(places))

    def _layout(self, name: str) -> dict[str, int] | None:
        """Where the bytes of each module began in the survey, if that holds."""
        query = "SELECT modules FROM surveyed WHERE file = ? AND text = ?"
        row = self._file.execute(query, (name, self.text(name))).fetchone()
        modules: dict[str, tuple[int, str]] = json.loads(row[0]) if row else {}
        if not row or any(modules.get(one, (0, ""))[1] != self._modules[one] for one in self._asked):
            return None
        return {module: first for module, (first, _) in modules.items()}
