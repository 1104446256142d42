# SPDX-License-Identifier: Apache-2.0
"""The C programs of tests/c that these tests run; they are built once for all their tests."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from shmbroker import _native as native
from tests.building import built

PLAIN = ["-DCMAKE_BUILD_TYPE=Release", "-DSB_BUILD_PYTHON=OFF", "-DSB_BUILD_TESTS=ON", "-DSB_TEST_HOOKS=OFF"]


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder with the programs that see a step before each atomic operation: built with SB_TEST_HOOKS."""
    return built("testhooks", ["--preset", "testhooks"], "interleavings", "kill_at_step", "races", "units")


@pytest.fixture(scope="session")
def plain_programs() -> Path:
    """The folder with the programs that need no hooks: they load the core that is installed."""
    core = Path(native.__file__).with_name("libshmbroker_core.so")
    targets = ["kill_at_instruction"] if platform.machine() == "x86_64" else []
    return built("c_tests_plain", [*PLAIN, f"-DSB_CORE={core}"], *targets)
