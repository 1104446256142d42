# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.queue_machine`: as many steps as one has time for."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from pathlib import Path

from tests.queue_machine.running import run

STEPS_OF_A_ROUND = 5_000


def main() -> int:
    """Run rounds, each with its own seed, until there were enough steps."""
    parser = argparse.ArgumentParser(prog="python -m tests.queue_machine", description=__doc__)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--seed", type=int, help="of the first round; the next ones count on")
    parser.add_argument("--no-shrink", action="store_true", help="show a difference as it was found")
    parser.add_argument("--keep", type=Path, help="a directory to copy the broker's memory to, at a difference")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    done, began = 0, time.monotonic()
    while done < arguments.steps:
        print(f"seed {seed}: from step {done}, {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
        steps = min(STEPS_OF_A_ROUND, arguments.steps - done)
        done += run(
            f"machine-{secrets.token_hex(6)}", steps, seed, shrinks=not arguments.no_shrink, keeps=arguments.keep
        )
        seed += 1
    print(f"{done} steps without a difference, {time.monotonic() - began:.0f} s")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
