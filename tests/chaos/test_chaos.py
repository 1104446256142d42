# SPDX-License-Identifier: Apache-2.0
"""The short form of the chaos; `make chaos` runs the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_thirty_seconds_of_chaos(broker_name: str, tmp_path: Path) -> None:
    """Whoever is killed or stopped: nothing is lost, doubled, torn or out of order, and messages flow all the time."""
    command = [sys.executable, "-m", "tests.chaos", "--seconds", "30", "--broker", broker_name]
    run = subprocess.run(
        [*command, "--logs", str(tmp_path)], cwd=ROOT, check=False, capture_output=True, text=True, timeout=580
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
