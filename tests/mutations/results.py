# SPDX-License-Identifier: Apache-2.0
"""Results in an SQLite file: what reaches which fault, what was tried on it, and what found it.

A fault is known by its key, which depends on its function's text. So results outlive edits of other functions. That a
fault was found is not tried again, nor is evidence that did not find it; `forget` makes both be tried.
"""

from __future__ import annotations

import sqlite3
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

RESULTS = "results.sqlite"
KEY = 20  # hexadecimal digits
TABLES = """
CREATE TABLE IF NOT EXISTS reached (core TEXT, evidence TEXT, seconds REAL, numbers BLOB, PRIMARY KEY (core, evidence));
CREATE TABLE IF NOT EXISTS passed (key TEXT, evidence TEXT, PRIMARY KEY (key, evidence));
CREATE TABLE IF NOT EXISTS killed (key TEXT PRIMARY KEY, evidence TEXT);
CREATE TABLE IF NOT EXISTS met (evidence TEXT PRIMARY KEY, keys BLOB);
CREATE TABLE IF NOT EXISTS unreached (key TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS read (digest TEXT PRIMARY KEY);
"""


class Results:
    """The file of results.

    Args:
        path: Where it is; it is made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.file = sqlite3.connect(path, isolation_level=None)
        self.file.executescript(TABLES)

    def close(self) -> None:
        """Closes the file."""
        self.file.close()

    def reach(self, core: str, evidence: str) -> tuple[float, bytes] | None:
        """How long this evidence takes without a fault, and one byte for each number: 1 if it is reached."""
        query = "SELECT seconds, numbers FROM reached WHERE core = ? AND evidence = ?"
        row: tuple[float, bytes] | None = self.file.execute(query, (core, evidence)).fetchone()
        return row

    def evidence_of(self, core: str, begins: str) -> list[str]:
        """The evidence whose reach is known and whose name begins so."""
        query = "SELECT evidence FROM reached WHERE core = ? AND substr(evidence, 1, ?) = ?"
        return [name for (name,) in self.file.execute(query, (core, len(begins), begins))]

    def set_reach(self, core: str, evidence: str, seconds: float, numbers: bytes) -> None:
        """Keeps what `reach` returns; what is known of other states of the core goes."""
        self.file.execute("DELETE FROM reached WHERE core <> ?", (core,))
        self.file.execute("INSERT OR REPLACE INTO reached VALUES (?, ?, ?, ?)", (core, evidence, seconds, numbers))

    def killed_by(self) -> dict[str, str]:
        """The evidence that found each fault, by key."""
        return dict(self.file.execute("SELECT key, evidence FROM killed"))

    def passed(self) -> dict[str, set[str]]:
        """The evidence that passes in spite of each fault, by key."""
        found: dict[str, set[str]] = {}
        for key, evidence in self.file.execute("SELECT key, evidence FROM passed"):
            found.setdefault(key, set()).add(evidence)
        return found

    def add(self, key: str, evidence: str, *, found: bool) -> None:
        """Keeps that this evidence found the fault, or passed in spite of it."""
        killed, passed = "INSERT OR REPLACE INTO killed VALUES (?, ?)", "INSERT OR REPLACE INTO passed VALUES (?, ?)"
        self.file.execute(killed if found else passed, (key, evidence))

    def add_all(self, rows: Iterable[tuple[str, str]], *, found: bool) -> None:
        """Keeps the same of many, each a key and its evidence; what is known already stays."""
        self.file.execute("BEGIN")
        killed, passed = "INSERT OR IGNORE INTO killed VALUES (?, ?)", "INSERT OR IGNORE INTO passed VALUES (?, ?)"
        self.file.executemany(killed if found else passed, rows)
        self.file.execute("COMMIT")

    def met(self, evidence: str) -> set[str]:
        """Keys of the faults that this evidence passed in spite of: alone, or in a group."""
        row = self.file.execute("SELECT keys FROM met WHERE evidence = ?", (evidence,)).fetchone()
        keys = row[0].hex() if row else ""
        alone = self.file.execute("SELECT key FROM passed WHERE evidence = ?", (evidence,))
        return {key for (key,) in alone}.union(keys[at : at + KEY] for at in range(0, len(keys), KEY))

    def add_met(self, evidence: str, keys: Iterable[str]) -> None:
        """Keeps that this evidence passed in spite of these faults; a row for each would be a million."""
        more = bytes.fromhex("".join(keys))
        add = (
            "INSERT INTO met VALUES (?, ?) ON CONFLICT (evidence) "
            "DO UPDATE SET keys = CAST(keys || excluded.keys AS BLOB)"  # joined they are a text, which is read as UTF-8
        )
        self.file.execute(add, (evidence, more))

    def is_new(self, text: str) -> bool:
        """Whether this text is seen for the first time."""
        digest = sha256(text.encode()).hexdigest()
        return self.file.execute("INSERT OR IGNORE INTO read VALUES (?)", (digest,)).rowcount == 1

    def unreached(self) -> set[str]:
        """Keys of the faults that nothing reached when they were tried last."""
        return {key for (key,) in self.file.execute("SELECT key FROM unreached")}

    def add_unreached(self, key: str) -> None:
        """Keeps that nothing reaches the fault."""
        self.file.execute("INSERT OR REPLACE INTO unreached VALUES (?)", (key,))

    def forget_passed(self, names: Iterable[str]) -> None:
        """Drops what this evidence passed in spite of: it has changed."""
        for name in names:
            self.file.execute("DELETE FROM passed WHERE evidence = ?", (name,))
            self.file.execute("DELETE FROM met WHERE evidence = ?", (name,))

    def forget(self, keys: Iterable[str]) -> None:
        """Drops all results of these faults."""
        gone = set(keys)
        for (evidence,) in self.file.execute("SELECT evidence FROM met").fetchall():
            left = self.met(evidence) - gone
            self.file.execute("DELETE FROM met WHERE evidence = ?", (evidence,))
            self.add_met(evidence, left)
        for key in gone:
            self.file.execute("DELETE FROM killed WHERE key = ?", (key,))
            self.file.execute("DELETE FROM passed WHERE key = ?", (key,))
            self.file.execute("DELETE FROM unreached WHERE key = ?", (key,))
