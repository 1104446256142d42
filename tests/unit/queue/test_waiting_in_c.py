# SPDX-License-Identifier: Apache-2.0
"""A get that waits in compiled code: what ends it, and what it leaves behind."""

from __future__ import annotations

import gc
import queue as standard_queue
import threading
import time
import weakref

import pytest
from scenario_support.waiting import eventually

import shmbroker
from shmbroker.exceptions import ConnectionClosed

TIMEOUT = 0.05  # s


class _Odd(float):
    """A number whose own methods raise; a timeout is its value."""

    def __bool__(self) -> bool:
        raise ZeroDivisionError

    __float__ = __bool__  # type: ignore[assignment]


def has_io_after_a_wait(queue: shmbroker.Queue) -> bool:
    """Waits for a message in vain. A get whose time is up before it can wait starts no IO thread."""
    with pytest.raises(standard_queue.Empty):
        queue.get(timeout=0.001)
    return queue._core_connection.has_io  # noqa: SLF001


@pytest.fixture
def waiting(queue: shmbroker.Queue) -> shmbroker.Queue:
    """Returns a queue whose connection has its IO thread, so that a get waits in C."""
    eventually(lambda: has_io_after_a_wait(queue), "an IO thread")
    return queue


@pytest.mark.parametrize("timeout", [TIMEOUT, 1])
def test_a_wait_ends_at_its_timeout(waiting: shmbroker.Queue, timeout: float) -> None:
    """With `queue.Empty`, not before the time is over; an int is seconds, too."""
    begun = time.monotonic()
    with pytest.raises(standard_queue.Empty):
        waiting.get(timeout=timeout)
    assert time.monotonic() - begun >= timeout
    assert waiting._core_connection.calls == 1  # noqa: SLF001 - that of the IO thread


@pytest.mark.parametrize("timeout", [None, 30, 1e300, 10**30, 10**400, float("inf"), _Odd(30)])
@pytest.mark.parametrize("auto_ack", [False, True])
def test_a_waiting_get_takes_what_comes(waiting: shmbroker.Queue, timeout: float | None, *, auto_ack: bool) -> None:
    """The message is handed out as any other, and no call stays counted."""
    found: list[shmbroker.Message] = []
    thread = threading.Thread(target=lambda: found.append(waiting.get(timeout=timeout, auto_ack=auto_ack)))
    thread.start()
    eventually(lambda: waiting._core_connection.calls == 2)  # noqa: SLF001 - the IO thread's, and the get's
    waiting.put(b"A", key="k")
    thread.join()
    (message,) = found
    assert (bytes(message), message.key, message.settled) == (b"A", "k", auto_ack)
    assert waiting._core_connection.calls == 1  # noqa: SLF001
    if not auto_ack:
        message.ack()


def test_a_close_ends_a_wait(broker: shmbroker.Broker) -> None:
    """The waiting call raises, and releases the connection, since it is the last one in flight."""
    connection = shmbroker.connect(broker.name)
    waiting = connection.queue("q")
    eventually(lambda: has_io_after_a_wait(waiting), "an IO thread")
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            waiting.get()
        except ConnectionClosed as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    core = waiting._core_connection  # noqa: SLF001
    eventually(lambda: core.calls == 2)
    connection.close()
    thread.join()
    assert len(errors) == 1
    eventually(lambda: core._forgotten)  # noqa: SLF001
    assert core.calls == 0


def test_a_handle_that_nobody_has_is_freed(broker: shmbroker.Broker) -> None:
    """The collector sees that a connection and its queues refer to each other only."""
    connection = shmbroker.connect(broker.name)
    queue = connection.queue("q")
    gone = weakref.ref(queue)
    del queue, connection
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("timeout", [None, 0, 0.0, 1, 10**400, _Odd(0), _Odd(1)])
def test_no_timeout_keeps_a_message_that_is_there(queue: shmbroker.Queue, timeout: float | None) -> None:
    """It is taken and handed out."""
    queue.put(b"A")
    assert bytes(queue.get(timeout=timeout, auto_ack=True)) == b"A"
