# SPDX-License-Identifier: Apache-2.0
"""The short form of the loss of power; `python -m tests.power_loss` runs the long one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEED = 18


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recorded run, which all tests use."""
    folder = tmp_path_factory.mktemp("power-loss")
    status, said = run(folder, "--keep", "--seconds", "1.5", "--kill-after", "800", "--places", "0")
    assert status == 0, said
    return folder


def run(folder: Path, option: str, *arguments: str) -> tuple[int, str]:
    """Runs the module; returns its exit status and what it said."""
    words = [f"--seed={SEED}", f"{option}={folder}", *arguments]
    done = subprocess.run(
        [sys.executable, "-m", "tests.power_loss", *words], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def figure(said: str, what: str) -> int:
    """A number of the report."""
    found = re.search(rf"^{what} +([\d,]+)$", said, re.MULTILINE)
    assert found, said
    return int(found[1].replace(",", ""))


@pytest.mark.timeout(1800)
def test_a_loss_of_power_keeps_what_was_promised(recorded: Path, broker_name: str) -> None:
    """Wherever power is lost, and whatever part of the unsynced writes is on the disk.

    The store opens. Each confirmed message is there, and nothing that was acknowledged and synced; each queue has its
    order; a transaction is there as a whole or not at all.
    """
    status, said = run(recorded, "--recorded", "--broker", broker_name, "--places", "40", "--losses", "3")
    assert status == 0, said
    assert figure(said, "losses") == 120
    for what in ("storekeepers killed meanwhile", "of these read by a broker", "losses in the recovery from a loss"):
        assert figure(said, what) > 0
    assert figure(said, "messages that had to be there") > 200


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("file", ["data.mdb", "log.sqlite", "log.sqlite-wal", "."])
def test_a_file_that_is_not_synced_is_found(recorded: Path, file: str) -> None:
    """A store that forgot to sync one of its files, or its folder, would not pass."""
    few = ("--places", "12", "--losses", "3", "--every-broker", "1000", "--every-second", "1000")
    status, said = run(recorded, "--recorded", f"--unsynced={file}", *few)
    assert status == 1, said
    assert re.search(
        r"^record \d+, loss \d: (confirmed, and lost|StoreError|the process that read)", said, re.MULTILINE
    ), said
