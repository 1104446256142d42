# SPDX-License-Identifier: Apache-2.0
"""Connections of an event loop: how they are opened, what they keep, and how they wait for their turn."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import session_of
from scenario_support.loops import ready, run, until_waiting
from scenario_support.turns import at_once, noted_options, noted_pauses, stopped_clock

import shmbroker
from shmbroker import aio, exceptions
from shmbroker._broker import connecting
from shmbroker._core import attachment, segments

if TYPE_CHECKING:
    from collections.abc import Callable

MODULE, SESSION = "shmbroker.aio.connection", "shmbroker.aio.session"


def after(refusals: int) -> Callable[[], str]:
    """Return an operation that another process holds up so often."""
    left = iter(range(refusals))

    def operation() -> str:
        for _ in left:
            text = "it is another's turn"
            raise exceptions.Timeout(text)
        return "done"

    return operation


def test_a_change_pauses_longer_each_time(broker: shmbroker.Broker) -> None:
    """The first pause is a millisecond, each other one twice as long, up to 20 ms; what it returns comes through."""

    async def main(connection: aio.Connection) -> None:
        pauses = noted_pauses()
        assert await connection._session.change(after(7)) == "done"  # noqa: SLF001
        assert pauses == [0.001, 0.002, 0.004, 0.008, 0.016, 0.02, 0.02]

    run(main, broker)


def test_a_change_has_a_time_limit(broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an operation timeout of 0 the first refusal is the answer; what needs no wait is done."""

    async def main() -> None:
        async with aio.connect(broker.name, create=False, operation_timeout=0) as connection:
            stopped_clock(monkeypatch, SESSION)
            with pytest.raises(exceptions.Timeout, match="another's turn"):
                at_once(connection._session.change(after(1)))  # noqa: SLF001
            assert at_once(connection._session.change(after(0))) == "done"  # noqa: SLF001

    asyncio.run(main())


def test_a_change_without_a_time_limit_waits_for_its_turn(broker: shmbroker.Broker) -> None:
    """With an operation timeout of None no number of refusals is the answer."""

    async def main() -> None:
        async with aio.connect(broker.name, create=False, operation_timeout=None) as connection:
            noted_pauses()
            assert await connection._session.change(after(1000)) == "done"  # noqa: SLF001

    asyncio.run(main())


@pytest.mark.parametrize("option", [{"operation_timeout": -1}, {"operation_timeout": "soon"}, {"timeout": -1}])
def test_a_timeout_that_is_none_is_refused(broker: shmbroker.Broker, option: dict[str, Any]) -> None:
    """As by the sync connect: a ValueError names the option and the value, before anything is opened."""

    async def main() -> None:
        ((name, value),) = option.items()
        with pytest.raises(ValueError, match=f"^{name}={value!r}: "):
            await aio.connect(broker.name, **option)

    asyncio.run(main())


def test_an_error_of_a_change_is_no_reason_to_wait(broker: shmbroker.Broker) -> None:
    """Anything but a timeout is raised at once."""

    async def main(connection: aio.Connection) -> None:
        with pytest.raises(exceptions.NotFound, match="no queue 'nowhere'"):
            at_once(connection.queue("nowhere", passive=True))
        assert connection._sync.queue_names() == []  # noqa: SLF001

    run(main, broker)


def test_a_queue_has_one_handle(broker: shmbroker.Broker) -> None:
    """Opened again it is the same object, until it is closed, or deleted and declared again."""

    async def main(connection: aio.Connection) -> None:
        first = await connection.queue("q", max_length=3)
        assert await connection.queue("q") is first
        first.close()
        second = await connection.queue("q")
        assert second is not first
        await second.delete()
        third = await connection.queue("q")
        assert third is not second
        second.close()  # it is of the queue that is gone
        assert await connection.queue("q") is third
        await third.put(b"A")
        assert len(third) == 1
        with pytest.raises(exceptions.PreconditionFailed):
            await connection.queue("q", max_length=4)

    run(main, broker)


def test_a_closed_handle_is_forgotten(broker: shmbroker.Broker) -> None:
    """The connection keeps nothing of it."""

    async def main(connection: aio.Connection) -> None:
        queue = await connection.queue("q")
        known = weakref.ref(queue)
        queue.close()
        del queue
        assert known() is None

    run(main, broker)


def test_closing_a_connection_closes_what_it_opened(broker: shmbroker.Broker) -> None:
    """Queues and consumers that wait end with its error; descriptors go, and it can be closed again."""

    async def main(connection: aio.Connection) -> None:
        loop = asyncio.get_running_loop()
        jobs, other = await connection.queue("jobs"), await connection.queue("other")
        consumer = other.consume()
        descriptor = consumer._sync.fileno()  # noqa: SLF001
        getting, consuming = asyncio.create_task(jobs.get()), asyncio.create_task(consumer.get())
        await until_waiting(jobs)
        connection.close()
        with pytest.raises(exceptions.ConnectionClosed, match="queue 'jobs' is closed"):
            await ready(getting)
        with pytest.raises(exceptions.ConnectionClosed, match="consumer"):
            await ready(consuming)
        assert not loop.remove_reader(descriptor)
        assert not connection.is_open
        connection.close()

    run(main, broker)


def test_a_connection_is_closed_by_with(broker: shmbroker.Broker) -> None:
    """Awaited or in ``async with``, it is closed at the end of a block; its name and state can be seen."""

    async def main() -> None:
        connecting = aio.connect(broker.name, create=False, client_name="tester")
        async with connecting as connection:
            assert (connection.name, connection.is_open) == ("tester", True)
            assert repr(connection) == f"<aio {connection._sync!r}>"  # noqa: SLF001
        assert not connection.is_open
        async with await aio.connect(broker.name, create=False) as connection:
            assert connection.is_open
        assert not connection.is_open

    asyncio.run(main())


def test_connecting_never_holds_up_the_loop(broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither opening nor the operations of the sync connection wait; its other options are handed on."""
    calls = noted_options(monkeypatch, connecting, "connect")

    async def main() -> None:
        connection = await aio.connect(broker.name, timeout=5, operation_timeout=3, create=False, client_name="tester")
        assert calls == [("connect", {"timeout": 0, "operation_timeout": 0, "create": False, "client_name": "tester"})]
        assert session_of(connection._sync).operation_timeout == 0  # noqa: SLF001
        connection.close()

    asyncio.run(main())


@pytest.mark.parametrize("options", [{}, {"timeout": 0}])
def test_a_broker_that_is_missing_is_not_waited_for(
    broker_name: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Without a timeout the error comes at once."""
    stopped_clock(monkeypatch, MODULE)

    async def connect() -> aio.Connection:
        return await aio.connect(broker_name, create=False, **options)

    async def main() -> None:
        with pytest.raises(exceptions.BrokerNotFound):
            at_once(connect())

    asyncio.run(main())


def test_a_broker_is_waited_for_until_the_time_is_up(broker_name: str) -> None:
    """It is looked for every 20 ms."""

    async def main() -> None:
        pauses = noted_pauses()
        connecting = asyncio.ensure_future(aio.connect(broker_name, create=False, timeout=0.1))
        with pytest.raises(exceptions.BrokerNotFound):
            await ready(connecting)
        assert set(pauses) == {0.02}

    asyncio.run(main())


@pytest.fixture
def half_purged(broker_name: str) -> str:
    """The name of a broker whose purge was killed after it had told the clients, and before it removed the memory."""
    shmbroker.Broker(broker_name, memory="32M").create()
    path = segments.path_of(broker_name)
    attached = attachment.acquire(path)
    attached.set_closing()
    attachment.release(attached)
    return broker_name


@pytest.mark.damaged
def test_connecting_beside_a_purge_lets_other_tasks_run(half_purged: str) -> None:
    """It looks every 20 ms, and is through as soon as the purge is."""
    path = segments.path_of(half_purged)

    async def main() -> None:
        connecting = asyncio.ensure_future(aio.connect(half_purged))
        await asyncio.sleep(0)
        assert not connecting.done()
        segments.remove(path, segments.identity(path))
        connection = await ready(connecting)
        assert connection.is_open
        connection.close()

    asyncio.run(main())


@pytest.mark.damaged
def test_a_purge_is_not_waited_for_without_end(half_purged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of time the error says what to do; with a timeout of 0 it comes at once."""

    async def connect(timeout: float | None) -> aio.Connection:  # noqa: ASYNC109
        return await aio.connect(half_purged, timeout=timeout)

    async def main() -> None:
        with pytest.raises(
            exceptions.Timeout, match=f"broker '{half_purged}' is being purged, and still there after 0 s"
        ):
            at_once(connect(0))
        monkeypatch.setattr("shmbroker._broker.connecting._PURGE_SECONDS", 0.1)
        pauses = noted_pauses()
        with pytest.raises(exceptions.Timeout, match="finishes what a killed process began"):
            await ready(asyncio.ensure_future(connect(None)))
        assert set(pauses) == {0.02}

    asyncio.run(main())
    with pytest.raises(exceptions.Timeout, match="is being purged"):
        shmbroker.connect(half_purged, timeout=0)
