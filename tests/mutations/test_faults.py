# SPDX-License-Identifier: Apache-2.0
"""Faults that are put into the C core are found: here a few; ``make mutants`` tries all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.run import Fault, changed, faults

SOURCES = Path(__file__).parents[2] / "cffi_src" / "src"
SAMPLE = ("arming is no barrier", "generation is not asked", "the newest is evicted", "an ack is always rolled back")


def test_there_are_enough() -> None:
    """At least twenty faults, whose names tell them apart."""
    names = [fault.name for fault in faults()]
    assert len(names) >= 20
    assert len(names) == len(set(names))


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_a_fault_fits_the_core_of_today(fault: Fault) -> None:
    """What it replaces stands once in its file: else nothing would be tried."""
    (path,) = SOURCES.glob(f"*/{fault.file}")
    text = path.read_text(encoding="utf-8")
    assert changed(fault, text) != text


@pytest.mark.timeout(1800)
def test_a_sample_is_found() -> None:
    """Their own evidence, which passes on the core as it is, fails with the fault."""
    command = [sys.executable, str(Path(__file__).with_name("run.py")), "--own-evidence", *SAMPLE]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1780)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(SAMPLE)} faults, {len(SAMPLE)} found, 0 survived" in run.stdout
