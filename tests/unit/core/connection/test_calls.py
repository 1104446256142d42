# SPDX-License-Identifier: Apache-2.0
"""Calls of a connection: how they are counted, and what they do for want of memory."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted, connected

from shmbroker._core import growing, io_thread, native
from shmbroker._core.calls import in_flight
from shmbroker.exceptions import (
    ConnectionClosed,
    CorruptSegment,
    ForkedConnectionError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.connection import CoreConnection

    Deed = Callable[[], object]
    Way = Callable[[CoreConnection, Deed], object]

STATUS = native.slow.SB_CORRUPT
DAMAGED = "shared memory contradicts itself"


def guarded_object(core: CoreConnection, deed: Deed) -> Any:  # noqa: ANN401
    """An object of a connection, whose method does that."""

    class Guarded:
        connection = core

        @in_flight
        def call(self, *, more: int = 0) -> object:
            """Do it."""
            return (deed(), more) if more else deed()

    return Guarded()


def through_guarded(core: CoreConnection, deed: Deed) -> object:
    """Call a method of an object of the connection."""
    return guarded_object(core, deed).call()


def through_call(core: CoreConnection, deed: Deed) -> object:
    """Call in a `with` block."""
    with core.call():
        return deed()


def through_enter(core: CoreConnection, deed: Deed) -> object:
    """Call between `enter` and `leave`."""
    core.enter()
    try:
        return deed()
    finally:
        core.leave()


def through_growing(core: CoreConnection, deed: Deed) -> object:
    """Call what may need another segment."""
    done: list[object] = []

    def call() -> int:
        done.append(deed())
        return native.OK

    core.growing(call)
    return done[0]


def through_opening(core: CoreConnection, deed: Deed) -> object:
    """Call what opens a handle."""
    return core.opening(lambda _status: deed())[0]


ways = pytest.mark.parametrize("way", [through_guarded, through_call, through_enter, through_growing, through_opening])


# ---- calls ----


@ways
def test_calls_are_counted(core: CoreConnection, way: Way) -> None:
    """One in another counts, too; each ends, also with an error."""
    assert way(core, lambda: core.calls) == 1
    assert way(core, lambda: way(core, lambda: core.calls)) == 2
    assert way(core, lambda: (way(core, lambda: None), core.calls)) == (None, 1)
    with pytest.raises(ZeroDivisionError):
        way(core, lambda: 1 / 0)
    assert core.calls == 0


def test_a_guarded_method_is_the_method(core: CoreConnection) -> None:
    """It has its name, takes its arguments and returns what it returns."""
    call = guarded_object(core, lambda: 5).call
    assert call(more=3) == (5, 3)
    assert (call.__name__, call.__doc__) == ("call", "Do it.")


@ways
def test_the_last_call_gives_back_what_closing_could_not(core: CoreConnection, path: str, way: Way) -> None:
    """Closed inside a call, the connection keeps its memory until the outermost call is over."""
    attached, seen = core.attachment, []

    def close() -> None:
        core.close()
        seen.append(attached.handle is not None)

    def inner() -> None:
        way(core, close)
        seen.append(attached.handle is not None)

    way(core, inner)
    assert seen == [True, True]
    assert (core.calls, attached.handle) == (0, None)
    assert connected(path) == []


@ways
def test_a_call_over_a_closed_connection(core: CoreConnection, way: Way) -> None:
    """It is refused, and not counted."""
    core.close()
    with pytest.raises(ConnectionClosed, match="the connection is closed"):
        way(core, lambda: None)
    assert core.calls == 0


@ways
@pytest.mark.parametrize("closed", [False, True])
def test_a_call_in_a_forked_child(
    core: CoreConnection, monkeypatch: pytest.MonkeyPatch, way: Way, *, closed: bool
) -> None:
    """It is refused, closed or not: the connection is the parent's."""
    if closed:
        core.close()
    with monkeypatch.context() as patched:
        patched.setattr(core.attachment, "_process", os.getpid() + 1)
        with pytest.raises(ForkedConnectionError, match="opened before a fork"):
            way(core, lambda: None)
    assert core.calls == 0


def test_the_end_of_a_handle_is_a_call(core: CoreConnection) -> None:
    """It is counted, whatever becomes of it, and may come after closing."""
    seen: list[object] = []
    core.end(lambda handle: seen.append((handle, core.calls)), 5)
    with pytest.raises(ZeroDivisionError):
        core.end(lambda _: 1 / 0, 6)
    core.close()
    core.end(lambda handle: seen.append((handle, core.calls)), 7)
    assert seen == [(5, 1), (7, 1)]
    assert core.calls == 0


def test_limits(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """The core is told; its status is an error."""
    limit = Noted(native.slow.sb_connection_set_prefetch)
    other_calls(sb_connection_set_prefetch=limit)
    core.limit(3)
    assert limit.calls == [(core.handle, 3)]
    other_calls(sb_connection_set_prefetch=lambda *_: STATUS)
    with pytest.raises(CorruptSegment, match=f"the connection: {DAMAGED}"):
        core.limit(3)


# ---- upkeep for calls that find no memory, and for those that poll ----


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that connections see."""
    seen = SimpleNamespace(now=1000.0)
    for module in (growing, io_thread):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: seen.now))
    return seen


def test_what_was_deleted_is_let_go_now_and_then(
    core: CoreConnection, other_calls: Callable[..., None], clock: SimpleNamespace
) -> None:
    """Four times a second at most, unless it must be done at once."""
    sweep, reclaim = Noted(native.slow.sb_housekeeper_sweep), Noted(native.slow.sb_connection_reclaim)
    other_calls(sb_housekeeper_sweep=sweep, sb_connection_reclaim=reclaim)
    looked = [core.let_go(), core.let_go()]
    clock.now += 0.125
    looked += [core.let_go(), core.let_go(at_once=True)]
    clock.now += 0.125  # a quarter of a second after the first look, and an eighth after the second one
    looked += [core.let_go()]
    clock.now += 0.125
    looked += [core.let_go(), core.let_go()]
    assert looked == [True, False, False, True, False, True, False]
    assert sweep.calls == [(core.handle, 0)] * 3
    assert reclaim.calls == [(core.handle,)] * 3


def test_who_polls_for_half_a_second_gets_a_thread(
    core: CoreConnection, monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    """Not sooner; and where there is one, no further one."""
    start = Noted(lambda: None)
    monkeypatch.setattr(core, "start_io", start)
    for wait in (0.0, 0.25, 0.25):
        clock.now += wait
        core.polled()
    assert start.calls == []
    clock.now += 0.25
    core.polled()
    assert start.calls == [()]
    core.has_io = True
    core.polled()
    assert start.calls == [()]
