# SPDX-License-Identifier: Apache-2.0
"""Runs the C program that puts one actor into the middle of another's step: a test for each of its cases."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "c" / "interleavings"
TABLE = re.compile(r"^static const test_case CASES\[\] = \{(.*?)^\};", re.DOTALL | re.MULTILINE)


def cases() -> list[str]:
    """The names in the program's tables of cases."""
    tables = [TABLE.search(path.read_text(encoding="utf-8")) for path in sorted(SOURCES.glob("*.c"))]
    return [name for table in tables if table for name in re.findall(r'^    \{"([^"]+)",', table[1], re.MULTILINE)]


def test_there_are_cases() -> None:
    """The tables are found, and names are unique."""
    assert len(cases()) > 10
    assert len(cases()) == len(set(cases()))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", cases())
def test_whatever_comes_between_two_steps(programs: Path, case: str) -> None:
    """What the program says about the case holds in each interleaving it tries; afterwards the memory is sound."""
    run = subprocess.run(
        [str(programs / "interleavings"), case], check=False, capture_output=True, text=True, timeout=880
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed, 0 failed" in run.stdout
