# SPDX-License-Identifier: Apache-2.0
"""A number of messages that workers share."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from shmbroker_cli.claim_counter import ClaimCounter

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


def claim(claims: ClaimCounter) -> Callable[[], None]:
    """Return a function that claims a message, which must be free."""

    def act() -> None:
        assert claims.claim()

    return act


def test_a_new_tally_has_done_nothing() -> None:
    """And nothing has failed."""
    claims = ClaimCounter(1)
    assert (claims.done, claims.failure) == (0, None)


def test_the_limit_is_of_messages_done_and_in_hand(clock: Clock) -> None:
    """As many claims as the limit allows; a further one waits until one is given back, and not for one that is done."""
    claims = ClaimCounter(3)
    for _ in range(3):
        assert claims.claim()
    assert clock.waits == []
    clock.later(1.0, claims.finish)
    clock.later(1.0, claims.give_back)
    assert claims.claim()
    assert (clock.waits, claims.done) == ([None, None], 1)
    claims.finish()
    claims.finish()
    assert claims.done == 3
    clock.later(1.0, claims.close)
    assert not claims.claim()
    assert clock.waits == [None] * 3


def test_without_a_limit_all_claims_are_granted(clock: Clock) -> None:
    """Until it is closed."""
    claims = ClaimCounter(None)
    assert [claims.claim() for _ in range(5)] == [True] * 5
    claims.close()
    assert not claims.claim()
    assert clock.waits == []


def test_all_who_wait_learn_of_each_change(clock: Clock) -> None:
    """Also of a claim, which makes another wait shorter or longer."""
    claims = ClaimCounter(None)
    for change in (claims.claim, claims.claim, claims.claim, claims.finish, claims.give_back, claims.close):
        before = clock.notified
        change()
        assert clock.notified == before + 1
    claims.fail("x")
    assert clock.notified == 7


def test_the_first_failure_is_kept_and_ends_all(clock: Clock) -> None:
    """Whoever waits for the end, and whoever claims."""
    claims = ClaimCounter(5)
    claim(claims)()
    claim(claims)()
    claims.fail("first")
    claims.fail("second")
    claims.wait(None, lambda: True)
    assert (claims.failure, claims.claim(), clock.waits) == ("first", False, [])


def test_a_failure_leaves_nothing_running(clock: Clock) -> None:
    """Nor does one that was given back: both count as over."""
    for over in (ClaimCounter.give_back, ClaimCounter.finish):
        claims = ClaimCounter(2)
        claim(claims)()
        claim(claims)()
        over(claims)
        over(claims)
        claims.wait(7.0, lambda: False)
    assert clock.waits == [7.0]  # of the one that gave back; what is done is the limit
    claims = ClaimCounter(None)
    claim(claims)()
    claims.fail("x")
    assert claims._running == 0  # noqa: SLF001 - its own parts


def test_it_waits_until_the_limit_is_done(clock: Clock) -> None:
    """Not until it is claimed; without a limit, until it is closed."""
    claims = ClaimCounter(2)
    claim(claims)()
    claim(claims)()
    clock.later(1.0, claims.finish)
    clock.later(1.0, claims.finish)
    claims.wait(None, lambda: True)
    assert clock.waits == [None, None]
    claims = ClaimCounter(None)
    clock.later(1.0, claim(claims))
    clock.later(1.0, claims.finish)
    clock.later(1.0, claims.close)
    claims.wait(None, lambda: True)
    assert clock.waits == [None] * 5


def test_idle_is_the_time_since_the_last_change(clock: Clock) -> None:
    """It begins with the tally, and anew with each change; while a message is in hand it does not run."""
    claims = ClaimCounter(None)
    clock.now += 4.0
    clock.later(2.0, claim(claims))
    clock.later(50.0, claims.finish)
    claims.wait(10.0, lambda: False)
    assert clock.waits == [6.0, None, 10.0]
    assert clock.now == 1000.0 + 4.0 + 2.0 + 50.0 + 10.0


def test_an_idle_time_that_is_just_over_is_over(clock: Clock) -> None:
    """To the moment: there is no further wait."""
    claims = ClaimCounter(None)
    clock.now += 10.0
    claims.wait(10.0, lambda: False)
    assert clock.waits == []
    claims = ClaimCounter(None)
    clock.now += 9.5
    claims.wait(10.0, lambda: False)
    assert clock.waits == [0.5]


@pytest.mark.parametrize(("idle", "wait"), [(0.0, 0.05), (3.0, 3.0)])
def test_while_messages_lie_ready_nobody_is_idle(clock: Clock, idle: float, wait: float) -> None:
    """It looks again after that time, but not without a rest."""
    claims = ClaimCounter(None)
    clock.now += 3.0
    ready = iter([True, True, False])
    claims.wait(idle, lambda: next(ready))
    assert clock.waits == [wait, wait]
    assert list(ready) == []


def test_it_is_woken_by_another_thread() -> None:
    """With a real condition."""
    claims = ClaimCounter(1)
    assert claims.claim()
    thread = threading.Thread(target=claims.finish)
    thread.start()
    claims.wait(None, lambda: True)
    thread.join()
    assert claims.done == 1
