# SPDX-License-Identifier: Apache-2.0
"""Runs the C program that tries the core in every order of its shared steps, with deaths and with late stores."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MOST = 2500  # schedules of a scenario; `make races` tries all within larger bounds


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["plain", "orders", "kills", "delays", "random"])
def test_nothing_is_lost_in_any_order(programs: Path, kind: str) -> None:
    """Whatever comes between two shared steps: messages are there as often as they may be, and nobody sleeps on.

    Plainly, when nothing comes between: each role does what it is there for.
    """
    command = [str(programs / "races"), "-most", str(MOST), "-kind", kind]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=580)
    assert run.returncode == 0, run.stdout + run.stderr
    counts = re.search(r"(\d+) passed, 0 failed", run.stdout)
    assert counts, run.stdout
    assert int(counts[1]) > 40
