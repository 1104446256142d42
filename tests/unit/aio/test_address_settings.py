# SPDX-License-Identifier: Apache-2.0
"""Address settings for asyncio: changes are awaited, and calls that make a queue wait for the lock without blocking."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of

import shmbroker
import shmbroker.aio
from shmbroker._core.journal import topology_lock
from shmbroker.exceptions import NotFound, Timeout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def test_settings_are_changed_listed_and_explained(broker: shmbroker.Broker) -> None:
    """The calls do what those of the synchronous connection do."""

    async def work() -> None:
        async with shmbroker.aio.connect(broker.name) as connection:
            await connection.queue("a.b")
            await connection.settings.set("a.#", default_max_length=5, default_ring_size=6)
            with broker.connect() as beside:
                assert beside.queue("a.b", passive=True).settings.max_length == 5
            assert connection.settings.list() == [("a.#", {"default_max_length": 5, "default_ring_size": 6})]
            assert connection.settings.explain("a")["default_ring_size"] == (6, "a.#")
            await connection.settings.remove("a.#", "default_ring_size")
            await connection.settings.remove("a.#")
            with pytest.raises(NotFound):
                await connection.settings.remove("a.#")
            assert repr(connection.settings).startswith("<aio <AddressSettings of broker")

    asyncio.run(work())


class Holder:
    """Holds the topology lock in another thread, until it is told to let it go."""

    def __init__(self, connection: shmbroker.Connection) -> None:
        self._core = core_of(connection)
        self._held, self._enough = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)
        self._thread.start()
        self._held.wait()

    def _hold(self) -> None:
        with topology_lock(self._core, 1 << 62, "test"):
            self._held.set()
            self._enough.wait()

    def release(self) -> None:
        """Let the lock go."""
        self._enough.set()
        self._thread.join()


async def publish(channel: Any) -> None:  # noqa: ANN401
    """Make the queue by a publish."""
    await channel.basic_publish("", "q", b"x")


async def confirm(channel: Any) -> None:  # noqa: ANN401
    """Make the queue by a publish that is confirmed."""
    await channel.publish_confirmed("", "q", b"x")


async def commit(channel: Any) -> None:  # noqa: ANN401
    """Make the queue by the commit of a transaction."""
    await channel.tx_select()
    await channel.basic_publish("", "q", b"x")
    await channel.tx_commit()


async def get(channel: Any) -> None:  # noqa: ANN401
    """Make the queue by a get."""
    await channel.basic_get("q")


async def consume(channel: Any) -> None:  # noqa: ANN401
    """Make the queue by a consumer."""
    await channel.basic_consume("q", lambda *_: None)


@pytest.mark.parametrize("use", [publish, confirm, commit, get, consume])
def test_a_call_that_makes_a_queue_waits_for_the_lock(
    broker: shmbroker.Broker, connection: shmbroker.Connection, use: Callable[[Any], Awaitable[None]]
) -> None:
    """Other tasks run while the call waits, and it succeeds when the lock is free."""
    connection.settings.set("q", auto_create_queues=True)

    async def work() -> None:
        async with shmbroker.aio.connect(broker.name) as own, await own.channel() as channel:
            holder = Holder(connection)
            try:
                task = asyncio.ensure_future(use(channel))
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not task.done()
                assert "q" not in connection.queue_names()
            finally:
                holder.release()
            await task
            assert "q" in connection.queue_names()

    asyncio.run(work())


def test_a_change_gives_up_when_the_time_is_up(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A change waits for the lock for the connection's operation_timeout, then raises and changes nothing."""

    async def work() -> None:
        async with shmbroker.aio.connect(broker.name, operation_timeout=0.05) as own:
            holder = Holder(connection)
            try:
                with pytest.raises(Timeout):
                    await own.settings.set("q", default_max_length=5)
            finally:
                holder.release()
            assert own.settings.list() == []

    asyncio.run(work())
