# SPDX-License-Identifier: Apache-2.0
"""The short form of the chaos; `make chaos` runs the long one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Python keeps threads, and children of `multiprocessing`, in a WeakSet each, whose callback drops an interrupt; the
# director interrupts again. The package has no WeakSet: see `shmbroker/_process/living.py`.
DROPPED_BY_PYTHON = re.compile(
    r"Exception ignored in: <function WeakSet\.__init__\.<locals>\._remove at 0x[0-9a-f]+>\n"
    r"Traceback \(most recent call last\):\n(?: +.*\n|\n)*KeyboardInterrupt: \n"
)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("memory", ["1G", "64M"])
def test_twenty_seconds_of_chaos(broker_name: str, tmp_path: Path, memory: str) -> None:
    """Whoever is killed, interrupted or stopped, forks or runs another program, and when the memory is full at times.

    Nothing is lost, doubled, torn or out of order, and messages flow all the time.
    """
    run_chaos(broker_name, tmp_path, "--memory", memory)


@pytest.mark.timeout(1800)
def test_twenty_seconds_of_chaos_among_dead_letters(broker_name: str, tmp_path: Path) -> None:
    """Messages with priorities are returned, rejected, replaced and expire, while processes are killed and stopped.

    Each ends once: where it was put, or in the dead-letter queues, with the reason. A returned message waits its delay.
    """
    said = run_chaos(broker_name, tmp_path, "--play", "dead-letters")
    for reason in ("rejected", "expired", "maxlen", "delivery_limit"):
        assert re.search(rf"^dead letters, {reason} +[1-9]", said, re.MULTILINE), f"nothing died so: {reason}: {said}"


@pytest.mark.timeout(1800)
def test_twenty_seconds_of_chaos_among_all_features(broker_name: str, tmp_path: Path) -> None:
    """Groups, priorities, selectors, limits, rings, dead letters and messages that stay, while processes are killed.

    Nothing is lost or twice. A group is with one process at a time, and keeps its order, as does each priority.
    """
    said = run_chaos(broker_name, tmp_path, "--play", "features")
    assert re.search(r"^groups that went from one process to another +[1-9]", said, re.MULTILINE), said


@pytest.mark.timeout(1800)
def test_twenty_seconds_of_chaos_with_a_store(broker_name: str, tmp_path: Path) -> None:
    """Durable queues, one larger than the memory, while processes are killed, and once at least all of them at once.

    What was on the disk comes back after that; else nothing is lost, twice, out of order or without a mark.
    """
    said = run_chaos(broker_name, tmp_path, "--play", "stored")
    losses = re.search(r"^losses of everything but the disk +[1-9]\d*, with up to ([\d,]+) bytes", said, re.MULTILINE)
    assert losses, said
    assert "storekeeper" in said, f"nobody disturbed the storekeeper: {said}"


def run_chaos(broker: str, folder: Path, *arguments: str) -> str:
    """Run the chaos for a while; nothing may be found, and nothing said on standard error. Return what it printed."""
    command = [sys.executable, "-m", "tests.chaos", "--seconds", "20", "--broker", broker, "--logs", str(folder)]
    run = subprocess.run([*command, *arguments], cwd=ROOT, check=False, capture_output=True, text=True, timeout=1780)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "housekeeper" in run.stdout, f"nobody disturbed the housekeeper: {run.stdout}"
    assert DROPPED_BY_PYTHON.sub("", run.stderr) == ""
    return run.stdout


def test_only_what_python_says_of_its_own_sets_is_expected() -> None:
    """An interrupt that a destructor of the package drops is a failure, and so is any other error in a callback."""
    dropped = (
        "Exception ignored in: <function WeakSet.__init__.<locals>._remove at 0x7f8439a76f20>\n"
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/_weakrefset.py", line 39, in _remove\n'
        "    def _remove(item, selfref=ref(self)):\n"
        "\n"
        "KeyboardInterrupt: \n"
    )
    assert DROPPED_BY_PYTHON.sub("", f"{dropped}one\n{dropped}") == "one\n"
    for other in (dropped.replace("KeyboardInterrupt", "ValueError"), dropped.replace("WeakSet.__init__", "Queue")):
        assert DROPPED_BY_PYTHON.sub("", other) == other
