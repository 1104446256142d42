# SPDX-License-Identifier: Apache-2.0
"""Each operation of a channel of an event loop does what that of the sync channel does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from scenario_support.loops import ready, run, until_waiting
from scenario_support.turns import at_once

from shmbroker import aio, exceptions

if TYPE_CHECKING:
    import shmbroker


def bindings(connection: aio.Connection) -> list[tuple[str, str, str]]:
    """Return source, destination and key of all bindings."""
    return [(one.source, one.destination, one.routing_key) for one in connection._sync.bindings()]  # noqa: SLF001


def exchanges(connection: aio.Connection) -> set[str]:
    """Return the names of the exchanges that a test made."""
    return {one.name for one in connection._sync.exchanges() if one.name and not one.name.startswith("amq.")}  # noqa: SLF001


async def several(connection: aio.Connection, *bodies: bytes) -> tuple[aio.Channel, aio.Queue]:
    """Return a new channel, and the queue "q" with these messages."""
    queue = await connection.queue("q")
    await queue.put_many(bodies)
    return await connection.channel(), queue


async def body_of(channel: aio.Channel, queue: str = "q") -> bytes | None:
    """Take a message and return its body."""
    message = await channel.basic_get(queue, auto_ack=True)
    return None if message is None else bytes(message)


def test_exchanges_are_bound_and_deleted(broker: shmbroker.Broker) -> None:
    """Declaring, binding, unbinding and deleting exchanges change what others see, in each case as was said."""

    async def main(connection: aio.Connection) -> None:
        channel = await connection.channel()
        await channel.exchange_declare("x", "topic", internal=True)
        await channel.exchange_declare("y", exchange_type="fanout")
        found = {one.name: (one.type, one.internal) for one in connection._sync.exchanges() if one.name in "xy"}  # noqa: SLF001
        assert (found["x"], found["y"]) == (("topic", True), ("fanout", False))
        await channel.exchange_bind("y", "x", "key")
        assert bindings(connection) == [("x", "y", "key")]
        await channel.exchange_unbind("y", "x", routing_key="key")
        assert bindings(connection) == []
        await channel.exchange_bind("y", "x", "key")
        with pytest.raises(exceptions.PreconditionFailed):
            await channel.exchange_delete("x", if_unused=True)
        channel = await connection.channel()
        await channel.exchange_delete("x")
        await channel.exchange_delete("y")
        assert exchanges(connection) == set()

    run(main, broker)


def test_queues_are_bound_purged_and_deleted(broker: shmbroker.Broker) -> None:
    """Binding, unbinding, purging and deleting queues change what others see; counts of messages are returned."""

    async def main(connection: aio.Connection) -> None:
        channel = await connection.channel()
        declared = await channel.queue_declare("q", auto_delete=True)
        assert (declared.queue, declared.message_count, declared.consumer_count) == ("q", 0, 0)
        await channel.queue_bind("q", "amq.topic", "a.*")
        assert bindings(connection) == [("amq.topic", "q", "a.*")]
        await channel.queue_unbind("q", "amq.topic", routing_key="a.*")
        assert bindings(connection) == []
        for _ in range(3):
            await channel.basic_publish("", "q", b"")
        assert await channel.queue_purge("q") == 3
        await channel.basic_publish("", "q", b"")
        with pytest.raises(exceptions.PreconditionFailed):
            await channel.queue_delete("q", if_empty=True)
        channel = await connection.channel()
        assert await channel.queue_delete("q") == 1
        assert connection._sync.queue_names() == []  # noqa: SLF001

    run(main, broker)


def test_deliveries_are_settled_by_their_tags(broker: shmbroker.Broker) -> None:
    """Ack, nack and reject settle one delivery, or all up to it; what is dropped does not come back."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await several(connection, b"0", b"1", b"2", b"3", b"4", b"5", b"6")
        for _ in range(7):
            await channel.basic_get("q")
        await channel.basic_ack(2, multiple=True)
        assert queue.statistics().acked == 2
        await channel.basic_nack(3)
        await channel.basic_reject(4)
        assert [bytes(message) for message in queue.browse()] == [b"2", b"3"]
        await channel.basic_reject(5, requeue=False)
        await channel.basic_nack(7, multiple=True, requeue=False)
        statistics = queue.statistics()
        assert (statistics.dropped, statistics.ready, statistics.delivering) == (3, 2, 0)

    run(main, broker)


def test_recovery_returns_what_is_unacknowledged(broker: shmbroker.Broker) -> None:
    """All deliveries go back to their places; without requeue the call is refused, as by the sync channel."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await several(connection, b"A", b"B")
        await channel.basic_get("q")
        await channel.basic_get("q")
        await channel.basic_recover()
        assert [bytes(message) for message in queue.browse()] == [b"A", b"B"]
        with pytest.raises(exceptions.NotImplementedByBroker):
            await channel.basic_recover(requeue=False)

    run(main, broker)


def test_the_prefetch_limits_what_is_unacknowledged(broker: shmbroker.Broker) -> None:
    """With a prefetch of two a consumer holds two messages; canceled, its callback is not called again."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await several(connection, b"A", b"B", b"C", b"D")
        seen: list[bytes] = []
        two = asyncio.Event()

        def work(_channel: object, _method: object, _properties: object, body: bytes) -> None:
            seen.append(body)
            if len(seen) == 2:
                two.set()

        await channel.basic_qos(prefetch_count=2)
        assert await channel.basic_consume("q", work, consumer_tag="tag") == "tag"
        await ready(two.wait())
        assert (queue.statistics().delivering, queue.statistics().consumers) == (2, 1)
        await channel.basic_cancel("tag")
        assert queue.statistics().consumers == 0
        await channel.basic_ack(0, multiple=True)
        assert (queue.statistics().acked, len(queue)) == (2, 2)

    run(main, broker)


def test_a_rollback_forgets_what_was_published(broker: shmbroker.Broker) -> None:
    """After a rollback a commit publishes only what came later."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await several(connection)
        await channel.tx_select()
        await channel.basic_publish("", "q", b"A")
        await channel.tx_rollback()
        await channel.basic_publish("", "q", b"B")
        await channel.tx_commit()
        assert [bytes(message) for message in queue.browse()] == [b"B"]

    run(main, broker)


@pytest.mark.parametrize("timeout", [0, 30, None])
def test_a_get_takes_what_is_ready(broker: shmbroker.Broker, timeout: float | None) -> None:
    """The oldest message is returned at once, whatever the timeout; it is settled if that was asked for."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await several(connection, b"A", b"B", b"C")
        first = at_once(channel.basic_get("q", timeout=timeout))
        assert first is not None
        assert (bytes(first), first.settled, first.message_count) == (b"A", False, 2)
        second = at_once(channel.basic_get("q", auto_ack=True, timeout=timeout))
        assert second is not None
        assert (bytes(second), second.settled, queue.statistics().acked) == (b"B", True, 1)

    run(main, broker)


def test_a_get_of_nothing_does_not_wait(broker: shmbroker.Broker) -> None:
    """Without a timeout, or with 0, an empty queue gives None at once; with one, None when the time is up."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await several(connection)
        assert at_once(channel.basic_get("q")) is None
        assert at_once(channel.basic_get("q", timeout=0)) is None
        assert await channel.basic_get("q", timeout=0.01) is None
        assert queue.statistics().interested == 0
        assert channel.is_open

    run(main, broker)


def test_a_get_that_waits_settles_if_that_was_asked_for(broker: shmbroker.Broker) -> None:
    """Of two gets that wait the one with auto_ack settles its message."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await several(connection)
        getting = [asyncio.create_task(channel.basic_get("q", given, timeout=None)) for given in (True, False)]
        await until_waiting(queue)
        await queue.put_many([b"A", b"B"])
        found = [await ready(one) for one in getting]
        assert [(bytes(one), one.settled) for one in found] == [(b"A", True), (b"B", False)]

    run(main, broker)


def test_a_get_makes_no_queue(broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that is deleted while a get looks for a message stays deleted; the get raises NotFound."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await several(connection)
        get = channel._sync.basic_get  # noqa: SLF001

        def get_and_delete(*given: object) -> object:
            found = get(*given)  # type: ignore[arg-type]
            monkeypatch.undo()
            queue._sync.delete()  # noqa: SLF001
            return found

        monkeypatch.setattr(type(channel._sync), "basic_get", lambda _channel, *given: get_and_delete(*given))  # noqa: SLF001
        with pytest.raises(exceptions.NotFound):
            await channel.basic_get("q", timeout=None)
        assert connection._sync.queue_names() == []  # noqa: SLF001

    run(main, broker)


def test_gets_that_are_over_are_forgotten(broker: shmbroker.Broker) -> None:
    """A channel that lives long keeps nothing of the gets that waited."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await several(connection)
        for _ in range(3):
            getting = asyncio.create_task(channel.basic_get("q", timeout=None))
            await until_waiting(queue)
            await queue.put(b"A")
            assert await ready(getting) is not None
        assert channel._getting == set()  # noqa: SLF001 - nothing else shows it

    run(main, broker)


def test_a_closed_channel_passes_over_gets_that_were_cancelled(broker: shmbroker.Broker) -> None:
    """Of two gets that wait one is cancelled just after the channel is closed; the other one hears of the end."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await several(connection)
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
        first, second = (asyncio.create_task(channel.basic_get("q", timeout=None)) for _ in range(2))
        await until_waiting(queue)
        channel.close(200, "we are done")
        first.cancel()
        with pytest.raises(exceptions.ChannelClosed, match="we are done"):
            await ready(second)
        with pytest.raises(asyncio.CancelledError):
            await first
        assert errors == []

    run(main, broker)


def test_an_exclusive_iteration_is_alone(broker: shmbroker.Broker) -> None:
    """While it consumes exclusively, no other consumer of the queue is allowed; afterwards one is."""

    async def main(connection: aio.Connection) -> None:
        channel, _queue = await several(connection, b"A")
        async with contextlib.aclosing(channel.consume("q", exclusive=True)) as deliveries:
            await ready(anext(deliveries))
            other = await connection.channel()
            with pytest.raises(exceptions.AccessRefused):
                await other.basic_consume("q", print)
        await (await connection.channel()).basic_consume("q", lambda *_: None)

    run(main, broker)


async def handed_over(queue: aio.Queue, count: int) -> None:
    """Wait until so many messages were delivered."""
    while queue.statistics().delivering < count:  # noqa: ASYNC110 - no event reports it
        await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_closed_channel_ends_an_iteration(broker: shmbroker.Broker) -> None:
    """The loop ends without an error, and what it was handed is in its queue, in order."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await several(connection, b"A", b"B", b"C")
        seen = []
        async for _method, _properties, body in channel.consume("q"):
            await handed_over(queue, 3)
            seen.append(body)
            channel.close()
            break
        assert seen == [b"A"]
        assert [bytes(message) for message in queue.browse()] == [b"A", b"B", b"C"]

    run(main, broker)


@pytest.mark.parametrize("how", ["close", "acknowledge", "leave"])
def test_an_iteration_is_left(broker: shmbroker.Broker, how: str) -> None:
    """What it was handed and has not passed on goes back, unless it was settled by its tag, or with the channel."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await several(connection, b"A", b"B", b"C")
        async with contextlib.aclosing(channel.consume("q")) as deliveries:
            method, _properties, _body = await ready(anext(deliveries))
            await handed_over(queue, 3)
            if how == "close":
                channel.close()
            elif how == "acknowledge":
                await channel.basic_ack(0, multiple=True)
            else:
                method.ack()
        statistics = queue.statistics()
        assert (statistics.ready, statistics.delivering) == {"close": (3, 0), "acknowledge": (0, 0)}.get(how, (2, 0))

    run(main, broker)
