# SPDX-License-Identifier: Apache-2.0
"""Runs the C program that tries the core in every order of its shared steps, with deaths and with late stores."""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

MOST = 600  # schedules of a scenario; `make races` tries all within larger bounds


KINDS = ("kills", "orders", "delays", "random", "plain")  # the longest first


@pytest.fixture(scope="module")
def runs(programs: Path) -> Iterator[dict[str, Future[subprocess.CompletedProcess[str]]]]:
    """The program runs for all kinds, as many at once as there are processors; each run is one thread."""

    def run(kind: str) -> subprocess.CompletedProcess[str]:
        command = [str(programs / "races"), "-most", str(MOST), "-kind", kind]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=1780)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {kind: pool.submit(run, kind) for kind in KINDS}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_in_any_order(runs: dict[str, Future[subprocess.CompletedProcess[str]]], kind: str) -> None:
    """Whatever comes between two shared steps: messages are there as often as they may be, and nobody sleeps on.

    Plainly, when nothing comes between: each role does what it is there for.
    """
    run = runs[kind].result()
    assert run.returncode == 0, run.stdout + run.stderr
    counts = re.search(r"(\d+) passed, 0 failed", run.stdout)
    assert counts, run.stdout
    assert int(counts[1]) > 40


def test_what_is_not_evicted_after_all_is_not_passed_over(programs: Path) -> None:
    """A ring keeps its order: no consumer gets a message behind a newer one since an eviction had begun to take it.

    That takes three preemptions, one more than the other scenarios are tried with.
    """
    command = [str(programs / "races"), "-full", "-most", "60000", "-kind", "orders", "ring, put, wait"]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1780)
    assert run.returncode == 0, run.stdout + run.stderr
