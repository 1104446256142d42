# SPDX-License-Identifier: Apache-2.0
"""The short form of the chaos; `make chaos` runs the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("memory", ["1G", "64M"])
def test_twenty_seconds_of_chaos(broker_name: str, tmp_path: Path, memory: str) -> None:
    """Whoever is killed, interrupted or stopped, forks or runs another program, and when the memory is full at times.

    Nothing is lost, doubled, torn or out of order, and messages flow all the time.
    """
    command = [sys.executable, "-m", "tests.chaos", "--seconds", "20", "--memory", memory, "--broker", broker_name]
    run = subprocess.run(
        [*command, "--logs", str(tmp_path)], cwd=ROOT, check=False, capture_output=True, text=True, timeout=1780
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
