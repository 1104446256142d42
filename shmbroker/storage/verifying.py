# SPDX-License-Identifier: Apache-2.0
"""Lets another process verify a store: a damaged one may end it. The program is :mod:`shmbroker.storage.verify`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from shmbroker.exceptions import StoreError

if TYPE_CHECKING:
    from pathlib import Path


def verified(folder: Path) -> None:
    """Verifies a store, in another process.

    Raises:
        StoreError: the store is damaged.
    """
    command = [sys.executable, "-m", "shmbroker.storage.verify", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if done.returncode != 0:
        raise StoreError(text=why(folder, done.returncode, done.stderr))


def why(folder: Path, status: int, said: str) -> str:
    """What is wrong with a store.

    Args:
        folder: the store.
        status: how the program ended, not with 0.
        said: what it wrote to its standard error.
    """
    last = (said.strip().splitlines() or [f"LMDB ended with status {status}"])[-1]
    return last if str(folder) in last else f"the store in {str(folder)!r} is damaged: {last}"
