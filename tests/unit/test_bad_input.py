# SPDX-License-Identifier: Apache-2.0
"""What is not allowed: a typed error that says what, which value, and what is allowed. Nothing else happens."""

from __future__ import annotations

import math
import mmap
import queue as standard_queue
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.brokers import files
from scenario_support.nursery import served
from scenario_support.observing import listing, put_each
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import BasicProperties, NeverFits
from shmbroker.exceptions import (
    BrokerError,
    ConnectionClosed,
    MessageSettled,
    NeverFitsMemory,
    PreconditionFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
LIMIT = 32 * MIB


class Place:
    """A small broker with a queue that has two messages."""

    def __init__(self, broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
        """Make the queue."""
        self.broker, self.connection = broker, connection
        self.jobs = connection.queue("jobs", max_length=1000)
        put_each(self.jobs, "AB")

    def state(self) -> tuple[Any, ...]:
        """Return what must not change. Whether memory leaked is for the doctor to say."""
        broker = self.broker.statistics()
        return listing(self.jobs), self.jobs.statistics(), broker.queue_count, broker.connection_count


@pytest.fixture
def place(broker_name: str) -> Iterator[Place]:
    """Run a broker of 32 MiB; at the end nothing must have happened to it."""
    with served(broker_name, memory="32M") as broker, broker.connect() as connection:
        made = Place(broker, connection)
        before = made.state()
        yield made
        eventually(lambda: made.state() == before, "all to be as it was")
        assert connection.doctor() == []


def endless(size: int) -> mmap.mmap:
    """Return a body that takes no memory as long as nobody reads it."""
    return mmap.mmap(-1, size)


PUTS: list[tuple[Callable[[Place], object], type[Exception], tuple[str, ...]]] = [
    (lambda p: p.jobs.put("text"), TypeError, ("a body is bytes-like, not str", "encode it")),
    (lambda p: p.jobs.put(None), TypeError, ("a body is bytes-like, not NoneType",)),
    (lambda p: p.jobs.put(5), TypeError, ("a body is bytes-like, not int",)),
    (lambda p: p.jobs.put_many([b"a", "b"]), TypeError, ("a body is bytes-like, not str",)),
    (lambda p: p.jobs.put_many("text"), TypeError, ("a body is bytes-like, not str",)),
    (
        lambda p: p.jobs.put(endless(LIMIT + 1)),
        NeverFitsMemory,
        ("queue 'jobs'", f"{LIMIT + 1} bytes can never fit", f"at most {LIMIT} bytes"),
    ),
    (
        lambda p: p.jobs.put(endless((1 << 30) + 1)),
        NeverFitsMemory,
        ("queue 'jobs'", f"{(1 << 30) + 1} bytes can never fit", f"at most {1 << 30} bytes"),
    ),
    (
        lambda p: p.jobs.put(endless(1 << 30)),
        NeverFitsMemory,
        ("queue 'jobs'", f"{1 << 30} bytes can never fit", f"at most {LIMIT} bytes"),
    ),
    (
        lambda p: p.jobs.put(endless(LIMIT - MIB)),
        NeverFitsMemory,
        (
            "queue 'jobs'",
            f"{LIMIT - MIB} bytes can never fit",
            f"own structures leave no piece of that size in its {LIMIT}",
        ),
    ),
    (lambda p: p.jobs.reserve(-1).__enter__(), ValueError, ("size=-1", f"0 to {1 << 30} bytes")),
    (lambda p: p.jobs.reserve("x").__enter__(), ValueError, ("size='x'", f"0 to {1 << 30} bytes")),
    (lambda p: p.jobs.reserve(LIMIT + 1).__enter__(), NeverFitsMemory, (f"{LIMIT + 1} bytes can never fit",)),
    (lambda p: p.jobs.put(b"", prio=5), TypeError, ("'prio'", "timeout, priority, ttl")),
    (lambda p: p.jobs.put(b"", key="k", prio=5), TypeError, ("'prio'", "headers, properties are allowed")),
    (lambda p: p.jobs.put_many([b""], prio=5), TypeError, ("'prio'", "timeout, priority, ttl")),
    (lambda p: p.jobs.reserve(1, prio=5).__enter__(), TypeError, ("'prio'", "timeout, priority, ttl")),
    (lambda p: p.jobs.put(b"", key=5), TypeError, ("key=5", "a string")),
    (lambda p: p.jobs.put(b"", key="x" * 256), ValueError, ("key of 256 bytes", "at most 255")),
    (lambda p: p.jobs.put(b"", key="\ud800"), ValueError, (r"key='\ud800'", "UTF-8")),
    (lambda p: p.jobs.put(b"", headers={1: "x"}), TypeError, ("headers: name 1", "a string")),
    (lambda p: p.jobs.put(b"", headers={"a": {2: "x"}}), TypeError, ("headers: name 2", "a string")),
    (lambda p: p.jobs.put(b"", headers={"a" * 129: 1}), ValueError, ("headers: name 'aaa", "at most 128 bytes")),
    (lambda p: p.jobs.put(b"", headers={"a": object()}), TypeError, ("properties cannot be encoded", "object")),
    (lambda p: p.jobs.put(b"", headers={"a": "x" * 70_000}), ValueError, ("bytes encoded", "at most 60000")),
    (lambda p: p.jobs.put(b"", headers={"a": "\ud800"}), ValueError, (r"header '\ud800'", "UTF-8")),
    (lambda p: p.jobs.put(b"", properties=BasicProperties(app_id="\ud800")), ValueError, (r"app_id='\ud800'", "UTF-8")),
    (lambda p: p.jobs.put(b"", properties={"type": 1}), TypeError, ("properties={'type': 1}", "BasicProperties")),
    (
        lambda p: p.jobs.put(b"", properties=BasicProperties(expiration="soon")),
        PreconditionFailed,
        ("invalid expiration 'soon'",),
    ),
    (
        lambda p: p.jobs.put(b"", properties=BasicProperties(expiration=5)),  # type: ignore[arg-type]
        PreconditionFailed,
        ("invalid expiration '5'",),
    ),
    (
        lambda p: p.jobs.put(b"", properties=BasicProperties(expiration="315360000001")),
        PreconditionFailed,
        ("invalid expiration '315360000001': {value_too_big,315360000001}",),
    ),
    (
        lambda p: p.jobs.put(b"", properties=BasicProperties(expiration="9" * 5000)),
        PreconditionFailed,
        ("invalid expiration '999999999999...'",),
    ),
]


@pytest.mark.parametrize(("use", "error", "words"), PUTS, ids=[" ".join(words)[:50] for _, _, words in PUTS])
def test_a_message_that_cannot_be(
    place: Place, use: Callable[[Place], object], error: type[Exception], words: tuple[str, ...]
) -> None:
    """A body, a key, headers or properties that are not allowed."""
    refused(lambda: use(place), error, *words)


def refused(use: Callable[[], object], error: type[Exception], *words: str) -> None:
    """See that this raises an error of this very kind, with these words in its text."""
    with pytest.raises(error) as refusal:
        use()
    assert type(refusal.value) is error
    for word in words:
        assert word in str(refusal.value)


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, 1e300, 10**40, "1", True], ids=repr)
@pytest.mark.parametrize("option", ["ttl", "delay"])
@pytest.mark.parametrize("put", ["put", "put_many", "reserve"])
def test_a_time_that_cannot_be(place: Place, put: str, option: str, value: object) -> None:
    """A life or a delay is a number of seconds, not negative, and less than three years."""

    def use() -> None:
        if put == "reserve":
            with place.jobs.reserve(3, **{option: value}):
                pass
        else:
            getattr(place.jobs, put)(b"x" if put == "put" else [b"x"], **{option: value})

    refused(use, ValueError, f"{option}={value!r}", "100000000 seconds are allowed")


@pytest.mark.parametrize("value", [-1, 256, 2**40, 1.5, "high", True], ids=repr)
def test_a_priority_that_cannot_be(place: Place, value: object) -> None:
    """A message's priority is 0 to 255."""
    refused(lambda: place.jobs.put(b"x", priority=value), ValueError, f"priority={value!r}", "from 0 to 255")


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"prefetch": 0}, "from 1 to 1048576"),
        ({"prefetch": -1}, "from 1 to 1048576"),
        ({"prefetch": 2**40}, "from 1 to 1048576"),
        ({"prefetch": "x"}, "from 1 to 1048576"),
        ({"priority": 2**31}, "from -2147483647 to 2147483647"),
        ({"ack_batch": 0}, "from 1 to 1048576"),
        ({"ack_interval": -1}, "more than 0 and at most 3600 seconds"),
        ({"timeout": -1}, "seconds >= 0"),
    ],
    ids=str,
)
def test_a_consumer_that_cannot_be(place: Place, options: dict[str, Any], allowed: str) -> None:
    """Options of a consumer have limits."""
    ((name, value),) = options.items()
    refused(lambda: place.jobs.consume(**options), ValueError, f"{name}={value!r}", allowed)


def test_a_consumer_of_something_else(place: Place) -> None:
    """A consumer is one of queues of its own connection."""
    refused(lambda: place.connection.consumer([5]), TypeError, "5 is no queue")
    refused(lambda: place.connection.consumer([]), ValueError, "at least one queue")
    with place.broker.connect() as other:
        foreign = other.queue("jobs")
        refused(lambda: place.connection.consumer([foreign]), ValueError, "'jobs'", "another connection")


@pytest.mark.parametrize("name", ["", "a\0b", "ä" * 128, "x" * 256, "\ud800"], ids=ascii)
def test_a_queue_name_that_cannot_be(place: Place, name: str) -> None:
    """A queue's name is 1 to 255 bytes of UTF-8 without NUL."""
    for use in (place.connection.queue, place.connection.consumers, place.jobs.move):
        refused(lambda use=use: use(name), ValueError, f"queue name {name!r}", "1 to 255 bytes of UTF-8 without NUL")


def test_a_queue_name_that_is_no_text(place: Place) -> None:
    """A queue's name is a string."""
    refused(lambda: place.connection.queue(b"jobs"), TypeError, "queue name b'jobs'", "a string")
    refused(lambda: place.jobs.move(5), TypeError, "to=5", "a queue, or the name of one")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../a", "a.b", "ä", "x" * 65, "a\n", None, 7], ids=ascii)
def test_a_broker_name_that_cannot_be(name: object) -> None:
    """A broker's name is 1 to 64 of A-Z, a-z, 0-9, _ and -."""
    for use in (shmbroker.Broker, shmbroker.connect):
        refused(lambda use=use: use(name), ValueError, f"broker name {name!r}", "1 to 64 of A-Z, a-z, 0-9, _ and -")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("executor", 5),
        ("channel_max", 0),
        ("channel_max", "5"),
        ("channel_max", 65536),
        ("client_name", 5),
        ("client_name", "\ud800"),
        ("operation_timeout", -1),
        ("operation_timeout", "soon"),
        ("operation_timeout", math.nan),
        ("on_callback_error", "hook"),
    ],
    ids=ascii,
)
def test_an_option_that_cannot_be(broker_name: str, option: str, value: object) -> None:
    """An option of connect is refused before anything is opened or made."""
    given: dict[str, Any] = {option: value}
    refused(lambda: shmbroker.connect(broker_name, **given), ValueError, f"{option}={value!r}: ", "is allowed")
    assert files(broker_name) == []


def test_the_same_name_with_other_settings(place: Place) -> None:
    """What exists is not changed by asking for something else."""
    other = shmbroker.Broker(place.broker.name, memory="64M")
    refused(other.start, PreconditionFailed, place.broker.name, f"memory={LIMIT}, not {64 * MIB}")
    refused(
        lambda: place.connection.queue("jobs", max_length=5),
        PreconditionFailed,
        "inequivalent arg 'x-max-length' for queue 'jobs'",
        "received '5' but current is '1000'",
    )


def test_a_queue_that_is_full(place: Place) -> None:
    """Which queue, how much is there, and its limits; a body that can never fit is told at once."""
    full = place.connection.queue("full", max_length=2, max_bytes=10)
    full.put_many([b"1", b"2"])
    refused(
        lambda: full.put(b"3", timeout=0),
        standard_queue.Full,
        "queue 'full' is full: 2 messages are ready (max_length=2, max_bytes=10)",
    )
    refused(lambda: full.put(b"x" * 11), NeverFits, "11 bytes can never fit max_bytes=10")
    assert listing(full) == ["1", "2"]
    full.delete()


def test_a_pool_that_cannot_be(place: Place) -> None:
    """Workers need a function, and there is at least one of them."""
    name = place.broker.name
    refused(lambda: shmbroker.WorkerPool("f", "jobs", broker=name), TypeError, "function='f'", "callable")  # type: ignore[arg-type]
    for processes in (0, -1, 1025, 1.5, True):
        refused(
            lambda processes=processes: shmbroker.WorkerPool(print, "jobs", broker=name, processes=processes),
            ValueError,
            f"processes={processes!r}",
            "from 1 to 1024",
        )


def test_two_housekeepers(place: Place) -> None:
    """A broker is served by one; a second one says so and ends."""
    pid = place.broker.statistics().housekeeper_pid
    refused(shmbroker.Broker(place.broker.name).serve_forever, BrokerError, place.broker.name, "served already")
    assert place.broker.statistics().housekeeper_pid == pid


@pytest.mark.parametrize("settle", ["ack", "nack", "reject"])
def test_settled_twice(queue: shmbroker.Queue, settle: str) -> None:
    """A message is settled once, in whatever way."""
    put_each(queue, "AB")
    message = queue.get(timeout=0)
    getattr(message, settle)()
    ready = len(queue)
    for again in (message.ack, message.nack, message.reject):
        refused(again, MessageSettled, "acknowledged, rejected or returned already")
    assert len(queue) == ready


def test_used_after_it_was_closed(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """What belongs to a closed connection says that it is closed; what it held is there for others."""
    put_each(queue, "AB")
    connection = broker.connect()
    closed = connection.queue("q")
    message = closed.get(timeout=0)
    consumer = closed.consume()
    connection.close()
    uses = (
        lambda: closed.put(b"x"),
        lambda: closed.put_many([b"x"]),
        lambda: closed.reserve(5).__enter__(),
        lambda: closed.get(timeout=0),
        lambda: closed.get_many(5, timeout=0),
        closed.purge,
        closed.statistics,
        closed.consume,
        lambda: connection.queue("q"),
        connection.doctor,
        lambda: consumer.get(timeout=0),
        message.ack,
    )
    for use in uses:
        refused(use, ConnectionClosed, "closed")
    assert listing(queue) == ["A", "B"]


@pytest.mark.parametrize("timeout", ["1", math.nan, -1, -0.5, True, b"1", [1]])
@pytest.mark.parametrize("call", ["put", "put_many", "get", "get_many", "consumer.get"])
def test_a_timeout_that_is_none(place: Place, call: str, timeout: Any) -> None:  # noqa: ANN401
    """Also where there is room, or a message, and nothing has to be waited for."""
    consumer = place.connection.queue("other").consume()
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: place.jobs.put(b"x", timeout=timeout),
        "put_many": lambda: place.jobs.put_many([b"x"], timeout=timeout),
        "get": lambda: place.jobs.get(timeout=timeout),
        "get_many": lambda: place.jobs.get_many(2, timeout=timeout),
        "consumer.get": lambda: consumer.get(timeout=timeout),
    }
    with pytest.raises(ValueError, match="seconds >= 0"):
        calls[call]()
    consumer.close()
    place.connection.queue("other").delete()
