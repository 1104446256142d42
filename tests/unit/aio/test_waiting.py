# SPDX-License-Identifier: Apache-2.0
"""Awaiting puts and gets: in turn, in time, and cancelled without a loss."""

from __future__ import annotations

import asyncio
import math
import queue as standard_queue
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of
from scenario_support.loops import ready, run, until_waiting
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import aio, exceptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def test_a_get_waits_for_a_put(broker: shmbroker.Broker) -> None:
    """A task that gets from an empty queue waits in the queue's list, and gets what another connection puts."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        getting = asyncio.create_task(jobs.get())
        await until_waiting(jobs)
        with broker.connect() as other:
            other.queue("jobs").put(b"A")
            message = await ready(getting)
            assert bytes(message) == b"A"
            message.ack()
        assert jobs.statistics().interested == 0

    run(main, broker)


def test_tasks_get_in_the_order_in_which_they_came(broker: shmbroker.Broker) -> None:
    """Ten tasks that wait get ten messages in their order, without a thread for each."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        first = asyncio.create_task(jobs.get(auto_ack=True))
        await until_waiting(jobs)
        before = set(threading.enumerate())
        tasks = [first, *(asyncio.create_task(jobs.get(auto_ack=True)) for _ in range(9))]
        await asyncio.sleep(0)
        assert set(threading.enumerate()) <= before  # one of another test may end meanwhile
        await jobs.put_many([b"%d" % n for n in range(10)])
        assert [bytes(await ready(task)) for task in tasks] == [b"%d" % n for n in range(10)]

    run(main, broker)


def test_a_put_waits_for_room(broker: shmbroker.Broker) -> None:
    """A task that puts into a full queue waits until somebody makes room; others go on meanwhile."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_length=1)
        await jobs.put(b"A")
        putting = asyncio.create_task(jobs.put(b"B"))
        await asyncio.sleep(0)
        with pytest.raises(standard_queue.Full):
            jobs.put_nowait(b"C")
        assert not putting.done()
        with broker.connect() as other:
            other.queue("jobs").get().ack()
        await ready(putting)
        assert [bytes(message) for message in jobs.browse()] == [b"B"]

    run(main, broker)


def test_a_put_waits_for_memory(broker_name: str) -> None:
    """A task that puts where no memory is left goes on when there is some; out of time it raises OutOfMemory."""
    broker = shmbroker.Broker(broker_name, memory="32M")
    broker.start()

    async def main(connection: aio.Connection) -> None:
        jobs, body = await connection.queue("jobs"), bytes(1 << 20)
        with pytest.raises(exceptions.OutOfMemory):  # noqa: PT012 - one of many puts
            while True:
                await jobs.put(body, timeout=0)
        with pytest.raises(exceptions.OutOfMemory):
            await jobs.put(body, timeout=0.05)
        putting = asyncio.create_task(jobs.put(body))
        await asyncio.sleep(0)
        assert not putting.done()
        jobs.purge()
        await ready(putting)

    run(main, broker)
    broker.stop()


@pytest.mark.parametrize("how", ["basic_publish", "publish_confirmed"])
def test_a_publish_waits_for_room(broker: shmbroker.Broker, how: str) -> None:
    """A task that publishes to a full queue lets others go on, and is through when there is room, or time is up."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await connection.channel(), await connection.queue("q", max_length=1)
        publish = getattr(channel, how)
        await channel.confirm_delivery()
        assert await publish("", "q", b"A") == 1
        with pytest.raises(standard_queue.Full):
            await publish("", "q", b"B", timeout=0.01)
        publishing = asyncio.create_task(publish("", "q", b"B"))
        await asyncio.sleep(0)
        assert not publishing.done()
        (await queue.get()).ack()
        assert await ready(publishing) == 2

    run(main, broker)


@pytest.mark.parametrize("size", [100, 1 << 30], ids=["queue", "memory"])
def test_what_can_never_fit_is_not_waited_for(broker: shmbroker.Broker, size: int) -> None:
    """A body that is larger than the limit of its queue, or than the memory, is refused at once."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await connection.channel(), await connection.queue("q", max_bytes=99 if size == 100 else -1)
        body = bytes(size)
        for put in (queue.put(body), queue.put_many([body]), channel.basic_publish("", "q", body)):
            with pytest.raises(standard_queue.Full, match="can never fit"):
                await ready(put)

    run(main, broker)


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_time_is_up(broker: shmbroker.Broker, timeout: float) -> None:
    """A get that finds nothing in time raises Empty, a put without room Full; nobody is left in a list."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_length=1)
        with pytest.raises(standard_queue.Empty):
            await jobs.get(timeout=timeout)
        with pytest.raises(standard_queue.Empty):
            await jobs.get_many(5, timeout=timeout)
        await jobs.put(b"A")
        with pytest.raises(standard_queue.Full):
            await jobs.put(b"B", timeout=timeout)
        with pytest.raises(standard_queue.Full):
            await jobs.put_many([b"C"], timeout=timeout)
        assert len(jobs) == 1
        assert jobs.statistics().interested == 0

    run(main, broker)


WAYS_TO_GET: dict[str, Callable[[aio.Queue, aio.Channel, bool], Awaitable[Any]]] = {
    "get": lambda queue, _, auto_ack: queue.get(auto_ack=auto_ack),
    "get_many": lambda queue, _, auto_ack: queue.get_many(2, auto_ack=auto_ack),
    "basic_get": lambda queue, channel, auto_ack: channel.basic_get(queue.name, auto_ack, timeout=None),
}


@pytest.mark.parametrize("auto_ack", [False, True])
@pytest.mark.parametrize("gives_up", ["cancelled", "out of time"])
@pytest.mark.parametrize("way", WAYS_TO_GET)
def test_a_get_that_gives_up_as_its_message_comes_has_taken_none(
    broker: shmbroker.Broker,
    way: str,
    gives_up: str,
    auto_ack: bool,  # noqa: FBT001
) -> None:
    """The message is where it was, as never delivered, although the queue told the task of it before."""

    async def main(connection: aio.Connection) -> None:
        jobs, channel = await connection.queue("jobs"), await connection.channel()
        until = asyncio.timeout(None)

        async def get() -> None:
            async with until:
                await WAYS_TO_GET[way](jobs, channel, auto_ack)

        getting = asyncio.create_task(get())
        await until_waiting(jobs)
        jobs.put_nowait(b"A")
        if gives_up == "out of time":
            until.reschedule(0)  # comes before the turn of the task
        told(jobs)
        if gives_up == "cancelled":
            getting.cancel()
        with pytest.raises((asyncio.CancelledError, TimeoutError)):
            await getting
        facts = jobs.statistics()
        assert (facts.acked, facts.delivering, facts.interested) == (0, 0, 0)
        message = jobs.get_nowait()
        assert (bytes(message), message.redelivered, message.delivery_count) == (b"A", False, 1)

    run(main, broker)


@pytest.mark.parametrize("way", WAYS_TO_GET)
def test_a_get_that_is_cancelled_later_has_its_message(broker: shmbroker.Broker, way: str) -> None:
    """No cancellation comes between the take and the end of the await."""

    async def main(connection: aio.Connection) -> None:
        jobs, channel = await connection.queue("jobs"), await connection.channel()
        getting = asyncio.ensure_future(WAYS_TO_GET[way](jobs, channel, bool("auto_ack")))
        await until_waiting(jobs)
        jobs.put_nowait(b"A")
        while jobs.statistics().acked == 0:  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0)
        assert not getting.cancel()
        found = await getting
        assert bytes(found[0] if way == "get_many" else found) == b"A"

    run(main, broker)


def test_a_put_that_is_cancelled_as_its_room_comes_has_put_nothing(broker: shmbroker.Broker) -> None:
    """The program may put that message again; the put behind it has the room."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_length=1)
        await jobs.put(b"A")
        first, second = (asyncio.create_task(jobs.put(body)) for body in (b"B", b"C"))
        while core_of(jobs._sync).facts().room_waiting == 0:  # noqa: ASYNC110, SLF001 - no event reports it
            await asyncio.sleep(0)
        jobs.get_nowait(auto_ack=True)
        told(jobs)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await ready(second)
        assert [bytes(message) for message in jobs.browse()] == [b"C"]

    run(main, broker)


def told(queue: aio.Queue) -> None:
    """Does what the loop does when a queue has told of a message or of room, before any task has its turn."""
    for waiters in queue._session.waits._waiters.values():  # noqa: SLF001
        waiters._told()  # noqa: SLF001


def test_a_cancelled_get_passes_on_what_it_was_told_of(broker: shmbroker.Broker) -> None:
    """When the first of two waiting tasks is cancelled, the second gets the message."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        first, second = (asyncio.create_task(jobs.get(auto_ack=True)) for _ in range(2))
        await until_waiting(jobs)
        first.cancel()
        jobs.put_nowait(b"A")
        assert bytes(await ready(second)) == b"A"

    run(main, broker)


@pytest.mark.parametrize("gives_up", ["cancelled", "served"])
def test_a_task_that_waits_no_longer_takes_nobodys_turn(broker: shmbroker.Broker, gives_up: str) -> None:
    """Who waits in another connection is told of the next message, though tasks here waited before it."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        getting = asyncio.create_task(jobs.get(auto_ack=True))
        await until_waiting(jobs)
        if gives_up == "cancelled":
            getting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await getting
        else:
            jobs.put_nowait(b"for the task")
            assert bytes(await ready(getting)) == b"for the task"
        assert jobs.statistics().interested == 0
        with broker.connect() as other:
            taking = asyncio.create_task(asyncio.to_thread(other.queue("jobs").get, auto_ack=True))
            await until_waiting(jobs)
            jobs.put_nowait(b"for the thread")
            assert bytes(await ready(taking)) == b"for the thread"

    run(main, broker)


def test_a_change_waits_for_the_lock_of_the_topology(broker: shmbroker.Broker) -> None:
    """While somebody changes the topology, a declaration waits without holding up other tasks."""
    from shmbroker._core import native  # noqa: PLC0415
    from shmbroker._core.journal import topology_lock  # noqa: PLC0415

    async def main(connection: aio.Connection) -> None:
        taken, free = threading.Event(), threading.Event()

        def hold() -> None:
            with broker.connect() as other, topology_lock(core_of(other), native.deadline(5), "the test"):
                taken.set()
                free.wait(30)

        holder = threading.Thread(target=hold)
        holder.start()
        await asyncio.to_thread(taken.wait, 30)
        declaring = asyncio.create_task(connection.queue("late"))
        await asyncio.sleep(0.01)
        assert not declaring.done()
        free.set()
        await ready(declaring)
        holder.join()

    run(main, broker)


def test_connecting_waits_for_a_broker(broker_name: str) -> None:
    """With ``create=False`` it waits for somebody to make the broker; out of time it raises BrokerNotFound."""

    async def main() -> None:
        with pytest.raises(exceptions.BrokerNotFound):
            await aio.connect(broker_name, create=False)
        connecting = asyncio.ensure_future(aio.connect(broker_name, create=False, timeout=30))
        await asyncio.sleep(0)
        await asyncio.to_thread(shmbroker.Broker(broker_name).create)
        connection = await ready(connecting)
        assert connection.is_open
        connection.close()

    asyncio.run(main())
    with pytest.raises(TypeError, match=r"^executor=None: an asyncio connection takes no executor"):
        aio.connect(broker_name, executor=None)


def test_nothing_is_left_of_waits(broker: shmbroker.Broker) -> None:
    """After its waits the connection has neither nodes in lists nor descriptors open."""
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))

    async def main(connection: aio.Connection) -> None:
        for n in range(20):
            async with await connection.queue(f"q{n}") as queue:
                getting = asyncio.create_task(queue.get())
                await until_waiting(queue)
                await queue.put(b"A")
                (await ready(getting)).ack()

    run(main, broker)
    eventually(lambda: len(list(descriptors.iterdir())) <= before, "descriptors to be closed")


def descriptors() -> int:
    """How many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("way", ["get", "basic_get", "put"])
@pytest.mark.parametrize("deletes", ["this connection", "another one"])
def test_nothing_is_left_of_waits_at_deleted_queues(broker: shmbroker.Broker, way: str, deletes: str) -> None:
    """A program that declares a queue for each answer, waits there and deletes it, may do so for ever."""

    async def main(connection: aio.Connection) -> None:
        channel, open_files = await connection.channel(), list[int]()
        with broker.connect() as other:
            for n in range(60):
                queue = await connection.queue(f"q{n}", max_length=1)
                if way == "put":
                    await queue.put(b"A")
                    waiting = asyncio.create_task(queue.put(b"B"))
                    await asyncio.sleep(0)
                    queue.purge()
                else:
                    waiting = asyncio.ensure_future(WAYS_TO_GET[way](queue, channel, bool("auto_ack")))
                    await until_waiting(queue)
                    await queue.put(b"A")
                await ready(waiting)
                if deletes == "this connection":
                    await channel.queue_delete(queue.name)
                else:
                    other.queue(queue.name).delete()
                del queue
                open_files.append(descriptors())
        few = 0 if deletes == "this connection" else 20
        assert max(open_files[5:]) <= open_files[5] + few
        assert len(list(connection._session.queues)) <= 1  # noqa: SLF001

    run(main, broker)


def test_a_wait_at_a_queue_whose_name_another_has_now_ends(broker: shmbroker.Broker) -> None:
    """With its own queue; the connection keeps nothing of it, nor of the other one when it is closed."""

    async def main(connection: aio.Connection) -> None:
        before = descriptors()
        with broker.connect() as other:
            for _ in range(3):
                getting = asyncio.create_task((await connection.queue("q")).get())
                await until_waiting(await connection.queue("q"))
                other.queue("q").delete()
                await connection.queue("q")
                with pytest.raises(exceptions.NotFound):
                    await ready(getting)
        last = asyncio.create_task((await connection.queue("q")).get())
        await until_waiting(await connection.queue("q"))
        connection.close()
        with pytest.raises(exceptions.ConnectionClosed):
            await ready(last)
        assert descriptors() <= before

    run(main, broker)


@pytest.mark.parametrize("timeout", ["1", math.nan, -1, True])
def test_a_timeout_that_is_none(broker: shmbroker.Broker, timeout: Any) -> None:  # noqa: ANN401
    """It is refused also where there is room, or a message, and no call has to wait; nothing happens."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        channel = await connection.channel()
        await jobs.put_many([b"A", b"B"])
        async with (await connection.queue("other")).consume() as consumer:
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: jobs.put(b"x", timeout=timeout),
                lambda: jobs.put_many([b"x"], timeout=timeout),
                lambda: jobs.get(timeout=timeout),
                lambda: jobs.get_many(2, timeout=timeout),
                lambda: consumer.get(timeout=timeout),
                lambda: channel.basic_publish("", "jobs", b"x", timeout=timeout),
                lambda: channel.basic_get("jobs", timeout=timeout),
            ]
            for call in calls:
                with pytest.raises(ValueError, match="seconds >= 0"):
                    await call()
        assert [bytes(message) for message in jobs.browse()] == [b"A", b"B"]

    run(main, broker)
