# SPDX-License-Identifier: Apache-2.0
"""Channels of an event loop wait for room, confirms and commits with growing pauses, and never hold up the loop."""

from __future__ import annotations

import asyncio
import queue as standard_queue
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.loops import ready, run
from scenario_support.turns import at_once, noted_options, noted_pauses, stopped_clock

from shmbroker import aio, exceptions

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import shmbroker


async def full(connection: aio.Connection) -> tuple[aio.Channel, aio.Queue]:
    """Return a new channel, and a queue "q" without room."""
    queue = await connection.queue("q", max_length=1)
    await queue.put(b"A")
    return await connection.channel(), queue


async def pauses_come(pauses: list[float], count: int) -> None:
    """Wait until there were so many pauses."""
    while len(pauses) < count:  # noqa: ASYNC110 - no event reports it
        await asyncio.sleep(0)


def test_pauses_grow_up_to_20_ms(broker: shmbroker.Broker) -> None:
    """A publish without a time limit looks again after 1, 2, 4, 8, 16 ms, and then every 20 ms."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await full(connection)
        pauses = noted_pauses()
        publishing = asyncio.create_task(channel.basic_publish("", "q", b"B"))
        await pauses_come(pauses, 7)
        assert pauses[:7] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.02, 0.02]
        queue.purge()
        await ready(publishing)
        assert [bytes(message) for message in queue.browse()] == [b"B"]

    run(main, broker)


@pytest.mark.parametrize("timeout", [30, None])
def test_there_is_room_in_time(broker: shmbroker.Broker, timeout: float | None) -> None:
    """Publish, confirmed publish and commit go on waiting until then."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await full(connection)
        transactional = await connection.channel()
        await transactional.tx_select()
        await transactional.basic_publish("", "q", b"B")
        for wait in (
            lambda: channel.basic_publish("", "q", b"B", timeout=timeout),
            lambda: channel.publish_confirmed("", "q", b"B", timeout=timeout),
            lambda: transactional.tx_commit(timeout=timeout),
        ):
            waiting = asyncio.create_task(wait())
            for _ in range(3):
                await asyncio.sleep(0)
            assert not waiting.done()
            assert bytes(await queue.get(auto_ack=True)) in {b"A", b"B"}
            await ready(waiting)
            assert len(queue) == 1

    run(main, broker)


def test_the_time_is_up(broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a timeout of 0 each of them raises Full at once; nothing was published, and the channel stays open."""

    async def main(connection: aio.Connection) -> None:
        channel, queue = await full(connection)
        transactional = await connection.channel()
        await transactional.tx_select()
        await transactional.basic_publish("", "q", b"B")
        stopped_clock(monkeypatch, "shmbroker.aio.channel")
        calls: list[Awaitable[Any]] = [
            channel.basic_publish("", "q", b"B", timeout=0),
            channel.publish_confirmed("", "q", b"B", timeout=0),
            transactional.tx_commit(timeout=0),
        ]
        for call in calls:
            with pytest.raises(standard_queue.Full):
                at_once(call)
        assert [bytes(message) for message in queue.browse()] == [b"A"]
        assert channel.is_open
        assert transactional.is_open

    run(main, broker)


def test_publishing_never_holds_up_the_loop(broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever may wait in the sync channel is asked not to."""

    async def main(connection: aio.Connection) -> None:
        channel, transactional = await connection.channel(), await connection.channel()
        await channel.queue_declare("q")
        await transactional.tx_select()
        names = ("basic_publish", "publish_confirmed", "wait_for_confirms", "tx_commit")
        calls = noted_options(monkeypatch, type(channel._sync), *names)  # noqa: SLF001
        await channel.basic_publish("", "q", b"A", timeout=30)
        await channel.publish_confirmed("", "q", b"A", timeout=30)
        assert await channel.wait_for_confirms(timeout=30)
        await transactional.tx_commit(timeout=30)
        assert calls == [(name, {"timeout": 0}) for name in names]

    run(main, broker)


def test_confirms_are_waited_for(broker: shmbroker.Broker) -> None:
    """Until callbacks have seen what came back; out of time it raises Timeout, and can be waited for again."""

    async def main(connection: aio.Connection) -> None:
        channel, go_on = await connection.channel(), asyncio.Event()

        async def returned(*_: object) -> None:
            await go_on.wait()

        def tell(*_: object) -> None:
            go_on.set()

        channel.add_on_return_callback(returned)
        channel.add_on_return_callback(tell)
        await channel.confirm_delivery()
        await channel.queue_declare("q")
        await channel.basic_publish("", "nowhere", b"A", mandatory=True)
        with pytest.raises(exceptions.Timeout):
            await channel.wait_for_confirms(timeout=0)
        assert await ready(channel.wait_for_confirms())
        assert go_on.is_set()

    run(main, broker)


def test_what_comes_back_is_told(broker: shmbroker.Broker) -> None:
    """A confirmed publish that is mandatory and has no queue raises; the callback gets the channel of the loop."""
    seen: list[object] = []

    async def main(connection: aio.Connection) -> None:
        channel = await connection.channel()

        def returned(*given: Any) -> None:  # noqa: ANN401
            seen.extend((given[0] is channel, given[1].routing_key, given[3]))

        channel.add_on_return_callback(returned)
        with pytest.raises(exceptions.UnroutableError, match="nowhere"):
            await ready(channel.publish_confirmed("", "nowhere", b"A", None, True))  # noqa: FBT003 - as pika has it
        assert seen == [True, "nowhere", b"A"]

    run(main, broker)


def test_callbacks_need_not_be_coroutines(broker: shmbroker.Broker) -> None:
    """What a plain function returns is nobody's business: the hook for errors hears of nothing."""
    errors: list[BaseException] = []

    async def main() -> None:
        async with aio.connect(broker.name, create=False, on_callback_error=errors.append) as connection:
            channel, two = await connection.channel(), asyncio.Event()
            seen: list[tuple[bool, bytes]] = []

            def work(given: aio.Channel, _method: object, _properties: object, body: bytes) -> int:
                seen.append((given is channel, body))
                if len(seen) == 2:
                    two.set()
                return 5

            await channel.queue_declare("q")
            await channel.basic_consume("q", work, auto_ack=True)
            for body in (b"A", b"B"):
                await channel.basic_publish("", "q", body)
            await ready(two.wait())
            await asyncio.sleep(0)
            assert seen == [(True, b"A"), (True, b"B")]
            for add in (channel.add_on_return_callback, channel.add_on_cancel_callback):
                with pytest.raises(TypeError, match="callback=5: a callable is needed"):
                    add(5)  # type: ignore[operator]
            with pytest.raises(TypeError, match="on_message_callback=5: a callable is needed"):
                await channel.basic_consume("q", 5)  # type: ignore[arg-type]

    asyncio.run(main())
    assert errors == []


def test_a_channel_says_what_it_is(broker: shmbroker.Broker) -> None:
    """Its number, whether it is open, and why it was closed; a block closes it."""

    async def main(connection: aio.Connection) -> None:
        async with await connection.channel(7) as channel:
            assert (channel.number, channel.is_open) == (7, True)
            assert repr(channel) == f"<aio {channel._sync!r}>"  # noqa: SLF001
        assert not channel.is_open
        with pytest.raises(exceptions.ChannelClosed, match="channel 7 is closed"):
            await channel.queue_declare("q")
        other = await connection.channel(7)
        other.close(200, "enough")
        with pytest.raises(exceptions.ChannelClosed, match="enough"):
            await other.basic_ack(1)

    run(main, broker)
