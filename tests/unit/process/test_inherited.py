# SPDX-License-Identifier: Apache-2.0
"""A handle that a child inherited: it is opened again when it is used, and closed without the parent's.

Here a process is its own child: its handle is made an inherited one. That real children do the same is in `test_fork`.
"""

from __future__ import annotations

import pytest
from scenario_support.inside import session_of
from scenario_support.observing import listing, put_each, take

import shmbroker
from shmbroker import exceptions
from shmbroker._process.inherited import InheritedQueue, inherit


@pytest.fixture
def handle(queue: shmbroker.Queue) -> shmbroker.Queue:
    """A handle of queue q that was inherited."""
    inherit(iter([queue]))
    return queue


def test_a_handle_is_inherited_once(queue: shmbroker.Queue) -> None:
    """By a child of the child it is not, a second time; what was opened meanwhile goes on."""
    for _ in range(2):
        inherit(iter([queue]))
        assert type(queue) is InheritedQueue
        queue.put(b"A")
    assert listing(queue) == ["A", "A"]


def test_it_goes_over_one_connection_of_the_process(
    broker: shmbroker.Broker, connection: shmbroker.Connection, handle: shmbroker.Queue
) -> None:
    """Which is not its parent's, and is opened at the first use."""
    put_each(handle, "AB")
    count = broker.statistics().connection_count
    assert session_of(handle) is not session_of(connection)
    assert session_of(handle) is session_of(handle)
    assert take(handle, 1) == ["A"]
    assert broker.statistics().connection_count == count
    assert len(handle) == 1


def test_it_says_what_its_queue_is(connection: shmbroker.Connection) -> None:
    """Settings, and whether it is paused, as they are now."""
    queue = connection.queue("q", max_length=7)
    inherit(iter([queue]))
    assert (queue.paused, queue.settings.max_length) == (False, 7)
    queue.pause()
    assert queue.paused
    queue.configure(max_length=8)
    queue.resume()
    assert (queue.paused, queue.settings.max_length) == (False, 8)


def test_closing_what_was_not_used_does_nothing(handle: shmbroker.Queue) -> None:
    """It can be used afterwards."""
    handle.close()
    handle.close()
    put_each(handle, "A")
    assert listing(handle) == ["A"]


def test_a_closed_one_is_not_opened_again(connection: shmbroker.Connection, handle: shmbroker.Queue) -> None:
    """Its uses are those of a closed queue; the queue is there."""
    with handle as entered:
        assert entered is handle
        handle.put(b"A")
    handle.close()
    for use in (lambda: handle.put(b"B"), lambda: len(handle), lambda: handle.get(timeout=0)):
        with pytest.raises(exceptions.ConnectionClosed):
            use()
    with shmbroker.connect(connection.broker_name, create=False) as fresh:
        assert listing(fresh.queue("q", passive=True)) == ["A"]


def test_a_block_with_a_queue_that_is_gone_does_not_begin(broker: shmbroker.Broker, handle: shmbroker.Queue) -> None:
    """It is opened where the block begins."""
    with broker.connect() as other:
        other.queue("q").delete()
    with pytest.raises(exceptions.NotFound), handle:
        pytest.fail("it was entered")
