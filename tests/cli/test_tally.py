# SPDX-License-Identifier: Apache-2.0
"""A number of messages that workers share."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from shmbroker_cli.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """A clock that stands still unless somebody waits, and a condition that nobody else changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now: float) -> None:
        """Take the place of time, and of waiting."""
        self.now = now
        self.waits: list[float | None] = []
        self.meanwhile: list[Callable[[], None]] = []
        self.notified = 0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        clock = self

        class Still(threading.Condition):
            def wait(self, timeout: float | None = None) -> bool:
                clock.waits.append(timeout)
                if clock.meanwhile:
                    clock.meanwhile.pop(0)()
                elif timeout is None:
                    pytest.fail("it waits for ever")
                else:
                    clock.now += timeout
                return True

            def notify_all(self) -> None:
                clock.notified += 1

        monkeypatch.setattr(threading, "Condition", Still)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something that long after the next wait began."""

        def act() -> None:
            self.now += seconds
            do()

        self.meanwhile.append(act)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let time pass only when somebody waits for it."""
    return Clock(monkeypatch, 1000.0)


def claim(tally: Tally) -> Callable[[], None]:
    """Return a function that claims a message, which must be free."""

    def act() -> None:
        assert tally.claim()

    return act


def test_a_new_tally_has_done_nothing() -> None:
    """And nothing has failed."""
    tally = Tally(1)
    assert (tally.done, tally.failure) == (0, None)


def test_the_limit_is_of_messages_done_and_in_hand(clock: Clock) -> None:
    """As many claims as the limit allows; a further one waits until one is given back, and not for one that is done."""
    tally = Tally(3)
    for _ in range(3):
        assert tally.claim()
    assert clock.waits == []
    clock.later(1.0, tally.finish)
    clock.later(1.0, tally.give_back)
    assert tally.claim()
    assert (clock.waits, tally.done) == ([None, None], 1)
    tally.finish()
    tally.finish()
    assert tally.done == 3
    clock.later(1.0, tally.close)
    assert not tally.claim()
    assert clock.waits == [None] * 3


def test_without_a_limit_all_claims_are_granted(clock: Clock) -> None:
    """Until it is closed."""
    tally = Tally(None)
    assert [tally.claim() for _ in range(5)] == [True] * 5
    tally.close()
    assert not tally.claim()
    assert clock.waits == []


def test_all_who_wait_learn_of_each_change(clock: Clock) -> None:
    """Also of a claim, which makes another wait shorter or longer."""
    tally = Tally(None)
    for change in (tally.claim, tally.claim, tally.claim, tally.finish, tally.give_back, tally.close):
        before = clock.notified
        change()
        assert clock.notified == before + 1
    tally.fail("x")
    assert clock.notified == 7


def test_the_first_failure_is_kept_and_ends_all(clock: Clock) -> None:
    """Whoever waits for the end, and whoever claims."""
    tally = Tally(5)
    claim(tally)()
    claim(tally)()
    tally.fail("first")
    tally.fail("second")
    tally.wait(None, lambda: True)
    assert (tally.failure, tally.claim(), clock.waits) == ("first", False, [])


def test_a_failure_leaves_nothing_running(clock: Clock) -> None:
    """Nor does one that was given back: both count as over."""
    for over in (Tally.give_back, Tally.finish):
        tally = Tally(2)
        claim(tally)()
        claim(tally)()
        over(tally)
        over(tally)
        tally.wait(7.0, lambda: False)
    assert clock.waits == [7.0]  # of the one that gave back; what is done is the limit
    tally = Tally(None)
    claim(tally)()
    tally.fail("x")
    assert tally._running == 0  # noqa: SLF001 - its own parts


def test_it_waits_until_the_limit_is_done(clock: Clock) -> None:
    """Not until it is claimed; without a limit, until it is closed."""
    tally = Tally(2)
    claim(tally)()
    claim(tally)()
    clock.later(1.0, tally.finish)
    clock.later(1.0, tally.finish)
    tally.wait(None, lambda: True)
    assert clock.waits == [None, None]
    tally = Tally(None)
    clock.later(1.0, claim(tally))
    clock.later(1.0, tally.finish)
    clock.later(1.0, tally.close)
    tally.wait(None, lambda: True)
    assert clock.waits == [None] * 5


def test_idle_is_the_time_since_the_last_change(clock: Clock) -> None:
    """It begins with the tally, and anew with each change; while a message is in hand it does not run."""
    tally = Tally(None)
    clock.now += 4.0
    clock.later(2.0, claim(tally))
    clock.later(50.0, tally.finish)
    tally.wait(10.0, lambda: False)
    assert clock.waits == [6.0, None, 10.0]
    assert clock.now == 1000.0 + 4.0 + 2.0 + 50.0 + 10.0


def test_an_idle_time_that_is_just_over_is_over(clock: Clock) -> None:
    """To the moment: there is no further wait."""
    tally = Tally(None)
    clock.now += 10.0
    tally.wait(10.0, lambda: False)
    assert clock.waits == []
    tally = Tally(None)
    clock.now += 9.5
    tally.wait(10.0, lambda: False)
    assert clock.waits == [0.5]


@pytest.mark.parametrize(("idle", "wait"), [(0.0, 0.05), (3.0, 3.0)])
def test_while_messages_lie_ready_nobody_is_idle(clock: Clock, idle: float, wait: float) -> None:
    """It looks again after that time, but not without a rest."""
    tally = Tally(None)
    clock.now += 3.0
    ready = iter([True, True, False])
    tally.wait(idle, lambda: next(ready))
    assert clock.waits == [wait, wait]
    assert list(ready) == []


def test_it_is_woken_by_another_thread() -> None:
    """With a real condition."""
    tally = Tally(1)
    assert tally.claim()
    thread = threading.Thread(target=tally.finish)
    thread.start()
    tally.wait(None, lambda: True)
    thread.join()
    assert tally.done == 1
