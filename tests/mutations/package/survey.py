# SPDX-License-Identifier: Apache-2.0
"""What each test reaches, kept in the file of results; it holds for a state of the package and of the test's file."""

from __future__ import annotations

import zlib
from hashlib import sha256
from typing import TYPE_CHECKING

from tests.mutations.package.workshop import ROOT, Reach

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping
    from pathlib import Path

STAGES = {
    "unit": ("unit", "cli", "property"),
    "scenarios": ("scenarios",),
    "multiprocess": ("multiprocess",),
    "spark": ("spark",),
}
TABLES = """
CREATE TABLE IF NOT EXISTS surveyed (state TEXT, file TEXT, PRIMARY KEY (state, file));
CREATE TABLE IF NOT EXISTS comes_to (
    state TEXT, file TEXT, test TEXT, seconds REAL, places BLOB, PRIMARY KEY (state, file, test));
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


class Surveys:
    """The part of the file of results that surveys fill.

    Args:
        file: The file of results.
        package: The modules of the package.
    """

    def __init__(self, file: sqlite3.Connection, package: Mapping[str, str]) -> None:
        self._file, self._package = file, digest(*package, *package.values())
        self._states: dict[str, str] = {}
        file.executescript(TABLES)

    def state(self, name: str) -> str:
        """The state of the package and of this file of tests."""
        if name not in self._states:
            self._states[name] = digest(self._package, (ROOT / name).read_text(encoding="utf-8"))
        return self._states[name]

    def text(self, name: str) -> str:
        """The same as long as this file of tests is."""
        return digest((ROOT / name).read_text(encoding="utf-8"))[:8]

    def has(self, name: str) -> bool:
        """Whether this file of tests was surveyed as it is."""
        query = "SELECT 1 FROM surveyed WHERE state = ? AND file = ?"
        return self._file.execute(query, (self.state(name), name)).fetchone() is not None

    def add(self, name: str, tests: Mapping[str, Reach]) -> None:
        """Keeps what the tests of a file come to; what was known of another state of the file goes."""
        self._file.execute("BEGIN")
        for table in ("surveyed", "comes_to"):
            self._file.execute(f"DELETE FROM {table} WHERE file = ?", (name,))  # noqa: S608 -- a constant
        state = self.state(name)
        rows = [(state, name, test, reach.seconds, reach.places) for test, reach in tests.items()]
        self._file.executemany("INSERT INTO comes_to VALUES (?, ?, ?, ?, ?)", rows)
        self._file.execute("INSERT INTO surveyed VALUES (?, ?)", (state, name))
        self._file.execute("COMMIT")

    def reaching(self, name: str) -> dict[str, tuple[float, bytes]]:
        """For each test of a file how long it takes, and one byte for each place: 1 if it is reached."""
        query = "SELECT test, seconds, places FROM comes_to WHERE state = ? AND file = ?"
        rows = self._file.execute(query, (self.state(name), name))
        return {test: (seconds, zlib.decompress(places)) for test, seconds, places in rows}
