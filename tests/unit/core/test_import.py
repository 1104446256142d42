# SPDX-License-Identifier: Apache-2.0
"""Importing the package where its compiled modules are not, as in a checkout beside an installed package."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import shmbroker

IMPORTS = """
import sys
sys.path[:0] = [sys.argv[1]]
sys.path.append(sys.argv[2])
import shmbroker
"""


def test_a_checkout_without_compiled_modules(tmp_path: Path) -> None:
    """The error names the folder, and says what to do, in place of `circular import`."""
    source = Path(shmbroker.__file__).parent
    shutil.copytree(source, tmp_path / "shmbroker", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    command = [sys.executable, "-S", "-P", "-c", IMPORTS, str(tmp_path), sysconfig.get_path("platlib")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: shmbroker was found in {tmp_path}/shmbroker, which has no compiled modules")
    assert "pip install --editable" in last
