# SPDX-License-Identifier: Apache-2.0
"""Builds the C programs of the tests, each folder by one process at a time."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def tool(name: str) -> str:
    """Return the path of a build tool of the environment that runs the tests."""
    return str(Path(sys.executable).with_name(name))


def built(folder: str, configuration: list[str], *targets: str) -> Path:
    """Configure and build a folder below `build`.

    The processes of a test run may want the same folder at the same time: the second one waits for the first.

    Args:
        folder: Its name.
        configuration: What CMake is told besides the two folders and the build tool.
        targets: What is built; everything, if none is named.

    Returns:
        The folder with the programs.

    Raises:
        AssertionError: CMake or the compiler failed; with all they printed.
    """
    build = ROOT / "build" / folder
    build.mkdir(parents=True, exist_ok=True)
    ninja = f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"
    with build.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            [tool("cmake"), "-G", "Ninja", "-S", str(ROOT / "cffi_src"), "-B", str(build), *configuration, ninja],
            [tool("cmake"), "--build", str(build), *(["--target", *targets] if targets else [])],
        ):
            made = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1700)
            assert made.returncode == 0, made.stdout + made.stderr
    return build / "tests"
