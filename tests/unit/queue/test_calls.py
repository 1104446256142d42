# SPDX-License-Identifier: Apache-2.0
"""What the calls of a handle hand on, refuse and leave: consumers, settings, moves, statistics, closing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.brokers import running
from scenario_support.inside import core_of, session_of
from scenario_support.observing import assert_counts, listing, put_each
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import QueueSettings
from shmbroker import queue as queue_module
from shmbroker.exceptions import ConnectionClosed, NotFound, OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_handle_shows_queue_and_broker(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Also whether it is closed; it is true, however many messages there are."""
    queue = connection.queue("jobs")
    assert repr(queue) == f"<Queue 'jobs' of broker {broker.name!r}>"
    assert bool(queue)
    assert session_of(queue) is session_of(connection)
    queue.close()
    assert repr(queue) == f"<Queue 'jobs' of broker {broker.name!r}, closed>"


def test_delivery_tags_count_from_one(connection: shmbroker.Connection) -> None:
    """In each handle, in the order in which they are asked for; a message keeps its own."""
    for name in ("a", "b"):
        queue = connection.queue(name)
        put_each(queue, "ABC")
        messages = [queue.get() for _ in range(3)]
        assert [messages[at].delivery_tag for at in (2, 0, 1)] == [1, 2, 3]
        assert [message.delivery_tag for message in messages] == [2, 3, 1]


def test_a_with_block_closes_the_handle(connection: shmbroker.Connection) -> None:
    """Its queue stays."""
    with connection.queue("q") as queue:
        queue.put(b"A")
    uses: list[Callable[[], object]] = [
        lambda: queue.put(b"B"),
        lambda: queue.put(b"B", key="k"),
        lambda: queue.put(bytearray(b"B")),
        lambda: queue.put_many([b"B"]),
        lambda: queue.put_many([bytearray(b"B")]),
        lambda: queue.get(timeout=0),
        queue.get_nowait,
        lambda: queue.get_many(1, timeout=0),
        lambda: len(queue),
    ]
    for use in uses:
        with pytest.raises(ConnectionClosed, match="queue 'q' is closed"):
            use()
    assert listing(connection.queue("q", passive=True)) == ["A"]


def test_a_consumer_has_the_options_that_were_given(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one of this queue; without options it takes 64 messages ahead, and acknowledges each by itself."""
    given: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr(queue_module, "Consumer", lambda *queues, **options: given.append((queues, options)))
    options = {"prefetch": 3, "priority": 5, "auto_ack": True, "timeout": 7.0, "ack_batch": 9, "ack_interval": 0.5}
    options |= {"prefetch_bytes": 2000, "selector": "a = 1", "exclusive": True, "no_local": True}
    queue.consume(**options)  # type: ignore[arg-type]
    queue.consume()
    standard = {
        "prefetch": 64,
        "priority": 0,
        "auto_ack": False,
        "timeout": None,
        "ack_batch": 1,
        "ack_interval": 0.001,
        "prefetch_bytes": None,
        "selector": None,
        "exclusive": False,
        "no_local": False,
    }
    of = session_of(queue), [core_of(queue)]
    assert given == [(of, options), (of, standard)]


@pytest.mark.parametrize(
    "setting", [{"durable": True}, {"exclusive": False}, {"auto_delete": True}, {"single_active_consumer": True}]
)
def test_what_a_queue_has_for_its_whole_life_is_not_configured(
    connection: shmbroker.Connection, setting: dict[str, bool]
) -> None:
    """Also beside settings that can be: none of them is changed."""
    queue = connection.queue("q", ring_size=5)
    (name,) = setting
    with pytest.raises(
        ValueError, match=f"^{name}={setting[name]!r}: {name} of queue 'q' cannot change; delete the queue"
    ):
        queue.configure(ring_size=3, **setting)
    assert queue.settings == QueueSettings(ring_size=5)


def test_configuring_trims_only_if_it_is_asked_to(connection: shmbroker.Connection) -> None:
    """A ring that is made smaller keeps what is in it; neither do pausing and resuming trim it."""
    queue = connection.queue("q", ring_size=5)
    put_each(queue, "ABCDE")
    queue.configure(ring_size=2)
    assert listing(queue) == list("ABCDE")
    queue.pause()
    assert queue.paused
    assert listing(queue) == list("ABCDE")
    queue.configure(max_length=7)
    assert queue.paused
    queue.resume()
    assert not queue.paused
    assert listing(queue) == list("ABCDE")
    assert queue.settings == QueueSettings(ring_size=2, max_length=7)
    queue.configure(ring_size=2, trim=True)
    assert listing(queue) == ["D", "E"]


def test_the_bindings_of_a_queue_end_with_it(connection: shmbroker.Connection) -> None:
    """Those of another queue stay."""
    channel = connection.channel()
    channel.exchange_declare("e", "fanout")
    for name in ("a", "b"):
        connection.queue(name)
        channel.queue_bind(name, "e")
    connection.queue("a").delete()
    assert [(one.source, one.destination) for one in connection.bindings("e")] == [("e", "b")]
    channel.close()


def test_a_queue_is_not_moved_to_itself(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """By name, by its handle or by that of another connection."""
    queue = connection.queue("q")
    put_each(queue, "AB")
    for target in ("q", queue, other.queue("q")):
        with pytest.raises(ValueError, match="queue 'q' cannot be moved to itself"):
            queue.move(target)
    for wrong in (5, None, b"q"):
        with pytest.raises(TypeError) as refusal:
            queue.move(wrong)  # type: ignore[arg-type]
        assert str(refusal.value) == f"to={wrong!r}: a queue, or the name of one, is needed"
    assert listing(queue) == ["A", "B"]


@pytest.mark.parametrize("option", ["limit", "max_bytes"])
def test_a_limit_is_an_integer_that_is_not_negative(connection: shmbroker.Connection, option: str) -> None:
    """0 moves nothing, 1 one message of one byte, None all."""
    queue, target = connection.queue("q"), connection.queue("target")
    put_each(queue, "ABC")
    for wrong in (-1, 1.5, "1", True, False):
        with pytest.raises(ValueError, match="an integer >= 0, or None for all, is allowed") as refusal:
            queue.move(target, **{option: wrong})  # type: ignore[arg-type]
        assert str(refusal.value).startswith(f"{option}={wrong!r}: ")
    assert [queue.move(target, **{option: given}) for given in (0, 1, None)] == [0, 1, 2]


def test_a_move_to_the_handle_of_another_connection(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """It names the queue, which is opened in this connection; one that was deleted is not made anew."""
    queue, target, gone = connection.queue("q"), other.queue("target"), other.queue("gone")
    put_each(queue, "AB")
    connection.queue("gone").delete()
    with pytest.raises(NotFound, match="no queue 'gone'"):
        queue.move(gone)
    assert connection.queue_names() == ["q", "target"]
    other.close()
    assert queue.move(target) == 2
    assert listing(connection.queue("target")) == ["A", "B"]


def test_a_move_to_a_closed_handle(connection: shmbroker.Connection) -> None:
    """It is closed, and not opened by that."""
    queue, target = connection.queue("q"), connection.queue("target")
    target.close()
    put_each(queue, "A")
    with pytest.raises(ConnectionClosed, match="queue 'target' is closed"):
        queue.move(target)
    assert listing(queue) == ["A"]


def test_the_handle_of_a_queue_that_another_one_replaced(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """Its queue is gone, whatever has its name and its place by then."""
    handle = other.queue("q")
    connection.queue("q").delete()
    for name in ("q", "r", "s"):
        connection.queue(name)
    for use in (handle.statistics, handle.__len__):
        with pytest.raises(NotFound, match="no queue 'q'"):
            use()


def test_statistics_of_a_queue_that_is_deleted_meanwhile(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone then, too."""
    monkeypatch.setattr(queue._core_connection, "queue_statistics", lambda _, **_given: None)  # noqa: SLF001
    with pytest.raises(NotFound, match="no queue 'q'"):
        queue.statistics()


def test_a_reservation_that_was_refused_keeps_no_memory(broker_name: str) -> None:
    """Not even as long as the error is there to be looked at."""
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        queue = connection.queue("q")
        before = broker.statistics().memory_used
        with pytest.raises(OutOfMemory) as refusal, queue.reserve(12 << 20) as view:
            kept = view[:]
        del kept, view
        eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)
        assert str(refusal.value)
        assert_counts(queue, added=0)


@pytest.mark.parametrize("call", ["put", "put with a key", "get", "get_nowait"])
def test_a_handle_without_its_constructor(call: str) -> None:
    """A subclass that forgot it gets an exception, whatever it calls."""
    handle = shmbroker.Queue.__new__(shmbroker.Queue)
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: handle.put(b"A"),
        "put with a key": lambda: handle.put(b"A", key="k"),
        "get": handle.get,
        "get_nowait": handle.get_nowait,
    }
    with pytest.raises(AttributeError):
        calls[call]()


def test_what_a_replaced_method_returns(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of applications may replace the slow part of a get; what it returns comes back as it is."""
    text = "a" * 32 + "\x03" + "b" * 7
    monkeypatch.setattr(shmbroker.Queue, "_get_slowly", lambda *_: text)
    found = str(queue.get(timeout=0.001))
    assert [found.count(letter) for letter in "a\x03b"] == [32, 1, 7]
