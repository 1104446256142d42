# SPDX-License-Identifier: Apache-2.0
"""The housekeeper's timers: each message is looked at when it is due, and one that is gone is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario_support.brokers import serve_while
from scenario_support.waiting import eventually

import shmbroker
from shmbroker._housekeeper import housekeeper
from shmbroker._process.timers import FORGOTTEN_AT_ONCE, LEAST_TO_FORGET, Timers

if TYPE_CHECKING:
    import random

SLOT = 7


class Messages:
    """A queue's messages that have a time; the rest is gone."""

    def __init__(self) -> None:
        self.due: dict[int, int] = {}
        self.looks: list[tuple[int, int]] = []
        self.now = 0

    def look(self, slot: int, position: int) -> int:
        """Return when to look again, as the core does."""
        assert slot == SLOT
        self.looks.append((self.now, position))
        due = self.due.get(position, 0)
        if due and due <= self.now:
            del self.due[position]
            return 0
        return due


@given(st.lists(st.integers(1, 1000), max_size=200), st.sets(st.integers(0, 199)), st.randoms(use_true_random=False))
def test_each_is_looked_at_when_it_is_due(times: list[int], gone: set[int], chance: random.Random) -> None:
    """Those that are still there when their time comes end then, whatever was acknowledged before."""
    messages = Messages()
    timers = Timers(messages.look)
    messages.due = {position: 1 + time for position, time in enumerate(times)}
    timers.add(SLOT, messages.due)
    timers.run(0)
    for position in gone:
        messages.due.pop(position, None)
    while messages.due:
        assert timers.due <= min(messages.due.values())
        messages.now = max(messages.now + 1, timers.due) + chance.randrange(3)
        timers.run(messages.now)
        assert all(due > messages.now for due in messages.due.values())


def test_what_is_gone_is_forgotten() -> None:
    """A million messages, each acknowledged long before its time, leave no more than a few timers."""
    messages = Messages()
    timers = Timers(messages.look)
    most = 0
    for first in range(0, 1_000_000, 1000):
        fresh = range(first, first + 1000)
        messages.due = dict.fromkeys(fresh, 10**18)
        timers.add(SLOT, fresh)
        timers.run(messages.now)
        while timers.asks:
            timers.run(messages.now)
        most = max(most, len(timers))
    assert most <= 2 * LEAST_TO_FORGET
    messages.now = 10**18
    timers.run(messages.now)
    assert messages.due == {}


def test_forgetting_takes_little_time_at_once() -> None:
    """However many there are, some are asked at a time, and those that fall due meanwhile are looked at."""
    messages = Messages()
    timers = Timers(messages.look)
    many = 20 * FORGOTTEN_AT_ONCE
    messages.due = {position: 1000 + position for position in range(many)}
    timers.add(SLOT, messages.due)
    timers.run(0)
    assert timers.asks
    turns = 0
    while timers.asks:
        messages.looks.clear()
        messages.now = 1000 + turns
        timers.run(messages.now)
        turns += 1
        assert len(messages.looks) <= FORGOTTEN_AT_ONCE + 2
        assert min(messages.due.values()) > messages.now
    assert turns <= many // FORGOTTEN_AT_ONCE + 1
    assert len(timers) == len(messages.due)


def test_all_are_asked_when_there_are_twice_as_many_as_were_wanted() -> None:
    """Not before, and not while there are few: each timer is asked a few times at most, however many there are."""
    messages = Messages()
    timers = Timers(messages.look)

    def add(many: int) -> bool:
        fresh = range(len(messages.due), len(messages.due) + many)
        messages.due |= dict.fromkeys(fresh, 10**18)
        timers.add(SLOT, fresh)
        timers.run(0)
        return timers.asks

    assert not add(LEAST_TO_FORGET)
    assert add(1)
    while timers.asks:
        timers.run(0)
    assert not add(LEAST_TO_FORGET + 1)
    assert add(1)


def test_those_that_come_while_others_are_asked_displace_none() -> None:
    """However many they are: the next round begins when the others were asked."""
    messages = Messages()
    timers = Timers(messages.look)
    for first in (0, 20 * FORGOTTEN_AT_ONCE):
        fresh = range(first, first + 20 * FORGOTTEN_AT_ONCE)
        messages.due |= dict.fromkeys(fresh, 10**18)
        timers.add(SLOT, fresh)
        timers.run(0)
        assert timers.asks
    while timers.asks:
        timers.run(0)
    assert len(timers) == len(messages.due)


@pytest.mark.parametrize("before", [0, 5])
def test_one_that_is_over_and_still_there_is_looked_at_again_soon(before: int) -> None:
    """The core could not end it yet: the next look is within a millisecond, and not in the same turn."""
    now = 10**9
    looks = iter([now - before])
    timers = Timers(lambda _slot, _position: next(looks))
    timers.add(SLOT, [1])
    timers.run(now)
    assert now < timers.due <= now + 1_000_000


def test_a_housekeeper_forgets_messages_that_were_acknowledged(
    broker_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bursts with an hour to live that it has seen, and that are acknowledged then, do not add up in its memory."""
    keepers: list[housekeeper.Housekeeper] = []
    seen: list[int] = []
    begin, add_it = housekeeper.Housekeeper.begin, Timers.add

    def begin_here(keeper: housekeeper.Housekeeper) -> bool:
        keepers.append(keeper)
        return begin(keeper)

    def add(timers: Timers, slot: int, positions: list[int]) -> None:
        add_it(timers, slot, positions)
        seen.extend(positions)

    monkeypatch.setattr(housekeeper.Housekeeper, "begin", begin_here)
    monkeypatch.setattr(Timers, "add", add)
    broker = shmbroker.Broker(broker_name, memory="64M")

    def timers() -> Timers:
        return keepers[0]._timers  # noqa: SLF001

    def use() -> None:
        with broker.connect() as connection:
            queue = connection.queue("q")
            for burst in range(1, 13):
                for _ in range(LEAST_TO_FORGET):
                    queue.put(b"x", ttl=3600)
                many = burst * LEAST_TO_FORGET
                eventually(lambda many=many: len(seen) >= many and timers().due > 0, "all to be looked at")
                for message in queue.get_many(LEAST_TO_FORGET, timeout=0):
                    message.ack()
                eventually(lambda: len(timers()) <= 2 * LEAST_TO_FORGET, "what is gone to be forgotten")

    serve_while(broker, use)
