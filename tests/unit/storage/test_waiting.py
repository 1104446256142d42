# SPDX-License-Identifier: Apache-2.0
"""Publishers of a stored queue: which calls wait for the store, and what they are told."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from shmbroker import aio, exceptions
from shmbroker._core import native, segments, syncing
from shmbroker._core.attachment import Attachment
from shmbroker._core.connection import CoreConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker
    from tests.unit.storage.conftest import Stored

WATCHDOG = 60.0


class Keeping:
    """A storekeeper in a thread, instead of that of the main thread, so that a call in that one can wait for a turn."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with self._stored.another_keeper() as keeper:
            assert keeper.begin()
            while not self._ended.is_set():
                keeper.turn()

    def __enter__(self) -> None:
        self._stored.keeper.close()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._stored.take_over()


def reserve(queue: shmbroker.Queue, timeout: float | None) -> None:
    """Puts a message by a reservation."""
    with queue.reserve(3, timeout=timeout) as memory:
        memory[:] = b"abc"


CALLS: dict[str, Callable[[shmbroker.Queue, float | None], object]] = {
    "put": lambda queue, timeout: queue.put(b"abc", timeout=timeout),
    "put with options": lambda queue, timeout: queue.put(b"abc", timeout=timeout, headers={"a": [1]}, priority=1),
    "put with a priority": lambda queue, timeout: queue.put(b"abc", timeout=timeout, priority=1),
    "put of a bytearray": lambda queue, timeout: queue.put(bytearray(b"abc"), timeout=timeout),
    "put_many": lambda queue, timeout: queue.put_many([b"abc"], timeout=timeout),
    "put_many of bytearrays": lambda queue, timeout: queue.put_many([bytearray(b"abc")], timeout=timeout),
    "reserve": reserve,
}


def test_a_wait_ends_when_another_thread_closes_the_connection(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if that happens before the wait looks whether there is a storekeeper: the broker may be detached by then."""
    core = CoreConnection(segments.path_of(stored.name), "waits")
    turn = syncing.ask(core)

    def await_turn(*_: object) -> int:
        core.close()
        return native.TIMEOUT

    monkeypatch.setattr(syncing, "slow", SimpleNamespace(sb_store_await=await_turn))
    monkeypatch.setattr(Attachment, "storekeeper_missing", lambda _: pytest.fail("the broker is detached"))
    with pytest.raises(exceptions.ConnectionClosed):
        syncing.wait(core, turn, native.deadline(WATCHDOG))


@pytest.mark.parametrize("call", CALLS)
def test_a_put_waits_for_the_store(stored: Stored, call: str) -> None:
    """It returns when a turn has the message; without a storekeeper, not in time. The message is in the queue then."""
    queue = stored.connection.queue("q", durable=True)
    with pytest.raises(exceptions.Timeout, match="has not synced"):
        CALLS[call](queue, 0.02)
    assert len(queue) == 1
    with Keeping(stored):
        CALLS[call](queue, WATCHDOG)
        CALLS[call](queue, None)
    stored.restart()
    assert [bytes(message) for message in stored.connection.queue("q", passive=True).browse()] == [b"abc"] * 3


@pytest.mark.parametrize("call", CALLS)
def test_a_put_whose_time_is_up_says_so(stored: Stored, call: str) -> None:
    """Even if the put itself took all of the time: a call that returns has stored the message."""
    queue = stored.connection.queue("q", durable=True)
    with pytest.raises(exceptions.Timeout, match="has not synced"):
        CALLS[call](queue, 1e-9)
    assert len(queue) == 1


def test_a_put_that_does_not_wait_is_not_confirmed(stored: Stored) -> None:
    """With a timeout of 0; so does a put into a queue that is not stored, whatever its timeout."""
    queue = stored.connection.queue("q", durable=True)
    queue.put(b"1", timeout=0)
    queue.put_nowait(b"2")
    assert queue.put_many([b"3"], timeout=0) == 1
    reserve(queue, 0)
    other = stored.connection.queue("transient")
    other.put(b"1")
    assert other.put_many([b"2", b"3"]) == 2
    assert (len(queue), len(other)) == (4, 3)


def test_a_confirm_comes_after_the_turn(stored: Stored) -> None:
    """Of a publish, and of the future of one."""
    channel = stored.connection.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    assert channel.basic_publish("", "q", b"1") == 1
    future = channel.publish_confirmed("", "q", b"2")
    with pytest.raises(exceptions.Timeout, match="not confirmed in time"):
        channel.wait_for_confirms(timeout=0.02)
    assert not future.done()
    with Keeping(stored):
        assert channel.wait_for_confirms(timeout=WATCHDOG)
        assert future.result(timeout=WATCHDOG) == 2
        assert [channel.basic_publish("", "q", b"more") for _ in range(200)] == [*range(3, 203)]
        assert channel.wait_for_confirms(timeout=WATCHDOG)
    stored.restart()
    assert len(stored.connection.queue("q", passive=True)) == 202


def test_a_publish_without_confirms_does_not_wait(stored: Stored) -> None:
    """As in RabbitMQ."""
    channel = stored.connection.channel()
    channel.queue_declare("q", durable=True)
    assert channel.basic_publish("", "q", b"1") is None
    assert len(stored.connection.queue("q", passive=True)) == 1


def test_a_commit_waits_for_the_store(stored: Stored) -> None:
    """Unless its timeout is 0."""
    channel = stored.connection.channel()
    channel.queue_declare("q", durable=True)
    channel.tx_select()
    channel.basic_publish("", "q", b"1")
    with pytest.raises(exceptions.Timeout, match="has not synced"):
        channel.tx_commit(timeout=0.02)
    channel.basic_publish("", "q", b"2")
    channel.tx_commit(timeout=0)
    assert len(stored.connection.queue("q", passive=True)) == 2
    channel.basic_publish("", "q", b"3")
    with Keeping(stored):
        channel.tx_commit(timeout=WATCHDOG)
    stored.restart()
    assert len(stored.connection.queue("q", passive=True)) == 3


def test_confirms_of_a_closed_connection_fail(stored: Stored) -> None:
    """They are not known."""
    channel = stored.connection.channel()
    channel.queue_declare("q", durable=True)
    future = channel.publish_confirmed("", "q", b"1")
    stored.connection.close()
    with pytest.raises(exceptions.BrokerError):
        future.result(timeout=WATCHDOG)


def test_tasks_wait_for_the_store(stored: Stored) -> None:
    """As calls of threads do: a put, a batch, a confirm, a commit; and time out without a storekeeper."""

    async def work(connection: aio.Connection, seconds: float | None) -> None:
        queue = await connection.queue("q", durable=True)
        await queue.put(b"1", timeout=seconds)
        assert await queue.put_many([b"2", b"3"], timeout=seconds) == 2
        channel = await connection.channel()
        assert await channel.publish_confirmed("", "q", b"4") == 1
        commits = await connection.channel()
        await commits.tx_select()
        await commits.basic_publish("", "q", b"5")
        await commits.tx_commit(timeout=seconds)

    async def main() -> None:
        async with await aio.connect(stored.name) as connection:
            with pytest.raises(exceptions.Timeout, match="has not synced"):
                await work(connection, 0.02)
            with Keeping(stored):
                await work(connection, WATCHDOG)
                await work(connection, None)

    asyncio.run(main())
    assert len(stored.connection.queue("q", passive=True)) == 11
