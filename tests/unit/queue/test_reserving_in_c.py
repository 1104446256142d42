# SPDX-License-Identifier: Apache-2.0
"""What compiled code does of a reservation, and where Python takes over."""

from __future__ import annotations

import gc
import queue as standard_queue
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of
from scenario_support.observing import listing

import shmbroker
from shmbroker import exceptions

if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST = 1 << 20  # bytes of a body that C reserves


@pytest.fixture
def calls(queue: shmbroker.Queue) -> Callable[[], int]:
    """Returns a function that counts the calls in flight."""
    return lambda: core_of(queue).connection.calls


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, LARGEST, LARGEST + 1])
def test_bodies_of_all_sizes_are_written_in_place(queue: shmbroker.Queue, calls: Callable[[], int], size: int) -> None:
    """C reserves those of up to 1 MiB, Python longer ones."""
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    with queue.reserve(size=size, timeout=0) as view:
        assert (view.nbytes, view.format, view.ndim, view.readonly) == (size, "B", 1, False)
        view[:] = body
        assert calls() == 1
    assert calls() == 0
    message = queue.get()
    assert bytes(message) == body
    message.ack()


OPTIONS: list[dict[str, Any]] = [
    {"key": "k"},
    {"priority": 7},
    {"properties": shmbroker.BasicProperties(content_type="text/plain", headers={"a": 1}, priority=3)},
    {"key": "k", "headers": {"a": 1}, "ttl": 60.0},
    {"key": "ä", "priority": 2, "properties": shmbroker.BasicProperties(app_id="a")},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_reservation_has_the_options_of_a_put(queue: shmbroker.Queue, options: dict[str, Any]) -> None:
    """The message that is written in place differs in nothing from one that is put."""
    queue.put(b"abc", **options)
    with queue.reserve(3, **options) as view:
        view[:] = b"abc"
    put, written = queue.get(), queue.get()
    for name in ("key", "priority", "properties", "headers"):
        assert getattr(written, name) == getattr(put, name)
    assert (written.expires_at is None) == (put.expires_at is None)


WRONG: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ((), {}, TypeError, r"Queue.reserve\(\) missing 1 required positional argument: 'size'"),
    ((1, 2), {}, TypeError, r"Queue.reserve\(\) takes 2 positional arguments but 3 were given"),
    ((1,), {"size": 1}, TypeError, r"Queue.reserve\(\) got multiple values for argument 'size'"),
    ((1,), {"colour": 1}, TypeError, "a put has no keyword 'colour'"),
    ((1,), {"timeout": "soon"}, ValueError, "timeout='soon'"),
    ((1,), {"key": 5}, TypeError, "key=5"),
    ((1,), {"priority": 256}, ValueError, "priority=256"),
    ((1,), {"properties": {}}, TypeError, "BasicProperties are needed"),
    ((1.5,), {}, ValueError, "size=1.5"),
]


@pytest.mark.parametrize(("arguments", "named", "error", "text"), WRONG)
def test_wrong_arguments_of_a_reservation(
    queue: shmbroker.Queue, arguments: tuple[Any, ...], named: dict[str, Any], error: type[Exception], text: str
) -> None:
    """They are named, and nothing is reserved."""
    with pytest.raises(error, match=text), queue.reserve(*arguments, **named):
        pytest.fail("it was reserved")
    assert queue.statistics().message_count == 0


def test_a_reservation_is_entered_once(queue: shmbroker.Queue, calls: Callable[[], int]) -> None:
    """A second block would write into a message that others read."""
    reservation = queue.reserve(1)
    with pytest.raises(RuntimeError, match="has not begun"):
        reservation.__exit__(None, None, None)
    with reservation as view:
        view[:] = b"A"
        with pytest.raises(RuntimeError, match="only once"):
            reservation.__enter__()
    with pytest.raises(RuntimeError, match="only once"):
        reservation.__enter__()
    with pytest.raises(RuntimeError, match="has not begun"):
        reservation.__exit__(None, None, None)
    assert (listing(queue), calls()) == (["A"], 0)


def test_a_block_that_raises_drops_the_body(queue: shmbroker.Queue, calls: Callable[[], int]) -> None:
    """The exception passes; nothing is published, and nothing stays reserved."""
    with pytest.raises(ZeroDivisionError), queue.reserve(10_000) as view:  # noqa: PT012 - the block raises
        view[:1] = b"A"
        raise ZeroDivisionError
    assert (len(queue), calls()) == (0, 0)


def test_a_kept_slice_gets_a_copy_published(queue: shmbroker.Queue, calls: Callable[[], int]) -> None:
    """The call in flight ends with the slice, which writes into no message."""
    with queue.reserve(3) as view:
        view[:] = b"ABC"
        kept = view[:]
    assert calls() == 1
    kept[:] = b"XYZ"
    assert listing(queue) == ["ABC"]
    del kept
    assert calls() == 0


def test_a_queue_that_is_deleted_in_the_block(connection: shmbroker.Connection) -> None:
    """The end of the block says so, and gives the memory back."""
    queue = connection.queue("gone")
    with pytest.raises(exceptions.NotFound), queue.reserve(10_000):
        queue.delete()
    assert core_of(queue).connection.calls == 0


def test_a_connection_that_is_closed_in_the_block(broker: shmbroker.Broker) -> None:
    """The end of the block says so; the memory stays writable until then."""
    connection = shmbroker.connect(broker.name)
    queue = connection.queue("q")
    with pytest.raises(exceptions.ConnectionClosed), queue.reserve(10_000) as view:  # noqa: PT012 - its end raises
        connection.close()
        view[:] = bytes(10_000)
    assert core_of(queue).connection.calls == 0
    with pytest.raises(exceptions.ConnectionClosed), queue.reserve(1):
        pytest.fail("it was reserved")


@pytest.mark.parametrize("entered", [False, True])
def test_a_reservation_that_is_dropped_ends_without_a_block(
    queue: shmbroker.Queue, calls: Callable[[], int], *, entered: bool
) -> None:
    """As where a signal's handler raised before the block began; the collector finds it in a cycle, too."""
    for in_cycle in (False, True):
        reservation = queue.reserve(10_000)
        kept: list[object] = [reservation]
        if in_cycle:
            kept.append(kept)
        if entered:
            reservation.__enter__()
            assert calls() == 1
        del reservation, kept
        gc.collect()
        assert (len(queue), calls()) == (0, 0)


def test_a_reservation_waits_for_room(connection: shmbroker.Connection) -> None:
    """Python waits, and its block writes as any other."""
    queue = connection.queue("full", max_length=1)
    queue.put(b"A")
    with pytest.raises(standard_queue.Full), queue.reserve(1, timeout=0.01):
        pytest.fail("there is room")

    def write() -> None:
        with queue.reserve(1) as view:
            view[:] = b"B"

    thread = threading.Thread(target=write)
    thread.start()
    queue.get(auto_ack=True)
    thread.join()
    assert listing(queue) == ["B"]
