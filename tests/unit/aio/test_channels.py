# SPDX-License-Identifier: Apache-2.0
"""Channels of an event loop: their callbacks may be coroutines, fail, wait and be cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from scenario_support.loops import ready, run, until_waiting

import shmbroker
from shmbroker import aio


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
        while len(log) < 4:  # noqa: ASYNC110 - no event reports it
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
