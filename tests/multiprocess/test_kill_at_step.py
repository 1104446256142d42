# SPDX-License-Identifier: Apache-2.0
"""Runs the C program that kills a process before each shared step of each operation, on a sample of the steps."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "kill_at_step"
SAMPLE = 9  # one step of so many, other ones for each operation


def tool(name: str) -> str:
    """The build tool of the environment that runs the tests."""
    return str(Path(sys.executable).with_name(name))


@pytest.fixture(scope="module")
def program() -> Path:
    """The program, built with a step before each atomic operation."""
    cmake = tool("cmake")
    definitions = ["-DCMAKE_BUILD_TYPE=Release", "-DSB_BUILD_PYTHON=OFF", "-DSB_BUILD_TESTS=ON", "-DSB_TEST_HOOKS=ON"]
    ninja = f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"
    for command in (
        [cmake, "-G", "Ninja", "-S", str(ROOT / "cffi_src"), "-B", str(BUILD), ninja, *definitions],
        [cmake, "--build", str(BUILD)],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    return BUILD / "tests" / "kill_at_step"


@pytest.mark.timeout(600)
def test_a_kill_before_any_step_loses_nothing(program: Path) -> None:
    """After a kill, and reaping: structures are sound, messages there as often as they may be, all memory is back."""
    run = subprocess.run(
        [str(program), "-every", str(SAMPLE)], check=False, capture_output=True, text=True, timeout=580
    )
    counts = re.search(r"(\d+) passed, (\d+) failed", run.stdout)
    assert counts, run.stdout + run.stderr
    assert int(counts[2]) == 0, run.stdout
    assert int(counts[1]) > 500
