# SPDX-License-Identifier: Apache-2.0
"""What a connection says of itself and of its broker, and what becomes of its parts when it ends."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import pickle
import select
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scenario_support.inside import connection_of, core_of, session_of
from scenario_support.observing import await_counts, put_each, text
from scenario_support.waiting import becomes, eventually

import shmbroker
from shmbroker import exceptions
from shmbroker import queue as queue_module
from shmbroker._amqp.names import GROUP
from shmbroker._process import connections
from shmbroker._session.session import Session
from shmbroker._system_queues import queues

if TYPE_CHECKING:
    from collections.abc import Callable


def test_what_a_connection_was_opened_with(broker: shmbroker.Broker) -> None:
    """Its options, and the names of its broker: the full one is found by every user."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        connection = shmbroker.connect(
            broker.name, client_name="tester", executor=executor, channel_max=3, operation_timeout=7.0,
            on_callback_error=print,
        )  # fmt: skip
        with connection:
            assert (connection.name, connection.broker_name) == ("tester", broker.name)
            assert session_of(connection).broker_full_name == f"{os.getuid()}/{broker.name}"
            assert (session_of(connection).callbacks._given, session_of(connection)._numbers._most) == (executor, 3)  # noqa: SLF001
            assert (session_of(connection).operation_timeout, session_of(connection).callbacks._on_error) == (  # noqa: SLF001
                7.0,
                print,
            )
            assert repr(connection) == f"<Connection 'tester' to broker {broker.name!r}, open>"
        assert repr(connection) == f"<Connection 'tester' to broker {broker.name!r}, closed>"


def test_what_identifies_the_process_of_a_connection(connection: shmbroker.Connection) -> None:
    """Its pid, which is used again; and its start and the pid's namespace, as the system reports them."""
    (mine,) = (one for one in connection.connections() if one.name == connection.name)
    started = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()[19]
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    assert (mine.pid, mine.start_ticks, mine.pid_namespace) == (os.getpid(), int(started), namespace)


# ---- channels ----


def test_channels_are_numbered(broker: shmbroker.Broker) -> None:
    """With the lowest number that is free, or the one that is asked for; there are as many as were allowed."""
    with shmbroker.connect(broker.name, create=False, channel_max=3) as connection:
        first, third, second = connection.channel(), connection.channel(3), connection.channel()
        assert [one.number for one in (first, second, third)] == [1, 2, 3]
        with pytest.raises(exceptions.NoFreeChannels, match="all 3 channels"):
            connection.channel()
        with pytest.raises(ValueError, match="3: the connection has an open channel of this number"):
            connection.channel(3)
        second.close()
        again = connection.channel()
        assert again.number == 2
        second.close()
        with pytest.raises(exceptions.NoFreeChannels):
            connection.channel()
        session_of(connection).channel_closed(2, second)  # it has the number no more
        assert again.is_open
        with pytest.raises(exceptions.NoFreeChannels):
            connection.channel()


@pytest.mark.parametrize("number", [True, "1", 1.0])
def test_a_channel_number_is_an_integer(connection: shmbroker.Connection, number: object) -> None:
    """Anything else is refused."""
    with pytest.raises(TypeError, match=f"number={number!r}: an integer is needed"):
        connection.channel(number)  # type: ignore[arg-type]


def test_a_closed_connection_opens_no_channel(broker: shmbroker.Broker) -> None:
    """It says that it is closed, and what closed it if that was not the application."""
    connection = broker.connect()
    connection.close()
    with pytest.raises(exceptions.ConnectionClosed) as closed:
        connection.channel()
    assert (closed.value.code, closed.value.text) == (504, "CHANNEL_ERROR - the connection is closed")
    connection = broker.connect()
    session_of(connection).fail(exceptions.NotImplementedByBroker(540, "NOT_IMPLEMENTED - that"))
    with pytest.raises(exceptions.ConnectionClosed) as closed:
        connection.channel()
    assert closed.value.text == "CHANNEL_ERROR - the connection is closed: 540 NOT_IMPLEMENTED - that"


def test_a_connection_limits_its_consumers(connection: shmbroker.Connection) -> None:
    """What the consumers of all its channels hold; none is pulled beyond that."""
    put_each(connection.queue("q"), "ABCDE")
    session_of(connection).limit(2)
    connection.channel().basic_consume("q", lambda *_: None)
    await_counts(connection.queue("q"), delivering=2)
    session_of(connection).limit(0)
    await_counts(connection.queue("q"), delivering=5)


# ---- what is in the broker ----


def test_queues_are_listed_by_name(connection: shmbroker.Connection) -> None:
    """Those that the broker keeps for itself only if they are asked for."""
    own = GROUP + "g"
    queues.ensure(session_of(connection), own).put(b"AA")
    connection.queue("b").put(b"A")
    connection.queue("a")
    assert connection.queue_names() == ["a", "b"]
    assert connection.queue_names(all=True) == ["a", own, "b"]
    assert [(one.name, one.ready) for one in connection.queue_statistics()] == [("a", 0), ("b", 1)]
    assert [(one.name, one.bytes) for one in connection.queue_statistics(all=True)] == [("a", 0), (own, 2), ("b", 1)]


def test_a_queue_that_goes_while_they_are_listed_is_left_out(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the queues, and of those whose consumers are asked for."""
    gone, stays = connection.queue("gone"), connection.queue("q")  # at the same time: each has a slot of its own
    slots = core_of(connection).queue_slots()
    gone.delete()
    assert len(slots) == 2
    with stays.consume():
        monkeypatch.setattr(core_of(connection), "queue_slots", lambda: slots)
        assert connection.queue_names() == ["q"]
        assert [one.queue for one in connection.consumers()] == ["q"]


def test_what_a_consumer_holds_of_each_queue_is_listed(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """For each queue of the consumer by itself; what it acknowledges is gone from the list at once."""
    one, two = other.queue("one"), other.queue("two")

    def held() -> list[int]:
        return [connection.consumers(name)[0].unacked for name in ("one", "two")]

    with other.consumer([one, two], prefetch=4) as consumer:
        one.put_many([b"1", b"2"])
        two.put(b"3")
        messages = [consumer.get() for _ in range(3)]
        assert held() == [2, 1]
        left = [[2, 1]]
        for message in messages:
            message.ack()
            left.append(held())
        assert sorted(left, reverse=True) == left
        assert left[-1] == [0, 0]


def test_consumers_of_a_queue_and_of_all(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """Anybody sees them, with the connection that they belong to."""
    one, two = other.queue("one"), other.queue("two")
    with one.consume(prefetch=3, priority=2), two.consume(), two.consume():
        assert [(c.queue, c.connection, c.prefetch, c.priority) for c in connection.consumers("one")] == [
            ("one", core_of(other).id, 3, 2)
        ]
        assert sorted(c.queue for c in connection.consumers()) == ["one", "two", "two"]
    assert connection.consumers("one") == []
    with pytest.raises(exceptions.NotFound, match="no queue 'missing' in vhost"):
        connection.consumers("missing")
    with pytest.raises(ValueError, match="queue name"):
        connection.consumers("")


def test_exchanges_and_bindings_are_listed(connection: shmbroker.Connection) -> None:
    """Bindings of all exchanges, or those of one, from it and to it."""
    channel = connection.channel()
    channel.exchange_declare("one", "fanout")
    channel.exchange_declare("two", "fanout")
    channel.queue_declare("q")
    channel.queue_bind("q", "one")
    channel.queue_bind("q", "two")
    channel.exchange_bind("two", "one")

    def ends(exchange: str | None = None) -> list[tuple[str, str]]:
        return [(one.source, one.destination) for one in connection.bindings(exchange)]

    assert {"", "amq.direct", "one", "two"} < {one.name for one in connection.exchanges()}
    assert ends() == [("one", "q"), ("one", "two"), ("two", "q")]
    assert ends("one") == [("one", "q"), ("one", "two")]
    assert ends("two") == [("one", "two"), ("two", "q")]
    assert ends("two\n") == ends("two")
    with pytest.raises(exceptions.NotFound, match="no exchange 'missing'"):
        connection.bindings("missing")


def test_channels_of_all_connections_are_listed(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """Those with consumers one by one, the others of a connection together."""
    connection.queue("q")
    busy = other.channel(4)
    busy.basic_consume("q", lambda *_: None)
    assert other.channel().number == 1
    assert connection.channel().number == 1
    found = [(one.connection, one.number, one.count, one.consumers) for one in connection.channels()]
    assert sorted(found) == sorted(
        [(core_of(connection).id, 0, 1, 0), (core_of(other).id, 4, 1, 1), (core_of(other).id, 0, 1, 0)]
    )


def test_the_doctor_looks_at_memory_then_at_exchanges(
    connection: shmbroker.Connection,
) -> None:
    """The exchanges of a broker whose memory is damaged are not looked at."""
    assert connection.doctor() == []
    with pytest.MonkeyPatch.context() as damaged:
        damaged.setattr(session_of(connection).administration.exchanges, "problems", lambda _: ["an exchange"])
        assert connection.doctor() == ["an exchange"]
        damaged.setattr(core_of(connection), "doctor", lambda: ["memory"])
        assert connection.doctor() == ["memory"]


def test_a_consumer_opens_queues_by_name(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """It declares none, and takes no handle of another connection."""
    other.queue("q").put(b"A")
    with connection.consumer(["q"]) as consumer:
        assert text(consumer.get()) == "A"
    with pytest.raises(exceptions.NotFound, match="no queue 'missing'"):
        connection.consumer(["missing"])
    with pytest.raises(ValueError, match="opened by another connection"):
        connection.consumer([other.queue("q")])
    assert connection.queue_names() == ["q"]


def test_a_deleted_queue_has_no_handle(connection: shmbroker.Connection) -> None:
    """The connection forgets it with the deletion, and not one of the same name that came since."""
    queue = connection.queue("q")
    queue.delete()
    assert list(session_of(connection).handed_out()) == []
    again = connection.queue("q")
    session_of(connection).queues.forget(queue)
    assert list(session_of(connection).handed_out()) == [again]


# ---- waiting for its consumer ----


def test_a_connection_with_one_consumer_has_its_descriptor(connection: shmbroker.Connection) -> None:
    """It is readable when that has messages; with several, or none, it is not clear whose is meant."""
    queue = connection.queue("q")
    with pytest.raises(ValueError, match=r"has 0 consumers, .* needs exactly 1: use Consumer\.fileno"):
        connection.fileno()
    with queue.consume() as consumer:
        assert connection.fileno() == consumer.fileno()
        queue.put(b"A")
        assert select.select([connection], [], []) == ([connection], [], [])
        with queue.consume(), pytest.raises(ValueError, match="has 2 consumers"):
            connection.fileno()
        assert connection.fileno() == consumer.fileno()


# ---- its end ----


def test_the_consumers_of_a_closed_connection_have_ended(broker: shmbroker.Broker) -> None:
    """They say so, and their descriptors are closed."""
    connection = broker.connect()
    consumer, channel = connection.queue("q").consume(), connection.channel()
    descriptor, ends = consumer.fileno(), list[str]()
    channel._on_end = lambda: ends.append("channel")  # noqa: SLF001
    connection.add_close_callback(lambda: ends.append("connection"))
    connection.close()
    connection.close()
    assert repr(consumer) == "<Consumer of 'q', closed>"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert repr(channel).endswith("closed>")
    assert ends == ["channel", "connection"]


def test_a_consumer_that_was_cancelled_is_not_closed_again(broker: shmbroker.Broker) -> None:
    """The connection knows it no more; what the application holds of it goes back all the same."""
    with broker.connect() as observer:
        connection = broker.connect()
        put_each(observer.queue("q"), "AB")
        consumer = connection.queue("q").consume(prefetch=1)
        message = consumer.get()
        consumer.cancel()
        kept = weakref.ref(consumer)
        del consumer
        assert text(message) == "A"
        del message
        gc.collect()
        assert kept() is None
        connection.close()
        await_counts(observer.queue("q"), ready=2, delivering=0)


def test_a_stopped_broker_ends_its_channels(broker_name: str) -> None:
    """With the error of a broker that shuts down; then the connection's callbacks are called, once."""
    broker = shmbroker.Broker(broker_name).start()
    connection, seen = broker.connect(), list[bool]()
    channel = connection.channel()
    connection.add_close_callback(lambda: seen.append(channel._open))  # noqa: SLF001
    session_of(connection).start_io()
    broker.stop(purge=True)
    eventually(lambda: seen, "the callback")
    with pytest.raises(exceptions.ConnectionClosedByBroker) as forced:
        channel.queue_declare("q")
    assert forced.value.code == 320
    assert "broker forced connection closure" in forced.value.text
    assert not connection.is_open
    connection.close()
    assert seen == [False]


@pytest.mark.parametrize("use", [lambda _: None, lambda connection: connection.queue("q")])
def test_a_connection_that_was_never_made_is_collected(
    broker: shmbroker.Broker, use: Callable[[shmbroker.Connection], object]
) -> None:
    """As one is whose broker could not be attached to, or one that nobody has any more."""
    forgotten = object.__new__(Session)
    del forgotten
    with broker.connect() as observer:
        connection = broker.connect(client_name="forgotten")
        use(connection)
        del connection
        gc.collect()
        becomes(lambda: [one.name for one in observer.connections() if one.name == "forgotten"], [])


# ---- the connection of unpickled queues ----


def test_unpickled_queues_have_one_connection_of_the_process(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """It says what it is, and is made anew when it was closed."""
    queue = connection.queue("q")
    queue.put(b"A")
    copy, again = (pickle.loads(pickle.dumps(queue)) for _ in range(2))  # noqa: S301 (our own)
    assert copy is again
    name = session_of(connection).broker_full_name
    assert session_of(copy) is connections.shared(queue_module._session_for_pickles, name)  # noqa: SLF001
    assert session_of(copy) is not session_of(connection)
    assert connection_of(copy).name == f"unpickled in {os.getpid()}"
    connection_of(copy).close()
    anew = pickle.loads(pickle.dumps(queue))  # noqa: S301
    assert session_of(anew) is not session_of(copy)
    assert text(anew.get(auto_ack=True)) == "A"
    connection_of(anew).close()
    assert broker.statistics().connection_count >= 1
