# SPDX-License-Identifier: Apache-2.0
"""Bodies of any sizes that come and go in any order: what is free is room for a body of any size."""

from __future__ import annotations

import itertools
import os
import random
from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, given, settings
from scenario_support.brokers import running

from shmbroker.exceptions import OutOfMemory

if TYPE_CHECKING:
    import shmbroker

FAST = settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
NAMES = itertools.count()
SIZES = st.one_of(
    st.sampled_from([0, 100, 192, 1000, 4096, 5000, 16_000, 65_536, 300_000, 2_000_000, 3_000_000]),
    st.integers(0, 65_536),
)
# Puts bodies of one size until memory is full, or a number of them; then one of every n stays, or a random half.
ROUND = st.tuples(SIZES, st.sampled_from([50, 3_000, 10**9]), st.sampled_from([2, 3, 64, 1_000, 10**9]), st.booleans())
PATIENCE = 60.0  # seconds: memory of pages serves bodies again when no call can know the pages
ASKED = (1, 100, 193, 1000, 4096, 4097, 5000, 20_000, 65_536)


def content(size: int, seed: int) -> bytes:
    """Bytes that say of which body they are, and where in it."""
    return random.Random(seed).randbytes(size)


class Bodies:
    """A broker, and what lies in it."""

    def __init__(self, connection: shmbroker.Connection, seed: int) -> None:
        self.connection = connection
        self.passing, self.staying = connection.queue("passing"), connection.queue("staying")
        self.expected: list[bytes] = []
        self.random = random.Random(seed)

    def round(self, size: int, count: int, one_of: int, at_random: bool) -> None:  # noqa: FBT001 (drawn)
        """Put until it is full or they are enough, and consume all but those that stay."""
        for number in range(count):
            stays = self.random.random() < 1 / 2 if at_random and one_of == 2 else number % one_of == one_of - 1
            body = content(size, len(self.expected)) if stays else bytes(size)
            try:
                (self.staying if stays else self.passing).put(body, timeout=0)
            except OutOfMemory:
                break
            if stays:
                self.expected.append(body)
        while len(self.passing):
            self.passing.get_many(4096).ack()

    def half_is_free(self) -> bool:
        """Whether at least half of the memory is free, whatever it served before."""
        facts = self.connection._session.core.attachment.facts()  # noqa: SLF001 (no statistic has the exact limit)
        return bool(facts.memory_used <= facts.memory_limit / 2)

    def forget_some(self) -> None:
        """Consume the older half of what stayed."""
        for _ in range((len(self.expected) + 1) // 2):
            assert bytes(self.staying.get(auto_ack=True).body) == self.expected.pop(0)


def check_room(memory: str, rounds: list[tuple[int, int, int, bool]], seed: int) -> None:
    """After each round, bodies of all sizes up to 64 KiB fit in turn, and come back as they were."""
    name = f"room-{os.getpid()}-{next(NAMES)}"
    with running(name, memory) as broker, broker.connect() as connection:
        bodies = Bodies(connection, seed)
        for one in rounds:
            bodies.round(*one)
            while not bodies.half_is_free():
                assert bodies.expected
                bodies.forget_some()
            for size in ASKED:
                body = content(size, size)
                bodies.passing.put(body, timeout=PATIENCE)
                with bodies.passing.get(timeout=0) as message:
                    assert bytes(message.body) == body
        assert connection.doctor() == []
        for body in bodies.expected:
            assert bytes(bodies.staying.get(timeout=0, auto_ack=True).body) == body
        assert connection.doctor() == []


@FAST
@given(rounds=st.lists(ROUND, min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_a_body_fits_while_half_of_the_memory_is_free(rounds: list[tuple[int, int, int, bool]], seed: int) -> None:
    """Whatever was put before, in whatever order it went, a body up to 64 KiB fits, and comes back as it was."""
    check_room("64M", rounds, seed)


def test_the_first_inner_page_of_a_full_broker() -> None:
    """Bodies had all chunks but the reserve when a queue first needed an inner page: it takes the 65th message."""
    check_room("32M", [(300_000, 50, 2, False), (13_435, 50, 3, True), (65_536, 10**9, 64, False)], 79)
