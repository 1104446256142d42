# SPDX-License-Identifier: Apache-2.0
"""Connections: their life, and the queues they open."""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import assert_counts, await_counts, put_each, text
from scenario_support.waiting import eventually

from shmbroker.exceptions import ConnectionClosed, ForkedConnectionError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker


USES: dict[str, Callable[[shmbroker.Queue], object]] = {
    "put": lambda queue: queue.put(b"A"),
    "put_nowait": lambda queue: queue.put_nowait(b"A"),
    "put_many": lambda queue: queue.put_many([b"A"]),
    "get": lambda queue: queue.get(timeout=0),
    "get_nowait": lambda queue: queue.get_nowait(),
    "get_many": lambda queue: queue.get_many(3, timeout=0),
    "consume": lambda queue: queue.consume(),
    "browse": lambda queue: list(queue.browse()),
    "purge": lambda queue: queue.purge(),
    "statistics": lambda queue: queue.statistics(),
    "len": len,
    "pause": lambda queue: queue.pause(),
    "configure": lambda queue: queue.configure(ring_size=3),
    "delete": lambda queue: queue.delete(),
}


@pytest.mark.parametrize("use", USES)
def test_use_after_close(broker: shmbroker.Broker, use: str) -> None:
    """Whatever is done over a closed connection raises ConnectionClosed."""
    connection = broker.connect()
    queue = connection.queue("q")
    queue.put(b"A")
    connection.close()
    with pytest.raises(ConnectionClosed) as end:
        USES[use](queue)
    assert not isinstance(end.value, ForkedConnectionError)


def test_no_queue_from_a_closed_connection(broker: shmbroker.Broker) -> None:
    """A closed connection opens no queue, lists no consumers, and is not open."""
    connection = broker.connect()
    assert connection.is_open
    connection.close()
    assert not connection.is_open
    with pytest.raises(ConnectionClosed):
        connection.queue("q")
    with pytest.raises(ConnectionClosed):
        connection.consumers()


def test_close_twice(broker: shmbroker.Broker) -> None:
    """A second close is without effect, and so is one after `with`."""
    connection = broker.connect()
    connection.close()
    connection.close()
    with broker.connect() as inner:
        pass
    inner.close()


def test_a_held_message_of_a_closed_connection(broker: shmbroker.Broker) -> None:
    """What was held returns at close; to settle it then is an error, not a second ack.

    The return is clean, so the delivery is not counted; but it was one.
    """
    connection = broker.connect()
    queue = connection.queue("q")
    put_each(queue, "AB")
    message = queue.get()
    connection.close()
    with pytest.raises(ConnectionClosed):
        message.ack()
    with broker.connect() as other:
        again = other.queue("q").get()
        assert text(again) == "A"
        assert again.redelivered
        assert again.delivery_count == 1
        assert_counts(other.queue("q"), ready=1, delivering=1, acked=0)
        assert other.doctor() == []


def test_close_ends_the_waiting_of_another_thread(broker: shmbroker.Broker) -> None:
    """A get that waits in another thread ends with ConnectionClosed."""
    connection = broker.connect()
    queue = connection.queue("q")
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            queue.get()
        except BaseException as error:  # noqa: BLE001 (it is what we look at)
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    with broker.connect() as observer:
        eventually(lambda: observer.consumers("q"))
    connection.close()
    thread.join()
    assert [type(error) for error in errors] == [ConnectionClosed]


BAD_QUEUE_NAMES = {
    "empty": "",
    "256 bytes": "q" * 256,
    "256 bytes of UTF-8": "é" * 128,
    "with NUL": "a\0b",
    "not UTF-8": "a\ud800b",
}


@pytest.mark.parametrize("name", BAD_QUEUE_NAMES)
@pytest.mark.parametrize("passive", [False, True])
def test_a_queue_name_outside_the_rules_is_refused(
    connection: shmbroker.Connection, name: str, *, passive: bool
) -> None:
    """A queue's name is 1 to 255 bytes of UTF-8 without NUL."""
    with pytest.raises(ValueError, match="name"):
        connection.queue(BAD_QUEUE_NAMES[name], passive=passive)


@pytest.mark.parametrize("name", ["q" * 255, "é" * 127 + "e", "with space/and#*.", "日"])
def test_queue_names_within_the_rules(connection: shmbroker.Connection, name: str) -> None:
    """Any other text is a name, and the same one finds the queue again."""
    connection.queue(name).put(b"A")
    assert text(connection.queue(name, passive=True).get()) == "A"
    assert connection.queue(name).name == name
    assert connection.queue(name).statistics().name == name


@pytest.mark.parametrize("name", [None, 5, b"q"])
def test_a_queue_name_is_text(connection: shmbroker.Connection, name: object) -> None:
    """A queue's name is a str."""
    with pytest.raises((TypeError, ValueError)):
        connection.queue(name)


def test_passive_on_a_missing_queue(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A passive declaration of what is not there fails in RabbitMQ's words."""
    with pytest.raises(NotFound) as missing:
        connection.queue("q", passive=True)
    assert missing.value.code == 404
    assert missing.value.text == "NOT_FOUND - no queue 'q' in vhost '/'"
    assert "NOT_FOUND - no queue 'q' in vhost '/'" in str(missing.value)
    assert broker.statistics().queue_count == 0


def test_the_consumers_of_a_queue_are_listed(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Each consumer is listed with its state; a get that waits is marked as such."""
    queue, other = connection.queue("q"), connection.queue("other")
    with queue.consume(prefetch=1), other.consume():
        await_counts(queue, interested=1)
        assert [(c.state, c.waiting) for c in connection.consumers("q")] == [("interested", False)]
        assert len(connection.consumers()) == 2
        queue.put(b"A")
        await_counts(queue, not_interested=1)
        assert [c.state for c in connection.consumers("q")] == ["not_interested"]
        result: list[str] = []
        with broker.connect() as second:
            waiting = second.queue("q")
            thread = threading.Thread(target=lambda: result.append(text(waiting.get())))
            thread.start()
            eventually(lambda: any(c.waiting for c in connection.consumers("q")))
            assert_counts(queue, consumers=1, interested=1)
            queue.put(b"B")
            thread.join()
        assert result == ["B"]
        await_counts(queue, ready=1, interested=0, consumers=1)
    assert connection.consumers() == []


def test_a_connection_says_what_it_is(broker: shmbroker.Broker) -> None:
    """The representation names the connection, its broker, and whether it is open."""
    connection = broker.connect(client_name="tester")
    assert connection.name == "tester"
    assert "tester" in repr(connection)
    assert "open" in repr(connection)
    connection.close()
    assert "closed" in repr(connection)


def publish(connection: shmbroker.Connection) -> None:
    """Publish to a queue, so that a route leads there."""
    connection.channel().basic_publish("", "q", b"B")


@pytest.mark.parametrize("use", [lambda _: None, lambda connection: connection.queue("q").get(), publish])
def test_a_forgotten_connection_ends(
    broker: shmbroker.Broker, connection: shmbroker.Connection, use: Callable[[shmbroker.Connection], object]
) -> None:
    """One that nobody has any more, and that has no thread, is collected; what it held goes back."""
    queue = connection.queue("q")
    queue.put(b"A")
    before = len(connection.connections())
    use(broker.connect())
    gc.collect()
    assert len(connection.connections()) == before
    assert_counts(queue, delivering=0)


def test_a_program_whose_name_is_no_text_connects(
    broker: shmbroker.Broker, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's name may be any bytes, which Python reads as surrogates; others see question marks for them."""
    monkeypatch.setattr("sys.argv", [os.fsdecode(b"caf\xe9.py")])
    with broker.connect():
        assert connection.connections()[-1].name == f"caf?.py:{os.getpid()}"


def test_the_consumers_of_a_connection_are_counted(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Each counts once, over however many queues; a get that waits does not; who holds messages is told too."""

    def counted(name: str) -> tuple[int, int]:
        (info,) = (info for info in connection.connections() if info.name == name)
        return info.consumers, info.holding

    one, two = connection.queue("one"), connection.queue("two")
    with broker.connect(client_name="tester") as tester:
        assert counted("tester") == (0, 0)
        with tester.queue("one").consume(), tester.consumer(["one", "two"]) as both, tester.queue("two").consume():
            assert counted("tester") == (3, 0)
            both.cancel()
            assert counted("tester") == (2, 0)
            one.put(b"A")
            eventually(lambda: counted("tester") == (2, 1))
        assert counted("tester") == (0, 0)
        thread = threading.Thread(target=tester.queue("two").get)
        thread.start()
        await_counts(two, interested=1)
        assert counted("tester") == (0, 0)
        two.put(b"B")
        thread.join()


def test_connections_of_one_process_are_independent(broker: shmbroker.Broker) -> None:
    """Two connections hold their own messages; closing one returns only its own."""
    with broker.connect() as one:
        two = broker.connect()
        put_each(one.queue("q"), "AB")
        mine = one.queue("q").get()
        two.queue("q").get()
        two.close()
        assert_counts(one.queue("q"), delivering=1, ready=1)
        mine.ack()
        assert text(one.queue("q").get()) == "B"
