# SPDX-License-Identifier: Apache-2.0
"""What a connection does once: when it is closed, in a forked child, and when the program ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted
from scenario_support.inside import core_of, session_of
from scenario_support.waiting import WATCHDOG_SECONDS

import shmbroker
from shmbroker import exceptions, queue
from shmbroker._core import attachment, segments
from shmbroker._process import connections
from shmbroker._session.session import Session
from shmbroker.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def connection(broker_name: str) -> Iterator[Connection]:
    """Connect to a broker without a housekeeper."""
    shmbroker.Broker(broker_name, memory="32M").create()
    with shmbroker.connect(broker_name, create=False) as opened:
        yield opened


@pytest.fixture
def forked() -> Iterator[pytest.MonkeyPatch]:
    """Let this process take itself for a forked child, until that is undone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(attachment.Attachment, "forked", True)
        yield patched


def test_a_connection_whose_housekeeper_is_its_own_matter(connection: Connection, broker_name: str) -> None:
    """Without a callable for that, the core's part keeps what it has."""
    default = core_of(connection).on_housekeeper_missing
    with Connection(Session(segments.path_of(broker_name), name="one")) as plain:
        assert callable(core_of(plain).on_housekeeper_missing)
    called = Noted(lambda: None)
    with Connection(Session(segments.path_of(broker_name), name="two", on_housekeeper_missing=called)) as other:
        assert core_of(other).on_housekeeper_missing is called
    assert core_of(connection).on_housekeeper_missing is default


def test_the_broker_knows_how_many_channels_are_open(connection: Connection) -> None:
    """Each that is opened or closed changes the number."""

    def count() -> int:
        ((found),) = connection.connections()
        return found.channels

    first, second = connection.channel(), connection.channel()
    assert count() == 2
    first.close()
    assert count() == 1
    second.close()
    assert count() == 0


def test_a_forked_child_cannot_use_the_connection(connection: Connection, forked: pytest.MonkeyPatch) -> None:
    """It is told to open one; what it closes there stays open for the parent."""
    with pytest.raises(exceptions.ForkedConnectionError):
        session_of(connection).check_open()
    connection.close()
    session_of(connection).__del__()
    forked.undo()
    assert not core_of(connection).closed
    assert connection.is_open


def test_a_closed_connection_asks_the_core_nothing(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a declaration says that the connection is closed."""
    connection.close()
    asked = Noted(lambda _: 0)
    monkeypatch.setattr(core_of(connection), "queue_slot", asked)
    with pytest.raises(exceptions.ConnectionClosed, match="the connection is closed"):
        connection.queue("q")
    assert asked.calls == []


@pytest.mark.parametrize("given", [1, b"q", None])
def test_a_consumer_is_of_queues(connection: Connection, given: Any) -> None:  # noqa: ANN401
    """Anything else is refused."""
    with pytest.raises(TypeError, match="is no queue: queues of this connection, or names, are needed"):
        connection.consumer([given])


def test_a_consumer_that_has_ended_is_not_meant(connection: Connection) -> None:
    """The descriptor is that of the one which is left, although the application keeps the other one."""
    ended = connection.queue("q").consume()
    ended.close()
    with connection.queue("q").consume() as consumer:
        assert connection.fileno() == consumer.fileno()
    with pytest.raises(ValueError, match="this connection has 0 consumers"):
        connection.fileno()


def test_a_connection_is_closed_once(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time nothing happens."""
    close = Noted(session_of(connection).callbacks.close)
    monkeypatch.setattr(session_of(connection).callbacks, "close", close)
    connection.close()
    connection.close()
    assert close.calls == [()]


def test_a_connection_that_another_thread_closes_meanwhile(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who had to wait for the lock finds it closed, and does nothing."""
    lock, close, closing = session_of(connection).lock, Noted(session_of(connection).callbacks.close), connection.close

    class Lock:
        def __enter__(self) -> None:
            session_of(connection).lock = lock
            closing()

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(session_of(connection).callbacks, "close", close)
    session_of(connection).lock = Lock()  # type: ignore[assignment]
    connection.close()
    assert close.calls == [()]


def callbacks(monkeypatch: pytest.MonkeyPatch, connection: Connection, *, used: bool) -> Noted:
    """Note that callbacks are finished."""
    finish = Noted(lambda: None)
    monkeypatch.setattr(
        session_of(connection), "callbacks", SimpleNamespace(used=used, finish=finish, close=lambda: None)
    )
    return finish


@pytest.mark.parametrize("used", [True, False])
def test_callbacks_stop_with_the_program(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, *, used: bool
) -> None:
    """Consumers are cancelled, then the last callbacks end; where there were none nothing happens."""
    first, second = connection.channel(), connection.channel()
    cancelled: list[object] = []

    def cancel(channel: shmbroker.Channel) -> None:
        cancelled.append(channel)
        if channel is first:
            raise exceptions.ConnectionClosed(504, "closed meanwhile")

    with monkeypatch.context() as patched:
        patched.setattr(shmbroker.Channel, "_cancel_consumers", cancel)
        finish = callbacks(patched, connection, used=used)
        session_of(connection).stop_callbacks()
    assert (cancelled, finish.calls) == (([first, second], [()]) if used else ([], []))


def test_a_connection_that_is_being_closed_opens_no_channel(connection: Connection) -> None:
    """Another thread that asks for one gets the error of a closed connection: nothing would end that channel."""
    channel, asked = connection.channel(), list[BaseException | None]()
    with ThreadPoolExecutor(1) as thread:
        channel._on_end = lambda: asked.append(thread.submit(connection.channel).exception(WATCHDOG_SECONDS))  # noqa: SLF001
        connection.close()
    assert [type(error) for error in asked] == [exceptions.ConnectionClosed]
    assert session_of(connection)._channels == {}  # noqa: SLF001


def test_a_connection_whose_close_was_interrupted_is_open(connection: Connection) -> None:
    """It opens channels, until the program closes it again."""
    channel = connection.channel()

    def interrupt() -> None:
        channel._on_end = None  # noqa: SLF001
        raise KeyboardInterrupt

    channel._on_end = interrupt  # noqa: SLF001
    with pytest.raises(KeyboardInterrupt):
        connection.close()
    late = connection.channel()
    connection.close()
    assert not late.is_open


def test_callbacks_of_a_closed_connection_have_stopped(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is finished again."""
    connection.close()
    finish = callbacks(monkeypatch, connection, used=True)
    session_of(connection).stop_callbacks()
    assert finish.calls == []


def test_callbacks_of_the_parent_go_on(connection: Connection, forked: pytest.MonkeyPatch) -> None:
    """The end of a forked child does not stop them."""
    with pytest.MonkeyPatch.context() as patched:
        finish = callbacks(patched, connection, used=True)
        session_of(connection).stop_callbacks()
        assert finish.calls == []
    forked.undo()


def test_a_connection_that_is_dropped_is_closed_in_the_core(connection: Connection) -> None:
    """So what it holds goes back."""
    session_of(connection).__del__()
    assert core_of(connection).closed


def test_each_broker_has_a_connection_for_unpickled_queues(broker_name: str) -> None:
    """It is the same one for all queues of that broker."""
    one, two = broker_name, f"{broker_name}-2"
    for name in (one, two):
        shmbroker.Broker(name, memory="32M").create()
    try:
        first, second = (connections.shared(queue._session_for_pickles, name) for name in (one, two))  # noqa: SLF001
        with Connection(first), Connection(second):
            assert (first.broker_name, second.broker_name) == (one, two)
            assert connections.shared(queue._session_for_pickles, one) is first  # noqa: SLF001
            assert connections.shared(queue._session_for_pickles, two) is second  # noqa: SLF001
    finally:
        shmbroker.Broker(two).stop(purge=True)
