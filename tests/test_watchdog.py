# SPDX-License-Identifier: Apache-2.0
"""The watchdog over the tests."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil

WATCHDOG = Path(__file__).with_name("watchdog.py")
PROGRAM = """
import os, subprocess, sys
script, orders = sys.argv[1:]
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
watchdog = subprocess.Popen([sys.executable, "-P", script, str(os.getpid())], stdin=subprocess.PIPE)
watchdog.stdin.write(orders.encode())
watchdog.stdin.flush()
if not orders:
    watchdog.stdin.close()
sys.exit(watchdog.wait())
"""


def run_watched(orders: str) -> subprocess.CompletedProcess[str]:
    """Run a program that starts a child and a watchdog, gives it orders, and waits for its end."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(WATCHDOG), orders], capture_output=True, text=True, check=False
    )


def test_a_process_that_hangs_is_killed_with_its_children() -> None:
    """When time is up, SIGKILL goes to the process and to what it started."""
    result = run_watched("0.1\n")
    assert result.returncode == -signal.SIGKILL
    assert "a test hangs" in result.stderr
    child = int(result.stdout)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_the_watchdog_ends_with_its_input() -> None:
    """A watchdog whose orders end goes away and harms nobody."""
    assert run_watched("").returncode == 0
