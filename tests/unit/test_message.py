# SPDX-License-Identifier: Apache-2.0
"""Messages: settled once, read in place, readable as long as somebody looks."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import cffi
import pytest
from scenario_support.brokers import running
from scenario_support.observing import (
    assert_balanced,
    assert_counts,
    await_counts,
    nothing_to_get,
    put_each,
    text,
)
from scenario_support.processes import Actor
from scenario_support.waiting import eventually

from shmbroker import BasicProperties
from shmbroker.exceptions import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

SETTLEMENTS: dict[str, Callable[[shmbroker.Message], object]] = {
    "ack": lambda message: message.ack(),
    "nack": lambda message: message.nack(),
    "drop": lambda message: message.nack(requeue=False),
    "reject": lambda message: message.reject(),
}


@pytest.mark.parametrize("second", SETTLEMENTS)
@pytest.mark.parametrize("first", SETTLEMENTS)
def test_a_message_is_settled_once(queue: shmbroker.Queue, first: str, second: str) -> None:
    """A second settlement raises, whichever the two are, and changes nothing."""
    put_each(queue, "AB")
    message = queue.get()
    SETTLEMENTS[first](message)
    before = queue.statistics()
    with pytest.raises(BrokerError):
        SETTLEMENTS[second](message)
    assert queue.statistics() == before
    assert_balanced(queue)


def test_a_late_ack_does_not_reach_the_next_delivery(queue: shmbroker.Queue) -> None:
    """A message returned and delivered anew is not acked through its old object."""
    queue.put(b"A")
    old = queue.get()
    old.nack()
    new = queue.get()
    with pytest.raises(BrokerError):
        old.ack()
    assert_counts(queue, delivering=1, acked=0)
    new.ack()
    assert_counts(queue, message_count=0, acked=1)


def test_a_batch_is_settled_once(queue: shmbroker.Queue) -> None:
    """A batch, or a message of it, settled before is not settled again."""
    put_each(queue, "ABC")
    batch = queue.get_many(3)
    batch.ack()
    with pytest.raises(BrokerError):
        batch.ack()
    with pytest.raises(BrokerError):
        batch[0].ack()
    assert_counts(queue, acked=3, message_count=0)


def test_an_auto_acked_message_is_settled(queue: shmbroker.Queue) -> None:
    """What came with auto_ack cannot be acked or returned."""
    queue.put(b"A")
    message = queue.get(auto_ack=True)
    for settle in SETTLEMENTS.values():
        with pytest.raises(BrokerError):
            settle(message)
    assert_counts(queue, acked=1, message_count=0)


def test_a_browsed_message_is_nobodys(queue: shmbroker.Queue) -> None:
    """What was browsed cannot be settled, and settling it takes it from nobody."""
    queue.put(b"A")
    shown = next(queue.browse())
    for settle in SETTLEMENTS.values():
        with pytest.raises(BrokerError):
            settle(shown)
    assert_counts(queue, ready=1, acked=0)


def test_with_acks_and_on_error_returns(queue: shmbroker.Queue) -> None:
    """`with message` acks; an error in the block nacks and goes on."""
    put_each(queue, "AB")
    with queue.get() as message:
        assert text(message) == "A"
    assert_counts(queue, acked=1, ready=1)
    with pytest.raises(KeyError), queue.get():
        raise KeyError
    assert_counts(queue, acked=1, ready=1, delivering=0)
    with queue.get() as message:
        assert message.redelivered
        message.reject()
    assert_counts(queue, message_count=0)


def test_returned_by_nack_it_counts_as_a_delivery(queue: shmbroker.Queue) -> None:
    """Receive, nack, receive: the second is marked, and is delivery two (T29)."""
    queue.put(b"A")
    for attempt in (1, 2, 3):
        message = queue.get()
        assert message.delivery_count == attempt
        assert message.redelivered == (attempt > 1)
        message.nack()


def test_what_a_message_says_of_itself(connection: shmbroker.Connection) -> None:
    """Tag, sequence, queue, length and expiry are those of the delivery."""
    queue = connection.queue("q")
    queue.put(b"AB", ttl=3600)
    queue.put(b"C")
    first, second = queue.get(), queue.get()
    assert len(first) == 2
    assert first.sequence < second.sequence
    assert first.delivery_tag != second.delivery_tag
    assert getattr(first.queue, "name", first.queue) == "q"
    assert first.routing_key == "q"
    assert first.exchange == ""
    assert first.expires_at is not None
    assert second.expires_at is None
    assert first.body.readonly
    assert first.body == b"AB"


def test_properties_and_headers_arrive(queue: shmbroker.Queue) -> None:
    """Headers and properties come out as they went in; without any there are none."""
    headers = {"a": 1, "b": "text", "c": [1, {"x": b"2"}], "d": {"e": True}, "f": None, "g": b"bytes"}
    queue.put(b"A", headers=headers)
    queue.put(b"B")
    message = queue.get()
    assert message.headers == headers
    assert message.properties.headers == headers
    assert type(message.headers["g"]) is type(message.headers["c"][1]["x"]) is bytes
    assert not queue.get().headers


@pytest.mark.parametrize(
    "body",
    [b"short", b"long" * 50_000, bytearray(b"other"), memoryview(b"a view")],
    ids=["short", "long", "bytearray", "view"],
)
def test_options_arrive_with_every_kind_of_body(queue: shmbroker.Queue, body: bytes) -> None:
    """Short bytes go another way than long ones and what is no bytes; nothing of one message is left to the next."""
    queue.put(body, key="é" * 100, priority=200, ttl=300, headers={"a": 1}, properties=BasicProperties(app_id="app"))
    queue.put(body, delay=300)
    queue.put(body, key="\0")
    queue.put(body)
    first, second, third = (queue.get() for _ in range(3))
    assert [bytes(message) for message in (first, second, third)] == [bytes(body)] * 3
    assert (first.key, first.headers, first.properties.app_id) == ("é" * 100, {"a": 1}, "app")
    assert first.priority == first.properties.priority == 200
    assert first.expires_at is not None
    assert 200 < first.expires_at - time.time() < 301
    assert (second.key, second.headers, second.expires_at) == ("\0", {}, None)
    assert (third.key, third.headers, third.expires_at) == (None, {}, None)
    assert queue.statistics().scheduled == 1


def test_an_expired_message_is_not_delivered(queue: shmbroker.Queue) -> None:
    """A message whose time is up is counted as expired, with nobody looking."""
    queue.put(b"A", ttl=0.05)
    await_counts(queue, expired=1, message_count=0)
    assert nothing_to_get(queue)


def test_the_body_is_read_only(queue: shmbroker.Queue) -> None:
    """Nobody writes to a published body."""
    queue.put(b"A" * 100_000)
    message = queue.get()
    with pytest.raises(TypeError):
        message.body[0] = 66


def patterned(size: int) -> bytes:
    """Return a body of which no page is like another."""
    block = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(241))
    return (block * (size // len(block) + 1))[:size]


def mapped_from(view: memoryview) -> str:
    """Return the file that is mapped where the view's bytes lie."""
    ffi = cffi.FFI()
    address = int(ffi.cast("uintptr_t", ffi.from_buffer(view)))
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *rest = line.split(maxsplit=5)
        first, last = (int(end, 16) for end in span.split("-"))
        if first <= address < last:
            return rest[4] if len(rest) > 4 else ""
    return ""


@pytest.mark.parametrize("mebibytes", [5, 100])
def test_a_large_body_is_read_in_place(broker_name: str, mebibytes: int) -> None:
    """A large body arrives whole, its view lies in the broker's shared memory."""
    body = patterned(mebibytes * 2**20 + 13)
    with running(broker_name, "512M") as broker:
        with broker.connect() as connection, broker.connect() as other:
            queue = connection.queue("q")
            queue.put(b"before")
            queue.put(body)
            received = other.queue("q")
            received.get().ack()
            message = received.get()
            assert len(message) == len(body)
            assert broker_name in mapped_from(message.body)
            assert message.body == body
            message.ack()
            assert connection.doctor() == []
        with broker.connect() as connection:
            queue = connection.queue("q")
            for _ in range(8):
                queue.put(body, timeout=10)
                assert queue.get(auto_ack=True).body == body
            assert_counts(queue, message_count=0, bytes=0)


def test_a_large_body_is_written_in_place(broker_name: str) -> None:
    """The view of reserve lies in the broker's shared memory too."""
    with running(broker_name, "64M") as broker, broker.connect() as connection:
        queue = connection.queue("q")
        with queue.reserve(5 * 2**20) as view:
            assert broker_name in mapped_from(view)
            view[:5] = b"start"
            view[-3:] = b"end"
        message = queue.get()
        assert bytes(message.body[:5]) == b"start"
        assert bytes(message.body[-3:]) == b"end"
        message.ack()
        assert connection.doctor() == []


@pytest.mark.parametrize("size", [100, 4096, 4097, 100_000, 5 * 2**20])
@pytest.mark.parametrize("how", [*SETTLEMENTS, "auto"])
def test_a_view_outlives_the_settlement(
    broker: shmbroker.Broker, connection: shmbroker.Connection, size: int, how: str
) -> None:
    """A view keeps its content after ack; the memory comes back when it goes."""
    queue = connection.queue("q")
    body, other = patterned(size), b"\xff" * size
    queue.put(body)
    message = queue.get(auto_ack=how == "auto")
    view = message.body[1:]
    if how != "auto":
        SETTLEMENTS[how](message)
    queue.purge()
    del message
    for _ in range(5):
        queue.put(other)
        queue.get().ack()
    assert view == body[1:]
    del view
    assert_counts(queue, message_count=0, delivering=0)
    before = broker.statistics().memory_used
    for _ in range(20):
        queue.put(body)
        queue.get().ack()
    eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)
    assert_balanced(queue)


def test_the_memory_of_a_view_comes_back(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """While a view lives its memory is used; when the last is gone it is free."""
    queue.put(b"x" * 2**20)
    queue.get().ack()
    before = broker.statistics().memory_used
    views = []
    for _ in range(10):
        queue.put(b"x" * 2**20)
        message = queue.get()
        views.append(message.body)
        message.ack()
    del message
    assert_counts(queue, message_count=0, acked=11)
    assert broker.statistics().memory_used >= before + 9 * 2**20
    views.clear()
    eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)


@pytest.mark.parametrize("queues", [1, 2, 7, 8])
def test_each_view_that_one_body_can_have_keeps_it(connection: shmbroker.Connection, queues: int) -> None:
    """Each delivery looks at the body and returns the message, as often as that goes: the last view keeps the body."""
    body, channel = patterned(8_000), connection.channel()
    channel.exchange_declare("all", "fanout")
    copies = [connection.queue(f"copy-{number}") for number in range(queues)]
    for number in range(queues):
        channel.queue_bind(f"copy-{number}", "all")
    channel.basic_publish("all", "", body)
    views: list[memoryview] = []
    for queue in copies:
        with contextlib.suppress(BrokerError):  # all references are in use
            while True:
                message = queue.get()
                views.append(message.body)
                message.nack()
        message.nack()
        assert queue.purge() == 1
    del message
    last = views.pop()
    views.clear()
    for _ in range(20):
        copies[0].put(b"\xff" * len(body))
    assert last == body


@pytest.mark.parametrize("take", ["get", "get and view", "get_many", "consume"])
def test_auto_acked_bodies_are_freed_when_they_are_let_go(
    broker: shmbroker.Broker, queue: shmbroker.Queue, take: str
) -> None:
    """What came with auto_ack is free when nobody looks at it any more: at once.

    Not when the garbage collector comes by: it does not know how large bodies are.
    """
    size = 2**20
    queue.put(bytes(size))
    queue.get().ack()
    before = broker.statistics().memory_used
    consumer = queue.consume(auto_ack=True) if take == "consume" else None
    gc.disable()
    try:
        for _ in range(10):
            queue.put(bytes(size))
            if consumer is not None:
                message = consumer.get(timeout=60)
                assert len(message) == size
                del message
            elif take == "get_many":
                batch = queue.get_many(5, auto_ack=True)
                assert len(batch) == 1
                del batch
            else:
                message = queue.get(auto_ack=True)
                if take == "get and view":
                    view = message.body[:3]
                    del view
                del message
        await_counts(queue, message_count=0, acked=11)
        if consumer is not None:
            consumer.close()
        used = broker.statistics().memory_used
        assert used <= before + 64 * 1024
    finally:
        gc.enable()


def test_a_batch_that_is_never_looked_at_leaks_nothing(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """Bodies of a batch taken with auto_ack, never looked at: free when it goes.

    At the latest when its connection is closed; and doctor() finds what is leaked.
    """
    queue.put(bytes(2**20))
    queue.get().ack()
    before = broker.statistics().memory_used
    with broker.connect() as other:
        for _ in range(5):
            queue.put(bytes(2**20))
        other.queue("q").get_many(5, auto_ack=True)
    eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)


def test_a_view_outlives_the_connection(broker: shmbroker.Broker) -> None:
    """A view stays readable when its message's connection is closed."""
    connection = broker.connect()
    queue = connection.queue("q")
    body = patterned(100_000)
    queue.put(body)
    view = queue.get().body
    connection.close()
    with broker.connect() as other:
        again = other.queue("q", passive=True)
        again.get().ack()
        for _ in range(5):
            again.put(b"\xff" * 100_000)
            again.get().ack()
        assert other.doctor() == []
        assert view == body


def test_what_is_acked_and_viewed_by_the_dead_is_free(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """A process dies while it views acked bodies: not redelivered, memory free."""
    queue.put(b"x" * 2**20)
    queue.get().ack()
    before = broker.statistics().memory_used
    with Actor(broker.name) as victim:
        for _ in range(5):
            queue.put(b"x" * 2**20)
        victim.do("view", queue="q", count=5)
        assert_counts(queue, message_count=0, acked=6)
        victim.kill()
        eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)
    assert nothing_to_get(queue)
    assert_counts(queue, message_count=0, acked=6, redelivered=0)


def test_a_forgotten_message_is_still_held(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """A message object that is dropped settles nothing: that takes a call or a close.

    The standing rule of AMQP: unacked is unacked until its channel goes.
    """
    with broker.connect() as other:
        forgetful = other.queue("q")
        queue.put(b"A")
        message = forgetful.get()
        del message
        assert_counts(queue, delivering=1, ready=0)
    await_counts(queue, delivering=0, ready=1)


def test_expires_at_is_when_it_expires(queue: shmbroker.Queue) -> None:
    """expires_at is a POSIX time, the time of the put and the ttl taken together."""
    before = time.time()
    queue.put(b"A", ttl=100)
    after = time.time()
    expires_at = queue.get().expires_at
    assert expires_at is not None
    assert before + 99 <= expires_at <= after + 101


def test_delivery_tags_are_not_repeated(queue: shmbroker.Queue) -> None:
    """Every delivery of a connection has a tag of its own."""
    put_each(queue, "ABC")
    messages = [queue.get() for _ in range(3)]
    tags = [message.delivery_tag for message in messages]
    for message in messages:
        message.nack()
    tags += [queue.get().delivery_tag for _ in range(3)]
    assert len(set(tags)) == 6
