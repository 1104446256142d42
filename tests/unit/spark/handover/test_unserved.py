# SPDX-License-Identifier: Apache-2.0
"""Messages that are no requests, and the wait for a server."""

from __future__ import annotations

import queue as standard_queue
import time
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

import shmbroker
from shmbroker.spark.handover import server_watch, unserved
from shmbroker.spark.handover.server_watch import ServerWatch
from shmbroker.spark.handover.unserved import set_aside

if TYPE_CHECKING:
    from collections.abc import Callable

STRAYS: list[tuple[bytes, dict[str, Any]]] = [
    (b"neither batch nor key", {}),
    (b"x" * 5000, {"key": "order"}),
    (b"", {"key": "7 answers", "headers": {"number": 5}, "priority": 3}),
    (b"timed", {"ttl": 3600, "properties": shmbroker.BasicProperties(correlation_id="c")}),
]


def shown(message: shmbroker.Message) -> tuple[Any, ...]:
    """What a message is."""
    return (bytes(message), message.key, message.properties, message.priority)


@pytest.mark.parametrize(("body", "options"), STRAYS)
def test_a_message_is_set_aside(
    connection: shmbroker.Connection, caplog: pytest.LogCaptureFixture, body: bytes, options: dict[str, Any]
) -> None:
    """As it was put, in a queue beside; the log says so; the queue of requests has it no more."""
    requests = connection.queue("requests")
    requests.put(body, **options)
    stray = requests.get(timeout=0)
    given = shown(stray)
    set_aside(connection, stray)
    assert (stray.settled, requests.statistics().message_count) == (True, 0)
    (found,) = connection.queue("unserved.requests", passive=True).browse()
    assert shown(found) == given
    assert (found.expires_at is None) == ("ttl" not in options)
    if found.expires_at is not None:
        assert 3000 < found.expires_at - time.time() <= 3600
    assert [record.getMessage() for record in caplog.records] == [
        "queue 'requests': message 0 is not a request of exchange(): it was moved to queue 'unserved.requests'"
    ]


def test_a_priority_is_kept(connection: shmbroker.Connection) -> None:
    """Also that of a message without properties."""
    requests = connection.queue("requests")
    for priority in (0, 5):
        requests.put(b"order", priority=priority)
        set_aside(connection, requests.get(timeout=0))
    assert [one.priority for one in connection.queue("unserved.requests", passive=True).browse()] == [0, 5]


def test_a_message_that_expires_just_now(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is moved with the shortest time to live that there is, and no error."""
    requests = connection.queue("requests")
    requests.put(b"late", ttl=3600)
    stray = requests.get(timeout=0)
    assert stray.expires_at is not None
    late = stray.expires_at + 5
    monkeypatch.setattr(unserved, "time", type("Clock", (), {"time": staticmethod(lambda: late)}))
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(shmbroker.Queue, "put", lambda _self, _body, **options: seen.append(options))
    set_aside(connection, stray)
    assert [one["ttl"] for one in seen] == [1e-9]
    assert [one["timeout"] for one in seen] == [0.2]
    assert stray.settled


def test_a_message_that_cannot_be_set_aside(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in its place, as if it had not been taken; the error says what is in the way."""
    monkeypatch.setattr(unserved, "ROOM_SECONDS", 0.01)
    requests = connection.queue("requests")
    aside = connection.queue("unserved.requests", max_length=1)
    aside.put(b"there before")
    requests.put(b"order")
    with pytest.raises(standard_queue.Full) as full:
        set_aside(connection, requests.get(timeout=0))
    (note,) = full.value.__notes__
    assert note == (
        "queue 'requests': message 0 is not a request of exchange(), and cannot be moved to queue 'unserved.requests': "
        "it is in its place again"
    )
    with requests.get(timeout=0) as message:
        assert (bytes(message), message.delivery_count) == (b"order", 1)


def test_any_other_error_gives_the_message_back(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, too."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    requests = connection.queue("requests")
    requests.put(b"order")
    monkeypatch.setattr(shmbroker.Queue, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        set_aside(connection, requests.get(timeout=0))
    with requests.get(timeout=0) as message:
        assert (bytes(message), message.delivery_count) == (b"order", 1)


@pytest.mark.parametrize(
    ("name", "beside"),
    [("score", "unserved.score"), ("ä" * 127, "unserved." + "ä" * 123), ("x" * 255, "unserved." + "x" * 246)],
)
def test_the_name_of_the_queue_beside(name: str, beside: str) -> None:
    """It has no more bytes than are allowed, and no half characters."""
    assert unserved.unserved(name) == beside


def test_a_queue_is_served(connection: shmbroker.Connection) -> None:
    """While it has a consumer; one that is deleted, or made anew, is looked for again."""
    watch = ServerWatch(connection, "requests")
    assert not watch.is_served()
    assert connection.queue_names() == []
    requests = connection.queue("requests")
    assert not watch.is_served()
    with requests.consume():
        assert watch.is_served()
        assert watch.open().name == "requests"
    assert not watch.is_served()
    requests.delete()
    assert not watch.is_served()
    with connection.queue("requests").consume():
        assert watch.is_served()


class Clock:
    """Stands in for the time."""

    def __init__(self) -> None:
        self.now, self.pauses = 100.0, list[float]()

    def monotonic(self) -> float:
        """The time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Goes on."""
        self.now += seconds
        self.pauses.append(seconds)


def test_nobody_serves(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """For more than a second: then there is an error that says what to start, and where."""
    clock = Clock()
    monkeypatch.setattr(server_watch, "time", clock)
    watch = ServerWatch(connection, "requests")
    watch.look()
    clock.now += 1.0
    watch.look()
    with connection.queue("requests").consume():
        clock.now += 5
        watch.look()
    watch.look()
    clock.now += 0.9
    watch.look()
    clock.now += 0.2
    with pytest.raises(shmbroker.NoServer) as missing:
        watch.look()
    name = connection.broker_name
    assert missing.value.code == 313
    assert missing.value.text == (
        f"NO_CONSUMERS - no process serves queue 'requests' of broker '{name}': start "
        "shmbroker.spark.serve('requests', function) on this host, or see why it ended"
    )


def test_a_server_that_does_not_come(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for fifty times a second, for a second."""
    clock = Clock()
    monkeypatch.setattr(server_watch, "time", clock)
    with pytest.raises(shmbroker.NoServer):
        ServerWatch(connection, "requests").open()
    assert clock.pauses == pytest.approx([0.02] * len(clock.pauses))
    assert 50 <= len(clock.pauses) <= 52


def test_a_server_that_comes(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for it ends then."""
    clock = Clock()
    monkeypatch.setattr(server_watch, "time", clock)
    comes: Callable[[], Any] = lambda: connection.queue("requests").consume()  # noqa: E731
    consumers = []

    def sleep(_seconds: float) -> None:
        consumers.append(comes())

    monkeypatch.setattr(clock, "sleep", sleep)
    assert ServerWatch(connection, "requests").open().name == "requests"
    (consumer,) = consumers
    consumer.close()
