# SPDX-License-Identifier: Apache-2.0
"""The core's part of a connection: its calls, its thread, and its end."""

# ruff: noqa: SLF001 - what the garbage collector or a signal may do at any moment is done here by hand
from __future__ import annotations

import errno
import gc
import os
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted, Replaced, answering
from scenario_support.waiting import eventually

import shmbroker
from shmbroker._core import attachment, native, segments
from shmbroker._core import connection as module
from shmbroker._core.connection import CoreConnection, in_flight
from shmbroker.exceptions import (
    BrokerError,
    ConnectionClosed,
    ConnectionClosedByBroker,
    CorruptSegment,
    ForkedConnectionError,
    OutOfMemory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


@pytest.fixture
def path(broker_name: str) -> str:
    """Make a broker without a housekeeper."""
    shmbroker.Broker(broker_name, memory="32M").create()
    return segments.path_of(broker_name)


@pytest.fixture
def core(path: str) -> Iterator[CoreConnection]:
    """Connect to it."""
    made = CoreConnection(path, "one")
    yield made
    made.close()


@pytest.fixture
def other_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let connections call others than the core."""

    def replace(**others: Callable[..., object]) -> None:
        monkeypatch.setattr(module, "slow", Replaced(native.slow, **others))

    return replace


def connected(path: str) -> list[str]:
    """The names of all connections of a broker."""
    attached = attachment.acquire(path)
    try:
        return [one.name for one in attached.connections()]
    finally:
        attachment.release(attached)


# ---- opening ----


def test_a_new_connection(core: CoreConnection, path: str) -> None:
    """No call is under way, and there is no thread; the broker knows its name and number."""
    assert (core.calls, core.closed, core.has_io, core.attached) == (0, False, False, True)
    assert core.connection is core
    (found,) = core.connections()
    assert (found.id, found.name) == (core.id, "one")
    assert core.address == int(native.ffi.cast("uintptr_t", core.handle))
    assert core.attachment.users == 2
    assert connected(path) == ["one"]
    core.count_channels(7)
    assert core.connections()[0].channels == 7


@pytest.mark.parametrize(
    ("name", "seen"), [("n" * 256, "n" * 255), ("é" * 128, "é" * 127 + "\ufffd"), ("a\udce9", "a?")]
)
def test_a_name_has_255_bytes_at_most(path: str, name: str, seen: str) -> None:
    """What a name has more is cut off; what is no text in it is a question mark."""
    core = CoreConnection(path, name)
    assert connected(path) == [seen]
    core.close()


def test_a_connection_that_needs_another_segment(path: str, other_calls: Callable[..., None]) -> None:
    """The broker grows each time that the core asks for it; then the connection is there."""
    other_calls(sb_connection_open_at=answering(native.slow.sb_connection_open_at, native.GROW, native.GROW))
    core = CoreConnection(path, "one")
    assert core.attachment.facts().segments == 3
    assert connected(path) == ["one"]
    core.close()


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (native.NO_MEMORY, OutOfMemory, r"has no room for connection 'one': \d+ of \d+ bytes are used"),
        (STATUS, CorruptSegment, f"connection 'one': {DAMAGED}"),
    ],
)
def test_a_connection_that_cannot_be_opened(
    path: str, other_calls: Callable[..., None], status: int, error: type[Exception], text: str
) -> None:
    """The error names it; the process is not attached any more."""
    first, real = iter([status]), native.slow.sb_connection_open_at
    other_calls(sb_connection_open_at=lambda *given: next(first, None) or real(*given))
    with pytest.raises(error, match=text):
        CoreConnection(path, "one")
    gc.collect()
    assert path not in attachment._attached


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


# ---- the IO thread ----


class Runs:
    """What the core returns to the IO thread, one status after the other, and what is to be seen meanwhile."""

    def __init__(self, core: CoreConnection, *statuses: int) -> None:
        """Return these; more must not be asked for."""
        self.core, self.statuses = core, list(statuses)
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, handle: object) -> int:
        """Return the next one."""
        assert handle == self.core.handle
        self.seen.append((self.core.calls, self.core.has_io, self.core._io is threading.current_thread()))
        return self.statuses.pop(0)


def test_the_thread_of_a_connection(core: CoreConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one, started once, which does not keep the program alive, and is over when the connection is closed."""
    thread = Noted(threading.Thread)
    monkeypatch.setattr(module, "threading", SimpleNamespace(Thread=thread, current_thread=threading.current_thread))
    core.start_io()
    eventually(lambda: core.has_io)
    core.start_io()
    assert len(thread.calls) == 1
    (found,) = [one for one in threading.enumerate() if one.name == f"shmbroker-io-{core.id}"]
    assert found is core._io
    assert found.daemon
    assert core.calls == 1
    core.close()
    assert not found.is_alive()
    assert (core.calls, core.attachment.handle) == (0, None)
    core._io = None
    core.start_io()
    assert len(thread.calls) == 1


def test_what_the_thread_does(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """It tells what the core tells, grows the broker, and ends with the broker; it counts as a call meanwhile."""
    told: list[object] = []
    core.on_housekeeper_missing = lambda: told.append("missing")
    core.on_stopping = lambda: told.append("stopping")
    core.on_ready = told.append
    statuses = [native.READY, native.NO_HOUSEKEEPER, native.GROW, native.READY, native.STOPPING]
    runs, ready = Runs(core, *statuses), [5, 6, 0, 7, 0]
    other_calls(sb_connection_run_io=runs, sb_connection_next_ready=lambda _: ready.pop(0))
    with core.call():
        core._run_io()
        assert core.calls == 1
    assert told == [5, 6, "missing", 7, "stopping"]
    assert runs.seen == [(2, True, True)] * 5
    assert (runs.statuses, ready, core.calls) == ([], [], 0)
    assert core.attachment.facts().segments == 2


def test_nobody_need_be_told(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """A connection whose maker wants to know nothing works, too."""
    ready = [5, 0]
    runs = Runs(core, native.READY, native.NO_HOUSEKEEPER, native.STOPPING)
    other_calls(sb_connection_run_io=runs, sb_connection_next_ready=lambda _: ready.pop(0))
    core._run_io()
    assert (runs.statuses, ready) == ([], [])


@pytest.mark.parametrize("status", [native.CLOSED, native.FORKED, native.OK, STATUS])
def test_the_thread_ends_silently(core: CoreConnection, other_calls: Callable[..., None], status: int) -> None:
    """With the connection, and with any status that tells it nothing to do."""
    told: list[object] = []
    core.on_stopping = core.on_housekeeper_missing = lambda: told.append("told")
    core.on_ready = told.append
    runs = Runs(core, status)
    other_calls(sb_connection_run_io=runs)
    core._run_io()
    assert (told, runs.statuses, core.calls) == ([], [], 0)


def test_a_thread_that_finds_the_broker_removed(
    core: CoreConnection, other_calls: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends as if it were told that the broker stops."""
    told: list[object] = []
    core.on_stopping = lambda: told.append("stopping")

    def grow() -> None:
        native.raise_for(native.STOPPING)

    monkeypatch.setattr(core.attachment, "grow", grow)
    other_calls(sb_connection_run_io=Runs(core, native.GROW))
    core._run_io()
    assert (told, core.calls) == (["stopping"], 0)


class Failing:
    """Work that fails with one error after the other, and then does not."""

    def __init__(self, *errors: Exception) -> None:
        """Raise these."""
        self.errors, self.done = list(errors), 0

    def __call__(self, *_: object) -> None:
        """Raise the next one."""
        if self.errors:
            raise self.errors.pop(0)
        self.done += 1


def test_a_thread_that_cannot_do_its_work_goes_on(
    core: CoreConnection,
    other_calls: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else nobody would serve the connection: it says the error once, waits, and does what it is asked for again."""
    descriptors, threads = OSError(errno.EMFILE, "Too many open files"), RuntimeError("can't start new thread")
    grow, missing, ready = Failing(descriptors, descriptors), Failing(threads), Failing(KeyError(5))
    slept = Noted(lambda _: None)
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=slept))
    monkeypatch.setattr(core.attachment, "grow", grow)
    core.on_housekeeper_missing, core.on_ready = missing, ready
    grows, missings, readies = [native.GROW] * 3, [native.NO_HOUSEKEEPER] * 2, [native.READY] * 2
    channels = [5, 6, 0]
    runs = Runs(core, *grows, *missings, *readies, native.CLOSED)
    other_calls(sb_connection_run_io=runs, sb_connection_next_ready=lambda _: channels.pop(0))
    core._run_io()
    assert (runs.statuses, core.calls) == ([], 0)
    assert (grow.done, missing.done, ready.done) == (1, 1, 1)
    assert slept.calls == [(0.1,)] * 4
    who = f"the IO thread of connection {core.id} to broker {core.attachment.name!r} could not"
    assert [record.getMessage() for record in caplog.records] == [
        f"{who} add a segment, and goes on: OSError: [Errno {errno.EMFILE}] Too many open files",
        f"{who} have a housekeeper started, and goes on: RuntimeError: can't start new thread",
        f"{who} wake a channel, and goes on: KeyError: 5",
    ]


def test_a_thread_says_an_error_that_comes_back(
    core: CoreConnection,
    other_calls: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once each time; another error is said, too."""
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda _: None))
    outcomes: list[str] = ["A", "A", "B", "", "B"]

    def grow() -> None:
        said = outcomes.pop(0)
        if said:
            raise OSError(said)

    monkeypatch.setattr(core.attachment, "grow", grow)
    other_calls(sb_connection_run_io=Runs(core, *[native.GROW] * 5, native.CLOSED))
    core._run_io()
    assert outcomes == []
    assert [record.getMessage()[-10:] for record in caplog.records] == ["OSError: A", "OSError: B", "OSError: B"]


def test_there_is_no_second_thread(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """Whoever else begins with its work leaves it at once, and so does a thread of a connection that is closed."""
    runs = Runs(core, native.CLOSED)
    other_calls(sb_connection_run_io=runs)
    core._run_io()
    core._run_io()
    assert len(runs.seen) == 1
    other = CoreConnection(core.attachment.path, "other")
    other.close()
    other._run_io()
    assert (other.calls, other.has_io, len(runs.seen)) == (0, False, 1)


# ---- closing ----


def test_closing_gives_everything_back_at_once(core: CoreConnection, path: str) -> None:
    """Although the object lives on; a second time is without effect."""
    attached = core.attachment
    for _ in range(2):
        core.close()
        assert (core.closed, core.calls, core.mapping, core.attached) == (True, 0, None, False)
        assert (attached.users, attached.handle) == (0, None)
    assert path not in attachment._attached
    assert connected(path) == []


def test_closing_waits_for_the_thread(core: CoreConnection) -> None:
    """After it nothing runs in the broker's memory."""
    join = Noted(lambda: None)
    core._io = SimpleNamespace(join=join)  # type: ignore[assignment]
    core.close()
    assert join.calls == [()]


def test_the_thread_may_close_its_connection(core: CoreConnection) -> None:
    """It does not wait for itself."""
    core._io = threading.current_thread()
    core.close()
    assert core.attachment.handle is None


def test_a_forked_child_waits_for_no_thread(core: CoreConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are none of its parent's."""
    join = Noted(lambda: None)
    core._io = SimpleNamespace(join=join)  # type: ignore[assignment]
    with monkeypatch.context() as patched:
        patched.setattr(core.attachment, "_process", os.getpid() + 1)
        core.close()
    assert join.calls == []


def test_a_connection_is_given_back_once(core: CoreConnection, path: str) -> None:
    """Others of the process go on, however often this one is told that it was the last call."""
    other = CoreConnection(path, "other")
    core.close()
    core.forget()
    core.view_ended()
    assert other.attachment.users == 2
    assert connected(path) == ["other"]
    other.close()


def test_views_keep_a_closed_connection(core: CoreConnection, path: str, other_calls: Callable[..., None]) -> None:
    """The end of the last one gives back what the core could not give back before."""
    forget = Noted(answering(native.slow.sb_connection_release, False, False))  # noqa: FBT003 (what the core returns)
    other_calls(sb_connection_release=forget)
    core.close()
    assert core.attached
    core.view_ended()
    assert core.attached
    with_call = core.calls
    core.view_ended()
    assert (with_call, core.calls, core.attached) == (0, 0, False)
    assert len(forget.calls) == 3
    assert connected(path) == []


def test_a_view_that_ends_beside_a_call(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """The call is still under way, and the last one."""
    other_calls(sb_connection_release=answering(native.slow.sb_connection_release, False))  # noqa: FBT003 (what the core returns)
    with core.call():
        core.close()
        core.view_ended()
        assert (core.calls, core.attached) == (1, True)
    assert (core.calls, core.attached) == (0, True)
    core.view_ended()
    assert not core.attached


# ---- what the garbage collector finds ----


def test_a_connection_that_nobody_has(path: str) -> None:
    """It is closed; nothing is left of it in the broker, nor in this process."""
    core = CoreConnection(path, "one")
    attached = core.attachment
    del core
    gc.collect()
    assert attached.handle is None
    assert connected(path) == []


def test_a_connection_of_the_parent_that_nobody_has(core: CoreConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a child it stays as it is."""
    with monkeypatch.context() as patched:
        patched.setattr(core.attachment, "_process", os.getpid() + 1)
        core.__del__()
    assert (core.closed, core.attached) == (False, True)


def test_a_connection_whose_handle_was_finalized_before_it(core: CoreConnection, path: str) -> None:
    """The core has dropped it: its handle is not used any more, and the process detaches."""
    attached = core.attachment
    core.mapping = None
    native.slow.sb_connection_discard(core._handles)
    core.close()
    core.forget()
    assert core.closed is False
    core.__del__()
    assert (core.attached, attached.handle) == (False, None)
    assert connected(path) == []


def test_a_connection_that_was_interrupted_while_it_opened(path: str) -> None:
    """The handle is where the core has put it; it is dropped, and the process detaches."""
    half_made = object.__new__(CoreConnection)
    half_made._handles = half_made._place = native.ffi.new("sb_connection *[1]")
    attached = attachment.acquire(path, half_made)
    assert native.slow.sb_connection_open_at(attached.handle, b"half", 4, half_made._handles) == native.OK
    half_made.__del__()
    half_made.__del__()
    assert (half_made.attached, attached.handle) == (False, None)
    assert connected(path) == []


def test_a_connection_that_was_interrupted_while_it_detached(
    core: CoreConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is forgotten, and the process not detached: that is made good."""
    attached = core.attachment
    with monkeypatch.context() as patched:
        patched.setattr(core, "_detach", lambda: None)
        core.close()
    assert core.attached
    core.__del__()
    assert (core.attached, attached.handle) == (False, None)


def test_the_errors_of_a_broker_that_goes(core: CoreConnection) -> None:
    """Once it is closing, it cannot be used, and says so."""
    assert core.is_usable()
    core.attachment.set_closing()
    assert not core.is_usable()
    with pytest.raises(ConnectionClosedByBroker):
        core.limit(1)
    with pytest.raises(BrokerError, match="CONNECTION_FORCED"):
        CoreConnection(core.attachment.path, "late")
    native.slow.sb_broker_set_closing(core.attachment.handle, 0)
