# SPDX-License-Identifier: Apache-2.0
"""The start of a consumer: with or without the topology lock, and why it is refused."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.core_channel import Channel
from scenario_support.inside import core_of

from shmbroker._core import admission, native
from shmbroker._core.journal import topology_lock
from shmbroker.exceptions import AccessRefused, ResourceLocked, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker


@pytest.fixture(autouse=True)
def seated(connection: shmbroker.Connection) -> None:
    """There is a queue with seats before the lock is taken."""
    for name in "q", "free":
        connection.queue(name, max_consumers=1 if name == "q" else -1)


@pytest.fixture
def held(connection: shmbroker.Connection) -> Iterator[None]:
    """Another thread holds the topology lock."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with topology_lock(core_of(connection), native.FOR_EVER, "the test"):
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    yield
    done.set()
    thread.join()


def attach(*queues: shmbroker.Queue, statuses: list[int], until: int = native.FOR_EVER) -> int:
    """Start a consumer that gets one status after the other."""
    cores = [core_of(queue) for queue in queues]
    return admission.attach(cores[0].connection, cores, until, lambda: statuses.pop(0))


def test_a_consumer_that_needs_no_lock(queue: shmbroker.Queue, held: None) -> None:  # noqa: ARG001 - a fixture
    """Its status is the core's, though another thread has the topology lock."""
    assert attach(queue, statuses=[native.OK], until=0) == native.OK
    assert attach(queue, statuses=[native.DELETED], until=0) == native.DELETED


def test_a_consumer_that_needs_the_lock(queue: shmbroker.Queue) -> None:
    """It is started again while this thread has the lock; then the lock is free."""
    statuses = [native.UNLOCKED, native.OK, native.GROW]
    assert attach(queue, statuses=statuses) == native.OK
    assert statuses == [native.GROW]
    with topology_lock(core_of(queue).connection, 0, "the test"):
        pass


def test_a_lock_that_is_held(connection: shmbroker.Connection, held: None) -> None:  # noqa: ARG001 - a fixture
    """A consumer of a queue with max_consumers waits for it until the deadline; of other queues it does not wait."""
    queue = connection.queue("free")
    with queue.consume():
        pass
    with pytest.raises(Timeout, match="queue 'free': the topology lock is held by process"):
        attach(queue, statuses=[native.UNLOCKED], until=0)


def test_what_is_refused(connection: shmbroker.Connection) -> None:
    """Each error has the code and the words of AMQP, and names the queues that are full, and their limits."""
    one, two, free = (connection.queue(name, max_consumers=most) for name, most in [("1", 7), ("2", 0), ("3", -1)])
    with pytest.raises(AccessRefused) as exclusive:
        attach(one, two, statuses=[native.ACCESS])
    assert (exclusive.value.code, exclusive.value.text) == (
        403,
        "ACCESS_REFUSED - queue '1' and queue '2' in vhost '/' in exclusive use",
    )
    with pytest.raises(ResourceLocked) as full:
        attach(one, free, two, statuses=[native.UNLOCKED, native.NO_SEAT])
    assert full.value.code == 405
    assert full.value.text == ("RESOURCE_LOCKED - queue '2' in vhost '/' admits no further consumer: max_consumers=0")
    one.configure(max_consumers=0)
    with pytest.raises(ResourceLocked, match=r"queue '1' in vhost '/' .*=0; queue '2' in vhost '/' .*=0"):
        attach(one, free, two, statuses=[native.NO_SEAT])
    with pytest.raises(
        ResourceLocked, match=r"admits no further consumer: max_consumers$"
    ):  # the limit ended meanwhile
        attach(free, statuses=[native.NO_SEAT])


def test_a_channel_and_its_deadline(connection: shmbroker.Connection, held: None) -> None:  # noqa: ARG001 - a fixture
    """The consumer of a channel waits for the lock no longer than its caller allows."""
    queue = connection.queue("q", passive=True)
    channel = Channel(connection)
    with pytest.raises(Timeout, match="topology lock"):
        channel.core.consume(core_of(queue), 1, 0, 0, until=0)
