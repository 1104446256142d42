# SPDX-License-Identifier: Apache-2.0
"""Calls that do not wait, those that do, and what a client that polls gets."""

from __future__ import annotations

import time
from queue import Empty, Full
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of
from scenario_support.observing import assert_counts, listing, put_each, texts
from scenario_support.waiting import becomes

from shmbroker._core import native
from shmbroker._core.queue import CoreQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

Get = dict[str, "Callable[[shmbroker.Queue], object]"]
NOT_WAITING: Get = {
    "get": lambda queue: queue.get(timeout=0),
    "get_nowait": lambda queue: queue.get_nowait(),
    "get_many": lambda queue: queue.get_many(5, timeout=0),
}
# Long enough that the time is not over before the call waits, also where the process does not run for a while.
WAITING: Get = {
    "get": lambda queue: queue.get(timeout=0.5),
    "get_many": lambda queue: queue.get_many(5, timeout=0.5),
}


@pytest.fixture
def started(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note when the IO thread is asked for, in place of starting it."""
    asked: list[str] = []
    monkeypatch.setattr(core_of(queue).connection, "start_io", lambda: asked.append("started"))
    return asked


@pytest.mark.parametrize("get", NOT_WAITING)
def test_a_get_that_does_not_wait_starts_no_thread(queue: shmbroker.Queue, started: list[str], get: str) -> None:
    """Empty is raised by the clock: there is no wait, also where not a nanosecond has passed."""
    with pytest.raises(Empty), pytest.MonkeyPatch.context() as clock:  # noqa: PT012 - its block raises
        clock.setattr(time, "monotonic_ns", lambda now=time.monotonic_ns(): now)  # noqa: B008 - the time is one for all calls
        NOT_WAITING[get](queue)
    assert started == []


@pytest.mark.parametrize("get", WAITING)
def test_a_get_that_waits_has_a_thread_that_looks_after_the_broker(
    queue: shmbroker.Queue, started: list[str], get: str
) -> None:
    """A process that waits notices a housekeeper that died."""
    with pytest.raises(Empty):
        WAITING[get](queue)
    assert started == ["started"]


@pytest.mark.parametrize("get", NOT_WAITING)
def test_a_client_that_polls_gets_that_thread_too(queue: shmbroker.Queue, started: list[str], get: str) -> None:
    """After half a second of calls that found nothing; the first of them is noted, and later ones now and then."""
    connection: Any = core_of(queue).connection
    with pytest.raises(Empty):
        NOT_WAITING[get](queue)
    assert connection._polled_at > 0  # noqa: SLF001 - its own parts
    connection._polled_at -= 60  # noqa: SLF001 - its own parts
    while not started:
        with pytest.raises(Empty):
            NOT_WAITING[get](queue)
    assert started == ["started"]


@pytest.mark.parametrize("get", WAITING)
def test_a_get_that_waited_keeps_nothing_of_its_connection(broker: shmbroker.Broker, get: str) -> None:
    """The connection ends when it is closed: no call counts as under way."""
    before = broker.statistics().connection_count
    connection = broker.connect()
    with pytest.raises(Empty):
        WAITING[get](connection.queue("q"))
    connection.queue("q").put(b"A")
    connection.queue("q").get(timeout=60, auto_ack=True)
    connection.close()
    becomes(lambda: broker.statistics().connection_count, before)


def test_get_nowait_where_memory_has_to_be_mapped_first(queue: Any, started: list[str]) -> None:  # noqa: ANN401 - its parts
    """It takes the message then, with the same option; or finds nothing, and does not wait."""
    put_each(queue, "AB")
    got = [queue._get_nowait_slowly(native.GROW, auto_ack) for auto_ack in (True, False)]  # noqa: SLF001
    assert [message.settled for message in got] == [True, False]
    assert_counts(queue, acked=1, delivering=1, ready=0)
    with pytest.raises(Empty):
        queue._get_nowait_slowly(native.GROW, False)  # noqa: FBT003, SLF001
    assert started == []


@pytest.mark.parametrize("timeout", [0, 60])
def test_get_where_memory_has_to_be_mapped_first(queue: Any, timeout: float) -> None:  # noqa: ANN401 - its parts
    """It takes the message then, with the same option."""
    put_each(queue, "AB")
    got = [queue._get_slowly(native.GROW, auto_ack, timeout) for auto_ack in (True, False)]  # noqa: SLF001
    assert [message.settled for message in got] == [True, False]
    assert_counts(queue, acked=1, delivering=1, ready=0)


@pytest.mark.parametrize("timeout", [0, 60])
def test_get_many_where_memory_has_to_be_mapped_first(queue: Any, timeout: float) -> None:  # noqa: ANN401
    """It takes what is there then, with the same option."""
    put_each(queue, "ABCD")
    take_many = queue._take_many  # noqa: SLF001 - its own parts
    for auto_ack, found in ((True, ["A", "B"]), (False, ["C", "D"])):

        def grow(*_: object) -> int:
            queue._take_many = take_many  # noqa: SLF001 - its own parts
            return native.GROW

        queue._take_many = grow  # noqa: SLF001 - its own parts
        assert texts(queue.get_many(2, timeout=timeout, auto_ack=auto_ack)) == found
    assert_counts(queue, acked=2, delivering=2, ready=0)


def test_what_is_settled_when_it_is_taken(queue: shmbroker.Queue) -> None:
    """With auto_ack a message says that it is settled, without that it is not."""
    put_each(queue, "ABCDEF")
    assert queue.get(auto_ack=True).settled
    assert queue.get_nowait(auto_ack=True).settled
    assert queue.get_many(1, auto_ack=True)[0].settled
    assert not queue.get().settled
    assert not queue.get_nowait().settled
    assert not queue.get_many(1)[0].settled
    assert_counts(queue, acked=3, delivering=3)


@pytest.mark.parametrize("count", [0, -1, 65_537, 1.5, True, False, "5", None])
def test_how_many_messages_can_be_asked_for(queue: shmbroker.Queue, count: Any) -> None:  # noqa: ANN401
    """An integer from 1 to 65,536; the error says so, and nothing is taken."""
    put_each(queue, "AB")
    with pytest.raises(ValueError, match="an integer from 1 to 65536 is allowed") as refusal:
        queue.get_many(count)
    assert str(refusal.value).startswith(f"max_messages={count!r}: ")
    assert texts(queue.get_many(1)) == ["A"]
    assert texts(queue.get_many(65_536)) == ["B"]


@pytest.mark.parametrize("put", ["put_nowait", "put", "put_many"])
def test_a_put_that_does_not_wait_for_room(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch, put: str
) -> None:
    """Its time is over when it finds that there is no room."""
    queue = connection.queue("full", max_length=1)
    queue.put(b"A")
    over: list[bool] = []
    real = CoreQueue._wait_for_room  # noqa: SLF001 - its own parts

    def wait(self: CoreQueue, *, memory: bool, size: int, until: int) -> None:
        over.append(until <= time.monotonic_ns())
        real(self, memory=memory, size=size, until=until)

    monkeypatch.setattr(CoreQueue, "_wait_for_room", wait)
    with pytest.raises(Full, match="queue 'full' is full: 1 messages are ready"):  # noqa: PT012 - its block raises
        if put == "put_nowait":
            queue.put_nowait(b"B", key="k")
        elif put == "put":
            queue.put(b"B", timeout=0)
        else:
            queue.put_many([b"B"], timeout=0)
    assert over == [True]
    assert listing(queue) == ["A"]
