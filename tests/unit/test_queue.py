# SPDX-License-Identifier: Apache-2.0
"""The short way: put, get, and what else a queue does; its errors and edges."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import pickle
import re
import threading
import time
from queue import Empty, Full
from typing import TYPE_CHECKING

import cffi
import pytest
from scenario_support.brokers import running
from scenario_support.observing import (
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    nothing_to_get,
    numbered,
    put_each,
    take,
    text,
    texts,
)
from scenario_support.waiting import becomes, eventually, until_clock

from shmbroker.exceptions import (
    ConnectionClosed,
    NotFound,
    OutOfMemory,
    PreconditionFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import shmbroker

LARGEST_BODY = 2**30


# ---- bodies ----


@pytest.mark.parametrize("body", ["text", None, 5, ["a"], object()], ids=repr)
def test_a_body_is_bytes(queue: shmbroker.Queue, body: object) -> None:
    """A body that is not bytes-like, above all a str, is a TypeError."""
    with pytest.raises(TypeError):
        queue.put(body)
    with pytest.raises(TypeError):
        queue.put_nowait(body)
    with pytest.raises(TypeError):
        queue.put_many([b"fine", body])
    assert_counts(queue, message_count=0)


@pytest.mark.parametrize(
    "body",
    [b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(b"xabcx")[1:4]],
    ids=["bytes", "bytearray", "memoryview", "slice"],
)
def test_every_bytes_like_body_is_taken(queue: shmbroker.Queue, body: object) -> None:
    """Bytes, bytearray and views of them are bodies."""
    queue.put(body)
    assert queue.put_many([body, body]) == 2
    assert take(queue, 3) == ["abc"] * 3


def test_a_body_with_gaps_is_taken_as_what_it_shows(queue: shmbroker.Queue) -> None:
    """A view with a stride is either copied as it reads, or refused as no body."""
    try:
        queue.put(memoryview(b"a.b.c.")[::2])
    except (TypeError, ValueError, BufferError):
        assert_counts(queue, message_count=0)
    else:
        assert take(queue, 1) == ["abc"]


def test_a_body_is_copied_by_put(queue: shmbroker.Queue) -> None:
    """What is done to the caller's buffer after put does not reach the message."""
    for size in (3, 5000, 100_000):
        body = bytearray(b"a" * size)
        queue.put(body)
        body[:] = b"b" * size
        assert bytes(queue.get(auto_ack=True)) == b"a" * size


@pytest.mark.parametrize("size", [0, 1, 63, 64, 191, 192, 193, 255, 256, 257])
def test_short_bodies(queue: shmbroker.Queue, size: int) -> None:
    """Bodies around the size of a unit, and the empty one, come out as they went in."""
    body = bytes(range(256)) + b"x"
    queue.put(body[:size])
    message = queue.get()
    assert len(message) == size
    assert bytes(message) == body[:size]
    message.ack()
    assert_counts(queue, message_count=0, bytes=0)


@pytest.mark.parametrize("power", [12, 16, 17, 20, 21])
@pytest.mark.parametrize("off", [-65, -64, -1, 0, 1])
def test_bodies_around_the_size_classes(queue: shmbroker.Queue, power: int, off: int) -> None:
    """Bodies around a power of two come out as they went in."""
    body = bytes(range(251)) * (2**power // 251 + 1)
    body = body[: 2**power + off]
    queue.put(body)
    message = queue.get()
    assert bytes(message) == body
    message.ack()


def test_a_body_above_the_limit_is_refused(queue: shmbroker.Queue) -> None:
    """A body above 1 GiB is refused at once, without a wait, and nothing is added."""
    with pytest.raises((ValueError, OutOfMemory)), queue.reserve(LARGEST_BODY + 1):
        pass
    assert_counts(queue, added=0, message_count=0)


def test_a_body_that_can_never_fit_is_refused_at_once(broker_name: str) -> None:
    """A body larger than the broker's memory is OutOfMemory, though put may wait."""
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        queue = connection.queue("q")
        with pytest.raises(OutOfMemory):
            queue.put(bytes(33 * 2**20), timeout=None)
        queue.put(b"A")
        assert take(queue, 1) == ["A"]
        assert connection.doctor() == []


# ---- options ----


@pytest.mark.parametrize("option", ["ttl", "delay"])
@pytest.mark.parametrize("value", [-1, -0.001, math.nan, -math.inf])
def test_a_bad_time_is_refused(queue: shmbroker.Queue, option: str, value: float) -> None:
    """A ttl or delay is a number of seconds that is not negative."""
    with pytest.raises(ValueError, match=option):
        queue.put(b"A", **{option: value})
    with pytest.raises(ValueError, match=option):
        queue.put_many([b"A"], **{option: value})
    assert_counts(queue, message_count=0, added=0)


@pytest.mark.parametrize("option", ["ttl", "delay", "timeout"])
@pytest.mark.parametrize("value", ["1", b"1", [1]])
def test_a_time_is_a_number(queue: shmbroker.Queue, option: str, value: object) -> None:
    """A time that is no number is a TypeError."""
    with pytest.raises((TypeError, ValueError)):
        queue.put(b"A", **{option: value})
    assert_counts(queue, message_count=0)


@pytest.mark.parametrize("ttl", [1e9, 1e12, 1e300])
def test_an_endless_ttl_does_not_wrap(queue: shmbroker.Queue, ttl: float) -> None:
    """A ttl beyond every clock is refused or saturates; it never is in the past."""
    try:
        queue.put(b"A", ttl=ttl)
    except (ValueError, OverflowError):
        assert_counts(queue, message_count=0)
    else:
        assert take(queue, 1) == ["A"]


@pytest.mark.parametrize("delay", [1e12, 1e300])
def test_an_endless_delay_does_not_wrap(queue: shmbroker.Queue, delay: float) -> None:
    """A delay beyond every clock is refused or saturates; it never is over."""
    try:
        queue.put(b"A", delay=delay)
    except (ValueError, OverflowError):
        assert_counts(queue, message_count=0)
    else:
        assert nothing_to_get(queue)
        assert_counts(queue, scheduled=1)


@pytest.mark.parametrize("priority", [-1, 256, 1.5, "high", 2**40])
def test_a_bad_priority_is_refused(queue: shmbroker.Queue, priority: object) -> None:
    """A message's priority is an octet."""
    with pytest.raises((ValueError, TypeError)):
        queue.put(b"A", priority=priority)
    assert_counts(queue, message_count=0)


def test_an_unknown_option_is_refused(queue: shmbroker.Queue) -> None:
    """A misspelt option is a TypeError."""
    with pytest.raises(TypeError):
        queue.put(b"A", prioritty=3)
    with pytest.raises(TypeError):
        queue.consume(prefetsch=3)


@pytest.mark.parametrize("timeout", [-1, math.nan])
def test_a_bad_timeout_does_not_hang(queue: shmbroker.Queue, timeout: float) -> None:
    """A negative or undefined timeout is refused, or means not to wait."""
    with pytest.raises((ValueError, Empty)):
        queue.get(timeout=timeout)


@pytest.mark.parametrize("count", [0, -1, 1.5, "x"])
def test_a_bad_number_of_messages_is_refused(queue: shmbroker.Queue, count: object) -> None:
    """get_many takes at least one message."""
    queue.put(b"A")
    with pytest.raises((ValueError, TypeError)):
        queue.get_many(count, timeout=0)
    assert take(queue, 1) == ["A"]


# ---- get ----


def test_get_of_nothing(queue: shmbroker.Queue) -> None:
    """Empty is raised when the time is up, and leaves no waiter behind."""
    for get in (
        queue.get_nowait,
        lambda: queue.get(timeout=0),
        lambda: queue.get(timeout=0.02),
        lambda: queue.get_many(5, timeout=0),
        lambda: queue.get_many(5, timeout=0.02),
    ):
        with pytest.raises(Empty):
            get()
    assert_counts(queue, interested=0, notified=0, consumers=0)


def test_get_many_takes_what_is_there(queue: shmbroker.Queue) -> None:
    """get_many waits for one, then returns what is there up to the maximum."""
    put_each(queue, "ABCDE")
    batch = queue.get_many(3)
    assert len(batch) == 3
    assert texts(batch) == list("ABC")
    assert text(batch[0]) == "A"
    assert text(batch[-1]) == "C"
    assert batch.bodies() == [b"A", b"B", b"C"]
    with pytest.raises(IndexError):
        batch[3]
    batch.ack()
    assert texts(queue.get_many(10)) == ["D", "E"]
    assert_counts(queue, delivering=2, acked=3)


def test_a_batch_is_returned_as_a_whole(queue: shmbroker.Queue) -> None:
    """nack() of a batch returns all, in place; without requeue it drops all."""
    put_each(queue, "ABCD")
    queue.get_many(3).nack()
    assert listing(queue) == list("ABCD")
    batch = queue.get_many(2)
    assert [message.redelivered for message in batch] == [True, True]
    batch.nack(requeue=False)
    assert listing(queue) == ["C", "D"]
    assert_counts(queue, delivering=0, message_count=2, redelivered=2)
    assert_balanced(queue)


def test_auto_ack_leaves_nothing(queue: shmbroker.Queue) -> None:
    """With auto_ack a message is gone when it is returned, and still readable."""
    queue.put_many([b"A", b"B" * 10_000, b"C"])
    first = queue.get(auto_ack=True)
    rest = queue.get_many(5, auto_ack=True)
    assert_counts(queue, message_count=0, delivering=0, acked=3)
    assert bytes(first) == b"A"
    assert rest.bodies() == [b"B" * 10_000, b"C"]


def test_get_waits_for_a_message(queue: shmbroker.Queue) -> None:
    """A get without end returns what another thread puts."""
    received: list[str] = []
    thread = threading.Thread(target=lambda: received.extend(take(queue, 1)))
    thread.start()
    await_counts(queue, interested=1)
    queue.put(b"A")
    thread.join()
    assert received == ["A"]


def test_threads_share_a_queue(queue: shmbroker.Queue) -> None:
    """Threads that put and get over one handle get each message once."""
    bodies = numbered(2000)
    received: list[list[str]] = [[], [], []]

    def get(index: int) -> None:
        while True:
            message = queue.get()
            body = text(message)
            message.ack()
            if body == "end":
                return
            received[index].append(body)

    getters = [threading.Thread(target=get, args=(index,)) for index in range(3)]
    putters = [threading.Thread(target=put_each, args=(queue, bodies[index::2])) for index in range(2)]
    for thread in (*getters, *putters):
        thread.start()
    for thread in putters:
        thread.join()
    put_each(queue, ["end"] * 3)
    for thread in getters:
        thread.join()
    assert sorted(itertools.chain(*received)) == bodies
    assert_counts(queue, message_count=0, acked=2003)


# ---- put, reserve, and full queues ----


def test_put_many_takes_any_iterable(queue: shmbroker.Queue) -> None:
    """put_many takes a generator and returns how many it put; none is none."""

    def bodies() -> Iterator[bytes]:
        yield b"A"
        yield b"B"

    assert queue.put_many(bodies()) == 2
    assert queue.put_many([]) == 0
    assert take(queue, 2) == ["A", "B"]


def test_a_large_batch_keeps_its_order_and_is_settled_but_for_what_was_settled_already(queue: shmbroker.Queue) -> None:
    """More than one step of the core on the way in, and more than is settled with the GIL on the way out."""
    bodies = [b"%04d" % number * 256 for number in range(1500)]
    assert queue.put_many(bodies) == 1500
    taken: list[shmbroker.MessageBatch] = []
    while sum(map(len, taken)) < 1500:
        taken.append(queue.get_many(1500 - sum(map(len, taken))))
    assert [body for batch in taken for body in batch.bodies()] == bodies
    taken[0][3].nack()
    for batch in taken:
        batch.ack()
    assert_counts(queue, ready=1, delivering=0, acked=1499)
    assert bytes(queue.get(auto_ack=True)) == bodies[3]
    assert queue.put_many([b"a"] * 1500) == 1500
    small = queue.get_many(1500)
    assert len(small) == 1500
    small.ack()
    assert_counts(queue, ready=0, delivering=0, acked=3000)


def test_put_many_of_very_many(queue: shmbroker.Queue) -> None:
    """Thousands of bodies in one call keep their order."""
    bodies = numbered(10_000)
    assert queue.put_many([body.encode() for body in bodies]) == 10_000
    received: list[str] = []
    while len(received) < 10_000:
        batch = queue.get_many(1000)
        received += [body.decode() for body in batch.bodies()]
        batch.ack()
    assert received == bodies


def test_reserve_publishes_what_was_written(queue: shmbroker.Queue) -> None:
    """The view of reserve is the body; it is published when the block ends."""
    with queue.reserve(5) as view:
        assert len(view) == 5
        assert not view.readonly
        view[:] = b"hello"
        assert_counts(queue, message_count=0)
    assert take(queue, 1) == ["hello"]


KEPT: dict[str, Callable[[memoryview], object]] = {
    "slice": lambda view: view[10:20],
    "view": memoryview,
    "buffer for pickle": pickle.PickleBuffer,
    "array": lambda view: (ctypes.c_char * len(view)).from_buffer(view),
}


def scribble(kept: object) -> None:
    """Write into whatever was made of the view."""
    memory = memoryview(kept)  # type: ignore[arg-type]
    memory.cast("B")[:] = b"!" * memory.nbytes


@pytest.mark.parametrize("size", [100, 100_000, 5_000_000])
@pytest.mark.parametrize("kept", KEPT)
def test_what_is_kept_of_reserve_does_not_write_into_messages(
    broker: shmbroker.Broker, connection: shmbroker.Connection, kept: str, size: int
) -> None:
    """Neither into the one that was published, nor into one that comes after a block that raised."""
    queue = connection.queue("q", max_length=2)
    readings = [0]
    eventually(lambda: readings.append(broker.statistics().memory_used) or readings[-1] == readings[-2])
    before = readings[-1]
    with queue.reserve(size, key="k", timeout=0) as view:
        view[:] = b"a" * size
        views = [KEPT[kept](view)]
    with contextlib.suppress(KeyError), queue.reserve(size) as view:
        views.append(KEPT[kept](view))
        raise KeyError
    del view
    queue.put(b"b" * size, timeout=0)
    with pytest.raises(Full):
        queue.put(b"c", timeout=0)
    for one in views:
        scribble(one)
    first, second = queue.get(), queue.get()
    assert (bytes(first), first.key) == (b"a" * size, "k")
    assert bytes(second) == b"b" * size
    first.ack()
    second.ack()
    assert broker.statistics().memory_used >= before + 2 * size
    assert connection.doctor() == []
    del one, views[:]
    eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)
    assert_balanced(queue)


def test_a_reservation_that_is_published_in_place_is_not_copied(queue: shmbroker.Queue) -> None:
    """What was made of the view and let go before the block ends costs nothing."""
    with queue.reserve(100_000) as view:
        array = (ctypes.c_char * len(view)).from_buffer(view)
        where = ctypes.addressof(array)
        del array
    with queue.get() as message:
        body = message.body
        assert cffi.FFI().from_buffer(body) == cffi.FFI().cast("void *", where)
        del body


def test_no_room_for_the_copy_of_a_reservation(broker_name: str) -> None:
    """That is an error at once, for the memory may be what the block itself has; the message is dropped."""
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        queue = connection.queue("q")
        before = broker.statistics().memory_used
        with pytest.raises(OutOfMemory), queue.reserve(12 << 20) as view:
            kept = view[:]
        assert_counts(queue, message_count=0, added=0)
        assert connection.doctor() == []
        del kept
        eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)


def test_a_kept_view_outlives_its_connection(broker: shmbroker.Broker) -> None:
    """Closing does not wait for it; the connection's memory goes with it."""
    before = broker.statistics()
    connection = broker.connect()
    with connection.queue("q").reserve(100_000) as view:
        kept = view[:10]
    connection.close()
    kept[:] = b"x" * 10
    assert bytes(kept) == b"x" * 10
    with broker.connect() as other:
        assert bytes(other.queue("q").get(auto_ack=True)) == bytes(100_000)
    del kept
    eventually(lambda: broker.statistics().connection_count == before.connection_count)


def test_reserve_drops_on_error(broker: shmbroker.Broker, queue: shmbroker.Queue) -> None:
    """An error inside the block drops the message and gives its memory back."""
    with queue.reserve(2**20):
        pass
    queue.get(auto_ack=True)
    before = broker.statistics().memory_used
    for _ in range(5):
        with pytest.raises(KeyError), queue.reserve(2**20):
            raise KeyError
    assert_counts(queue, added=1, message_count=0)
    eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)


def test_a_full_queue_refuses(connection: shmbroker.Connection) -> None:
    """overflow="block": Full when the time is up, whichever way it was put."""
    queue = connection.queue("q", max_length=2)
    assert queue.put_many([b"A", b"B", b"C", b"D"], timeout=0) == 2
    for put in (
        lambda: queue.put_nowait(b"C"),
        lambda: queue.put(b"C", timeout=0),
        lambda: queue.put(b"C", timeout=0.02),
        lambda: queue.put_many([b"C"], timeout=0),
    ):
        with pytest.raises(Full) as full:
            put()
        assert not isinstance(full.value, OutOfMemory)
    assert listing(queue) == ["A", "B"]
    assert_counts(queue, added=2, dropped=0)
    held = queue.get()
    queue.put(b"C", timeout=0)
    held.nack()
    assert_counts(queue, ready=3)
    with pytest.raises(Full):
        queue.put_nowait(b"D")
    assert take(queue, 3) == ["A", "B", "C"]
    assert_balanced(queue)


def test_a_full_queue_refuses_by_bytes(connection: shmbroker.Connection) -> None:
    """max_bytes bounds the ready bodies; a body that can never fit is Full at once."""
    queue = connection.queue("q", max_bytes=100)
    queue.put(b"x" * 60)
    with pytest.raises(Full):
        queue.put(b"x" * 41, timeout=0)
    queue.put(b"x" * 40, timeout=0)
    assert_counts(queue, bytes=100, ready=2)
    with pytest.raises(Full):
        queue.put(b"x" * 101, timeout=None)
    queue.purge()
    queue.put(b"x" * 100, timeout=0)
    assert_counts(queue, bytes=100, ready=1)


@pytest.mark.parametrize("room", ["get", "purge", "configure", "move", "expire"])
def test_a_blocked_put_goes_on_when_there_is_room(
    broker: shmbroker.Broker, connection: shmbroker.Connection, room: str
) -> None:
    """A put that waits for room is woken by whatever makes some."""
    queue = connection.queue("q", max_length=1)
    connection.queue("other")
    queue.put(b"A", ttl=1.0 if room == "expire" else None)
    done = threading.Event()
    with broker.connect() as second:
        producer = second.queue("q")

        def put() -> None:
            producer.put(b"B")
            done.set()

        thread = threading.Thread(target=put)
        thread.start()
        assert not done.is_set()
        if room == "get":
            queue.get()
        elif room == "purge":
            queue.purge()
        elif room == "configure":
            queue.configure(max_length=2)
        elif room == "move":
            queue.move("other")
        thread.join()
        assert listing(queue)[-1] == "B"
        assert queue.statistics().rescues == 0


def test_drop_drops_the_new_one(connection: shmbroker.Connection) -> None:
    """overflow="drop": a full queue keeps what it has; the new one is counted."""
    queue = connection.queue("q", max_length=2, overflow="drop")
    put_each(queue, "ABCD")
    assert listing(queue) == ["A", "B"]
    assert_counts(queue, dropped=2, message_count=2)
    queue.put_many([b"E"] * 3)
    assert_counts(queue, dropped=5, message_count=2)
    take(queue, 1)
    put_each(queue, "F")
    assert listing(queue) == ["B", "F"]
    assert_balanced(queue)


def test_drop_head_drops_the_oldest(connection: shmbroker.Connection) -> None:
    """overflow="drop-head": the oldest ready makes room; it counts as dropped."""
    queue = connection.queue("q", max_length=2, overflow="drop-head")
    put_each(queue, "ABCD")
    assert listing(queue) == ["C", "D"]
    assert_counts(queue, dropped=2, replaced=0, message_count=2)
    held = queue.get()
    put_each(queue, "EF")
    assert listing(queue) == ["E", "F"]
    assert_counts(queue, dropped=3, message_count=3, delivering=1)
    held.ack()
    assert_balanced(queue)


def test_drop_head_by_bytes(connection: shmbroker.Connection) -> None:
    """With max_bytes as many of the oldest go as are needed."""
    queue = connection.queue("q", max_bytes=100, overflow="drop-head")
    for size in (20, 20, 30, 30):
        queue.put(b"x" * size)
    assert_counts(queue, message_count=4, bytes=100, dropped=0)
    queue.put(b"y" * 30)
    assert_counts(queue, message_count=3, bytes=90, dropped=2)
    assert_balanced(queue)


def filled(queue: shmbroker.Queue, size: int) -> tuple[str, int]:
    """Put bodies until memory is full; return what the error said, and how many."""
    for count in range(1000):
        try:
            queue.put(bytes(size), timeout=0)
        except OutOfMemory as full:
            return str(full), count
    message = "memory never got full"
    raise AssertionError(message)


def test_out_of_memory_says_who_has_it(broker_name: str) -> None:
    """When memory is full the error names what is used, the limit, the largest queue.

    And the memory is usable again as soon as messages go.
    """
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        small, hoard = connection.queue("small"), connection.queue("hoarder")
        small.put(bytes(100_000))
        said, _ = filled(hoard, 100_000)
        assert "hoarder" in said
        assert "small" not in said
        assert f"of {32 << 20} bytes are used" in said
        kept = re.search(r"(\d+) are kept for structures, (\d+) for bodies, (\d+) are free", said)
        assert kept is not None
        assert sum(map(int, kept.groups())) == 32 << 20
        assert int(kept[2]) >= hoard.statistics().bytes >= 8 << 20
        assert int(kept[3]) == 0
        with pytest.raises(OutOfMemory):
            small.put(bytes(100_000), timeout=0.02)
        kept = hoard.statistics().message_count
        assert kept * 100_000 >= 8 * 2**20
        hoard.get().ack()
        small.put(bytes(100_000), timeout=10)
        hoard.purge()
        for _ in range(kept - 1):
            hoard.put(bytes(100_000), timeout=10)
        assert connection.doctor() == []


def test_a_put_that_waits_for_memory_goes_on(broker_name: str) -> None:
    """overflow="block" waits for memory too: it goes on when messages are acked."""
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        queue = connection.queue("q")
        _, put = filled(queue, 500_000)
        with broker.connect() as second:
            producer = second.queue("q")
            thread = threading.Thread(target=lambda: producer.put(b"z" * 500_000))
            thread.start()
            queue.get().ack()
            thread.join()
        assert_counts(queue, added=put + 1, message_count=put)


# ---- order, pausing, moving, deleting ----


def test_a_returned_message_goes_to_its_place(queue: shmbroker.Queue) -> None:
    """However late it comes back, it is delivered before what was put after it."""
    put_each(queue, "ABCD")
    held = [queue.get() for _ in range(3)]
    for index in (1, 0, 2):
        held[index].nack()
    assert listing(queue) == list("ABCD")
    assert take(queue, 4) == list("ABCD")


def test_a_paused_queue_gives_nothing(queue: shmbroker.Queue) -> None:
    """A paused queue takes messages and gives none; resume wakes who waits."""
    queue.pause()
    put_each(queue, "AB")
    assert nothing_to_get(queue)
    assert listing(queue) == ["A", "B"]
    received: list[str] = []
    thread = threading.Thread(target=lambda: received.extend(take(queue, 2)))
    thread.start()
    await_counts(queue, interested=1)
    queue.resume()
    thread.join()
    assert received == ["A", "B"]
    assert_counts(queue, rescues=0)


def test_move_keeps_order_and_counts(connection: shmbroker.Connection) -> None:
    """Moved messages go to the other's tail, oldest first; held ones stay."""
    queue, other = connection.queue("q"), connection.queue("other")
    put_each(other, "x")
    put_each(queue, "ABCDE")
    held = queue.get()
    assert queue.move("other", limit=2) == 2
    assert listing(other) == ["x", "B", "C"]
    assert listing(queue) == ["D", "E"]
    assert queue.move("other") == 2
    assert queue.move("other") == 0
    held.nack()
    assert listing(queue) == ["A"]
    assert_counts(queue, moved=4, message_count=1)
    assert_counts(other, added=5, message_count=5)
    assert_balanced(queue)
    assert_balanced(other)
    assert texts(other.get_many(5)) == ["x", "B", "C", "D", "E"]


def test_move_into_a_ring(connection: shmbroker.Connection) -> None:
    """What is moved counts for the other's limits: there the oldest goes."""
    queue, ring = connection.queue("q"), connection.queue("ring", ring_size=2)
    put_each(ring, "A")
    put_each(queue, "XYZ")
    assert queue.move("ring") == 3
    assert listing(ring) == ["Y", "Z"]
    assert_counts(ring, replaced=2, added=4)
    assert take(ring, 2) == ["Y", "Z"]


def test_move_wakes_who_waits_there(connection: shmbroker.Connection) -> None:
    """A consumer of the other queue gets what is moved to it."""
    queue, other = connection.queue("q"), connection.queue("other")
    put_each(queue, "A")
    with other.consume() as consumer:
        await_counts(other, interested=1)
        queue.move("other")
        assert text(consumer.get(timeout=60)) == "A"


def test_move_to_nowhere(queue: shmbroker.Queue) -> None:
    """A move to a queue that is not there is NotFound, and moves nothing."""
    put_each(queue, "A")
    with pytest.raises(NotFound):
        queue.move("nowhere")
    with pytest.raises(ValueError):  # noqa: PT011 (any text will do)
        queue.move("q", limit=-1)
    assert listing(queue) == ["A"]


def test_delete_says_how_many_went(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """delete() returns the number of messages that went; the queue is no more."""
    queue = connection.queue("q")
    put_each(queue, "ABC")
    assert queue.delete() == 3
    assert broker.statistics().queue_count == 0
    with pytest.raises(NotFound):
        connection.queue("q", passive=True)
    for use in (
        lambda: queue.put(b"D"),
        lambda: queue.put_many([b"D"]),
        lambda: queue.get(timeout=0),
        queue.consume,
    ):
        with pytest.raises(NotFound):
            use()
    again = connection.queue("q")
    assert len(again) == 0
    put_each(again, "E")
    assert take(again, 1) == ["E"]


def test_delete_with_conditions(connection: shmbroker.Connection) -> None:
    """if_empty and if_unused refuse with 406, and the queue is as it was."""
    queue = connection.queue("q")
    put_each(queue, "A")
    with pytest.raises(PreconditionFailed) as refusal:
        queue.delete(if_empty=True)
    assert refusal.value.code == 406
    with queue.consume(prefetch=1) as consumer:
        assert text(consumer.get(timeout=60)) == "A"
        with pytest.raises(PreconditionFailed):
            queue.delete(if_unused=True)
        put_each(queue, "B")  # what is delivered does not count
        with pytest.raises(PreconditionFailed):
            queue.delete(if_empty=True)
    await_counts(queue, consumers=0)
    assert listing(queue) == ["A", "B"]
    queue.purge()
    assert queue.delete(if_empty=True, if_unused=True) == 0


def test_delete_ends_the_waiting(connection: shmbroker.Connection) -> None:
    """Who waits in get at a queue that is deleted gets NotFound."""
    queue = connection.queue("q")
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            queue.get()
        except BaseException as error:  # noqa: BLE001 (it is what we look at)
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    await_counts(queue, interested=1)
    connection.queue("q").delete()
    thread.join()
    assert [type(error) for error in errors] == [NotFound]


def test_queues_that_come_and_go_leave_no_memory(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Queues declared and deleted by the hundred, with messages, take nothing."""

    def come_and_go(times: int) -> None:
        for number in range(times):
            queue = connection.queue(f"q{number}", ring_size=5)
            put_each(queue, "ABCDEFGH")
            queue.get().ack()
            queue.delete()

    come_and_go(100)
    before = broker.statistics().memory_used
    for _ in range(5):
        come_and_go(100)
    eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)
    assert broker.statistics().queue_count == 0


def test_delete_while_a_message_is_held(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A held message of a deleted queue stays readable, and is settled without effect.

    Meanwhile nothing is wrong; afterwards nothing is left of it.
    """
    before = broker.statistics().memory_used
    queue = connection.queue("q")
    queue.put(b"x" * 2**20)
    held = queue.get()
    queue.delete()
    becomes(lambda: broker.statistics().queue_count, 0)
    assert bytes(held) == b"x" * 2**20
    with broker.connect() as observer:
        until_clock(time.monotonic() + 1.0)
        assert observer.doctor() == []
        held.ack()
        eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)
        assert observer.doctor() == []


def test_len_is_the_number_ready(queue: shmbroker.Queue) -> None:
    """len() counts what is ready: not the delivered, not the delayed."""
    put_each(queue, "ABC")
    queue.put(b"late", delay=3600)
    queue.get()
    assert len(queue) == 2


def test_a_closed_handle(connection: shmbroker.Connection) -> None:
    """What was taken can be settled, and its consumer goes on; other uses say that it is closed. The queue stays."""
    with connection.queue("q") as queue:
        consumer = queue.consume(prefetch=1)
        put_each(queue, "ABC")
        first = consumer.get()
        second = queue.get()
    queue.close()
    uses: list[Callable[[], object]] = [
        lambda: queue.put(b"x"),
        lambda: queue.put(b"x", ttl=1),
        lambda: queue.put_many([b"x"]),
        lambda: queue.get(timeout=0),
        queue.get,
        lambda: queue.get_many(3, timeout=0),
        queue.consume,
        lambda: list(queue.browse()),
        queue.purge,
        queue.delete,
        queue.statistics,
        lambda: len(queue),
        queue.pause,
        lambda: queue.configure(ring_size=3),
        lambda: queue.reserve(3).__enter__(),
    ]
    for use in uses:
        with pytest.raises(ConnectionClosed, match="'q' is closed"):
            use()
    assert "closed" in repr(queue)
    again = connection.queue("q", passive=True)
    assert again is not queue
    assert_counts(again, ready=1, delivering=2, consumers=1)
    second.nack()
    first.ack()
    assert text(consumer.get()) == "B"
    consumer.close()
    again.close()
    connection.queue("q").delete()
    assert connection.queue_names() == []


def test_a_handle_is_closed_and_opened_many_times(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """It takes no memory, whether messages were held meanwhile or not; closing the connection returns them."""
    connection.queue("q").close()
    before = broker.statistics().memory_used
    held = []
    with broker.connect() as many:
        for _ in range(100):
            with many.queue("q") as queue:
                queue.put(b"A")
                held.append(queue.get())
                queue.put(b"B")
                queue.get(auto_ack=True)
        assert_counts(many.queue("q"), delivering=100, ready=0)
        for message in held[:50]:
            message.ack()
    queue = connection.queue("q")
    assert_counts(queue, ready=50, delivering=0, acked=150)
    queue.purge()
    eventually(lambda: broker.statistics().memory_used <= before + 64 * 1024)


def test_a_queue_says_what_it_is(queue: shmbroker.Queue) -> None:
    """The representation names the queue; the handle closes more than once."""
    assert "q" in repr(queue)
    assert queue.name == "q"
    queue.close()
    queue.close()
