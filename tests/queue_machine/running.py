# SPDX-License-Identifier: Apache-2.0
"""Running the machine for a number of steps."""

from __future__ import annotations

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test

from tests.queue_machine.machine import WORKERS, QueueMachine
from tests.queue_machine.stage import Stage

STEPS_OF_A_RUN = 100


def run(broker: str, steps: int, seed: int, *, shrinks: bool = True) -> int:
    """Run the machine for about as many steps, in a broker of its own; return how many there were.

    The seed decides what is chosen. A failure is made as short as Hypothesis can.
    """
    settings = hypothesis.settings(
        max_examples=max(1, steps // STEPS_OF_A_RUN),
        stateful_step_count=STEPS_OF_A_RUN,
        deadline=None,
        database=None,
        phases=[Phase.generate, *([Phase.shrink] if shrinks else [])],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    with Stage(broker, WORKERS) as stage:

        class Machine(QueueMachine):
            pass

        Machine.stage, Machine.steps = stage, 0
        try:
            run_state_machine_as_test(hypothesis.seed(seed)(Machine), settings=settings)
        except AssertionError as error:
            error.add_note("\n".join([f"seed {seed}; the last orders:", *stage.log]))
            raise
        return Machine.steps
