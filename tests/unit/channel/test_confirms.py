# SPDX-License-Identifier: Apache-2.0
"""Confirms of a channel: numbers, futures, and what waiting for them says."""

from __future__ import annotations

import concurrent.futures
import threading

import pytest
from scenario_support.waiting import WATCHDOG_SECONDS

from shmbroker.channel.confirms import Confirms
from shmbroker.exceptions import ChannelClosed, NackError, NotFound, Timeout, UnroutableError

GONE = ChannelClosed(504, "CHANNEL_ERROR - gone")


def future_of() -> concurrent.futures.Future[int]:
    """Return a future that nothing was said of."""
    return concurrent.futures.Future()


def test_messages_are_numbered_from_one() -> None:
    """Whether they are confirmed immediately or later."""
    confirms = Confirms()
    assert [confirms.at_once(), confirms.begin(), confirms.begin(future_of()), confirms.at_once()] == [1, 2, 3, 4]


def test_a_future_has_the_number_or_the_error() -> None:
    """It cannot be cancelled from the beginning on, and is done when the confirm comes."""
    confirms, good, bad = Confirms(), future_of(), future_of()
    confirms.at_once()
    numbers = confirms.begin(good), confirms.begin(bad)
    assert not good.cancel()
    assert (good.done(), bad.done()) == (False, False)
    error = NotFound(404, "NOT_FOUND")
    confirms.end(numbers[1], error)
    assert (good.done(), bad.exception(0)) == (False, error)
    confirms.end(numbers[0])
    assert good.result(0) == 2


def test_a_message_is_confirmed_once() -> None:
    """What comes after that changes nothing."""
    confirms, future = Confirms(), future_of()
    number = confirms.begin(future)
    confirms.end(number)
    confirms.end(number, NotFound(404, "NOT_FOUND"))
    confirms.close(GONE)
    assert future.result(0) == number


@pytest.mark.parametrize(
    ("error", "whole"),
    [(None, True), (UnroutableError(312, "NO_ROUTE"), True), (NackError("refused"), False)],
    ids=["accepted", "returned", "refused"],
)
def test_waiting_says_whether_one_was_refused(error: Exception | None, whole: bool) -> None:  # noqa: FBT001
    """Since the last time: a message that came back was not refused, and one that was is told of once."""
    confirms = Confirms()
    assert confirms.wait(0, inside=False) is True
    first, second = confirms.begin(), confirms.begin()
    confirms.end(first, error)
    confirms.end(second)
    assert confirms.wait(0, inside=False) is whole
    assert confirms.wait(None, inside=False) is True


def test_waiting_ends_in_time() -> None:
    """It says how many messages were not confirmed; a negative time is none."""
    confirms = Confirms()
    confirms.begin()
    confirms.begin()
    with pytest.raises(Timeout, match=r"^2 messages were not confirmed in time$"):
        confirms.wait(0, inside=False)
    with pytest.raises(ValueError, match="timeout"):
        confirms.wait(-1, inside=False)


def test_a_callback_does_not_wait() -> None:
    """What came back is told of after it: waiting for that would be for ever."""
    confirms = Confirms()
    confirms.end(confirms.begin(), NackError("refused"))
    confirms.begin()
    assert confirms.wait(None, inside=True) is False
    assert confirms.wait(None, inside=True) is True


@pytest.mark.parametrize("end", ["confirmed", "closed"])
def test_who_waits_is_woken(end: str) -> None:
    """By the last confirm, or because the channel is closed."""
    confirms = Confirms()
    first, last = confirms.begin(), confirms.begin()
    waiting = threading.Event()
    wait_for = confirms._changed.wait_for  # noqa: SLF001

    def noted(predicate: object, timeout: float | None) -> bool:
        waiting.set()  # the lock is held until it waits
        return wait_for(predicate, timeout)  # type: ignore[arg-type]

    confirms._changed.wait_for = noted  # type: ignore[assignment,method-assign] # noqa: SLF001
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        done = thread.submit(confirms.wait, WATCHDOG_SECONDS, inside=False)
        assert waiting.wait(WATCHDOG_SECONDS)
        confirms.end(first)
        if end == "confirmed":
            confirms.end(last)
            assert done.result(WATCHDOG_SECONDS) is True
        else:
            confirms.close(GONE)
            assert done.exception(WATCHDOG_SECONDS) is GONE


def test_a_closed_channel_confirms_nothing_more() -> None:
    """Its futures get the error, and so does who waits, in a callback too."""
    confirms, future = Confirms(), future_of()
    confirms.begin()
    number = confirms.begin(future)
    confirms.close(GONE)
    assert future.exception(0) is GONE
    for inside in (False, True):
        with pytest.raises(ChannelClosed) as caught:
            confirms.wait(0, inside=inside)
        assert caught.value is GONE
    confirms.end(number)
    assert future.exception(0) is GONE
