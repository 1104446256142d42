# SPDX-License-Identifier: Apache-2.0
"""The IO thread of a connection: its beginning, its work, and its end."""

# ruff: noqa: SLF001 - what the garbage collector or a signal may do at any moment is done here by hand
from __future__ import annotations

import errno
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted
from scenario_support.waiting import eventually

from shmbroker._core import io_thread, native
from shmbroker._core.connection import CoreConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    Deed = Callable[[], object]
    Way = Callable[[CoreConnection, Deed], object]

STATUS = native.slow.SB_CORRUPT
DAMAGED = "shared memory contradicts itself"


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
    monkeypatch.setattr(io_thread, "threading", SimpleNamespace(Thread=thread, current_thread=threading.current_thread))
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
    monkeypatch.setattr(io_thread, "time", SimpleNamespace(sleep=slept))
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
    monkeypatch.setattr(io_thread, "time", SimpleNamespace(sleep=lambda _: None))
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
