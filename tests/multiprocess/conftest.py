# SPDX-License-Identifier: Apache-2.0
"""The C programs of tests/c; they are built once for all their tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tool(name: str) -> str:
    """The build tool of the environment that runs the tests."""
    return str(Path(sys.executable).with_name(name))


def built(folder: str, *, hooks: bool) -> Path:
    """Build the programs in a folder of their own, with optimisation."""
    cmake, build = tool("cmake"), ROOT / "build" / folder
    definitions = ["-DCMAKE_BUILD_TYPE=Release", "-DSB_BUILD_PYTHON=OFF", "-DSB_BUILD_TESTS=ON"]
    definitions += [f"-DSB_TEST_HOOKS={'ON' if hooks else 'OFF'}", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"]
    for command in (
        [cmake, "-G", "Ninja", "-S", str(ROOT / "cffi_src"), "-B", str(build), *definitions],
        [cmake, "--build", str(build)],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    return build / "tests"


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder with the programs that see a step before each atomic operation: built with SB_TEST_HOOKS."""
    return built("c_tests", hooks=True)


@pytest.fixture(scope="session")
def plain_programs() -> Path:
    """The folder with the programs that need no hooks: the core is as its users have it."""
    return built("c_tests_plain", hooks=False)
