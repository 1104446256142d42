# SPDX-License-Identifier: Apache-2.0
"""Queues of an event loop: what each operation does, with and without a wait."""

from __future__ import annotations

import asyncio
import os
import queue as standard_queue
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of
from scenario_support.loops import ready, run, until_waiting
from scenario_support.turns import at_once, noted_options

from shmbroker import aio, exceptions
from shmbroker._core.settings import PERSISTENT_PAUSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import shmbroker


def bodies(messages: Iterable[Any]) -> list[bytes]:
    """Return the bodies of messages."""
    return [bytes(message) for message in messages]


def test_what_needs_no_wait_is_done_at_once(broker: shmbroker.Broker) -> None:
    """Putting where there is room, and getting what is there, let no other task run; options are handed on."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        at_once(jobs.put(b"A", key="k"))
        jobs.put_nowait(b"B", key="l")
        assert at_once(jobs.put_many([b"C", b"D", b"E"], key="m")) == 3
        assert at_once(jobs.put_many([])) == 0
        assert [(bytes(message), message.key) for message in jobs.browse()] == [
            (b"A", "k"), (b"B", "l"), (b"C", "m"), (b"D", "m"), (b"E", "m"),
        ]  # fmt: skip
        first, second = at_once(jobs.get()), at_once(jobs.get(auto_ack=True))
        assert [(bytes(one), one.settled) for one in (first, second)] == [(b"A", False), (b"B", True)]
        batch = at_once(jobs.get_many(2))
        assert bodies(batch) == [b"C", b"D"]
        assert jobs.statistics().delivering == 3
        assert bodies(at_once(jobs.get_many(5, auto_ack=True))) == [b"E"]
        assert jobs.statistics().acked == 2

    run(main, broker)


def test_nothing_is_there(broker: shmbroker.Broker) -> None:
    """Gets that may not wait raise Empty at once; nobody is put into the list of the queue, and nothing is opened."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_length=1)
        calls: list[Callable[[], Any]] = [
            lambda: at_once(jobs.get(timeout=0)),
            lambda: at_once(jobs.get_many(3, timeout=0)),
            jobs.get_nowait,
        ]
        for call in calls:
            with pytest.raises(standard_queue.Empty):
                call()
        await jobs.put(b"A")
        calls = [
            lambda: at_once(jobs.put(b"B", timeout=0)),
            lambda: at_once(jobs.put_many([b"B"], timeout=0)),
            lambda: jobs.put_nowait(b"B"),
        ]
        for call in calls:
            with pytest.raises(standard_queue.Full):
                call()
        assert bodies([jobs.get_nowait(auto_ack=True)]) == [b"A"]
        assert (jobs.statistics().acked, jobs.statistics().interested) == (1, 0)

    run(main, broker)


def test_gets_wait_for_what_comes(broker: shmbroker.Broker) -> None:
    """A get takes one message, a get of many what is there then; settled if that was asked for."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        calls = [jobs.get(), jobs.get(timeout=30, auto_ack=True), jobs.get_many(2), jobs.get_many(2, auto_ack=True)]
        tasks = [asyncio.create_task(call) for call in calls]
        await until_waiting(jobs)
        await jobs.put_many([b"A", b"B", b"C", b"D", b"E", b"F"])
        one, settled, batch, settled_batch = [await ready(task) for task in tasks]
        assert bodies([one, settled, *batch, *settled_batch]) == [b"A", b"B", b"C", b"D", b"E", b"F"]
        assert jobs.statistics().acked == 3
        one.ack()
        batch.ack()
        assert (jobs.statistics().acked, jobs.statistics().interested) == (6, 0)

    run(main, broker)


def test_the_loop_is_never_held_up(broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever may wait in the sync queue is asked not to, before the wait and after it."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_length=1)
        calls = noted_options(monkeypatch, type(jobs._sync), "put", "put_many", "get", "get_many")  # noqa: SLF001
        getting = asyncio.create_task(jobs.get_many(1))
        await until_waiting(jobs)
        await jobs.put(b"A")
        (await ready(getting)).ack()
        assert await jobs.put_many([b"B"], timeout=30) == 1
        putting = asyncio.create_task(jobs.put_many([b"C", b"D"], timeout=None))
        for body in (b"B", b"C", b"D"):
            assert bytes(await ready(jobs.get(auto_ack=True))) == body
        assert await ready(putting) == 2
        assert {name for name, _ in calls} >= {"put", "put_many", "get_many"}
        assert [options for _, options in calls if options.get("timeout") != 0] == []

    run(main, broker)


def test_many_are_put_as_room_comes(broker: shmbroker.Broker) -> None:
    """In order, with their options, however often there is no room between them."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_length=2)
        given = [b"%d" % n for n in range(7)]
        putting = asyncio.create_task(jobs.put_many(iter(given), key="k"))
        seen = [await ready(jobs.get(auto_ack=True)) for _ in given]
        assert await ready(putting) == 7
        assert [(bytes(message), message.key) for message in seen] == [(body, "k") for body in given]
        assert len(jobs) == 0

    run(main, broker)


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_many_are_put_as_far_as_there_is_room(broker: shmbroker.Broker, timeout: float) -> None:
    """Out of time it returns how many there was room for; if there was none at all, it raises Full."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_length=2)
        assert await jobs.put_many([b"A", b"B", b"C", b"D"], timeout=timeout) == 2
        with pytest.raises(standard_queue.Full):
            await jobs.put_many([b"C", b"D"], timeout=timeout)
        assert bodies(jobs.browse()) == [b"A", b"B"]

    run(main, broker)


def test_a_put_says_what_there_was_no_room_for(broker: shmbroker.Broker) -> None:
    """Out of time it raises the error of the queue, which says why; what can never fit is not waited for."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_length=1, max_bytes=10)
        await jobs.put(b"A")
        with pytest.raises(standard_queue.Full) as at_first:
            jobs.put_nowait(b"B")
        with pytest.raises(standard_queue.Full) as later:
            await jobs.put(b"B", timeout=0.01)
        assert str(later.value) == str(at_first.value)
        for put in (jobs.put(bytes(11)), jobs.put_many([bytes(11)])):
            with pytest.raises(standard_queue.Full, match="can never fit"):
                at_once(put)

    run(main, broker)


def test_a_long_body_waits_for_so_much_room(broker: shmbroker.Broker) -> None:
    """A put is told when there is room for its body, not when there is some; then it is put with its options."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_bytes=100)
        await jobs.put_many([bytes(50), bytes(40)])
        putting = asyncio.create_task(jobs.put(memoryview(bytes(96)).cast("I"), key="k"))
        await until_room_is_wanted(jobs)
        (await jobs.get()).ack()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not putting.done()
        (await jobs.get()).ack()
        await ready(putting)
        (message,) = jobs.browse()
        assert (len(message), message.key) == (96, "k")
        assert core_of(jobs._sync).facts().room_waiting == 0  # noqa: SLF001

    run(main, broker)


@pytest.mark.parametrize("gives_up", ["cancelled", "out of time"])
def test_a_short_body_does_not_wait_for_the_room_of_a_long_one(broker: shmbroker.Broker, gives_up: str) -> None:
    """When a put that waited before it gives up, a put is told as soon as there is room for its own body."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_bytes=1000)
        await jobs.put_many([bytes(350), bytes(150)])
        longer = asyncio.create_task(jobs.put(bytes(1000), timeout=None if gives_up == "cancelled" else 0.01))
        shorter = asyncio.create_task(jobs.put(bytes(800)))
        await until_room_is_wanted(jobs)
        if gives_up == "cancelled":
            longer.cancel()
        with pytest.raises((asyncio.CancelledError, standard_queue.Full)):
            await longer
        assert not shorter.done()
        (await jobs.get()).ack()
        await ready(shorter)
        assert [len(message) for message in jobs.browse()] == [150, 800]
        assert core_of(jobs._sync).facts().room_waiting == 0  # noqa: SLF001

    run(main, broker)


def test_a_limit_is_lowered_below_a_body_that_waits(broker: shmbroker.Broker) -> None:
    """The put raises NeverFits, as one that begins now does; the put behind it waits for its own room."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_bytes=1000)
        await jobs.put(bytes(600))
        longer, shorter = (asyncio.create_task(jobs.put(bytes(size))) for size in (800, 450))
        await until_room_is_wanted(jobs)
        with broker.connect() as other:
            other.queue("jobs", passive=True).configure(max_bytes=500)
        with pytest.raises(exceptions.NeverFits, match="a body of 800 bytes can never fit max_bytes=500"):
            await ready(longer)
        assert not shorter.done()
        (await jobs.get()).ack()
        await ready(shorter)
        assert [len(message) for message in jobs.browse()] == [450]
        assert core_of(jobs._sync).facts().room_waiting == 0  # noqa: SLF001

    run(main, broker)


async def until_room_is_wanted(queue: aio.Queue) -> None:
    """Wait until others can see that a put waits."""
    while core_of(queue._sync).facts().room_waiting == 0:  # noqa: ASYNC110, SLF001 - no event reports it
        await asyncio.sleep(0)


def test_a_queue_is_paused_configured_moved_and_deleted(broker: shmbroker.Broker) -> None:
    """Each does what the sync queue's does, and returns what that returns."""

    async def main(connection: aio.Connection) -> None:
        jobs, other = await connection.queue("jobs"), await connection.queue("other", ring_size=9)
        await jobs.put_many([b"A", b"B", b"C", b"D"])
        await jobs.pause()
        with pytest.raises(standard_queue.Empty):
            jobs.get_nowait()
        assert PERSISTENT_PAUSE not in core_of(jobs._sync).given()  # noqa: SLF001
        await jobs.pause(persist=True)
        assert PERSISTENT_PAUSE in core_of(jobs._sync).given()  # noqa: SLF001
        await jobs.resume()
        assert bytes(jobs.get_nowait(auto_ack=True)) == b"A"
        assert jobs.move(other, limit=1) == 1
        assert jobs.move("other", max_bytes=1) == 1
        assert (bodies(other.browse()), bodies(jobs.browse())) == ([b"B", b"C"], [b"D"])
        await other.put_many([b"E", b"F"])
        await other.configure(ring_size=2, trim=True)
        assert (other._sync.settings.ring_size, bodies(other.browse())) == (2, [b"E", b"F"])  # noqa: SLF001
        assert (len(jobs), bool(jobs), bool(await connection.queue("empty"))) == (1, True, True)
        assert other.purge() == 2
        with pytest.raises(exceptions.PreconditionFailed):
            await jobs.delete(if_empty=True)
        async with jobs.consume(prefetch=1):
            with pytest.raises(exceptions.PreconditionFailed):
                await jobs.delete(if_unused=True)
        assert await jobs.delete() == 1
        assert connection._sync.queue_names() == ["empty", "other"]  # noqa: SLF001

    run(main, broker)


def test_a_closed_handle_ends_what_waits(broker: shmbroker.Broker) -> None:
    """Gets and puts that wait raise ConnectionClosed and name the queue; nobody is left in its lists; others go on."""

    async def main(connection: aio.Connection) -> None:
        async with aio.connect(broker.name, create=False) as another:
            theirs = await another.queue("jobs", max_length=1)
            async with await connection.queue("jobs") as jobs:
                assert repr(jobs) == f"<aio {jobs._sync!r}>"  # noqa: SLF001
                getting = [asyncio.create_task(jobs.get()) for _ in range(2)]
                await until_waiting(jobs)
            for task in getting:
                with pytest.raises(exceptions.ConnectionClosed, match="queue 'jobs' is closed"):
                    await ready(task)
            assert theirs.statistics().interested == 0
            await theirs.put(b"A")
            jobs = await connection.queue("jobs")
            putting = asyncio.create_task(jobs.put(b"B"))
            await until_room_is_wanted(theirs)
            jobs.close()
            with pytest.raises(exceptions.ConnectionClosed, match="queue 'jobs' is closed"):
                await ready(putting)
            assert core_of(theirs._sync).facts().room_waiting == 0  # noqa: SLF001
            jobs.close()
            jobs = await connection.queue("jobs")
            assert bytes(await jobs.get(timeout=0)) == b"A"

    run(main, broker)


def test_a_handle_is_used_again_after_waits(broker: shmbroker.Broker) -> None:
    """One watch serves all gets that wait, and one all puts: no descriptor is opened for each."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_length=1)
        opened = []
        for n in range(3):
            getting = asyncio.create_task(jobs.get())
            await until_waiting(jobs)
            await jobs.put(b"A")
            (await ready(getting)).ack()
            await jobs.put(b"B")
            putting = asyncio.create_task(jobs.put(b"C"))
            await until_room_is_wanted(jobs)
            (await jobs.get()).ack()
            await ready(putting)
            (await jobs.get()).ack()
            opened.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208 - they are counted
            assert n < 1 or opened[0] == opened[n]

    run(main, broker)
