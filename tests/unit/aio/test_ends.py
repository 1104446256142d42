# SPDX-License-Identifier: Apache-2.0
"""Consumers and what waits, when something is closed, deleted or purged."""

from __future__ import annotations

import asyncio
import queue as standard_queue
import threading

import pytest
from scenario_support.loops import ready, run, until_waiting

import shmbroker
from shmbroker import aio, exceptions


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


@pytest.mark.parametrize("waits", ["nobody", "a task", "a task that is cancelled"])
def test_a_failed_publish_is_told_by_the_next_method(broker: shmbroker.Broker, waits: str) -> None:
    """By a get that waits already; else by the next method that is answered. Until then a publish does nothing."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await connection.channel(), await connection.queue("q")
        getting = asyncio.create_task(channel.basic_get("q", timeout=None)) if waits != "nobody" else None
        if getting is not None:
            await until_waiting(queue)
        await channel.basic_publish("missing", "", b"")
        if waits == "a task":
            assert getting is not None
            with pytest.raises(exceptions.NotFound, match="no exchange 'missing'"):
                await ready(getting)
        else:
            if getting is not None:
                getting.cancel()
            for _ in range(3):
                await asyncio.sleep(0)
            await channel.basic_publish("", "q", b"A")
            with pytest.raises(exceptions.NotFound, match="no exchange 'missing'"):
                await channel.queue_declare("q")
        with pytest.raises(exceptions.ChannelClosed):
            await channel.queue_declare("q")
        assert len(queue) == 0

    run(main, broker)


def test_a_closed_queue_ends_no_wait_of_a_channel(broker: shmbroker.Broker) -> None:
    """A get of the handle ends, first in the order or not; one of a channel at that queue goes on waiting."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await connection.channel(), await connection.queue("q")
        getting = [asyncio.create_task(queue.get())]
        await until_waiting(queue)
        of_channel = asyncio.create_task(channel.basic_get("q", timeout=None))
        await asyncio.sleep(0)
        getting.append(asyncio.create_task(queue.get()))
        await asyncio.sleep(0)
        queue.close()
        for task in getting:
            with pytest.raises(exceptions.ConnectionClosed, match="queue 'q' is closed"):
                await ready(task)
        await until_waiting(await connection.queue("q"))
        await channel.basic_publish("", "q", b"A")
        assert bytes(await ready(of_channel)) == b"A"

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


def purged_by_another_thread(name: str) -> threading.Thread:
    """Begins a purge, beside the loop."""
    purging = threading.Thread(target=lambda: shmbroker.Broker(name).stop(purge=True))
    purging.start()
    return purging


@pytest.mark.parametrize("how", ["get", "iteration"])
@pytest.mark.parametrize("holds", [False, True])
def test_a_deleted_queue_ends_a_consumer(broker: shmbroker.Broker, how: str, *, holds: bool) -> None:
    """A task that waits in a consumer gets NotFound, also while the consumer holds all that its prefetch allows."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        consumer = jobs.consume(prefetch=1)
        held = []
        if holds:
            await jobs.put(b"A")
            held.append(await ready(consumer.get()))
        waiting = asyncio.create_task(consumer.get() if how == "get" else anext(consumer))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert not waiting.done()
        with broker.connect() as other:
            other.queue("jobs").delete()
        with pytest.raises(exceptions.NotFound):
            await ready(waiting)

    run(main, broker)


@pytest.mark.parametrize("how", ["get", "iteration"])
def test_a_purged_broker_ends_a_consumer(broker_name: str, how: str) -> None:
    """A task that waits in a consumer when its broker is purged gets ConnectionClosedByBroker."""
    broker = shmbroker.Broker(broker_name)
    broker.start()

    async def main(connection: aio.Connection) -> None:
        consumer = (await connection.queue("jobs")).consume()
        waiting = asyncio.create_task(consumer.get() if how == "get" else anext(consumer))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert not waiting.done()
        purging = purged_by_another_thread(broker_name)
        with pytest.raises(exceptions.ConnectionClosedByBroker):
            await ready(waiting)
        await asyncio.to_thread(purging.join)

    run(main, broker)
    broker.stop()
