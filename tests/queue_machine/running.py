# SPDX-License-Identifier: Apache-2.0
"""Running the machine for a number of steps."""

from __future__ import annotations

import contextlib
import itertools
import logging
from typing import TYPE_CHECKING

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test

from tests.queue_machine.machine import WORKERS, QueueMachine
from tests.queue_machine.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEPS_OF_A_RUN = 60


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Log no warnings: that dead letters lead nowhere is intended."""
    logger = logging.getLogger("shmbroker")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def run(broker: str, steps: int, seed: int, *, shrinks: bool = True, keeps: Path | None = None) -> int:
    """Run the machine for at least as many steps, in a broker of its own; return how many there were.

    The seed decides what is chosen. A difference is made as short as Hypothesis can, unless `shrinks` is false. A run
    ends early where the computer was too slow for the delays of messages; its further steps do not count.
    `keeps`: the directory to which the broker's memory is copied at a difference.
    """
    with _quiet(), Stage(broker, WORKERS, keeps) as stage:

        class Machine(QueueMachine):
            pass

        Machine.stage, Machine.steps = stage, 0
        for number in itertools.count(seed):
            settings = hypothesis.settings(
                max_examples=max(1, (steps - Machine.steps) // STEPS_OF_A_RUN),
                stateful_step_count=STEPS_OF_A_RUN,
                deadline=None,
                database=None,
                phases=[Phase.generate, *([Phase.shrink] if shrinks else [])],
                suppress_health_check=list(HealthCheck),
                report_multiple_bugs=False,
            )
            try:
                run_state_machine_as_test(hypothesis.seed(number)(Machine), settings=settings)
            except Exception as error:
                error.add_note("\n".join([f"seed {number}; the last orders:", *stage.log]))
                raise
            if Machine.steps >= steps:
                return Machine.steps
        raise AssertionError
