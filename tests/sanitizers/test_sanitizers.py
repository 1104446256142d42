# SPDX-License-Identifier: Apache-2.0
"""Runs the C tests of the core, in short forms, built with the sanitizers of the compiler: they may see nothing."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.building import built

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 131  # one step of 131 is killed
SEEDS = 150


@pytest.fixture(scope="session")
def asan() -> Path:
    """The programs that see reads and writes out of bounds, use after free and undefined behaviour."""
    return built("asan", ["--preset", "asan"], "kill_at_step", "interleavings", "stress", "segments", "fuzz")


@pytest.fixture(scope="session")
def tsan() -> Path:
    """The programs that see data races."""
    return built("tsan", ["--preset", "tsan"], "stress")


def run(*command: str | Path) -> str:
    """What the program printed; it must be content."""
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True, timeout=880)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(1800)
def test_threads_do_not_race(tsan: Path) -> None:
    """Threads that do everything at once race for nothing; each message is settled once, all memory comes back."""
    assert "ok" in run(tsan / "stress", "1000")


@pytest.mark.timeout(1800)
def test_threads_stay_within_their_memory(asan: Path) -> None:
    """The same threads, while a broker is stopped too, touch nothing that was freed and leave nothing behind."""
    assert "ok" in run(asan / "stress", "1000")


@pytest.mark.timeout(1800)
def test_a_body_across_segments_is_mapped(asan: Path) -> None:
    """Whoever takes a body that goes on in a segment it has not mapped yet can read all of it."""
    assert "0 are wrong" in run(asan / "segments")


@pytest.mark.timeout(1800)
def test_the_dead_and_their_reapers_stay_within_their_memory(asan: Path) -> None:
    """A kill at a sample of all steps, and reaping."""
    assert ", 0 failed" in run(asan / "kill_at_step", "-every", str(STEPS))


@pytest.mark.timeout(1800)
def test_interleavings_stay_within_their_memory(asan: Path) -> None:
    """Some cases of one actor in the middle of another's step."""
    assert "3 passed, 0 failed" in run(asan / "interleavings", "empty take", "delayed", "configured")


@pytest.mark.timeout(1800)
def test_a_damaged_broker_neither_crashes_nor_hangs(asan: Path) -> None:
    """Whatever words of a broker are damaged, and whichever of its files is cut: a status, or a right result."""
    assert f"{SEEDS} seeds, 0 failed; files passed" in run(asan / "fuzz", "-count", str(SEEDS))
