# SPDX-License-Identifier: Apache-2.0
"""Waits for the store that block no caller: in which order, in which thread, and with which error they end."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, cast

import pytest
from scenario_support.waiting import WATCHDOG_SECONDS

from shmbroker._session import store_waits
from shmbroker._session.store_waits import StoreWaits
from shmbroker.exceptions import ConnectionClosed, ConnectionClosedByBroker, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.connection import CoreConnection

CLOSED = ConnectionClosed(504, "CHANNEL_ERROR - closed")
PURGED = ConnectionClosedByBroker(320, "CONNECTION_FORCED - purged")


class Turns:
    """Stands for `syncing`: a test says which turn a call asks for, and how the wait for it ends."""

    def __init__(self) -> None:
        self.asks: list[int | BaseException] = []
        self.ends: queue.Queue[BaseException | None] = queue.Queue()
        self.waited: list[int] = []

    def ask(self, _: object) -> int:
        """Asks for the next turn."""
        turn = self.asks.pop(0)
        if isinstance(turn, BaseException):
            raise turn
        return turn

    def wait(self, _: object, turn: int, until: int) -> None:
        """Waits for a turn."""
        assert until > 0
        self.waited.append(turn)
        error = self.ends.get(timeout=WATCHDOG_SECONDS)
        if error is not None:
            raise error


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """The turns of a broker."""
    made = Turns()
    monkeypatch.setattr(store_waits, "syncing", made)
    return made


def made_waits() -> StoreWaits:
    """The waits of a connection."""
    return StoreWaits(cast("CoreConnection", object()))


Told = queue.Queue[tuple[str, BaseException | None]]


def noting(told: Told, name: str) -> Callable[[BaseException | None], object]:
    """Notes that it was called."""
    return lambda error: told.put((name, error))


def test_a_turn_ends_the_waits_that_asked_for_it(turns: Turns) -> None:
    """In the order of the calls; those that asked for a later turn go on waiting."""
    turns.asks = [7, 7, 8]
    waits, told = made_waits(), Told()
    for name in "abc":
        waits.after(noting(told, name))
    assert turns.asks == []  # the calls have asked, and not the thread
    turns.ends.put(None)
    assert [told.get(timeout=WATCHDOG_SECONDS) for _ in "ab"] == [("a", None), ("b", None)]
    turns.ends.put(Timeout("not yet"))
    turns.ends.put(None)
    assert told.get(timeout=WATCHDOG_SECONDS) == ("c", None)
    assert turns.waited == [7, 8, 8]


def test_an_error_ends_the_waits_of_its_turn(turns: Turns) -> None:
    """A call that could not ask has its error from the thread as well, in its place of the order."""
    turns.asks = [7, CLOSED, 8]
    waits, told = made_waits(), Told()
    for name in "abc":
        waits.after(noting(told, name))
    turns.ends.put(PURGED)
    turns.ends.put(None)
    assert [told.get(timeout=WATCHDOG_SECONDS) for _ in "abc"] == [("a", PURGED), ("b", CLOSED), ("c", None)]


def test_a_wait_whose_thread_could_not_start_is_not_lost(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call starts a thread, which ends both."""
    turns.asks = [7, 7]
    waits, told = made_waits(), Told()

    def fail(_: threading.Thread) -> None:
        text = "can't start new thread"
        raise RuntimeError(text)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            waits.after(noting(told, "a"))
    waits.after(noting(told, "b"))
    turns.ends.put(None)
    assert [told.get(timeout=WATCHDOG_SECONDS) for _ in "ab"] == [("a", None), ("b", None)]


def test_a_thread_without_a_wait_ends(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next wait has another one."""
    monkeypatch.setattr(store_waits, "_REST_SECONDS", 0.0)
    waits, told = made_waits(), Told()
    for turn in (7, 8):
        turns.asks = [turn]
        turns.ends.put(None)
        waits.after(noting(told, str(turn)))
        thread = waits._thread  # noqa: SLF001
        assert told.get(timeout=WATCHDOG_SECONDS) == (str(turn), None)
        if thread is not None:
            thread.join(WATCHDOG_SECONDS)
            assert not thread.is_alive()
        assert waits._thread is None  # noqa: SLF001


def test_a_future_has_the_error_or_is_done(turns: Turns) -> None:
    """It cannot be cancelled: another wait does not depend on it."""
    turns.asks = [7, 8]
    waits = made_waits()
    first, second = waits.synced(), waits.synced()
    assert not first.cancel()
    turns.ends.put(None)
    turns.ends.put(PURGED)
    assert first.result(WATCHDOG_SECONDS) is None
    assert second.exception(WATCHDOG_SECONDS) is PURGED
