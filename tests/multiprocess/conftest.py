# SPDX-License-Identifier: Apache-2.0
"""The C programs that see a step before each atomic operation of the core; they are built once for all their tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "c_tests"


def tool(name: str) -> str:
    """The build tool of the environment that runs the tests."""
    return str(Path(sys.executable).with_name(name))


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder with the programs of tests/c, built with SB_TEST_HOOKS."""
    cmake = tool("cmake")
    definitions = ["-DCMAKE_BUILD_TYPE=Release", "-DSB_BUILD_PYTHON=OFF", "-DSB_BUILD_TESTS=ON", "-DSB_TEST_HOOKS=ON"]
    ninja = f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"
    for command in (
        [cmake, "-G", "Ninja", "-S", str(ROOT / "cffi_src"), "-B", str(BUILD), ninja, *definitions],
        [cmake, "--build", str(BUILD)],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    return BUILD / "tests"
