# SPDX-License-Identifier: Apache-2.0
"""The page on crash recovery gives the right numbers of its evidence."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "explanation" / "crash-recovery.md"
MODELS = "".join(path.read_text("utf-8") for path in sorted((TESTS / "models").glob("*.pml")))


def entries(path: Path, table: str) -> int:
    """Return the number of entries in a table of a C file; an entry begins with its name."""
    body = re.search(rf"{table}\[\] = \{{\n(.*?)\n\}};", path.read_text("utf-8"), re.DOTALL)
    return len(re.findall(r'^    \{"', body[1], re.MULTILINE)) if body else 0


COUNTS = {
    "{} searches that must end without an error": len(re.findall(r"^ \* (?:quick|full): -", MODELS, re.MULTILINE)),
    "{} with a rule taken away": len(re.findall(r"^ \* (?:full )?fault: -", MODELS, re.MULTILINE)),
    "{} scenarios of two or three actors": sum(
        entries(path, "SCENARIOS") for path in (TESTS / "c" / "races").glob("*.c")
    ),
    "{} operations |": entries(TESTS / "c" / "operations.c", "OPERATIONS"),
    "{} faults, each found": len(tomllib.loads((TESTS / "mutations" / "faults.toml").read_text("utf-8"))["fault"]),
}


@pytest.mark.parametrize(("text", "count"), COUNTS.items())
def test_the_page_counts_the_evidence(text: str, count: int) -> None:
    """A number on the page is the number in the sources."""
    assert count > 0
    assert f" {text.format(count)}" in PAGE.read_text("utf-8")
