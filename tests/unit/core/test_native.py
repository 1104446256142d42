# SPDX-License-Identifier: Apache-2.0
"""Deadlines, and the exceptions that statuses become."""

from __future__ import annotations

import io
import itertools
import os
import queue
import resource
from types import SimpleNamespace

import pytest

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._core.native import FOR_EVER, deadline, raise_for, signal_check_intervals

NOW = 5_000_000_000
SLOW = native.slow
RESERVED = "is limited to 1000 bytes (ulimit -v), {} are used, and the whole limit of a broker is reserved in it"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that deadlines see."""
    seen = SimpleNamespace(now=NOW)
    monkeypatch.setattr(native, "time", SimpleNamespace(monotonic_ns=lambda: seen.now))
    return seen


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("timeout", "at"),
    [
        (None, FOR_EVER),
        (0, NOW),
        (1.5, NOW + 1_500_000_000),
        (100, NOW + 100_000_000_000),
        (10**9 - 1, NOW + (10**9 - 1) * 10**9),
        (10**9, FOR_EVER),
        (float("inf"), FOR_EVER),
    ],
)
def test_a_deadline(timeout: float | None, at: int) -> None:
    """So many seconds from now, in nanoseconds; what no program waits for is for ever."""
    assert deadline(timeout) == at


def test_a_deadline_at_the_end_of_time(clock: SimpleNamespace) -> None:
    """There is none after that of for ever."""
    clock.now = FOR_EVER - 10
    assert deadline(1) == FOR_EVER


@pytest.mark.parametrize("timeout", [-1, -1e-9, float("nan"), float("-inf")])
def test_a_timeout_that_is_none(timeout: float) -> None:
    """It is refused."""
    with pytest.raises(ValueError, match="timeout"):
        deadline(timeout)


def test_looks_for_signals() -> None:
    """The first one soon, then one each second."""
    assert list(itertools.islice(signal_check_intervals(), 4)) == [10_000_000, 10**9, 10**9, 10**9]


SETTLED = "PRECONDITION_FAILED - the message was acknowledged, rejected or returned already"
FORKED = "this connection was opened before a fork: open another one in this process, with shmbroker.connect()"
SHORT = f"is shorter than layout {SLOW.SB_LAYOUT_MAJOR}.{SLOW.SB_LAYOUT_MINOR} requires"
FORCED = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
ERRORS = [
    (native.FORKED, exceptions.ForkedConnectionError, 504, FORKED, FORKED),
    (native.CLOSED, exceptions.ConnectionClosed, 504, "it is closed", "the connection is closed"),
    (native.STOPPING, exceptions.ConnectionClosedByBroker, 320, FORCED, FORCED),
    (native.DELETED, exceptions.NotFound, 404, "NOT_FOUND - no it in vhost '/'", None),
    (native.NOT_FOUND, exceptions.NotFound, 404, "NOT_FOUND - no it in vhost '/'", None),
    (native.SETTLED, exceptions.MessageSettled, 406, SETTLED, SETTLED),
    (
        SLOW.SB_CORRUPT,
        exceptions.CorruptSegment,
        541,
        "it: shared memory contradicts itself; run `shmbroker doctor`",
        "the broker: shared memory contradicts itself; run `shmbroker doctor`",
    ),
    (
        SLOW.SB_LIMIT,
        exceptions.NotAllowed,
        530,
        "NOT_ALLOWED - it: a limit of the broker is reached",
        "NOT_ALLOWED - the broker: a limit of the broker is reached",
    ),
    (
        SLOW.SB_ACCESS,
        exceptions.AccessRefused,
        403,
        "ACCESS_REFUSED - it: its shared memory belongs to another user",
        None,
    ),
    (
        native.LAYOUT,
        exceptions.LayoutMismatch,
        541,
        f"it: a file of its shared memory {SHORT}",
        f"the broker: a file of its shared memory {SHORT}",
    ),
    (
        SLOW.SB_INVALID,
        exceptions.BrokerError,
        541,
        "it: a value is out of its range",
        "the broker: a value is out of its range",
    ),
    (
        999,
        exceptions.BrokerError,
        541,
        "it: operation failed (status 999)",
        "the broker: operation failed (status 999)",
    ),
]


@pytest.mark.parametrize(("status", "error", "code", "text", "alone"), ERRORS, ids=[str(error[0]) for error in ERRORS])
def test_what_becomes_of_a_status(
    status: int, error: type[exceptions.BrokerError], *, code: int, text: str, alone: str | None
) -> None:
    """An exception with AMQP's code, which says what it is about, if that is given."""
    with pytest.raises(error) as raised:
        raise_for(status, "it")
    assert (type(raised.value), raised.value.code, raised.value.text) == (error, code, text)
    if alone is not None:
        with pytest.raises(error) as raised:
            raise_for(status)
        assert raised.value.text == alone


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (native.EMPTY, queue.Empty, ""),
        (native.FULL, queue.Full, "it"),
        (native.TIMEOUT, exceptions.Timeout, "it"),
        (native.NO_MEMORY, exceptions.OutOfMemory, "it: no memory is left"),
    ],
)
def test_errors_of_every_day(status: int, error: type[Exception], text: str) -> None:
    """They are those of the standard library where it has them."""
    with pytest.raises(error) as raised:
        raise_for(status, "it")
    assert str(raised.value) == text


@pytest.mark.parametrize(("number", "reason"), [(0, "no memory"), (2, os.strerror(2))])
def test_a_system_call_that_failed(number: int, reason: str) -> None:
    """The reason is the system's; without one there was no memory."""
    native.ffi.errno = number
    with pytest.raises(exceptions.BrokerError) as raised:
        raise_for(SLOW.SB_SYSTEM, "it")
    assert (raised.value.code, raised.value.text) == (541, f"it: a system call failed: {reason}")


@pytest.mark.parametrize(
    ("limit", "more"),
    [(1000, ": the address space of this process " + RESERVED.format(100 * 4096)), (resource.RLIM_INFINITY, "")],
)
def test_a_broker_that_cannot_be_mapped(monkeypatch: pytest.MonkeyPatch, limit: int, more: str) -> None:
    """If the address space of the process is limited, that is why, and how much of it is used is told."""
    limits = SimpleNamespace(
        RLIMIT_AS=resource.RLIMIT_AS,
        RLIM_INFINITY=resource.RLIM_INFINITY,
        getrlimit=lambda what: (limit, 0) if what == resource.RLIMIT_AS else (0, 0),
        getpagesize=lambda: 4096,
    )
    monkeypatch.setattr(native, "resource", limits)
    opened = {"/proc/self/statm": io.StringIO("100 50 20 1 0 30 0\n")}
    monkeypatch.setattr(native, "open", lambda name, encoding: opened[name] if encoding else None, raising=False)
    with pytest.raises(exceptions.OutOfMemory) as raised:
        raise_for(SLOW.SB_ADDRESS_SPACE, "it")
    assert str(raised.value) == f"it: its memory cannot be mapped{more}"
