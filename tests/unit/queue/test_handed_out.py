# SPDX-License-Identifier: Apache-2.0
"""Messages of a get that an exception drops before the application has them: they return to their place."""

from __future__ import annotations

import ctypes
import functools
import signal
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.observing import assert_counts, put_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import shmbroker

GETS: dict[str, Callable[[shmbroker.Queue, Any], shmbroker.Message]] = {
    "get": lambda queue, auto_ack: queue.get(auto_ack=auto_ack),
    "get with a timeout": lambda queue, auto_ack: queue.get(timeout=60, auto_ack=auto_ack),
    "get_nowait": lambda queue, auto_ack: queue.get_nowait(auto_ack=auto_ack),
}


class InterruptError(Exception):
    """What a signal handler raises."""


def signals_when_asked() -> object:
    """Returns an object that is false, and sends a signal when it is asked for that.

    No instruction of Python runs meanwhile. So the handler runs when the compiled function that asked has returned.
    """
    raise_signal = getattr(ctypes.PyDLL(None), "raise")
    return type("False", (), {"__bool__": functools.partial(all, map(raise_signal, [signal.SIGUSR1]))})()


@pytest.fixture
def handler() -> Iterator[None]:
    """A handler of the signal that raises."""

    def interrupt(*_: object) -> None:
        raise InterruptError

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("get", GETS)
def test_an_exception_in_the_same_expression(queue: shmbroker.Queue, get: str) -> None:
    """A message that no variable has is ready again, in its place, as if it had not been delivered."""
    put_each(queue, "AB")
    with pytest.raises(ZeroDivisionError):
        [GETS[get](queue, 0), 1 / 0]  # drops the list
    assert_counts(queue, ready=2, delivering=0)
    first = queue.get()
    assert (bytes(first), first.delivery_count) == (b"A", 1)


@pytest.mark.parametrize("read", [bytes, lambda message: message.body], ids=["bytes", "body"])
def test_a_body_that_was_read(queue: shmbroker.Queue, read: Callable[[shmbroker.Message], object]) -> None:
    """The application has seen the message: it stays delivered."""
    for size in (1, 5000):
        queue.put(bytes(size))
        with pytest.raises(ZeroDivisionError):
            [[message for message in [queue.get()] if read(message) is not None], 1 / 0]  # drops the lists
    assert_counts(queue, ready=0, delivering=2)


def test_a_message_that_a_variable_has(queue: shmbroker.Queue) -> None:
    """It stays delivered, whatever is raised then, also when the variable is gone."""

    def fail() -> None:
        message = queue.get()
        raise InterruptError(message.sequence)

    queue.put(b"A")
    with pytest.raises(InterruptError):
        fail()
    assert_counts(queue, ready=0, delivering=1)


def test_a_message_that_is_dropped(queue: shmbroker.Queue) -> None:
    """Without an exception it stays delivered, until the connection is closed."""
    queue.put(b"A")
    queue.get()
    assert_counts(queue, ready=0, delivering=1)


@pytest.mark.parametrize("get", GETS)
@pytest.mark.usefixtures("handler")
def test_a_signal_during_a_get(queue: shmbroker.Queue, get: str) -> None:
    """Its handler raises after the get has returned, and before a variable has the message: that is ready again."""
    put_each(queue, "AB")
    message = None
    with pytest.raises(InterruptError):
        message = GETS[get](queue, signals_when_asked())
    assert message is None
    assert_counts(queue, ready=2, delivering=0)
    assert bytes(GETS[get](queue, 0)) == b"A"
