# SPDX-License-Identifier: Apache-2.0
"""Runs the C program of what single functions of the core promise: a test for each file of its cases."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "c" / "units"
TABLE = re.compile(r"^static const test_case CASES\[\] = \{(.*?)^\};", re.DOTALL | re.MULTILINE)
SUBJECTS = sorted(path.stem for path in SOURCES.glob("*.c") if "SUBJECT(CASES)" in path.read_text(encoding="utf-8"))


def cases(subject: str) -> list[str]:
    """The names in the table of cases of a file."""
    table = TABLE.search((SOURCES / f"{subject}.c").read_text(encoding="utf-8"))
    return re.findall(r'^    \{"([^"]+)",', table[1], re.MULTILINE) if table else []


def test_names_of_cases_are_unique() -> None:
    """Each file has cases, and a name is one case's: it is what the program is asked for."""
    names = [name for subject in SUBJECTS for name in cases(subject)]
    assert all(map(cases, SUBJECTS))
    assert len(names) == len(set(names))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_functions_promise(programs: Path, subject: str) -> None:
    """What the program says about each case of the file holds, and all of them are run."""
    names = cases(subject)
    run = subprocess.run([str(programs / "units"), *names], check=False, capture_output=True, text=True, timeout=880)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(names)} passed, 0 failed" in run.stdout
