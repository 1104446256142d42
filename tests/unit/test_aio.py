# SPDX-License-Identifier: Apache-2.0
"""The asyncio twin: what waits is awaited, cancelling loses nothing, and no call has a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import queue as standard_queue
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import aio, exceptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine


def run(main: Callable[[aio.Connection], Coroutine[Any, Any, object]], broker: shmbroker.Broker) -> None:
    """Runs a coroutine function with a connection of its own."""

    async def connected() -> None:
        async with aio.connect(broker.name, create=False) as connection:
            await main(connection)

    asyncio.run(connected())


async def until_waiting(queue: aio.Queue, kind: str = "interested") -> None:
    """Until a task waits at a queue, where others can see it."""
    while getattr(queue.statistics(), kind) == 0:  # noqa: ASYNC110 - another process would see it no sooner
        await asyncio.sleep(0)


async def ready(tasks: Awaitable[Any]) -> Any:  # noqa: ANN401
    """What comes, or the watchdog."""
    return await asyncio.wait_for(tasks, 30)


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
        threads = threading.active_count()
        tasks = [first, *(asyncio.create_task(jobs.get(auto_ack=True)) for _ in range(9))]
        await asyncio.sleep(0)
        assert threading.active_count() == threads
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


def test_cancelling_a_get_loses_nothing(broker: shmbroker.Broker) -> None:
    """A get that is cancelled in the moment when it got a message gives it back, as never delivered."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        for _ in range(20):
            getting = asyncio.create_task(jobs.get())
            await until_waiting(jobs)
            jobs.put_nowait(b"A")
            while jobs.statistics().delivering == 0:  # noqa: ASYNC110
                await asyncio.sleep(0)
            cancelled = getting.cancel()  # the future has its result; the task has not run yet
            try:
                message = await getting
            except asyncio.CancelledError:
                assert cancelled
                message = await jobs.get(timeout=0)
            assert (bytes(message), message.delivery_count) == (b"A", 1)
            message.ack()
        assert jobs.statistics().acked == 20

    run(main, broker)


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


def test_a_consumer_iterates_and_ends(broker: shmbroker.Broker) -> None:
    """``async for`` hands out messages in order; it ends when the consumer is closed, which returns what it held."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        await jobs.put_many([b"%d" % n for n in range(300)])
        seen = []
        async with jobs.consume(prefetch=10) as consumer:
            async for message in consumer:
                seen.append(int(bytes(message)))
                if len(seen) == 200:
                    break
                message.ack()
            consumer.close()
            assert [message async for message in consumer] == []
        assert seen == list(range(200))
        assert (jobs.statistics().ready, jobs.statistics().delivering) == (101, 0)

    run(main, broker)


def test_a_consumer_that_waits_is_told(broker: shmbroker.Broker) -> None:
    """A consumer without messages lets other tasks run, and goes on with the next message of another process."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        consumer = jobs.consume()
        getting = asyncio.create_task(consumer.get())
        await asyncio.sleep(0)
        assert not getting.done()
        await jobs.put(b"A")
        (await ready(getting)).ack()
        with pytest.raises(standard_queue.Empty):
            await consumer.get(timeout=0.01)
        getting = asyncio.create_task(consumer.get())
        await asyncio.sleep(0)
        consumer.close()
        with pytest.raises(exceptions.ConnectionClosed):
            await ready(getting)

    run(main, broker)


def test_closing_ends_what_waits(broker: shmbroker.Broker) -> None:
    """Closing a queue or the connection ends every wait with ConnectionClosed."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs", max_length=1)
        await jobs.put(b"A")
        putting = asyncio.create_task(jobs.put(b"B"))
        getting = asyncio.create_task((await connection.queue("other")).get())
        await asyncio.sleep(0)
        connection.close()
        for task in (putting, getting):
            with pytest.raises(exceptions.ConnectionClosed):
                await ready(task)
        assert not connection.is_open

    run(main, broker)


@pytest.mark.parametrize("end", ["close", "error"])
def test_a_closed_channel_ends_what_waits(broker: shmbroker.Broker, end: str) -> None:
    """A get of the channel ends, also behind one of another channel, which goes on waiting."""

    async def main(connection: aio.Connection) -> None:
        other, channel, queue = await connection.channel(), await connection.channel(), await connection.queue("q")
        first = asyncio.create_task(other.basic_get("q", timeout=None))
        await until_waiting(queue)
        second = asyncio.create_task(channel.basic_get("q", timeout=None))
        await asyncio.sleep(0)
        if end == "close":
            channel.close()
        else:
            with pytest.raises(exceptions.PreconditionFailed):
                await channel.basic_ack(1)
        with pytest.raises(exceptions.ChannelClosed):
            await ready(second)
        await queue.put(b"A")
        message = await ready(first)
        assert bytes(message) == b"A"

    run(main, broker)


def test_a_deleted_queue_ends_what_waits(broker: shmbroker.Broker) -> None:
    """A task that waits at a queue which is deleted gets NotFound."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        getting = asyncio.create_task(jobs.get())
        await until_waiting(jobs)
        with broker.connect() as other:
            other.queue("jobs").delete()
        with pytest.raises(exceptions.NotFound):
            await ready(getting)

    run(main, broker)


def test_a_purged_broker_ends_what_waits(broker_name: str) -> None:
    """A task that waits when its broker is purged gets ConnectionClosedByBroker."""
    broker = shmbroker.Broker(broker_name)
    broker.start()

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        getting = asyncio.create_task(jobs.get())
        await until_waiting(jobs)
        purging = threading.Thread(target=lambda: shmbroker.Broker(broker_name).stop(purge=True))
        purging.start()
        with pytest.raises(exceptions.ConnectionClosedByBroker):
            await ready(getting)
        await asyncio.to_thread(purging.join)

    run(main, broker)
    broker.stop()


def test_callbacks_may_be_coroutines(broker: shmbroker.Broker) -> None:
    """Callbacks of a channel are awaited one at a time, in order, while those of other channels go on."""

    async def main(connection: aio.Connection) -> None:
        log: list[tuple[int, str, int]] = []
        done, both = asyncio.Event(), asyncio.Barrier(2)

        async def work(channel: aio.Channel, method: Any, _properties: object, body: bytes) -> None:  # noqa: ANN401
            log.append((channel.number, "begun", int(body)))
            await both.wait()
            log.append((channel.number, "ended", int(body)))
            await channel.basic_ack(method.delivery_tag)
            if len(log) == 40:
                done.set()

        for number in (1, 2):
            channel = await connection.channel(number)
            await channel.queue_declare(f"q{number}")
            await channel.basic_consume(f"q{number}", work)
            for n in range(10):
                await channel.basic_publish("", f"q{number}", b"%d" % n)
        await ready(done.wait())
        for number in (1, 2):
            assert [one[1:] for one in log if one[0] == number] == [
                (word, n) for n in range(10) for word in ("begun", "ended")
            ]

    run(main, broker)


def test_an_error_of_a_callback_reaches_the_hook(broker: shmbroker.Broker) -> None:
    """A coroutine that raises is told to the hook; its message stays unacknowledged, and the next one comes."""
    errors: list[BaseException] = []

    async def main() -> None:
        async with aio.connect(broker.name, create=False, on_callback_error=errors.append) as connection:
            channel = await connection.channel()
            await channel.queue_declare("q")
            second = asyncio.Event()

            async def work(_channel: object, method: Any, _properties: object, body: bytes) -> None:  # noqa: ANN401
                if body == b"A":
                    raise ZeroDivisionError
                method.ack()
                second.set()

            await channel.basic_consume("q", work)
            await channel.basic_publish("", "q", b"A")
            await channel.basic_publish("", "q", b"B")
            await ready(second.wait())
            assert [type(error) for error in errors] == [ZeroDivisionError]
            assert (await connection.queue("q")).statistics().delivering == 1

    asyncio.run(main())


def test_a_callback_may_wait_for_confirms(broker: shmbroker.Broker) -> None:
    """It does not wait for messages that came back: those are shown when it is over."""

    async def main(connection: aio.Connection) -> None:
        channel, shown = await connection.channel(), asyncio.Event()
        log: list[object] = []

        async def work(channel: aio.Channel, _method: object, _properties: object, _body: bytes) -> None:
            await channel.basic_publish("", "nowhere", b"", mandatory=True)
            log.append(await channel.wait_for_confirms())
            log.append(await asyncio.create_task(channel.wait_for_confirms()))  # as wait_for of Python 3.11

        def returned(*_: object) -> None:
            log.append("returned")
            shown.set()

        channel.add_on_return_callback(returned)
        await channel.confirm_delivery()
        await channel.queue_declare("q")
        await channel.basic_consume("q", work)
        await channel.basic_publish("", "q", b"")
        await shown.wait()
        assert log == [True, True, "returned"]

    run(lambda connection: ready(main(connection)), broker)


def test_other_callbacks_may_be_coroutines(broker: shmbroker.Broker) -> None:
    """Those of messages that come back, each before the next, and those of consumers whose queue was deleted."""

    async def main(connection: aio.Connection) -> None:
        channel, done = await connection.channel(), asyncio.Event()
        log: list[str] = []

        async def returned(channel: aio.Channel, _method: object, _properties: object, body: bytes) -> None:
            log.append(f"begun {body.decode()}")
            await asyncio.sleep(0)
            await channel.basic_get("q")
            log.append(f"ended {body.decode()}")

        async def cancelled(tag: str) -> None:
            await asyncio.sleep(0)
            log.append(tag)
            done.set()

        channel.add_on_return_callback(returned)
        channel.add_on_return_callback(returned)
        channel.add_on_cancel_callback(cancelled)
        await channel.queue_declare("q")
        await channel.basic_consume("q", lambda *_: None, consumer_tag="tag")
        await channel.basic_publish("", "nowhere", b"A", mandatory=True)
        while len(log) < 4:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)
        await channel.queue_delete("q")
        await done.wait()
        assert log == ["begun A", "ended A", "begun A", "ended A", "tag"]

    run(lambda connection: ready(main(connection)), broker)


def test_a_callback_may_wait_for_what_is_cancelled(broker: shmbroker.Broker) -> None:
    """That is an error of the callback as any other: the hook is told, and the next message comes."""
    errors: list[BaseException] = []

    async def main() -> None:
        async with aio.connect(broker.name, create=False, on_callback_error=errors.append) as connection:
            channel, queue = await connection.channel(), await connection.queue("q")
            second = asyncio.Event()

            async def work(_channel: object, _method: object, _properties: object, body: bytes) -> None:
                if body == b"A":
                    waiting = asyncio.get_running_loop().create_future()
                    waiting.cancel()
                    await waiting
                second.set()

            await channel.basic_consume("q", work)
            await queue.put_many([b"A", b"B"])
            await second.wait()
            assert [type(error) for error in errors] == [asyncio.CancelledError]

    asyncio.run(ready(main()))


def test_callbacks_that_raise_let_other_tasks_come(broker: shmbroker.Broker) -> None:
    """However many messages there are, other tasks get their turns, as with callbacks that do not raise."""
    count = 500

    async def main() -> None:
        async with aio.connect(broker.name, create=False, on_callback_error=lambda _: None) as connection:
            channel, queue = await connection.channel(), await connection.queue("q")
            await queue.put_many([b""] * count)
            seen = []

            def fail(*_: object) -> None:
                seen.append(None)
                raise ZeroDivisionError

            await channel.basic_consume("q", fail, auto_ack=True)
            while not seen:  # noqa: ASYNC110 - it asks what other tasks see
                await asyncio.sleep(0)
            assert len(seen) < count
            while len(seen) < count:  # noqa: ASYNC110
                await asyncio.sleep(0)

    asyncio.run(ready(main()))


def test_a_channel_of_a_loop(broker: shmbroker.Broker) -> None:
    """Declaring, publishing with confirms, transactions, getting with a wait, and iterating, all awaited."""

    async def main(connection: aio.Connection) -> None:
        async with await connection.channel() as channel:
            assert (await channel.queue_declare("q")).queue == "q"
            await channel.exchange_declare("x", "fanout")
            await channel.queue_bind("q", "x")
            assert await channel.basic_get("q") is None
            getting = asyncio.create_task(channel.basic_get("q", timeout=None))
            await until_waiting(await connection.queue("q"))
            assert await channel.publish_confirmed("x", "", b"A") == 1
            got = await ready(getting)
            assert got is not None
            await channel.basic_ack(got.delivery_tag)
            assert await channel.wait_for_confirms(timeout=5)
            for body in (b"B", b"C"):
                await channel.basic_publish("x", "", body)
            seen = []
            async for method, _properties, body in channel.consume("q"):
                seen.append(body)
                method.ack()
                if len(seen) == 2:
                    break
            assert seen == [b"B", b"C"]
        async with await connection.channel() as channel:
            await channel.tx_select()
            await channel.basic_publish("x", "", b"D")
            assert len(await connection.queue("q")) == 0
            await channel.tx_commit()
            assert len(await connection.queue("q")) == 1
            await channel.exchange_delete("x")
            assert await channel.queue_delete("q") == 1

    run(main, broker)


def test_an_iteration_acknowledges_what_it_passes_on(broker: shmbroker.Broker) -> None:
    """With auto_ack a message is settled when the loop gets it; what it was handed beyond that goes back."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await connection.channel(), await connection.queue("q")
        await queue.put_many([b"A", b"B", b"C"])
        async with contextlib.aclosing(channel.consume("q", auto_ack=True)) as deliveries:
            method, _properties, body = await ready(anext(deliveries))
            assert (body, method.settled) == (b"A", True)
        assert len(queue) == 2

    run(main, broker)


def test_a_change_waits_for_the_lock_of_the_topology(broker: shmbroker.Broker) -> None:
    """While somebody changes the topology, a declaration waits without holding up other tasks."""
    from shmbroker._core import library  # noqa: PLC0415
    from shmbroker._core.journal import topology_lock  # noqa: PLC0415

    async def main(connection: aio.Connection) -> None:
        taken, free = threading.Event(), threading.Event()

        def hold() -> None:
            with broker.connect() as other, topology_lock(other.core, library.deadline(5), "the test"):
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
    with pytest.raises(TypeError, match="event loop"):
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
