# SPDX-License-Identifier: Apache-2.0
"""Runs the C program that kills a process before each shared step of each operation, on a sample of the steps."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = 29  # one step of 29 is tried, different ones for each operation


@pytest.mark.timeout(1800)
def test_a_kill_before_any_step_loses_nothing(programs: Path) -> None:
    """After a kill, and reaping: structures are sound, messages there as often as they may be, all memory is back."""
    run = subprocess.run(
        [str(programs / "kill_at_step"), "-every", str(SAMPLE)],
        check=False,
        capture_output=True,
        text=True,
        timeout=1780,
    )
    counts = re.search(r"(\d+) passed, (\d+) failed", run.stdout)
    assert counts, run.stdout + run.stderr
    assert int(counts[2]) == 0, run.stdout
    assert int(counts[1]) > 500
