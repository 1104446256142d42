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
        said = (done.stderr.strip().splitlines() or [f"LMDB ended with status {done.returncode}"])[-1]
        where = "" if str(folder) in said else f"the store in {str(folder)!r} is damaged: "
        raise StoreError(text=f"{where}{said}")
