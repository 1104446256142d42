# SPDX-License-Identifier: Apache-2.0
"""Bodies that are written in place: when they are published, and what becomes of views that are kept."""

from __future__ import annotations

import contextlib
import ctypes
import json
import pickle
from queue import Full
from typing import TYPE_CHECKING

import cffi
import pytest
from scenario_support.brokers import running
from scenario_support.observing import assert_balanced, assert_counts, take
from scenario_support.processes import run_python
from scenario_support.waiting import eventually

from shmbroker.exceptions import OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker


def test_reserve_publishes_what_was_written(queue: shmbroker.Queue) -> None:
    """The view of reserve is the body; it is published when the block ends."""
    with queue.reserve(5) as view:
        assert len(view) == 5
        assert not view.readonly
        view[:] = b"hello"
        assert_counts(queue, message_count=0)
    assert take(queue, 1) == ["hello"]


@pytest.mark.parametrize("size", [-1, (1 << 30) + 1, 1.5, True, "5", None])
def test_the_size_of_a_reservation(queue: shmbroker.Queue, size: object) -> None:
    """It is checked before anything is asked of the core."""
    with pytest.raises(ValueError, match="0 to 1073741824 bytes are allowed"), queue.reserve(size):  # type: ignore[arg-type]
        pass
    with queue.reserve(0) as view:
        assert len(view) == 0
    assert take(queue, 1) == [""]


def test_a_reservation_of_a_full_queue(connection: shmbroker.Connection) -> None:
    """There is no view, and no place is kept, when there is no room in time."""
    queue = connection.queue("full", max_length=1)
    queue.put(b"A")
    for timeout in (0, 0.001):
        with pytest.raises(Full, match="queue 'full' is full"), queue.reserve(5, timeout=timeout):
            pytest.fail("there is room")
    with pytest.raises(ValueError, match="timeout"), queue.reserve(5, timeout=-1):
        pass
    assert take(queue, 1) == ["A"]
    with queue.reserve(1, timeout=0) as view:
        view[:] = b"B"
    assert take(queue, 1) == ["B"]


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


# Drops a reservation together with its connection, as a program does that ends neither.
DROPPED = """
    import contextlib, gc, json, sys
    import shmbroker
    from shmbroker._core import native

    name, first = sys.argv[1:]
    gc.disable()
    connection, stack = shmbroker.connect(name, create=False), contextlib.ExitStack()
    memory = stack.enter_context(connection.queue("q").reserve(10_000))
    if first == "connection":
        native.ffi.release(connection._session.core._place)  # as the collector does
        with contextlib.suppress(shmbroker.ConnectionClosed):
            stack.close()
    dropped = [connection, stack, memory]
    dropped.append(dropped)
    del connection, stack, memory, dropped
    gc.collect()  # finalizes in the order in which they were made
    print(json.dumps(shmbroker.Broker(name).statistics().connection_count))
"""


@pytest.mark.parametrize("first", ["queue", "connection"])
def test_a_reservation_is_dropped_with_its_connection(
    broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The garbage collector may finalize the queue or the connection first: the slot and the connection go back."""
    monkeypatch.setenv("MALLOC_PERTURB_", "90")  # the C library overwrites what is freed: a use of it crashes
    before = broker.statistics().connection_count
    done = run_python(DROPPED, broker.name, first)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == before
