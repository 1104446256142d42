# SPDX-License-Identifier: Apache-2.0
"""Targets against the peers of the same measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.targets import AtLeast

if TYPE_CHECKING:
    from benchmarks.targets import Target

SHARED_MEMORY_PEERS = ("iceoryx2",)


def one_at_a_time(pyzmq: float, others: float, worst: float | None = None) -> tuple[Target, ...]:
    """Return the targets of messages sent one at a time.

    Args:
        pyzmq: The smallest ratio to pyzmq that will do.
        others: The smallest ratio to the best other peer that will do.
        worst: The smallest ratio of the worst run to pyzmq's best run that will do; None: any.
    """
    return (
        AtLeast(pyzmq, than=("pyzmq",), called="pyzmq", worst=worst),
        AtLeast(others, without=("pyzmq",), called="the best other"),
    )


def best(ratio: float, without: tuple[str, ...] = ()) -> tuple[Target, ...]:
    """Return a target against the best peer and, if some are named, the same target without them.

    Args:
        ratio: The smallest ratio that will do.
        without: Names of the peers that the second target leaves out.
    """
    targets = [AtLeast(ratio)]
    if without:
        called = f"the best without {', '.join(without)}"
        targets.append(AtLeast(ratio, without=without, called=called))
    return tuple(targets)
