# SPDX-License-Identifier: Apache-2.0
"""Compares what came back from the disk with what the clients had been told."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shmbroker_cli.demo.restart.notes import Promises
from shmbroker_cli.demo.restart.plan import COMPARED, CREDITS, DEBITS, priority_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shmbroker_cli.demo.restart.plan import Topology


@dataclass(frozen=True)
class Restart:
    """What the demonstration prints of the restart.

    Attributes:
        killed: How many processes of each kind were killed.
        seconds: How long it took to begin again from the folder.
        memory: The memory of the broker, bytes.
        deepest: The bytes of the bodies in the largest queue when the broker began again.
        confirmed: Number of messages that were confirmed.
        acknowledged: Number of messages whose acknowledgement was on the disk.
        due: Number of messages that had to be there.
        there: Number of messages that were there.
        lost: Number of messages that had to be there, and were not.
        twice: Number of messages that were there again.
        came_back: Number of messages that were there, though their acknowledgement was on the disk.
        unknown: Number of messages that were there, and that no producer put.
        misplaced: Number of messages that came before one that has its place before them.
        transactions: Number of transactions that were there.
        halves: Number of transactions of which one message was there, and the other was not.
        topology: Whether the queues with their settings, the exchanges and the bindings were as before.
    """

    killed: dict[str, int]
    seconds: float
    memory: int
    deepest: int
    confirmed: int
    acknowledged: int
    due: int
    there: int
    lost: int
    twice: int
    came_back: int
    unknown: int
    misplaced: int
    transactions: int
    halves: int
    topology: bool

    @property
    def good(self) -> bool:
        """Whether all is there that has to be, once and in order, and nothing else."""
        return self.topology and not (
            self.lost or self.twice or self.came_back or self.unknown or self.misplaced or self.halves
        )


@dataclass
class Found:
    """What a broker had that began from the folder.

    Attributes:
        messages: The messages of each queue by their numbers, in the order in which they came.
        topology: The queues, exchanges and bindings.
        seconds: How long the beginning took.
        memory: The memory of the broker, bytes.
        deepest: The bytes of the bodies in its largest queue.
    """

    messages: dict[str, list[int]]
    topology: Topology
    seconds: float = 0.0
    memory: int = 0
    deepest: int = 0


def _counts(name: str, told: Promises, found: Sequence[int]) -> dict[str, int]:
    """Return the counts of one queue, by the names that they have in a report."""
    once = set(found)
    return {
        "confirmed": told.confirmed,
        "acknowledged": len(told.synced),
        "due": len(told.due),
        "there": len(found),
        "lost": len(told.due - once),
        "twice": len(found) - len(once),
        "came_back": len(told.synced & once),
        "unknown": sum(number >= told.put for number in once),
        "misplaced": _misplaced(name, found),
    }


def _misplaced(name: str, found: Sequence[int]) -> int:
    places = [(-priority_of(name, number), number) for number in found]
    return sum(after < before for before, after in itertools.pairwise(places))


def compare(killed: Mapping[str, int], told: Mapping[str, Promises], before: Topology, found: Found) -> Restart:
    """Compare what came back with what the clients had been told.

    Args:
        killed: How many processes of each kind were killed.
        told: What the clients of each queue were told.
        before: The queues, exchanges and bindings before the kill.
        found: What came back.
    """
    sums = Counter[str]()
    for name in COMPARED:
        sums.update(_counts(name, told.get(name, Promises()), found.messages.get(name, [])))
    debits, credits_ = (set(found.messages.get(name, [])) for name in (DEBITS, CREDITS))
    return Restart(
        killed=dict(killed),
        seconds=round(found.seconds, 3),
        memory=found.memory,
        deepest=found.deepest,
        **sums,
        transactions=len(debits & credits_),
        halves=len(debits ^ credits_),
        topology=before == found.topology,
    )
