# SPDX-License-Identifier: Apache-2.0
"""Confirms of a channel in a broker with a store: which turn of the storekeeper confirms which messages."""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.waiting import WATCHDOG_SECONDS

from shmbroker.channel.stored_confirms import StoredConfirms
from shmbroker.exceptions import ChannelClosed, ConnectionClosedByBroker, NackError, Timeout, UnroutableError

if TYPE_CHECKING:
    from collections.abc import Callable

GONE = ChannelClosed(504, "CHANNEL_ERROR - gone")
PURGED = ConnectionClosedByBroker(320, "CONNECTION_FORCED - purged")
UNROUTABLE = UnroutableError(312, "NO_ROUTE")


class Turns:
    """Stands for the waits for the store; a test says when a turn is done."""

    def __init__(self) -> None:
        self.awaited: collections.deque[Callable[[BaseException | None], object]] = collections.deque()
        self.asked = 0
        self.hinder: BaseException | None = None

    def after(self, tell: Callable[[BaseException | None], object]) -> None:
        """Asks for a turn."""
        if self.hinder is not None:
            raise self.hinder
        self.asked += 1
        self.awaited.append(tell)

    def done(self, error: BaseException | None = None) -> None:
        """The turn that was asked for first is done, or will not be known to be."""
        self.awaited.popleft()(error)


def made() -> tuple[StoredConfirms, Turns]:
    """The confirms of a channel, and the turns."""
    turns = Turns()
    return StoredConfirms(turns), turns  # type: ignore[arg-type]


def future_of(confirms: StoredConfirms) -> concurrent.futures.Future[int]:
    """Counts a published message that has a future."""
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    confirms.known(future, None)
    return future


def unconfirmed(confirms: StoredConfirms) -> int:
    """How many messages a wait says to be unconfirmed."""
    try:
        assert confirms.wait(0, inside=False) is True
    except Timeout as error:
        return int(str(error).split()[0])
    return 0


def test_messages_are_numbered_from_one() -> None:
    """However they are counted."""
    confirms, turns = made()
    numbers = [confirms.at_once(), confirms.begin(), confirms.known(None, None), confirms.known(None, UNROUTABLE)]
    assert [*numbers, confirms.at_once()] == [1, 2, 3, 4, 5]
    confirms.end(2)
    assert unconfirmed(confirms) == 3
    turns.done()
    assert unconfirmed(confirms) == 2


def test_messages_ask_for_one_turn_together() -> None:
    """While one is awaited, a publish asks for none; the end of that turn asks for the next, which has them all."""
    confirms, turns = made()
    for _ in range(100):
        confirms.at_once()
    assert turns.asked == 1
    turns.done()  # has the first message only: the others were counted after it was asked for
    assert turns.asked == 2
    assert unconfirmed(confirms) == 99
    turns.done()
    assert (unconfirmed(confirms), turns.asked) == (0, 2)
    confirms.at_once()
    assert (unconfirmed(confirms), turns.asked) == (1, 3)


def test_a_wait_asks_for_the_turn_that_it_needs() -> None:
    """Once: the turn that is awaited lacks what was published since."""
    confirms, turns = made()
    for _ in range(3):
        confirms.at_once()
    assert [unconfirmed(confirms) for _ in range(3)] == [3, 3, 3]
    assert turns.asked == 2
    turns.done()
    assert unconfirmed(confirms) == 2
    turns.done()
    assert (unconfirmed(confirms), turns.asked, len(turns.awaited)) == (0, 2, 0)


def test_a_wait_is_for_what_was_published_before() -> None:
    """Another thread that goes on publishing does not keep it."""
    confirms, turns = made()
    confirms.at_once()
    waiting = threading.Event()
    wait_for = confirms._changed.wait_for  # noqa: SLF001

    def noted(predicate: object, timeout: float | None) -> bool:
        waiting.set()  # the lock is held until it waits
        return wait_for(predicate, timeout)  # type: ignore[arg-type]

    confirms._changed.wait_for = noted  # type: ignore[assignment,method-assign] # noqa: SLF001
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        done = thread.submit(confirms.wait, WATCHDOG_SECONDS, inside=False)
        assert waiting.wait(WATCHDOG_SECONDS)
        confirms.at_once()
        turns.done()
        assert done.result(WATCHDOG_SECONDS) is True


def test_futures_are_done_with_the_turn_that_has_their_message() -> None:
    """In the order of their numbers, and each with its own."""
    confirms, turns = made()
    futures = [future_of(confirms) for _ in range(3)]
    order: list[int] = []
    for future in reversed(futures):
        future.add_done_callback(lambda future: order.append(future.result()))
    assert not futures[0].cancel()
    turns.done()
    assert [future.done() for future in futures] == [True, False, False]
    turns.done()
    assert order == [1, 2, 3]


def test_a_callback_that_raises_keeps_no_other_future() -> None:
    """Nor the turn of what was published meanwhile: what the callback raised is logged."""
    confirms, turns = made()
    confirms.at_once()
    first, second = future_of(confirms), future_of(confirms)
    first.add_done_callback(lambda _: (_ for _ in ()).throw(SystemExit))
    turns.done()
    confirms.at_once()
    turns.done()
    assert (first.result(0), second.result(0), len(turns.awaited)) == (2, 3, 1)


def test_what_does_not_go_into_the_store_needs_no_turn() -> None:
    """A refused message, and one that came back, are unconfirmed until their outcome is known, and not longer."""
    confirms, turns = made()
    number = confirms.begin()
    confirms.known(None, NackError("refused"))
    assert turns.asked == 0
    with pytest.raises(Timeout, match="1 messages"):
        confirms.wait(0, inside=False)
    confirms.end(number, UNROUTABLE)
    assert confirms.wait(0, inside=False) is False
    assert confirms.wait(0, inside=False) is True
    confirms.at_once()  # with those before and after that need no turn
    for _ in range(3):
        confirms.known(None, UNROUTABLE)
    assert unconfirmed(confirms) == 1
    turns.done()
    assert unconfirmed(confirms) == 0


def test_numbers_of_what_does_not_go_into_the_store_are_forgotten() -> None:
    """When the messages before are in the store: they take no memory."""
    confirms, turns = made()
    for _ in range(3):
        for _ in range(10):
            confirms.known(None, UNROUTABLE)
        confirms.at_once()
        for _ in range(10):
            confirms.known(None, UNROUTABLE)
        assert unconfirmed(confirms) == 1
        while turns.awaited:
            turns.done()
        assert unconfirmed(confirms) == 0
        assert not confirms._exempt  # noqa: SLF001


def test_a_turn_passes_numbers_of_what_does_not_go_into_the_store() -> None:
    """Those behind it ask for no other turn, and those within it are forgotten."""
    confirms, turns = made()
    confirms.at_once()
    confirms.known(None, UNROUTABLE)
    turns.done()
    assert (unconfirmed(confirms), turns.asked) == (0, 1)
    confirms.at_once()
    confirms.at_once()
    confirms.known(None, UNROUTABLE)
    confirms.at_once()
    turns.done()
    turns.done()
    assert (unconfirmed(confirms), turns.asked) == (0, 3)
    assert not confirms._exempt  # noqa: SLF001


def test_a_turn_that_ends_during_a_publish_is_not_missed() -> None:
    """Just before the message has its number: the publish asks for the turn that has it."""
    confirms, turns = made()
    confirms.at_once()
    count = confirms._next  # noqa: SLF001

    def late() -> int:
        turns.done()
        return count()

    confirms._next = late  # noqa: SLF001
    assert confirms.at_once() == 2
    assert (turns.asked, len(turns.awaited)) == (2, 1)


def test_an_error_confirms_nothing() -> None:
    """It is not known whether the messages are in the store: futures and waits get the error."""
    confirms, turns = made()
    futures = [future_of(confirms) for _ in range(2)]
    confirms.at_once()
    turns.done(PURGED)
    assert (futures[0].exception(0), futures[1].done()) == (PURGED, False)
    turns.done(PURGED)
    assert futures[1].exception(0) is PURGED
    assert not turns.awaited
    with pytest.raises(ConnectionClosedByBroker) as caught:
        confirms.wait(0, inside=False)
    assert caught.value is PURGED


def test_a_closed_channel_fails_its_futures() -> None:
    """Its last turn changes nothing, but for a message that another thread published beside the close."""
    confirms, turns = made()
    future = future_of(confirms)
    came_back: concurrent.futures.Future[int] = concurrent.futures.Future()
    confirms.begin(came_back)
    confirms.close(GONE)
    late = future_of(confirms)
    assert (future.exception(0), came_back.exception(0), late.done()) == (GONE, GONE, False)
    while turns.awaited:
        turns.done()
    assert (future.exception(0), late.result(0)) == (GONE, 3)


@pytest.mark.parametrize("then", ["publish", "wait"])
def test_a_publish_that_could_not_ask_is_made_good(then: str) -> None:
    """A signal handler raised in it, or no thread could be started: the next call asks for both messages."""
    confirms, turns = made()
    turns.hinder = RuntimeError("can't start new thread")
    with pytest.raises(RuntimeError, match="new thread"):
        confirms.at_once()
    turns.hinder = None
    count = 1
    if then == "publish":
        confirms.at_once()
        count = 2
    assert (unconfirmed(confirms), turns.asked) == (count, 1)
    turns.done()
    assert unconfirmed(confirms) == 0


def test_threads_publish_beside_the_ends_of_turns() -> None:
    """No number is given twice, no message is left without a turn, and each future is done with its own number."""
    confirms, turns = made()
    ended = threading.Event()
    numbers: list[list[int]] = [[] for _ in range(3)]

    def keep() -> None:
        while not ended.is_set() or turns.awaited:
            if turns.awaited:
                turns.done()

    def publish(taken: list[int]) -> None:
        for at in range(700):
            if at % 7 == 0:
                taken.append(confirms.known(None, UNROUTABLE))
            elif at % 5 == 0:
                taken.append(future_of(confirms).result(WATCHDOG_SECONDS))
            else:
                taken.append(confirms.at_once())
            if at % 11 == 0:
                assert confirms.wait(WATCHDOG_SECONDS, inside=False)

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        keeper = threads.submit(keep)
        try:
            for done in [threads.submit(publish, taken) for taken in numbers]:
                done.result(WATCHDOG_SECONDS)
        finally:
            ended.set()
        keeper.result(WATCHDOG_SECONDS)
    assert sorted(itertools.chain(*numbers)) == [*range(1, 2101)]
    assert all(taken == sorted(taken) for taken in numbers)
    assert unconfirmed(confirms) == 0
