# SPDX-License-Identifier: Apache-2.0
"""Consumers of an event loop: when they let other tasks run, and what ends with them."""

from __future__ import annotations

import asyncio
import os
import queue as standard_queue
import select
import weakref
from typing import TYPE_CHECKING

import pytest
from scenario_support.loops import ready, run
from scenario_support.turns import noted_options, waits

from shmbroker import aio, exceptions

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    import shmbroker

    Take: TypeAlias = Callable[[aio.Consumer], Coroutine[object, object, shmbroker.Message]]


@pytest.mark.parametrize("take", [aio.Consumer.get, anext], ids=["get", "iteration"])
def test_every_64th_message_lets_other_tasks_run(broker: shmbroker.Broker, take: Take) -> None:
    """The other messages come without a wait; what is cancelled while others run has taken nothing."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        await jobs.put_many([b""] * 200)
        consumer = jobs.consume(prefetch=1000)
        waited = [waits(take(consumer)) for _ in range(130)]
        assert waited == [n in {64, 128} for n in range(1, 131)]
        assert consumer.statistics().delivered == 128

    run(main, broker)


@pytest.mark.parametrize("take", [aio.Consumer.get, anext], ids=["get", "iteration"])
def test_the_64th_message_comes_after_one_turn_of_the_others(broker: shmbroker.Broker, take: Take) -> None:
    """Each other task runs once, however many messages wait."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        await jobs.put_many([b""] * 64)
        consumer = jobs.consume(prefetch=64)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for _ in range(64):
            await take(consumer)
        assert turns == 1
        task.cancel()

    run(main, broker)


@pytest.mark.parametrize("timeout", [0, 1e-9])
def test_a_get_that_does_not_wait_takes_every_ready_message(broker: shmbroker.Broker, timeout: float) -> None:
    """Each of them comes before Empty is raised, also where other tasks run first; a closed consumer is not empty."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        await jobs.put_many([b""] * 200)
        consumer = jobs.consume(prefetch=1000)
        for taken in range(1, 201):
            await consumer.get(timeout=timeout)
            assert consumer.statistics().delivered == taken
        with pytest.raises(standard_queue.Empty):
            await consumer.get(timeout=timeout)
        consumer.close()
        for _ in range(64):
            with pytest.raises(exceptions.ConnectionClosed):
                await consumer.get(timeout=timeout)

    run(main, broker)


def test_a_consumer_never_holds_up_the_loop(broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks the sync consumer only for what is there."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        consumer = jobs.consume()
        calls = noted_options(monkeypatch, type(consumer._sync), "get")  # noqa: SLF001
        getting = asyncio.create_task(consumer.get())
        await asyncio.sleep(0)
        await jobs.put(b"A")
        assert bytes(await ready(getting)) == b"A"
        assert len(calls) >= 2
        assert all(options == {"timeout": 0} for _, options in calls)

    run(main, broker)


def test_a_consumer_that_was_told_is_quiet(broker: shmbroker.Broker) -> None:
    """While it waits for the next message its descriptor is not readable, so the loop sleeps."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        consumer = jobs.consume()
        for body in (b"A", b"B"):
            getting = asyncio.create_task(consumer.get())
            await asyncio.sleep(0)
            await jobs.put(body)
            message = await ready(getting)
            assert bytes(message) == body
        waiting = asyncio.create_task(consumer.get())
        for _ in range(10_000):
            await asyncio.sleep(0)
            if not select.select([consumer._sync.fileno()], [], [], 0)[0]:  # noqa: SLF001
                break
        assert select.select([consumer._sync.fileno()], [], [], 0)[0] == []  # noqa: SLF001
        assert not waiting.done()
        waiting.cancel()

    run(main, broker)


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_consumer_ends(broker: shmbroker.Broker, end: str) -> None:
    """What waits in it ends; canceled, its messages can still be settled, and closed, they go back."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        await jobs.put_many([b"A", b"B"])
        consumer = jobs.consume()
        first = await consumer.get()
        assert bytes(await consumer.get()) == b"B"
        getting = asyncio.create_task(consumer.get())
        iterating = asyncio.create_task(anext(consumer, "over"))  # type: ignore[arg-type] # a coroutine, too
        await asyncio.sleep(0)
        getattr(consumer, end)()
        with pytest.raises(exceptions.ConnectionClosed, match="consumer"):
            await ready(getting)
        assert await ready(iterating) == "over"
        assert [message async for message in consumer] == []
        with pytest.raises(exceptions.ConnectionClosed, match="consumer"):
            await consumer.get(timeout=0)
        statistics = jobs.statistics()
        assert (statistics.delivering, statistics.consumers) == ((2, 0) if end == "cancel" else (0, 0))
        if end == "cancel":
            first.ack()
            assert jobs.statistics().acked == 1
        else:
            with pytest.raises(exceptions.MessageSettled):
                first.ack()

    run(main, broker)


def test_a_consumer_is_closed_by_with(broker: shmbroker.Broker) -> None:
    """At the end of ``async with`` what it holds goes back to its place."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        await jobs.put(b"A")
        async with jobs.consume() as consumer:
            assert bytes(await consumer.get()) == b"A"
            assert repr(consumer) == "<aio <Consumer of 'jobs'>>"
        assert repr(consumer) == "<aio <Consumer of 'jobs', closed>>"
        assert (jobs.statistics().ready, jobs.statistics().delivering) == (1, 0)

    run(main, broker)


def test_a_closed_consumer_leaves_nothing(broker: shmbroker.Broker) -> None:
    """Neither a reader in the loop nor the consumer itself, which the connection forgets."""

    async def main(connection: aio.Connection) -> None:
        jobs, loop = await connection.queue("jobs"), asyncio.get_running_loop()
        consumer = jobs.consume()
        descriptor, known = consumer._sync.fileno(), weakref.ref(consumer)  # noqa: SLF001
        consumer.close()
        assert not loop.remove_reader(descriptor)
        del consumer
        assert known() is None

    run(main, broker)


def test_a_consumer_is_closed_twice(broker: shmbroker.Broker) -> None:
    """Canceled and closed, it does not touch what got the number of its descriptor meanwhile."""

    async def main(connection: aio.Connection) -> None:
        jobs, loop = await connection.queue("jobs"), asyncio.get_running_loop()
        consumer = jobs.consume()
        descriptor = consumer._sync.fileno()  # noqa: SLF001
        consumer.cancel()
        following = os.eventfd(0)
        assert following == descriptor
        loop.add_reader(following, lambda: None)
        consumer.close()
        assert loop.remove_reader(following)
        os.close(following)

    run(main, broker)


def test_acknowledgements_wait_for_their_batch(broker: shmbroker.Broker) -> None:
    """Flush sends them before the batch is full."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        await jobs.put(b"A")
        async with jobs.consume(ack_batch=10, ack_interval=3600) as consumer:
            (await consumer.get()).ack()
            assert jobs.statistics().acked == 0
            consumer.flush()
            assert jobs.statistics().acked == 1

    run(main, broker)


def test_a_queue_is_iterated(broker: shmbroker.Broker) -> None:
    """``async for`` over a queue consumes it; when the loop is left and closed, what was not settled goes back."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        await jobs.put_many([b"A", b"B", b"C"])
        iterator = aiter(jobs)
        (await ready(anext(iterator))).ack()
        assert bytes(await ready(anext(iterator))) == b"B"
        await iterator.aclose()  # type: ignore[attr-defined] # it is a generator
        statistics = jobs.statistics()
        assert (statistics.acked, statistics.ready, statistics.consumers) == (1, 2, 0)

    run(main, broker)


def test_a_consumer_of_several_queues_has_a_time_limit(broker: shmbroker.Broker) -> None:
    """It takes from each; a get raises Empty when its time is up, and the next one goes on."""

    async def main(connection: aio.Connection) -> None:
        queues = [await connection.queue(name) for name in ("a", "b")]
        for queue in queues:
            await queue.put(queue.name.encode())
        consumer = connection.consumer(queues, auto_ack=True)
        assert {bytes(await consumer.get(timeout=30)) for _ in queues} == {b"a", b"b"}
        with pytest.raises(standard_queue.Empty):
            await consumer.get(timeout=0.001)
        with pytest.raises(standard_queue.Empty):
            await consumer.get(timeout=0)
        await queues[0].put(b"later")
        assert bytes(await ready(consumer.get())) == b"later"

    run(main, broker)


@pytest.mark.parametrize("timeout", [0, 0.01])
@pytest.mark.parametrize("of", ["a queue", "a connection"])
def test_an_iteration_ends_when_its_time_is_up(broker: shmbroker.Broker, of: str, timeout: float) -> None:
    """It yields every ready message, then ends; a later iteration over the same consumer goes on."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        options = {"timeout": timeout, "prefetch": 1000, "auto_ack": True}
        consumer = jobs.consume(**options) if of == "a queue" else connection.consumer([jobs], **options)

        async def iterate() -> list[bytes]:
            return [bytes(message) async for message in consumer]

        given = [b"%d" % n for n in range(130)]
        for bodies in (given, [], given[:1]):
            await jobs.put_many(bodies)
            assert await ready(iterate()) == bodies
        assert consumer.statistics().delivered == 131

    run(main, broker)


@pytest.mark.parametrize("timeout", [None, 3600])
def test_an_iteration_waits_while_it_has_time(broker: shmbroker.Broker, timeout: float | None) -> None:
    """It yields what comes later; when the consumer is closed, it ends before its time is up."""

    async def main(connection: aio.Connection) -> None:
        jobs = await connection.queue("jobs")
        consumer = jobs.consume(timeout=timeout)
        iterating = asyncio.create_task(anext(consumer))  # type: ignore[arg-type] # a coroutine, too
        await asyncio.sleep(0)
        assert not iterating.done()
        await jobs.put(b"A")
        assert bytes(await ready(iterating)) == b"A"
        ending = asyncio.create_task(anext(consumer, "over"))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        consumer.close()
        assert await ready(ending) == "over"

    run(main, broker)
