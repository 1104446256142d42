# SPDX-License-Identifier: Apache-2.0
"""What a connection that is not made to the end has attached is detached: nothing of it stays open."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Replaced, connected

import shmbroker
from shmbroker._core import attachment, connection, native, segments
from shmbroker._core.connection import CoreConnection
from shmbroker.exceptions import ConnectionClosedByBroker, NotAllowed

if TYPE_CHECKING:
    from collections.abc import Callable


class InterruptError(BaseException):
    """What a signal's handler raises."""


def interrupted_after(call: Callable[..., object]) -> Callable[..., object]:
    """The same call, after which a signal's handler raises."""

    def interrupted(*arguments: Any) -> object:  # noqa: ANN401
        call(*arguments)
        raise InterruptError

    return interrupted


def interrupted(*_: object) -> object:
    """What a signal's handler raises instead of a call."""
    raise InterruptError


@pytest.fixture
def path(broker_name: str) -> str:
    """Make a broker that no process has attached to."""
    shmbroker.Broker(broker_name, memory="32M").create()
    found = segments.path_of(broker_name)
    assert opened(found) == 0
    return found


def opened(path: str) -> int:
    """How many of a broker's files this process has open; each attachment has its lock file open twice."""
    gc.collect()
    descriptors = list(Path("/proc/self/fd").iterdir())
    return sum(one.is_symlink() and path[1:] in str(one.readlink()) for one in descriptors)


def expect_nothing_left(path: str) -> None:
    """Nothing is attached, and nobody connected."""
    assert path not in attachment._attached  # noqa: SLF001
    assert opened(path) == 0
    assert connected(path) == []
    assert opened(path) == 0


@pytest.mark.damaged
def test_the_broker_is_being_purged(path: str) -> None:
    """The error says so, and the attachment that found it out goes."""
    attached = attachment.acquire(path)
    attached.set_closing()
    with pytest.raises(ConnectionClosedByBroker):
        CoreConnection(path, "half-way")
    attachment.release(attached)
    expect_nothing_left(path)


def test_there_is_no_number_for_a_connection(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has as many connections as it can refuses one, which detaches."""
    refuses = Replaced(native.slow, sb_connection_open_at=lambda *_: native.slow.SB_LIMIT)
    with monkeypatch.context() as patched:
        patched.setattr(connection, "slow", refuses)
        with pytest.raises(NotAllowed):
            CoreConnection(path, "half-way")
    expect_nothing_left(path)


@pytest.mark.parametrize("call", ["sb_broker_attach_at", "sb_connection_open_at"])
def test_a_signal_after_a_call_of_the_core(path: str, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """What the core has made is there, and was given to nobody: it goes."""
    module = attachment if call == "sb_broker_attach_at" else connection
    with monkeypatch.context() as patched:
        other = {call: interrupted_after(getattr(native.slow, call))}
        patched.setattr(module, "slow", Replaced(native.slow, **other))
        with pytest.raises(InterruptError):
            CoreConnection(path, "half-way")
    expect_nothing_left(path)


def test_a_signal_when_the_broker_is_attached(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the attachment is known to the process it has no user, and ends with itself."""
    attach = attachment.Attachment._attach  # noqa: SLF001
    with monkeypatch.context() as patched:
        patched.setattr(attachment.Attachment, "_attach", interrupted_after(attach))
        with pytest.raises(InterruptError):
            CoreConnection(path, "half-way")
    expect_nothing_left(path)


def test_a_signal_when_the_connection_is_made(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection has its number already: it is closed, and detaches."""
    with monkeypatch.context() as patched:
        patched.setattr(attachment, "MappingReference", interrupted)
        with pytest.raises(InterruptError):
            CoreConnection(path, "half-way")
    expect_nothing_left(path)


def test_an_attachment_of_a_broker_that_is_gone_keeps_its_users(path: str) -> None:
    """Who looks for an attachment, and finds one of a broker that was purged, is no user of that one."""
    old = attachment.acquire(path)
    old.set_closing()
    segments.remove(path, segments.identity(path))
    shmbroker.Broker(segments.name_of(path), memory="32M").create()
    new = attachment.acquire(path)
    assert new is not old
    assert (old.users, new.users) == (1, 1)
    attachment.release(old)
    attachment.release(new)
    assert opened(path) == 0
