# SPDX-License-Identifier: Apache-2.0
"""Whatever ends the chaos: a housekeeper that it stopped does not stay so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def state(pid: int) -> str:
    """What the kernel says of a process: S, T ..."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_housekeeper_goes_on_when_the_director_ends(tmp_path: Path, number: signal.Signals) -> None:
    """A terminal that goes away ends all processes of the chaos, but not the one that sees to it."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as housekeeper:
        command = [sys.executable, "-m", "tests.chaos.stopping", str(housekeeper.pid), str(tmp_path)]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        ) as director:
            try:
                assert director.stdout
                guard = int(director.stdout.readline())
                assert state(housekeeper.pid) == "T"
                if number != signal.SIGKILL:
                    os.kill(guard, number)
                os.killpg(director.pid, number)
                director.wait()
                while state(housekeeper.pid) == "T":
                    time.sleep(0.001)
            finally:
                director.kill()
                housekeeper.kill()
