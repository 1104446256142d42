# SPDX-License-Identifier: Apache-2.0
"""How a connection of the core is opened and closed, and what the garbage collector finds."""

# ruff: noqa: SLF001 - what the garbage collector or a signal may do at any moment is done here by hand
from __future__ import annotations

import gc
import os
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from scenario_support.core_calls import Noted, answering, connected

from shmbroker._core import attachment, native
from shmbroker._core.connection import CoreConnection
from shmbroker.exceptions import (
    BrokerError,
    ConnectionClosedByBroker,
    CorruptSegment,
    OutOfMemory,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Deed = Callable[[], object]
    Way = Callable[[CoreConnection, Deed], object]

STATUS = native.slow.SB_CORRUPT
DAMAGED = "shared memory contradicts itself"


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
