# SPDX-License-Identifier: Apache-2.0
"""The processes of the queue that is larger than the memory. The others are those of the plain chaos."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from tests.chaos import putters, takers
from tests.chaos.presence import connected
from tests.chaos.stored.plan import DEPTH, MOST

if TYPE_CHECKING:
    import random

    from tests.chaos.journal import Journal

PAUSE_SECONDS = 0.01


def fill(broker: str, queues: list[str], number: int, journal: Journal, chance: random.Random) -> None:
    """Puts many with each call, up to a depth that the memory has no room for."""
    with connected(broker, queues, journal, chance) as actor:
        counts = itertools.count()
        (queue,) = actor.queues
        while True:
            while len(queue) > MOST:
                time.sleep(PAUSE_SECONDS)
            chance.choice([putters.put_many, putters.put_many, putters.commit])(actor, queue, number, counts)


def drain(broker: str, queues: list[str], _number: int, journal: Journal, chance: random.Random) -> None:
    """Takes and settles what is above a depth, so that the queue stays larger than the memory."""
    with connected(broker, queues, journal, chance) as actor:
        (queue,) = actor.queues
        while True:
            while len(queue) < DEPTH:
                time.sleep(PAUSE_SECONDS)
            takers.take_somehow(actor)
