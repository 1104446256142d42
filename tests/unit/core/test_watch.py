# SPDX-License-Identifier: Apache-2.0
"""Watches: an eventfd that is written when a queue may have a message, or room."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest
from scenario_support.core_calls import Noted, Replaced, answering, telling
from scenario_support.inside import core_of, session_of
from scenario_support.waiting import eventually

from shmbroker._core import native
from shmbroker._core import watch as module
from shmbroker._core.watch import CoreWatch
from shmbroker.exceptions import NotFound, OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import shmbroker

NO_ROOM = r"has no room: \d+ of \d+ bytes are used"


@pytest.fixture
def descriptor(connection: shmbroker.Connection) -> Iterator[int]:
    """Make an eventfd, which the thread of the connection writes."""
    session_of(connection).start_io()
    made = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    yield made
    os.close(made)


def told(descriptor: int) -> bool:
    """Whether the eventfd was written since the last time."""
    try:
        return os.eventfd_read(descriptor) > 0
    except BlockingIOError:
        return False


def other_calls(monkeypatch: pytest.MonkeyPatch, **others: Callable[..., object]) -> None:
    """Let watches call others than the core."""
    monkeypatch.setattr(module, "slow", Replaced(native.slow, **others))


def test_a_message_is_told_once(queue: shmbroker.Queue, descriptor: int) -> None:
    """Only after arming, and once for each; a watch that is disarmed is told nothing."""
    watch = CoreWatch(core_of(queue), descriptor, room=False)
    assert watch.connection is core_of(queue).connection
    queue.put(b"before")
    queue.purge()
    assert not told(descriptor)
    watch.arm()
    queue.put(b"A")
    eventually(lambda: told(descriptor))
    queue.purge()
    watch.arm()
    assert queue.statistics().interested == 1
    watch.disarm()
    assert queue.statistics().interested == 0
    watch.arm()
    watch.close()
    watch.close()
    assert queue.statistics().interested == 0


def test_room_is_told(connection: shmbroker.Connection, descriptor: int) -> None:
    """Room for a body of the size that is wanted; messages are not what such a watch waits for."""
    queue = connection.queue("small", max_bytes=10)
    queue.put(b"12345678")
    queue.put(b"9")
    watch = CoreWatch(core_of(queue), descriptor, room=True)
    watch.arm(8)
    queue.get(timeout=0).ack()
    eventually(lambda: told(descriptor))
    watch.close()


def test_a_watch_that_needs_another_segment(
    queue: shmbroker.Queue, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker grows each time that the core asks for it, when it is opened and when it is armed."""
    attached = core_of(queue).connection.attachment
    segments = attached.facts().segments
    opened = telling(native.slow.sb_watch_open, native.GROW, native.GROW, result=native.ffi.NULL)
    armed = Noted(answering(native.slow.sb_watch_arm, native.GROW))
    other_calls(monkeypatch, sb_watch_open=opened, sb_watch_arm=armed)
    watch = CoreWatch(core_of(queue), descriptor, room=False)
    assert attached.facts().segments == segments + 2
    assert watch.handle != native.ffi.NULL
    watch.arm(7)
    assert attached.facts().segments == segments + 3
    assert armed.calls == [(watch.handle, 7)] * 2
    queue.put(b"A")
    eventually(lambda: told(descriptor))


def test_there_is_no_memory_for_a_watch(
    queue: shmbroker.Queue, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what the broker's memory is used for."""
    opened = telling(native.slow.sb_watch_open, native.NO_MEMORY, native.NO_MEMORY, result=native.ffi.NULL)
    armed = answering(native.slow.sb_watch_arm, native.NO_MEMORY, native.NO_MEMORY)
    other_calls(monkeypatch, sb_watch_open=opened, sb_watch_arm=armed)
    with pytest.raises(OutOfMemory, match=NO_ROOM):
        CoreWatch(core_of(queue), descriptor, room=False)
    watch = CoreWatch(core_of(queue), descriptor, room=False)
    with pytest.raises(OutOfMemory, match=NO_ROOM):
        watch.arm()


def test_the_queue_is_gone(queue: shmbroker.Queue, descriptor: int) -> None:
    """The error names it, when a watch is opened and when it is armed."""
    watch = CoreWatch(core_of(queue), descriptor, room=False)
    core_of(queue).delete(if_unused=False, if_empty=False, until=native.FOR_EVER)
    with pytest.raises(NotFound, match="no queue 'q'"):
        watch.arm()
    with pytest.raises(NotFound, match="no queue 'q'"):
        CoreWatch(core_of(queue), descriptor, room=False)


def test_a_watch_that_nobody_has_is_closed(
    queue: shmbroker.Queue, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue tells it nothing more, and its memory in this process is freed, once."""
    free = Noted(native.slow.sb_watch_free)
    other_calls(monkeypatch, sb_watch_free=free)
    watch = CoreWatch(core_of(queue), descriptor, room=False)
    handle = watch.handle
    watch.arm()
    assert queue.statistics().interested == 1
    del watch
    gc.collect()
    assert free.calls.count((handle,)) == 1
    assert queue.statistics().interested == 0
